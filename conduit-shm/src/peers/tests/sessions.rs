//! Tests of how sessions begin and end.

use rustix::process::{Resource, getrlimit};

use super::super::address;
use super::*;
use crate::peers::LocalError;
use conduit_portals::transport::open::ConnectError;

#[test]
fn two_processes_meet_and_answer_each_other() {
    let (mut a, mut b, to_b, to_a) = connected();
    assert!(a.handler.joined.is_empty());
    assert_eq!(b.local.peer_address(to_a), Some(a.address()));
    send_to(&mut b, &mut a, to_a, b"h", b"payload");
    let answer = await_message(&mut a, &mut b, to_b);
    assert_eq!(answer, (b"h".to_vec(), b"payload".to_vec()));
    assert!(a.local.has_session(to_b) && b.local.has_session(to_a));
    assert_eq!(b.connect(&a), to_a);
    let words = a.local.describe(to_b);
    assert!(
        words.contains(&b.local.address_to_text(&b.address()).unwrap()),
        "{words}"
    );
}

#[test]
fn who_is_not_there_is_unreachable_at_the_next_pass() {
    let mut a = Process::new();
    let gone = Process::new();
    let number = a.connect(&gone);
    drop(gone);
    for _ in 0..2 {
        assert!(!a.local.has_session(number));
        assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
        assert!(a.failures().is_empty());
        assert!(a.local.has_session(number));
        assert_eq!(a.local.timeout(), Some(std::time::Duration::ZERO));
        assert!(!a.local.prepare_sleep());
        assert!(a.pass());
        assert_eq!(a.failures(), [(number, Failure::Unreachable)]);
    }
    a.local.close(number);
    assert_eq!(a.send(number, b"h", b""), Err(Refused::NoSuchRank));
}

/// Checks a peer that accepts no connections, as is the case for a stopped process.
#[test]
fn who_accepts_nobody_is_waited_for_until_it_is_closed_or_dies() {
    let (mut a, b) = (Process::new(), Process::new());
    let number = a.connect(&b);
    assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
    a.pump();
    assert!(a.local.has_session(number) && a.failures().is_empty());
    a.local.close(number);
    let number = a.connect(&b);
    assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
    drop(b);
    a.pump();
    assert_eq!(a.failures(), [(number, Failure::Unreachable)]);
}

/// Checks that an abandoned attempt is not taken for a peer.
#[test]
fn an_attempt_that_was_given_up_leaves_no_trace() {
    let (mut a, mut b) = (Process::new(), Process::new());
    let number = a.connect(&b);
    assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
    a.local.close(number);
    b.pump();
    assert!(b.handler.joined.is_empty() && b.failures().is_empty());
}

#[test]
fn goodbyes_come_after_what_was_sent() {
    let (mut a, mut b, to_b, to_a) = connected();
    a.send(to_b, b"last", b"1").unwrap();
    a.local.close(to_b);
    assert_eq!(a.send(to_b, b"h", b""), Err(Refused::NoSuchRank));
    b.pump();
    assert_eq!(b.next(to_a), Some((b"last".to_vec(), b"1".to_vec())));
    assert_eq!(b.failures(), [(to_a, Failure::Left)]);
    // The number stays, and the next fragment starts another session.
    send_to(&mut b, &mut a, to_a, b"again", b"");
    let to_b = a.handler.joined[0];
    assert_eq!(await_message(&mut a, &mut b, to_b).0, b"again");
    b.local.leave();
    assert_eq!(b.send(to_a, b"h", b""), Err(Refused::Dead));
    assert!(!b.pass());
    a.pump();
    assert_eq!(a.failures(), [(to_b, Failure::Left)]);
    assert_eq!(a.send(to_b, b"h", b""), Err(Refused::Full));
    a.pump();
    assert_eq!(a.failures(), [(to_b, Failure::Unreachable)]);
}

#[test]
fn a_session_ends_and_the_number_stays() {
    let (mut a, mut b, to_b, to_a) = connected();
    a.local.end_session(to_b);
    assert!(!a.local.has_session(to_b));
    b.pump();
    assert_eq!(b.failures(), [(to_a, Failure::Left)]);
    send_to(&mut a, &mut b, to_b, b"again", b"");
    assert_eq!(await_message(&mut b, &mut a, to_a).0, b"again");
    assert!(a.failures().is_empty() && b.handler.joined.len() == 1);
    // The same holds if the session is ended before the peer has replied.
    let other = Process::new();
    let to_other = a.connect(&other);
    assert_eq!(a.send(to_other, b"h", b""), Err(Refused::Full));
    a.local.end_session(to_other);
    assert!(!a.local.has_session(to_other));
    a.pump();
    assert!(a.failures().is_empty());
}

/// Checks that a process that ends without a goodbye, as after `kill -9`, is reported as ended.
#[test]
fn who_ends_without_a_word_has_ended() {
    let (mut a, b, to_b, _) = connected();
    drop(b);
    a.pump();
    assert_eq!(a.failures(), [(to_b, Failure::Network("has ended"))]);
    assert!(!a.local.has_session(to_b));
}

#[test]
fn both_connect_at_once_and_have_one_session() {
    // The result must not depend on which address is smaller and which side polls first.
    for turn in 0..8 {
        let (mut a, mut b) = match turn % 2 {
            0 => (Process::new(), Process::new()),
            _ => {
                let (b, a) = (Process::new(), Process::new());
                (a, b)
            }
        };
        let (to_b, to_a) = (a.connect(&b), b.connect(&a));
        assert_eq!(a.send(to_b, b"h", b""), Err(Refused::Full));
        if turn & 2 == 0 {
            assert_eq!(b.send(to_a, b"h", b""), Err(Refused::Full));
        } else {
            a.pump();
            assert_eq!(b.send(to_a, b"h", b""), Err(Refused::Full));
            b.pump();
        }
        if turn & 4 == 0 {
            a.pump();
        }
        b.pump();
        for count in 0..10u8 {
            send_to(&mut a, &mut b, to_b, b"a", &[count]);
            send_to(&mut b, &mut a, to_a, b"b", &[count]);
        }
        for count in 0..10u8 {
            assert_eq!(await_message(&mut b, &mut a, to_a).1, [count]);
            assert_eq!(await_message(&mut a, &mut b, to_b).1, [count]);
        }
        a.pump();
        b.pump();
        for process in [&mut a, &mut b] {
            assert!(process.handler.joined.is_empty() && process.failures().is_empty());
            assert!(process.local.strangers.is_empty() && process.local.retrying.is_empty());
        }
        assert_eq!(b.next(to_a), None);
    }
}

/// Checks the case in which both processes connect, and one gives up although the other has
/// deferred to it.
#[test]
fn who_defers_to_an_attempt_that_is_given_up_goes_on_itself() {
    for first in [0, 1] {
        let (mut a, mut b) = (Process::new(), Process::new());
        if (a.address() < b.address()) != (first == 0) {
            std::mem::swap(&mut a, &mut b);
        }
        let (to_b, to_a) = (a.connect(&b), b.connect(&a));
        assert_eq!(a.send(to_b, b"h", b""), Err(Refused::Full));
        assert_eq!(b.send(to_a, b"h", b""), Err(Refused::Full));
        a.pump();
        a.local.close(to_b);
        b.pump();
        send_to(&mut b, &mut a, to_a, b"h", b"");
        let number = a.local.connect(&b.address()).unwrap();
        assert_eq!(await_message(&mut a, &mut b, number).0, b"h");
        // The first session may have been open before it was closed.
        let failures = b.failures();
        assert!(
            failures
                .iter()
                .all(|failure| *failure == (to_a, Failure::Left)),
            "{failures:?}"
        );
    }
}

#[test]
fn a_process_is_started_again_by_its_name() {
    let name = format!("test-restart-{}", std::process::id());
    let mut server = Process::named(&name);
    let taken = Local::start(&LocalConfig {
        name: Some(name.clone()),
        ..LocalConfig::default()
    });
    assert!(matches!(taken, Err(LocalError::Taken(taken)) if taken == name));
    let mut client = Process::new();
    let number = client.connect(&server);
    for life in 0..5u8 {
        send_to(&mut client, &mut server, number, b"h", &[life]);
        let from = (0..MANY).find_map(|_| {
            server.pass();
            server.handler.joined.pop()
        });
        let from = from.expect("joins");
        assert_eq!(await_message(&mut server, &mut client, from).1, [life]);
        drop(server);
        server = Process::named(&name);
        if life % 2 == 0 {
            // In this case, the new process sends first.
            let back = server.connect(&client);
            send_to(&mut server, &mut client, back, b"new", &[life]);
            assert_eq!(await_message(&mut client, &mut server, number).1, [life]);
            server.local.close(back);
            client.pump();
            assert_eq!(client.failures().len(), 2);
        } else {
            client.pump();
            assert_eq!(client.failures(), [(number, Failure::Network("has ended"))]);
        }
    }
}

/// Checks that a restarted process can connect while the old session still exists.
#[test]
fn who_was_restarted_replaces_itself() {
    let name = format!("test-replace-{}", std::process::id());
    let mut a = Process::new();
    let mut b = Process::named(&name);
    let to_b = a.connect(&b);
    send_to(&mut a, &mut b, to_b, b"h", b"");
    drop(b);
    let mut b = Process::named(&name);
    let to_a = b.connect(&a);
    assert_eq!(b.send(to_a, b"h", b""), Err(Refused::Full));
    a.local.accept(&mut a.handler);
    assert_eq!(a.failures(), [(to_b, Failure::Network("has ended"))]);
    send_to(&mut b, &mut a, to_a, b"h", b"new");
    assert_eq!(await_message(&mut a, &mut b, to_b).1, b"new");
}

#[test]
fn addresses_are_checked_before_they_get_numbers() {
    let mut a = Process::new();
    let own = a.address();
    assert_eq!(a.local.connect(&own), Err(ConnectError::Own));
    let text = a.local.address_to_text(&own).unwrap();
    assert_eq!(a.local.address_of_text(&text).unwrap(), own);
    let elsewhere = address::encode(a.local.host ^ 1, a.local.user, "x");
    for wrong in [&b""[..], b"12345678", &[0xff; 40], &elsewhere] {
        let refused = a.local.connect(wrong);
        assert!(
            matches!(refused, Err(ConnectError::Malformed(_))),
            "{refused:?}"
        );
    }
    for name in ["", "a b", "a/b", "a+b", &"a".repeat(65)] {
        let config = LocalConfig {
            name: Some(name.to_owned()),
            ..LocalConfig::default()
        };
        assert!(matches!(Local::start(&config), Err(LocalError::Name(_))));
    }
    for ring in [0, 5000, 2048, 8 << 20] {
        let config = LocalConfig {
            ring,
            ..LocalConfig::default()
        };
        assert!(matches!(Local::start(&config), Err(LocalError::Ring(_))));
    }
    for max_peers in [0, 1 << 17] {
        let config = LocalConfig {
            max_peers,
            ..LocalConfig::default()
        };
        assert!(matches!(Local::start(&config), Err(LocalError::Peers(_))));
    }
}

#[test]
fn numbers_are_limited_on_both_sides() {
    let few = LocalConfig {
        max_peers: 1,
        ..LocalConfig::default()
    };
    let mut server = Process::with(&few);
    let (mut one, mut two) = (Process::new(), Process::with(&few));
    let to_server = one.connect(&server);
    send_to(&mut one, &mut server, to_server, b"h", b"");
    let refused = server.local.connect(two.local.address());
    let setting = "CONDUIT_NA_MAX_PEERS";
    assert_eq!(refused, Err(ConnectError::Exhausted { limit: 1, setting }));
    let to_server = two.connect(&server);
    assert_eq!(two.send(to_server, b"h", b""), Err(Refused::Full));
    server.pump();
    two.pump();
    let reason = "it has reached its limit of peers";
    assert_eq!(two.failures(), [(to_server, Failure::Network(reason))]);
    // A number can be reused.
    let first = server.handler.joined.pop().unwrap();
    server.local.close(first);
    send_to(&mut two, &mut server, to_server, b"h", b"");
    server.pump();
    assert_eq!(server.handler.joined, [first]);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("conduit-na"))
        .count()
}

/// This test runs in a separate process, because other tests also use descriptors.
#[test]
fn many_come_and_go_and_leave_nothing() {
    const CLIENTS: usize = 300;
    if std::env::var_os("CONDUIT_TEST_ALONE").is_none() {
        let name = "peers::tests::sessions::many_come_and_go_and_leave_nothing";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env("CONDUIT_TEST_ALONE", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let clients = CLIENTS.min(limit as usize / 8);
    let mut server = Process::new();
    let before = (open_descriptors(), mappings());
    for round in 0..3 {
        let mut all: Vec<_> = (0..clients).map(|_| Process::new()).collect();
        let alone = (open_descriptors(), mappings());
        for (client, which) in all.iter_mut().zip(0u32..) {
            let number = client.connect(&server);
            send_to(client, &mut server, number, b"h", &which.to_le_bytes());
        }
        server.pump();
        assert_eq!(server.handler.arrived.len(), clients);
        for number in server.handler.joined.clone() {
            let (_, which) = server.next(number).unwrap();
            send_to(&mut server, &mut all[0], number, b"answer", &which);
        }
        for (client, which) in all.iter_mut().zip(0u32..) {
            client.pump();
            assert_eq!(client.next(0).unwrap().1, which.to_le_bytes());
        }
        // A session takes one descriptor and two mappings on either side.
        assert_eq!(open_descriptors() - alone.0, 2 * clients);
        assert_eq!(mappings() - alone.1, 4 * clients);
        for (client, which) in all.iter_mut().zip(0..) {
            match (which + round) % 3 {
                0 => client.local.leave(),
                1 => client.local.close(0),
                _ => {}
            }
        }
        drop(all);
        for _ in 0..20 {
            server.pump();
        }
        assert_eq!(server.failures().len(), clients);
        for number in std::mem::take(&mut server.handler.joined) {
            server.local.close(number);
        }
        server.handler.arrived.clear();
        assert_eq!((open_descriptors(), mappings()), before);
        assert!(server.local.peers.capacity() <= 64);
        assert!(server.local.pending.is_empty() && server.local.watched.is_empty());
    }
}
