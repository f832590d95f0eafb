//! Everything arrives once and in order.

use super::network::{Faults, Network};
use crate::protocol::Config;

const SECOND: u64 = 1_000_000_000;

#[test]
fn tiny_fragments_go_at_once() {
    let mut network = Network::new(2, 1, &Config::default(), Faults::default());
    assert!(network.send(0, 1, 0, 20));
    network.transmit();
    assert_eq!(network.packets, 1);
    network.settle(SECOND);
    assert_eq!(network.apps[1].bytes_received, 20);
    // A reply carries the acknowledgement.
    let counters = network.endpoints[1].counters();
    assert_eq!((counters.acks_delayed, counters.acks_immediate), (1, 0));
}

#[test]
fn an_answer_brings_the_acknowledgement() {
    let mut network = Network::new(
        2,
        1,
        &Config {
            ack_delay: SECOND / 10,
            ..Config::default()
        },
        Faults::default(),
    );
    for round in 0..50u32 {
        for (from, to) in [(0, 1), (1, 0)] {
            assert!(network.send(from, to, 0, 20));
            while network.apps[to as usize].received.get(&(from, 0)) != Some(&(round + 1)) {
                assert!(network.step(SECOND));
            }
        }
    }
    for endpoint in &network.endpoints {
        let counters = endpoint.counters();
        assert_eq!((counters.acks_delayed, counters.acks_immediate), (0, 0));
        assert_eq!(
            (counters.packets_sent, counters.segments_received),
            (50, 50)
        );
    }
}

#[test]
fn tiny_fragments_that_wait_share_packets() {
    let mut network = Network::new(2, 1, &Config::default(), Faults::default());
    for _ in 0..1000 {
        assert!(network.send(0, 1, 0, 20));
    }
    network.settle(SECOND);
    assert_eq!(network.apps[1].received[&(0, 0)], 1000);
    assert!(network.packets < 80, "{}", network.packets);
}

#[test]
fn a_large_fragment_is_placed() {
    let mut network = Network::new(2, 1, &Config::default(), Faults::default());
    for length in [0, 1, 769, 1400, 1420, 1430, 1440, 3000, 1 << 20] {
        assert!(network.send(0, 1, 1, length));
    }
    network.settle(SECOND);
    assert_eq!(network.apps[1].received[&(0, 1)], 9);
    let counters = network.endpoints[0].counters();
    assert_eq!(
        (
            counters.resent_packet_threshold,
            counters.resent_time_threshold,
            counters.resent_pto
        ),
        (0, 0, 0)
    );
    // Large fragments travel in super-packets.
    assert!(
        network.transmits * 8 < network.packets,
        "{} {}",
        network.transmits,
        network.packets
    );
}

#[test]
fn a_rank_may_send_to_itself() {
    let mut network = Network::new(1, 1, &Config::default(), Faults::default());
    for length in [5, 700] {
        assert!(network.send(0, 0, 0, length));
        assert!(network.send(0, 0, 1, length * 100));
    }
    network.settle(SECOND);
}

#[test]
fn sequence_numbers_wrap() {
    let config = Config {
        first_sequence: (1 << 24) - 100,
        ..Config::default()
    };
    let mut network = Network::new(
        2,
        3,
        &config,
        Faults {
            lose: 20,
            jitter: 20_000,
            ..Faults::default()
        },
    );
    assert!(network.send(0, 1, 1, 1 << 20));
    for _ in 0..300 {
        assert!(network.send(1, 0, 0, 700));
    }
    network.settle(60 * SECOND);
}

#[test]
fn nothing_is_lost_on_a_bad_path() {
    let faults = Faults {
        lose: 300,
        double: 100,
        change: 50,
        jitter: 100_000,
        ..Faults::default()
    };
    let mut network = Network::new(2, 3, &Config::default(), faults);
    for _ in 0..20 {
        assert!(network.send(0, 1, 1, 40_000));
        assert!(network.send(1, 0, 1, 1_000));
        assert!(network.send(0, 1, 0, 100));
    }
    network.settle(100 * SECOND);
    let counters = network.endpoints[1].counters();
    assert!(counters.bad_tag > 0 && counters.duplicates > 0 && counters.replayed > 0);
}

#[test]
fn an_upper_layer_without_room_gets_everything_later() {
    let mut network = Network::new(
        2,
        3,
        &Config::default(),
        Faults {
            lose: 20,
            ..Faults::default()
        },
    );
    network.apps[1].refuse = 500;
    for _ in 0..50 {
        assert!(network.send(0, 1, 1, 4_000));
        assert!(network.send(0, 1, 1, 100));
        assert!(network.send(0, 1, 0, 100));
    }
    network.settle(10 * SECOND);
}

#[test]
fn a_sender_waits_until_there_is_room() {
    let mut network = Network::new(2, 3, &Config::default(), Faults::default());
    network.apps[1].room = 0;
    for _ in 0..10 {
        assert!(network.send(0, 1, 1, 1_000_000));
    }
    network.run(SECOND);
    let received = network.apps[1].bytes_received;
    assert!(received < 200_000, "{received}");
    network.run(60 * SECOND);
    assert_eq!(network.apps[1].bytes_received, received);
    assert!(network.apps[0].failures.is_empty());
    network.apps[1].room = 1 << 20;
    // The peer is notified at once, without having to probe.
    network.settle(SECOND / 20);
}

#[test]
fn a_bundle_that_goes_again_with_more_acknowledgements_is_no_larger() {
    // Nothing has arrived when the first bundles are made. The network checks the size of every
    // packet.
    let faults = Faults {
        lose: 400,
        ..Faults::default()
    };
    // Packets are full-sized from the start.
    let config = Config {
        packet: 1024,
        ..Config::default()
    };
    let mut network = Network::new(2, 8, &config, faults);
    for _ in 0..3000 {
        assert!(network.send(0, 1, 0, 7));
    }
    network.run(60_000_000);
    assert!(network.send(1, 0, 0, 10));
    assert!(network.send(1, 0, 1, 10));
    network.settle(60 * SECOND);
}

#[test]
fn a_sender_hears_of_room_though_the_path_loses() {
    for seed in 0..20 {
        let faults = Faults {
            lose: 300,
            ..Faults::default()
        };
        let mut network = Network::new(2, seed, &Config::default(), faults);
        network.apps[1].room = 0;
        for _ in 0..3 {
            assert!(network.send(0, 1, 1, 100_000));
        }
        network.run(3 * SECOND);
        network.apps[1].room = 1 << 20;
        network.settle(5 * SECOND);
    }
}

#[test]
fn a_gap_and_its_end_are_told_at_once() {
    let config = Config {
        ack_delay: SECOND / 2,
        ..Config::default()
    };
    let mut network = Network::new(2, 3, &config, Faults::default());
    assert!(network.send(0, 1, 0, 10));
    network.settle(2 * SECOND);
    let before = network.endpoints[1].counters().acks_immediate;
    network.cut = vec![(0, 1)];
    assert!(network.send(0, 1, 0, 10));
    network.transmit();
    network.cut.clear();
    assert!(network.send(0, 1, 0, 10));
    while network.endpoints[1].counters().acks_immediate == before {
        assert!(network.step(10 * SECOND));
    }
    assert_eq!(network.apps[1].received[&(0, 0)], 1);
    // The lost segment is sent again.
    while network.apps[1].received[&(0, 0)] < 3 {
        assert!(network.step(10 * SECOND));
    }
    let begin = network.now;
    network.settle(SECOND / 10);
    assert!(network.now - begin < SECOND / 10);
    assert_eq!(network.endpoints[1].counters().acks_immediate, before + 2);
}

#[test]
fn an_idle_link_gives_its_memory_back_and_lives() {
    let mut network = Network::new(
        2,
        3,
        &Config::default(),
        Faults {
            lose: 10,
            ..Faults::default()
        },
    );
    let before = network.endpoints[0].memory();
    for _ in 0..10 {
        assert!(network.send(0, 1, 1, 1_000_000));
        assert!(network.send(1, 0, 0, 500));
    }
    network.settle(10 * SECOND);
    network.run(100 * SECOND);
    assert!(network.apps.iter().all(|app| app.failures.is_empty()));
    let status = network.endpoints[0].link(1).unwrap();
    println!(
        "an idle link takes {} bytes, {} in total, {before} before",
        status.memory,
        network.endpoints[0].memory()
    );
    assert!(status.memory < 1400);
    assert!(network.send(0, 1, 1, 1_000_000));
    network.settle(10 * SECOND);
}

/// While tiny fragments are exchanged continuously, a lost segment of the data channel waits no
/// longer than its own time-out.
#[test]
fn a_lost_segment_does_not_wait_for_the_other_channel() {
    for lost in [0, 1] {
        let mut network = Network::new(2, 1, &Config::default(), Faults::default());
        assert!(network.send(0, 1, 1, 2000));
        network.settle(SECOND);
        network.cut = vec![(0, 1)];
        assert!(network.send(0, 1, lost, if lost == 1 { 1000 } else { 20 }));
        network.transmit();
        network.cut.clear();
        let sent = network.now;
        let wanted = network.apps[0].sent[&(1, lost)];
        while network.apps[1]
            .received
            .get(&(0, lost))
            .copied()
            .unwrap_or(0)
            < wanted
        {
            assert!(
                network.now < sent + SECOND / 200,
                "channel {lost} waited for 5 ms"
            );
            assert!(network.send(0, 1, 1 - lost, if lost == 1 { 20 } else { 1000 }));
            network.run(SECOND / 10_000);
        }
        network.settle(SECOND);
    }
}

/// Abandoning works at any time and with any losses. Tiny fragments continue, and so does the
/// peer's traffic.
#[test]
fn what_is_given_up_is_not_asked_for_again() {
    let faults = Faults {
        lose: 100,
        jitter: 20_000,
        ..Faults::default()
    };
    for seed in 1..60 {
        let mut network = Network::new(2, seed, &Config::default(), faults);
        for length in [1 << 20, 100_000, 10] {
            assert!(network.send(0, 1, 1, length));
            assert!(network.send(1, 0, 1, length));
        }
        for _ in 0..seed * seed {
            network.step(SECOND);
        }
        network.endpoints[0].abandon(1);
        // The handler panics if it is asked for these bytes again, or is notified that they have
        // arrived.
        network.apps[0].unsent.clear();
        for _ in 0..100 {
            assert!(network.send(0, 1, 0, 20) && network.send(1, 0, 0, 20));
        }
        network.run(2 * SECOND);
        assert_eq!(network.apps[1].received[&(0, 0)], 100);
        assert_eq!(network.apps[0].received[&(1, 0)], 100);
        assert_eq!(network.apps[0].received[&(1, 1)], 3);
        assert!(network.apps.iter().all(|app| app.failures.is_empty()));
        assert_eq!(network.endpoints[0].outstanding(1), 0);
        assert!(!network.send(0, 1, 1, 10), "refused");
    }
}
