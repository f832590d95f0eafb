//! Tests of sleeping and waking. They assert that everything arrives, but not how soon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conduit_core::threads::{Par, ParSync};

use super::*;

#[test]
fn a_sleeper_gets_its_messages() {
    let mut ends = world::<ParSync>(2, &small());
    let (b, a) = (ends.pop().unwrap(), ends.pop().unwrap());
    let server = std::thread::spawn(move || {
        b.append(MANAGED, MeOptions::PUT);
        let mut got = 0;
        while got < 200 {
            let before = got;
            b.ni.poll(b.eq, 8, |_| got += 1);
            if got == before {
                b.ni.wait(Duration::from_secs(1));
            }
            if got > before {
                while b.ni.inject(&inject(0, b"back")) != Ok(Submit::Posted) {}
            }
        }
        b
    });
    a.append(MANAGED, MeOptions::PUT);
    for _ in 0..200 {
        a.poll();
        while a.ni.inject(&inject(1, b"")) != Ok(Submit::Posted) {}
        a.ni.wait(Duration::from_millis(1));
    }
    let b = server.join().unwrap();
    assert_eq!(b.ni.statistics().dropped, 0);
}

#[test]
fn waiting_returns_at_once_when_something_is_there() {
    let (a, b) = pair(&small());
    assert_eq!(a.ni.inject(&inject(1, b"")), Ok(Submit::Posted));
    // The message is never received, so every wait must return at once. A single wait that lasted
    // until its timeout would hang the test for an hour.
    for _ in 0..1000 {
        b.ni.wait(Duration::from_secs(3600));
    }
}

#[test]
fn a_waker_ends_a_sleep_from_any_thread() {
    let (a, _b) = pair(&small());
    let (wake, awake) = (a.ni.waker(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !awake.load(Ordering::Relaxed) {
                wake();
            }
        });
        // Nothing else would end any of these sleeps.
        for _ in 0..100 {
            a.ni.wait(Duration::from_secs(3600));
        }
        awake.store(true, Ordering::Relaxed);
    });
}

#[test]
fn stores_into_a_window_are_announced() {
    let ends = world::<Par>(2, &small());
    let (a, b) = (&ends[0], &ends[1]);
    let window = a.ni.window(1, b.region.id).unwrap();
    // SAFETY: the byte lies within the region and is accessed only by atomics.
    let (there, here) = unsafe {
        (
            AtomicBool::from_ptr(window.base.cast()),
            AtomicBool::from_ptr(b.region.base.cast()),
        )
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !here.load(Ordering::Acquire) {
                    b.ni.wait(Duration::from_secs(1));
                }
            });
        }
        there.store(true, Ordering::Release);
        a.ni.notify(1);
        a.ni.notify(7);
    });
    assert_eq!(a.ni.failed_peer(), None);
}
