//! Tests of sleeping until something arrives, and of waking sleepers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

fn small_rings() -> LocalConfig {
    LocalConfig {
        ring: 4 << 10,
        ..LocalConfig::default()
    }
}

/// Waits as a program with its own event loop does.
fn sleep(process: &mut Process) {
    if process.local.prepare_sleep() {
        let waiter = process.local.waiter();
        waiter.wait(None, process.local.timeout());
    }
}

/// Returns whether the descriptor is readable.
fn is_woken(process: &Process) -> bool {
    let waiter = process.local.waiter();
    waiter.wait(None, Some(std::time::Duration::ZERO))
}

#[test]
fn a_sleeper_is_woken_once_and_finds_everything() {
    let (mut a, mut b, to_b, to_a) = connected();
    b.pump();
    assert!(b.local.prepare_sleep() && !is_woken(&b));
    for count in 0..3u8 {
        a.send(to_b, b"h", &[count]).unwrap();
        assert!(is_woken(&b));
    }
    assert!(b.pass());
    for count in 0..3u8 {
        assert_eq!(b.next(to_a).unwrap().1, [count]);
    }
    // The wake-up has been taken, and a process that is awake gets no further wake-up.
    b.pump();
    assert!(!is_woken(&b));
    a.send(to_b, b"h", b"").unwrap();
    assert!(!is_woken(&b));
    assert!(!b.local.prepare_sleep(), "something has arrived");
    assert!(b.pass());
    assert!(b.local.prepare_sleep());
}

#[test]
fn what_a_handler_has_refused_keeps_nobody_awake() {
    let (mut a, mut b, to_b, to_a) = connected();
    b.handler.refused = vec![b'd'];
    a.handler.sources.insert(1, pattern(1, 10));
    a.send_read(to_b, b"d", 1).unwrap();
    a.pump();
    b.pump();
    assert!(b.local.prepare_sleep());
    // A fragment on the other channel wakes the process.
    a.send(to_b, b"c", b"").unwrap();
    assert!(is_woken(&b));
    b.pass();
    assert_eq!(b.next(to_a).unwrap().0, b"c");
    b.handler.refused.clear();
    b.pass();
    assert_eq!(b.next(to_a).unwrap().0, b"d");
}

#[test]
fn who_waits_for_room_is_woken_by_it() {
    let (mut a, mut b, to_b, to_a) = connected_with(&small_rings());
    for _ in 0..3 {
        while a.send(to_b, b"h", b"").is_ok() {}
        assert!(a.local.prepare_sleep() && !is_woken(&a));
        b.pump();
        assert!(is_woken(&a));
        assert!(a.pass());
        assert_eq!(a.send(to_b, b"h", b""), Ok(()));
        b.pump();
        // Room appears before the process sleeps.
        while a.send(to_b, b"h", b"").is_ok() {}
        b.pump();
        assert!(!a.local.prepare_sleep());
        b.handler.arrived.remove(&to_a);
    }
}

/// Runs a server and a client in threads. Both sleep whenever they have nothing to do.
#[test]
fn two_sleepers_lose_no_wake_up() {
    const ROUNDS: u32 = 3000;
    let (mut a, mut b, to_b, to_a) = connected_with(&small_rings());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !is_over.load(Ordering::Relaxed) {
                if !b.pass() {
                    sleep(&mut b);
                }
                while let Some((header, payload)) = b.next(to_a) {
                    if header == b"over" {
                        is_over.store(true, Ordering::Relaxed);
                        continue;
                    }
                    while b.send(to_a, &header, &payload).is_err() {
                        if random.bool() {
                            sleep(&mut b);
                        }
                        b.pass();
                    }
                }
            }
        });
        let mut random = fastrand::Rng::with_seed(2);
        let (mut sent, mut back) = (0u32, 0u32);
        while back < ROUNDS {
            let burst = random.u32(1..100).min(ROUNDS - sent);
            for _ in 0..burst {
                match a.send(to_b, b"h", &sent.to_le_bytes()) {
                    Ok(()) => sent += 1,
                    Err(_) => break,
                }
            }
            while let Some((_, payload)) = a.next(to_b) {
                assert_eq!(payload, back.to_le_bytes());
                back += 1;
            }
            if back < sent {
                sleep(&mut a);
            }
            a.pass();
        }
        while a.send(to_b, b"over", b"").is_err() {
            a.pass();
        }
    });
}

/// Sends a long fragment, whose sender repeatedly has to wait for room.
#[test]
fn a_long_fragment_goes_between_sleepers() {
    const LENGTH: usize = 1 << 20;
    let (mut a, mut b, to_b, to_a) = connected_with(&small_rings());
    a.handler.sources.insert(1, pattern(1, LENGTH));
    a.send_read(to_b, b"h", 1).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while a.handler.sent.is_empty() {
                a.pass();
                if a.handler.sent.is_empty() {
                    sleep(&mut a);
                }
            }
        });
        let message = loop {
            if let Some(message) = b.next(to_a) {
                break message;
            }
            if !b.pass() {
                sleep(&mut b);
            }
        };
        assert_eq!(message.1, pattern(1, LENGTH));
    });
}

#[test]
fn who_connects_and_who_ends_wakes_a_sleeper() {
    let (mut a, mut b) = (Process::new(), Process::new());
    let number = a.connect(&b);
    b.pump();
    assert!(b.local.prepare_sleep() && !is_woken(&b));
    assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
    assert!(is_woken(&b) && a.local.prepare_sleep());
    assert!(b.pass());
    assert!(is_woken(&a));
    assert!(a.pass() && a.local.has_session(number));
    b.pump();
    b.local.prepare_sleep();
    drop(a);
    assert!(is_woken(&b) && b.pass());
    assert_eq!(b.failures().len(), 1);
    assert!(b.local.prepare_sleep() && !is_woken(&b));
}
