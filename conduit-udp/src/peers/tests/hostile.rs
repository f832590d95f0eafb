//! Datagrams that anybody may have forged, altered or replayed.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::app::{COPIED, READ};
use super::world::{Datagram, MS, World, address, own, source};
use crate::peers::NodesOwn;
use crate::protocol::{Failure, Nanos, Refused};
use crate::socket::{DrivenMachine, corrupt};

/// The first byte of an init.
const INIT: u8 = 0xa1;
/// The first byte of a confirm.
const CONFIRM: u8 = 0xa3;
/// The first byte of a hint.
const UNKNOWN: u8 = 0xa6;

/// Returns two processes that have communicated, and all datagrams that they have sent.
fn acquainted() -> (World, Vec<Datagram>) {
    let mut world = World::new(3, 1);
    world.seen = Some(Vec::new());
    for (from, to, channel, length) in [
        (0, 1, COPIED, 100),
        (1, 0, COPIED, 200),
        (0, 1, READ, 20_000),
    ] {
        world.send_one(from, to, channel, length);
    }
    world.run(500 * MS);
    world.check_rest();
    let seen = world.seen.take().unwrap();
    assert!(world.session(0, 1).is_some() && seen.len() > 10);
    (world, seen)
}

fn repeat(world: &mut World, seen: &[Datagram]) {
    for (_, _, from, to, bytes) in seen {
        world.deliver(*from, *to, bytes.clone());
        world.transmit();
    }
    world.run(100 * MS);
}

fn failures(world: &mut World, place: usize) -> Vec<Failure> {
    let failures = &world.process(place).app.failures;
    failures.iter().map(|(_, failure)| *failure).collect()
}

/// Returns the messages that a process has to send, all of which must go to one address.
fn answers(world: &mut World, place: usize, to: SocketAddr) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    while let Some((address, message)) = world.process(place).node.next_message() {
        assert_eq!(address, to);
        answers.push(message.bytes().to_vec());
    }
    answers
}

#[test]
fn nothing_that_is_repeated_makes_or_ends_a_session() {
    let (mut world, seen) = acquainted();
    let session = world.session(0, 1);
    let arrived = world.process(1).app.arrived.clone();
    // During a session.
    repeat(&mut world, &seen);
    assert_eq!([world.session(0, 1), world.session(1, 0)], [session; 2]);
    assert_eq!(world.process(1).app.arrived, arrived);
    assert_eq!(failures(&mut world, 0), []);
    assert_eq!(failures(&mut world, 1), []);
    // Without a session, while both know each other.
    world.process(0).node.leave();
    world.transmit();
    world.run(100 * MS);
    assert_eq!(failures(&mut world, 1), [Failure::Left]);
    repeat(&mut world, &seen);
    assert_eq!(world.session(1, 0), None);
    // After the peer was forgotten.
    world.close(1, 0);
    let memory = world.process(1).node.memory();
    repeat(&mut world, &seen);
    assert_eq!(world.session(1, 0), None);
    assert_eq!(world.process(1).node.handshakes.numbers().count(), 0);
    assert!(world.process(1).node.memory() <= memory);
    // To restarted processes.
    world.start(0);
    world.start(1);
    repeat(&mut world, &seen);
    assert_eq!([world.session(0, 1), world.session(1, 0)], [None; 2]);
    assert!(world.process(1).app.joined.is_empty());
}

/// Returns a confirm from the first to the second process that has not arrived.
fn confirm(world: &mut World) -> Vec<u8> {
    assert_eq!(world.send(0, 1, COPIED, 1), Err(Refused::Full));
    loop {
        world.transmit();
        let next = world.under_way.pop().expect("a message").0;
        if next.4[0] == CONFIRM {
            break next.4;
        }
        world.now = next.0;
        world.deliver(next.2, next.3, next.4);
    }
}

/// Each checked confirm would cost a scalar multiplication of 60 µs.
#[test]
fn a_confirm_with_other_codes_is_looked_at_a_thousand_times_a_second() {
    let mut world = World::new(3, 1);
    let confirm = confirm(&mut world);
    world.kill(0);
    let forged = 50_000;
    for number in 0..forged {
        let mut changed = confirm.clone();
        *changed.last_mut().unwrap() ^= 1 + (number % 255) as u8;
        world.deliver(address(0), address(1), changed);
        world.now += MS / 100;
    }
    let counters = world.process(1).node.handshakes.counters;
    assert!((500..600).contains(&counters.bad_tag), "{counters:?}");
    assert_eq!(counters.bad_tag + counters.limited, forged);
    // The genuine confirm is resent until it is checked.
    world.now += MS;
    world.deliver(address(0), address(1), confirm);
    assert_eq!(world.process(1).app.joined, [0]);
}

#[test]
fn a_cookie_is_good_for_one_address_and_for_a_while() {
    let mut world = World::new(3, 1);
    let confirm = confirm(&mut world);
    world.kill(0);
    world.deliver(address(2), address(1), confirm.clone());
    assert!(world.process(1).app.joined.is_empty());
    let stale = world.process(1).node.handshakes.counters.stale;
    assert_eq!(stale, 1);
    for at in 0..confirm.len() {
        let mut changed = confirm.clone();
        changed[at] ^= 1;
        // The MAC does not cover the attempt.
        if at != 3 && at != 2 {
            world.deliver(address(0), address(1), changed);
        }
    }
    assert!(world.process(1).app.joined.is_empty());
    world.now += 10_001 * MS;
    world.deliver(address(0), address(1), confirm.clone());
    assert!(
        world.process(1).app.joined.is_empty(),
        "the confirm is too old"
    );
    world.now -= 2_000 * MS;
    world.deliver(address(0), address(1), confirm);
    assert_eq!(world.process(1).app.joined, [0]);
}

#[test]
fn strangers_cost_no_memory_and_get_no_more_than_they_sent() {
    let (mut world, seen) = acquainted();
    let inits: Vec<_> = seen.iter().filter(|one| one.4[0] == INIT).collect();
    let packets: Vec<_> = seen.iter().filter(|one| one.4[0] >> 4 == 1).collect();
    let others: Vec<_> = seen.iter().filter(|one| one.4[0] >> 4 != 1).collect();
    assert!(!inits.is_empty() && !packets.is_empty());
    let memory = world.process(1).node.memory();
    let mut random = fastrand::Rng::with_seed(1);
    let mut answered = 0;
    for number in 0..100_000u32 {
        // Each datagram has a different source address.
        let [a, b, c, d] = number.to_be_bytes();
        let stranger = SocketAddr::from(([100 + a, b, c, d], 7));
        let kinds = [&inits, &packets, &others];
        let of = kinds[random.usize(..3)];
        let mut bytes = of[random.usize(..of.len())].4.clone();
        let length = bytes.len();
        if random.bool() {
            corrupt(&mut random, &mut bytes);
        }
        world.deliver(stranger, address(1), bytes);
        for answer in answers(&mut world, 1, stranger) {
            assert!(answer.len() <= length, "{answer:02x?}");
            answered += 1;
        }
        world.now += 1_000;
    }
    // Some strangers get a hint, or a refusal because of their secret, but there are few such
    // answers.
    assert!(answered < 300, "{answered}");
    assert_eq!(world.process(1).app.joined, [0]);
    let after = world.process(1).node.memory();
    assert!(after <= memory + 4096, "{after} after {memory}");
    assert!(world.session(1, 0).is_some());
    world.check_rest();
}

#[test]
fn inits_of_those_that_have_the_secret_cost_no_memory_either() {
    let mut world = World::new(1, 1);
    let memory = world.process(0).node.memory();
    for number in 0..1_000u16 {
        let place = 1 + usize::from(number);
        world.processes.push(None);
        world.start(place);
        assert_eq!(world.send(place, 0, COPIED, 1), Err(Refused::Full));
        let (_, init) = world.process(place).node.next_message().unwrap();
        world.deliver(address(place), address(0), init.bytes().to_vec());
        let answers = answers(&mut world, 0, address(place));
        assert_eq!(answers.len(), 1);
        assert!(answers[0].len() <= init.bytes().len());
        world.kill(place);
    }
    let after = world.process(0).node.memory();
    assert!(after <= memory + 4096, "{after} after {memory}");
    assert!(world.process(0).app.joined.is_empty());
}

#[test]
fn forged_hints_end_no_session_and_make_few_checks() {
    let (mut world, _) = acquainted();
    let session = world.session(0, 1);
    for _ in 0..1_000 {
        // The hint has the right number, as if the peer had sent it.
        let hint = [UNKNOWN, 1, 0, 0, 0, 0, 0, 0].to_vec();
        world.deliver(address(1), address(0), hint);
        world.run(MS);
    }
    let checks = world.process(0).node.handshakes.counters.checks;
    assert!((1..=5).contains(&checks), "{checks}");
    assert_eq!([world.session(0, 1), world.session(1, 0)], [session; 2]);
    assert_eq!(failures(&mut world, 0), []);
}

#[test]
fn packets_of_a_former_session_do_not_open_under_its_number() {
    let (mut world, seen) = acquainted();
    world.close(1, 0);
    world.run(100 * MS);
    assert_eq!(failures(&mut world, 0), [Failure::Left]);
    // Another process now has this number.
    world.send_one(2, 1, COPIED, 5);
    world.run(100 * MS);
    assert_eq!(world.number(1, 2), Some(0));
    let arrived = world.process(1).app.arrived.clone();
    for (_, _, _, to, bytes) in &seen {
        if *to == address(1) {
            for from in [address(0), address(2)] {
                world.deliver(from, *to, bytes.clone());
            }
        }
    }
    assert_eq!(world.process(1).app.arrived, arrived);
    world.run(1_000 * MS);
    assert!(world.session(1, 2).is_some());
    world.check_rest();
}

#[test]
fn another_secret_is_named_and_nothing_is_kept() {
    let mut world = World::new(2, 1);
    world.start_with(0, b"another");
    let memory = world.process(1).node.memory();
    assert_eq!(world.send(0, 1, COPIED, 1), Err(Refused::Full));
    world.run(1_000 * MS);
    let [Failure::Network(words)] = failures(&mut world, 0)[..] else {
        panic!("expected one failure by the network")
    };
    assert!(words.contains("another secret"));
    // A few answers are permitted.
    assert!(world.process(1).node.memory() <= memory + 1024);
    assert!(world.process(1).app.joined.is_empty());
    // Forged refusals of handshakes have no effect, because they lack the nonce.
    world.start(0);
    assert_eq!(world.send(0, 1, COPIED, 1), Err(Refused::Full));
    for _ in 0..10 {
        let refusal = [&[0xa7, 1, 2, 0][..], &[0; 16]].concat();
        world.deliver(address(1), address(0), refusal);
    }
    assert_eq!(failures(&mut world, 0), []);
    world.send_one(0, 1, COPIED, 1);
}

#[test]
fn another_version_is_named() {
    let mut world = World::new(2, 1);
    assert_eq!(world.send(0, 1, COPIED, 1), Err(Refused::Full));
    for _ in 0..4 {
        assert_eq!(failures(&mut world, 0), []);
        let (_, init) = world.process(0).node.next_message().unwrap();
        let mut init = init.bytes().to_vec();
        init[1] += 1;
        world.deliver(address(0), address(1), init);
        let refusal = answers(&mut world, 1, address(0)).remove(0);
        // A refusal duplicated by the network counts once.
        for _ in 0..5 {
            world.deliver(address(1), address(0), refusal.clone());
        }
        world.step(Nanos::MAX);
    }
    let [Failure::Network(words)] = failures(&mut world, 0)[..] else {
        panic!("expected one failure by the network")
    };
    assert!(words.contains("version"));
}

#[test]
fn who_does_not_answer_is_unreachable_after_the_dead_time_or_two_reports() {
    let mut world = World::new(2, 1);
    world.kill(1);
    assert_eq!(world.send(0, 1, COPIED, 1), Err(Refused::Full));
    let peer = world.number(0, 1).unwrap();
    let begin = world.now;
    while failures(&mut world, 0).is_empty() {
        assert!(world.process(0).node.handshakes.is_used(peer));
        assert!(world.step(Nanos::MAX));
    }
    assert_eq!(failures(&mut world, 0), [Failure::Unreachable]);
    let waited = (world.now - begin) / MS;
    assert!((2_000..3_100).contains(&waited), "{waited}");
    assert!(!world.process(0).node.handshakes.is_used(peer));
    // The system reports that the port is closed.
    assert_eq!(world.send(0, 1, COPIED, 1), Err(Refused::Full));
    for count in 1..=2 {
        assert_eq!(failures(&mut world, 0).len(), 1);
        let now = world.now;
        let process = world.process(0);
        let app = &mut process.app;
        process
            .node
            .on_report(now, address(1), libc::ECONNREFUSED, None, app);
        assert_eq!(failures(&mut world, 0).len(), count);
    }
    // A report that the host of an open session is unreachable, which may be forged.
    world.start(1);
    world.send_one(0, 1, COPIED, 1);
    for _ in 0..10 {
        let now = world.now;
        let process = world.process(0);
        let app = &mut process.app;
        process
            .node
            .on_report(now, address(1), libc::ENETUNREACH, None, app);
    }
    assert_eq!(failures(&mut world, 0).len(), 2);
}

#[test]
fn the_silence_of_a_peer_ends_the_session_on_either_side() {
    for dies in [0, 1] {
        let (mut world, _) = acquainted();
        let lives = 1 - dies;
        world.kill(dies);
        world.run(5_000 * MS);
        assert!(matches!(
            failures(&mut world, lives)[..],
            [Failure::Silent(_)]
        ));
        assert_eq!(world.session(lives, dies), None);
    }
}

#[test]
fn one_s_own_datagrams_are_ignored() {
    let (mut world, seen) = acquainted();
    let memory = world.process(1).node.memory();
    for (_, _, _, _, bytes) in seen {
        world.deliver(address(1), address(1), bytes);
    }
    assert!(answers(&mut world, 1, address(1)).is_empty());
    assert!(world.process(1).node.memory() <= memory);
    assert_eq!(world.process(1).node.connect(own(0)), Some(0));
}

proptest! {
    /// Arbitrary bytes from arbitrary sources cause no panic and begin no session, and an existing
    /// session continues.
    #[test]
    fn any_bytes_do_no_harm(
        kind in prop_oneof![0xa0u8..0xa9, 0x10u8..0x18, any::<u8>()],
        version in prop_oneof![4 => Just(1u8), 1 => any::<u8>()],
        rest in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(Just(0u8), 0..200),
        ],
        from_peer: bool,
    ) {
        let (mut world, _) = acquainted();
        let session = world.session(1, 0);
        let from = if from_peer { address(0) } else { address(9) };
        let bytes = [&[kind, version][..], &rest].concat();
        world.deliver(from, address(1), bytes);
        world.run(1_000 * MS);
        prop_assert_eq!([world.session(0, 1), world.session(1, 0)], [session; 2]);
        prop_assert_eq!(world.process(1).node.handshakes.numbers().count(), 1);
        world.check_rest();
    }

    /// Genuine datagrams that were altered cause no panic and begin no session either, at each
    /// stage of a handshake.
    #[test]
    fn changed_datagrams_do_no_harm(seed: u64, steps in 0usize..12) {
        let (mut world, seen) = acquainted();
        let session = world.session(1, 0);
        let mut random = fastrand::Rng::with_seed(seed);
        world.start(2);
        let _ = world.send(2, 1, COPIED, 5);
        for _ in 0..steps {
            world.step(Nanos::MAX);
        }
        for _ in 0..20 {
            let (.., mut bytes) = seen[random.usize(..seen.len())].clone();
            corrupt(&mut random, &mut bytes);
            let from = address(random.usize(..3));
            let now = world.now;
            for place in 0..3 {
                let process = world.process(place);
                let app = &mut process.app;
                let mut bytes = bytes.clone();
                let from = source(from);
                process.node.receive_from(now, &mut bytes, from, &mut NodesOwn, app);
            }
        }
        world.run(3_000 * MS);
        prop_assert_eq!([world.session(0, 1), world.session(1, 0)], [session; 2]);
        world.send_one(2, 1, COPIED, 5);
        world.run(1_000 * MS);
        world.check_rest();
    }
}
