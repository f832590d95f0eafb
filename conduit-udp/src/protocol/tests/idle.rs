//! Links that are made idle and reopened.

use std::cmp::Reverse;

use super::network::{Faults, Network};
use super::reference::TestSeal;
use crate::protocol::{Config, Counters, Dropped, Endpoint, Failure, Received};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn network(size: u32) -> Network {
    Network::new(size, 1, &Config::default(), Faults::default())
}

fn is_idle_link(network: &Network, from: u32, to: u32) -> bool {
    network.endpoints[from as usize]
        .link(to)
        .is_some_and(|link| link.is_idle)
}

/// Returns a network in which both sides have exchanged something on each channel and made their
/// links idle.
fn idle_network() -> Network {
    let mut network = network(2);
    for channel in [0, 1] {
        assert!(network.send(0, 1, channel, 5000 * usize::from(channel) + 20));
        assert!(network.send(1, 0, channel, 5000 * usize::from(channel) + 20));
    }
    network.settle(SECOND);
    network.run(SECOND * 3 / 2);
    assert!(is_idle_link(&network, 0, 1) && is_idle_link(&network, 1, 0));
    network
}

fn resent(counters: &Counters) -> u64 {
    counters.resent_packet_threshold + counters.resent_time_threshold + counters.resent_pto
}

#[test]
fn what_is_sent_to_an_idle_link_arrives_at_once() {
    for (from, channel) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut network = idle_network();
        let before = [0, 1].map(|rank: usize| network.endpoints[rank].counters());
        let packets = network.packets;
        assert!(network.send(from, 1 - from, channel, 3000 * usize::from(channel) + 5));
        assert!(!is_idle_link(&network, from, 1 - from));
        network.settle(MILLISECOND);
        let after = [0, 1].map(|rank: usize| network.endpoints[rank].counters());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.probes, after.probes, "the path is known");
            assert_eq!((resent(after), after.duplicates), (0, 0));
        }
        // A fragment of the data channel has three chunks.
        assert!(network.packets - packets <= 2 + 3 * u64::from(channel));
        network.run(SECOND * 3 / 2);
        assert!(is_idle_link(&network, 0, 1) && is_idle_link(&network, 1, 0));
        assert_eq!(network.endpoints[0].counters().made_idle, 2);
    }
}

#[test]
fn an_idle_link_keeps_sixty_four_bytes_and_what_is_known() {
    let network = idle_network();
    let link = network.endpoints[0].link(1).unwrap();
    assert!(link.is_mtu_validated && link.has_answered && link.memory == 64);
    // The network takes 10 µs each way.
    assert!((20_000..40_000).contains(&link.smoothed_rtt), "{link:?}");
}

#[test]
fn links_in_use_are_not_idle() {
    let mut network = network(2);
    for _ in 0..100 {
        assert!(network.send(0, 1, 0, 20));
        network.run(SECOND / 10);
    }
    assert_eq!(network.endpoints[0].counters().made_idle, 0);
    assert_eq!(network.endpoints[1].counters().made_idle, 0);
}

#[test]
fn without_an_idle_time_none_is_idle() {
    let config = Config {
        idle_time: 0,
        ..Config::default()
    };
    let mut network = Network::new(2, 1, &config, Faults::default());
    assert!(network.send(0, 1, 0, 20));
    network.run(30 * SECOND);
    assert!(!is_idle_link(&network, 0, 1) && !is_idle_link(&network, 1, 0));
}

/// The last acknowledgement is lost, and the receiver's link is idle when the segment arrives
/// again.
#[test]
fn what_comes_again_is_acknowledged_and_not_delivered() {
    for channel in [0, 1] {
        let mut network = idle_network();
        let config = Config {
            idle_time: 100_000,
            rank: 1,
            size: 2,
            ..Config::default()
        };
        // The receiver's link is idle long before the sender retransmits.
        network.endpoints[1] = Endpoint::new(config);
        network.endpoints[0] = Endpoint::new(Config {
            rank: 0,
            size: 2,
            ..Config::default()
        });
        assert!(network.send(0, 1, 1, 20));
        network.settle(SECOND);
        network.cut = vec![(1, 0)];
        assert!(network.send(0, 1, channel, 20));
        network.run(500_000);
        assert!(is_idle_link(&network, 1, 0) && !is_idle_link(&network, 0, 1));
        let received = network.apps[1].received.clone();
        network.cut.clear();
        network.settle(100 * MILLISECOND);
        assert_eq!(network.apps[1].received, received);
        assert_eq!(network.endpoints[1].counters().duplicates, 1);
        assert_eq!(resent(&network.endpoints[0].counters()), 1);
    }
}

/// After a link was idle, it accepts neither packets that it has already accepted nor older ones.
#[test]
fn old_packets_are_refused_and_open_nothing() {
    let mut network = network(2);
    let mut old = Vec::new();
    for _ in 0..50 {
        assert!(network.send(0, 1, 0, 20));
        network.transmit();
        old.extend(network.under_way.iter().cloned());
        network.settle(SECOND);
    }
    network.run(SECOND * 3 / 2);
    let (to_one, to_zero): (Vec<_>, Vec<_>) =
        old.into_iter().partition(|Reverse(under)| under.2 == 1);
    assert!(to_one.len() >= 50);
    let received = network.apps[1].received.clone();
    for Reverse((_, _, to, packet)) in to_one.into_iter().chain(to_zero) {
        assert!(is_idle_link(&network, to, 1 - to));
        let to = to as usize;
        let got = network.endpoints[to].receive(
            network.now,
            &mut packet.clone(),
            &mut TestSeal(to as u32),
            &mut network.apps[to],
        );
        assert_eq!(got, Received::Dropped(Dropped::Replayed));
        assert!(is_idle_link(&network, to as u32, 1 - to as u32));
    }
    assert_eq!(network.apps[1].received, received);
}

/// The link of one side is made idle at once, and that of the other side is never made idle.
#[test]
fn the_sides_may_park_at_different_times() {
    for often in [0, 1] {
        let mut network = network(2);
        network.endpoints[often] = Endpoint::new(Config {
            rank: often as u32,
            size: 2,
            idle_time: 1,
            ..Config::default()
        });
        network.endpoints[1 - often] = Endpoint::new(Config {
            rank: 1 - often as u32,
            size: 2,
            idle_time: 0,
            ..Config::default()
        });
        for round in 0..40 {
            let (from, channel) = (round & 1, (round >> 1 & 1) as u8);
            assert!(network.send(from, 1 - from, channel, 3000 * usize::from(channel) + 20));
            network.settle(100 * MILLISECOND);
            network.run(10 * MILLISECOND);
            assert!(is_idle_link(&network, often as u32, 1 - often as u32));
        }
        assert!(network.endpoints[often].counters().made_idle >= 40);
        assert_eq!(network.endpoints[1 - often].counters().made_idle, 0);
    }
}

#[test]
fn the_death_of_an_idle_peer_is_noticed() {
    let mut network = idle_network();
    network.run(60 * SECOND);
    assert!(is_idle_link(&network, 0, 1) && is_idle_link(&network, 1, 0));
    network.cut = vec![(0, 1), (1, 0)];
    network.run(9 * SECOND);
    assert!(network.apps.iter().all(|app| app.failures.is_empty()));
    network.run(5 * SECOND);
    for (app, peer) in network.apps.iter().zip([1, 0]) {
        assert!(
            matches!(app.failures[..], [(failed, Failure::Silent(ms))] if failed == peer && (9_900..13_000).contains(&ms)),
            "{:?}",
            app.failures
        );
    }
    assert_eq!(network.endpoints[0].timeout(), None);
}

/// For each idle link, only one side sends a probe per half of the keep-alive time, and the other
/// side answers.
#[test]
fn idle_links_are_quiet() {
    let mut network = network(8);
    for from in 0..8 {
        for to in (0..8).filter(|&to| to != from) {
            assert!(network.send(from, to, 0, 20));
        }
    }
    network.settle(SECOND);
    network.run(2 * SECOND);
    let packets = network.packets;
    network.run(100 * SECOND);
    // There are 28 pairs, and the run lasts for 80 halves of the keep-alive time.
    let each = (network.packets - packets) / 28;
    assert!((40..=170).contains(&each), "{each} packets per pair");
    for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))) {
        assert!(from == to || is_idle_link(&network, from, to));
    }
}

/// If too many links are open, quiet ones are made idle early.
#[test]
fn many_open_links_are_made_idle_sooner() {
    let config = Config {
        open_links: 10,
        idle_time: 1000 * SECOND,
        ..Config::default()
    };
    let mut network = Network::new(200, 1, &config, Faults::default());
    for to in 1..200 {
        assert!(network.send(0, to, 0, 20));
        network.settle(SECOND);
        network.run(2 * MILLISECOND);
        let open = (1..200)
            .filter_map(|peer| network.endpoints[0].link(peer))
            .filter(|link| !link.is_idle)
            .count();
        assert!(open <= 12, "{open} are open after {to}");
    }
    let memory = network.endpoints[0].memory();
    assert!(memory < 200 * 4 + 190 * 72 + 14 * 2100 + 4000, "{memory}");
    for to in (1..200).rev() {
        assert!(network.send(to, 0, 0, 20));
        assert!(network.send(0, to, 1, 2000));
        network.settle(SECOND);
    }
}

/// After all links were open at once, the tables shrink to the size that they had before.
#[test]
fn the_tables_shrink_again() {
    let mut network = network(300);
    for to in 1..300 {
        assert!(network.send(0, to, 0, 20));
    }
    network.settle(SECOND);
    assert!(network.endpoints[0].memory() > 299 * 1040);
    network.run(3 * SECOND / 2);
    let memory = network.endpoints[0].memory();
    let empty = network.endpoints[0].memory()
        - Endpoint::new(network.endpoints[0].config().clone()).memory();
    assert!(
        memory < 300 * (4 + 68) + 4500,
        "{memory}, {empty} more than for a new endpoint"
    );
    // All links still work.
    for to in 1..300 {
        assert!(network.send(to, 0, 0, 20));
        assert!(network.send(0, to, 0, 20));
    }
    network.settle(SECOND);
}
