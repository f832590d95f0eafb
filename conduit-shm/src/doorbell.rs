//! The doorbell by which another process wakes this one after sending it work: two words in
//! shared memory and their protocol, without the system calls.
//!
//! There are two ways to ring the doorbell. Neither uses a fence, since both are on hot paths:
//!
//! - [`Doorbell::ring_after_message`], after a commit into one of the sleeper's rings. It costs one
//!   load, because the sleeper checks its rings once more after it has announced its sleep.
//! - [`Doorbell::notify`], after stores whose effect the sleeper's rings don't show. It also sets a
//!   mark, for a sleeper that has checked its memory but not yet announced its sleep.
//!
//! A processor may perform a load before its earlier store is visible to others, so the load may
//! miss a sleeper that has just checked its rings and found nothing. Preventing this would take a
//! full fence for each message. A full fence waits until all stores have left the processor, and so
//! costs more than the message. Instead, the sleeper never sleeps longer than [`MAX_SLEEP`] at a
//! stretch: a lost wake-up, which is rare, costs at most that much.

use std::time::Duration;

use conduit_portals::sync::{AtomicU32, Ordering, fence};

/// The longest sleep at a stretch, which bounds the cost of a lost wake-up.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(1);

/// The words of one sleeper, in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doorbell<'a> {
    /// 1 while the owner sleeps or is about to sleep. This is the futex word.
    pub(crate) sleeping: &'a AtomicU32,
    /// 1 from a notification until the owner's next attempt to sleep.
    pub(crate) notified: &'a AtomicU32,
}

impl Doorbell<'_> {
    /// Announces that the owner is about to sleep. Returns `false` if the owner has been notified
    /// since its last announcement and so has to check its memory again. If this returns `true`,
    /// the owner must check its rings once more and may then sleep while `sleeping` is 1.
    pub(crate) fn announce(self) -> bool {
        self.sleeping.store(1, Ordering::Relaxed);
        // SYNC (doorbell): the announcement comes before the check of `notified` and of the rings.
        // The ringing side has no fence, so wake-ups may be lost, as the module documentation
        // describes.
        fence(Ordering::SeqCst);
        // SYNC (mark): pairs with the release in `notify`, so that the notifier's earlier stores
        // are seen.
        self.notified.swap(0, Ordering::AcqRel) == 0
    }

    /// Marks the owner as awake.
    pub(crate) fn retire(self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Rings after a message was committed. Returns whether the caller must wake the owner's futex.
    #[inline]
    pub(crate) fn ring_after_message(self) -> bool {
        self.sleeping.load(Ordering::Relaxed) != 0 && self.take_sleeper()
    }

    /// Rings after stores that the owner may be waiting for. Returns whether the caller must wake
    /// the owner's futex.
    #[inline]
    pub(crate) fn notify(self) -> bool {
        // Usually the owner is awake and already marked. Both words are then only read, so their
        // line stays in this processor's cache.
        if self.notified.load(Ordering::Relaxed) == 0 {
            // SYNC (mark): the caller's earlier stores come before the mark. Pairs with the swap in
            // `announce`.
            self.notified.store(1, Ordering::Release);
        }
        self.sleeping.load(Ordering::Relaxed) != 0 && self.take_sleeper()
    }

    /// Clears `sleeping`. Returns `true` to exactly one of several concurrent callers; that caller
    /// must make the system call.
    #[cold]
    fn take_sleeper(self) -> bool {
        // SYNC (wake): a sleeper that finds the word changed sees the caller's earlier stores.
        self.sleeping.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, loom))]
mod loom {
    use loom::sync::Arc;
    use loom::thread;

    use super::{AtomicU32, Doorbell, Ordering};

    #[derive(Debug)]
    struct Words {
        sleeping: AtomicU32,
        notified: AtomicU32,
        stored: [AtomicU32; 2],
    }

    fn words() -> Arc<Words> {
        Arc::new(Words {
            sleeping: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            stored: [AtomicU32::new(0), AtomicU32::new(0)],
        })
    }

    impl Words {
        fn doorbell(&self) -> Doorbell<'_> {
            Doorbell {
                sleeping: &self.sleeping,
                notified: &self.notified,
            }
        }
    }

    #[test]
    fn loom_a_marked_owner_stays_awake_and_finds_what_was_stored() {
        loom::model(|| {
            let words = words();
            let other = words.clone();
            let notifier = thread::spawn(move || {
                other.stored[0].store(1, Ordering::Relaxed);
                other.doorbell().notify();
            });
            if !words.doorbell().announce() {
                // The mark keeps the owner awake, so one more check finds the store.
                assert_eq!(words.stored[0].load(Ordering::Relaxed), 1);
            }
            words.doorbell().retire();
            notifier.join().unwrap();
            // A mark that was set while the owner was awake keeps it awake the next time.
            let marked_before = words.notified.load(Ordering::Relaxed) == 1;
            assert_eq!(words.doorbell().announce(), !marked_before);
        });
    }

    #[test]
    fn loom_an_announced_sleeper_is_woken_once_by_two_notifiers() {
        loom::model(|| {
            let words = words();
            assert!(words.doorbell().announce());
            let others = [0, 1].map(|by| {
                let other = words.clone();
                thread::spawn(move || {
                    other.stored[by].store(1, Ordering::Relaxed);
                    other.doorbell().notify()
                })
            });
            let calls = others
                .map(|other| other.join().unwrap())
                .iter()
                .filter(|&&call| call)
                .count();
            assert_eq!(calls, 1, "exactly one of the two makes the system call");
            assert_eq!(words.sleeping.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn loom_a_woken_sleeper_finds_the_message() {
        loom::model(|| {
            let words = words();
            let other = words.clone();
            let sender = thread::spawn(move || {
                other.stored[0].store(1, Ordering::Relaxed);
                other.doorbell().ring_after_message()
            });
            let slept = words.doorbell().announce() && words.stored[0].load(Ordering::Relaxed) == 0;
            let woken = slept && words.sleeping.load(Ordering::Acquire) == 0;
            if woken {
                // The owner was woken, so one check must find the message. (It may also fall asleep
                // without ever being woken; `MAX_SLEEP` ends such a sleep.)
                assert_eq!(words.stored[0].load(Ordering::Relaxed), 1);
            }
            sender.join().unwrap();
        });
    }
}
