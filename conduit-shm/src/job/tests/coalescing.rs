//! Tests of receive coalescing: a receiver pauses during a flood unless it sends in between, and no
//! message is left behind.

use conduit_core::threads::Lock;

use super::*;

/// A length that takes several slots.
const LARGE: usize = 200;

/// A target for which pauses are enabled, and which takes large messages.
fn resting_pair() -> (End<Seq>, End<Seq>) {
    resting_pair_with(resting())
}

fn resting() -> ShmConfig {
    ShmConfig {
        max_coalescing: Duration::from_millis(1),
        ..small()
    }
}

fn resting_pair_with(config: ShmConfig) -> (End<Seq>, End<Seq>) {
    let (a, b) = pair(&config);
    b.append(
        MeMemory::Managed {
            bytes: 1 << 30,
            min_free: 0,
        },
        MeOptions::PUT,
    );
    (a, b)
}

impl End<Seq> {
    fn pauses(&self) -> bool {
        let queue = self.ni.queues[usize::from(self.eq.0)].get().unwrap();
        let inbox = queue.inbox.try_lock().unwrap();
        inbox.rings.iter().any(|inbound| inbound.coalescing.is_on())
    }

    /// Polls until an event comes. Returns the number of events.
    fn take(&self) -> u32 {
        loop {
            let found = self.ni.poll(self.eq, 3, |_| ());
            if found > 0 {
                return found;
            }
        }
    }
}

#[test]
fn a_flood_is_rested_in_and_taken_in_full() {
    let (a, b) = resting_pair();
    let (mut paused, mut taken) = (false, 0);
    for i in 0..100 {
        assert_eq!(
            a.ni.inject(&inject(1, &pattern(LARGE, i))),
            Ok(Submit::Posted)
        );
        taken += b.take();
        paused |= b.pauses();
    }
    assert_eq!(taken, 100);
    assert!(paused);
    // The ring must be free again.
    while b.pauses() {
        b.poll();
    }
    for i in 0..15 {
        assert_eq!(
            a.ni.inject(&inject(1, &pattern(LARGE, i))),
            Ok(Submit::Posted)
        );
    }
}

#[test]
fn who_answers_does_not_rest() {
    let (a, b) = resting_pair();
    for i in 0..100 {
        assert_eq!(
            a.ni.inject(&inject(1, &pattern(LARGE, i))),
            Ok(Submit::Posted)
        );
        assert_eq!(b.take(), 1);
        assert!(!b.pauses());
        assert_eq!(b.ni.inject(&inject(0, &[])), Ok(Submit::Posted));
        a.poll();
    }
}

/// Checks that a rank does not sleep through a message in a ring that it does not poll during a
/// pause.
#[test]
fn a_rest_is_not_slept_through() {
    let (a, b) = resting_pair();
    for i in 0..20 {
        assert_eq!(
            a.ni.inject(&inject(1, &pattern(LARGE, i))),
            Ok(Submit::Posted)
        );
        b.take();
    }
    assert!(b.pauses());
    assert_eq!(
        a.ni.inject(&inject(1, &pattern(LARGE, 0))),
        Ok(Submit::Posted)
    );
    b.ni.wait(Duration::from_secs(3600));
    assert_eq!(b.take(), 1);
}

#[test]
fn who_hears_several_in_one_ring_does_not_rest() {
    let (a, b) = resting_pair_with(ShmConfig {
        shared_ring_above: 0,
        ..resting()
    });
    for i in 0..100 {
        assert_eq!(
            a.ni.inject(&inject(1, &pattern(LARGE, i))),
            Ok(Submit::Posted)
        );
        b.take();
        assert!(!b.pauses());
    }
}

#[test]
fn small_messages_are_never_rested_for() {
    let (a, b) = resting_pair();
    for _ in 0..100 {
        assert_eq!(a.ni.inject(&inject(1, &[7])), Ok(Submit::Posted));
        assert_eq!(b.take(), 1);
        assert!(!b.pauses());
    }
}
