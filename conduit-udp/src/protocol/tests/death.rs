//! Peers that are given up, and the reasons.

use super::network::{Faults, Network};
use crate::protocol::{Config, Failure, Fragment, Payload, Refused};

const SECOND: u64 = 1_000_000_000;

fn network(faults: Faults) -> Network {
    Network::new(2, 1, &Config::default(), faults)
}

#[test]
fn a_peer_that_never_answers_is_unreachable() {
    for channel in [0, 1] {
        let mut network = network(Faults::default());
        network.cut = vec![(0, 1)];
        assert!(network.send(0, 1, channel, 100));
        network.run(9 * SECOND);
        assert!(network.apps[0].failures.is_empty());
        network.run(3 * SECOND);
        assert_eq!(network.apps[0].failures, [(1, Failure::Unreachable)]);
        let fragment = Fragment {
            header: &[],
            payload: Payload::Copied(&[]),
        };
        let now = network.now;
        assert_eq!(
            network.endpoints[0].send(now, 1, &fragment),
            Err(Refused::Dead)
        );
        assert_eq!(network.endpoints[0].link(1), None);
        let empty = network.endpoints[1].memory();
        assert!(
            network.endpoints[0].memory() < empty + 600,
            "all memory but the links' entries is freed"
        );
        assert!(network.endpoints[0].has_failed(1));
        assert_eq!(network.endpoints[0].timeout(), None);
    }
}

#[test]
fn a_path_for_small_packets_only_is_told_apart() {
    let mut network = network(Faults {
        largest: 1200,
        ..Faults::default()
    });
    assert!(network.send(0, 1, 0, 700));
    assert!(network.send(0, 1, 1, 100_000));
    network.run(12 * SECOND);
    assert_eq!(network.apps[1].received[&(0, 0)], 1);
    assert_eq!(network.apps[0].failures, [(1, Failure::Mtu(1472))]);
}

#[test]
fn a_path_that_shrinks_is_told_apart() {
    let mut network = network(Faults::default());
    assert!(network.send(0, 1, 1, 100_000));
    network.settle(SECOND);
    network.faults.largest = 1200;
    assert!(network.send(0, 1, 1, 100_000));
    network.run(25 * SECOND);
    assert_eq!(network.apps[0].failures, [(1, Failure::Mtu(1472))]);
}

#[test]
fn a_peer_that_falls_silent_has_failed() {
    for from in [0, 1] {
        let mut network = network(Faults::default());
        assert!(network.send(0, 1, 1, 100_000));
        assert!(network.send(1, 0, 0, 100));
        network.settle(SECOND);
        network.cut = vec![(0, 1), (1, 0)];
        assert!(network.send(from, 1 - from, 1, 100));
        network.run(14 * SECOND);
        // The rank that has nothing to send also notices the failure.
        assert!(
            matches!(network.apps[0].failures[..], [(1, Failure::Silent(ms))] if (9_900..13_000).contains(&ms))
        );
        assert!(
            matches!(network.apps[1].failures[..], [(0, Failure::Silent(ms))] if (9_900..13_000).contains(&ms))
        );
    }
}

#[test]
fn a_peer_that_hears_nothing_has_failed_though_it_sends() {
    let mut network = network(Faults::default());
    assert!(network.send(0, 1, 1, 100_000));
    network.settle(SECOND);
    network.cut = vec![(0, 1)];
    for _ in 0..11 {
        network.send(0, 1, 0, 10);
        network.send(1, 0, 0, 10);
        network.run(SECOND);
    }
    assert!(matches!(
        network.apps[0].failures[..],
        [(1, Failure::Silent(_))]
    ));
    // Packets from the peer have arrived, but it has never answered.
    assert_eq!(network.apps[1].failures, [(0, Failure::Unreachable)]);
}

#[test]
fn a_short_outage_is_survived() {
    let mut network = network(Faults {
        rate: 1000,
        ..Faults::default()
    });
    assert!(network.send(0, 1, 1, 5_000_000));
    network.run(SECOND / 1000);
    network.cut = vec![(0, 1), (1, 0)];
    network.run(8 * SECOND);
    assert!(!network.is_settled());
    network.cut.clear();
    network.settle(SECOND);
}

#[test]
fn what_is_kept_of_a_failed_peer_makes_room_for_others() {
    let config = Config {
        early: 5_000,
        ..Config::default()
    };
    let mut network = Network::new(3, 1, &config, Faults::default());
    network.apps[0].refuse = 1000;
    for from in [1, 2] {
        for _ in 0..6 {
            assert!(network.send(from, 0, 0, 700));
            network.run(SECOND / 100);
        }
        let link = network.endpoints[from as usize].link(0).unwrap();
        assert_eq!(link.outstanding, [0, 0], "rank {from}");
        network.cut = vec![(from, 0), (0, from)];
        network.run(20 * SECOND);
        assert!(network.endpoints[0].has_failed(from));
    }
}

#[test]
fn a_rank_that_was_stopped_gives_its_peers_time() {
    let mut network = network(Faults::default());
    assert!(network.send(0, 1, 1, 100_000));
    network.settle(SECOND);
    assert!(network.send(0, 1, 1, 100_000));
    network.transmit();
    network.now += 1000 * SECOND;
    // Overdue work is done once, not repeated until a peer answers.
    let before = network.now;
    network.cut = vec![(0, 1), (1, 0)];
    let mut steps = 0;
    while network.now < before + 5 * SECOND {
        network.step(before + 5 * SECOND);
        steps += 1;
    }
    assert!(steps < 500, "{steps}");
    network.cut.clear();
    network.settle(2 * SECOND);
    assert!(network.apps.iter().all(|app| app.failures.is_empty()));
}
