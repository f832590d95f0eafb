//! Sleeping until another process has something for this one: the two words and their protocol, without the system call.
//!
//! There are two ways to ring:
//!
//! - [`Bell::ring_after_message`], after a commit into one of the sleeper's rings: one load. Between a processor's store
//!   and its next load there is no order, so the load may miss a sleeper that has just looked at its rings in vain. To
//!   exclude it needs a full fence with every message, which costs more than the message. Instead the sleeper never sleeps
//!   longer than [`MAX_SLEEP`] at a stretch: the rare loss costs that much.
//! - [`Bell::notify`], after stores that the sleeper's rings don't show: with fences, never lost. It leaves a mark, so that
//!   a sleeper that has looked at its memory but not yet announced itself finds it.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence};

/// The longest stretch of sleep: the cost of a wake-up that a sender missed.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(1);

/// The words of one sleeper, in memory that all share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bell<'a> {
    /// 1 while the owner sleeps or is about to. The word of the futex.
    pub(crate) sleeping: &'a AtomicU32,
    /// 1 from a notification until the owner's next attempt to sleep.
    pub(crate) notified: &'a AtomicU32,
}

impl Bell<'_> {
    /// The owner: says that it will sleep. False: it was notified since it last slept and must look again first. After
    /// true the owner looks at its rings once more, and sleeps while `sleeping` is 1.
    pub(crate) fn announce(self) -> bool {
        self.sleeping.store(1, Ordering::Relaxed);
        // SYNC (bell): the announcement comes before the look at `notified` (and at the rings). Pairs with the fences
        // of `notify`: of the two sides at least one sees the other's store.
        fence(Ordering::SeqCst);
        let notified = self.notified.swap(0, Ordering::AcqRel) != 0;
        // SYNC (mark): a notifier that found the mark set has stored what it tells before its first fence; if it read
        // the mark before our swap, its stores are seen by all that we read after this one.
        fence(Ordering::SeqCst);
        !notified
    }

    /// The owner: is awake.
    pub(crate) fn retire(self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Whoever has committed a message: whether the owner's futex must be woken.
    #[inline]
    pub(crate) fn ring_after_message(self) -> bool {
        self.sleeping.load(Ordering::Relaxed) != 0 && self.take_sleeper()
    }

    /// Whoever has stored something that the owner waits for: whether its futex must be woken.
    pub(crate) fn notify(self) -> bool {
        // SYNC (mark): what we tell is stored before we look at the mark. Pairs with `announce`.
        fence(Ordering::SeqCst);
        if self.notified.load(Ordering::Relaxed) == 0 {
            self.notified.store(1, Ordering::Release);
            // SYNC (bell): the mark is set before we look for a sleeper. Pairs with `announce`.
            fence(Ordering::SeqCst);
        }
        self.sleeping.load(Ordering::Relaxed) != 0 && self.take_sleeper()
    }

    /// Of several that ring at once, one makes the system call.
    #[cold]
    fn take_sleeper(self) -> bool {
        // SYNC (wake): what was stored before is seen by a sleeper that finds the word changed.
        self.sleeping.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, loom))]
mod loom {
    use loom::sync::Arc;
    use loom::thread;

    use super::{AtomicU32, Bell, Ordering};

    #[derive(Debug)]
    struct Words {
        sleeping: AtomicU32,
        notified: AtomicU32,
        told: [AtomicU32; 2],
    }

    fn words() -> Arc<Words> {
        Arc::new(Words {
            sleeping: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            told: [AtomicU32::new(0), AtomicU32::new(0)],
        })
    }

    impl Words {
        fn bell(&self) -> Bell<'_> {
            Bell {
                sleeping: &self.sleeping,
                notified: &self.notified,
            }
        }

        /// The owner's loop without a time limit: were a wake-up lost, it would spin in here for ever, which the
        /// checker reports.
        fn sleep_until_told(&self, by: usize) {
            while self.told[by].load(Ordering::Relaxed) == 0 {
                if self.bell().announce() {
                    while self.sleeping.load(Ordering::Acquire) == 1 {
                        thread::yield_now();
                    }
                }
                self.bell().retire();
            }
        }
    }

    #[test]
    fn loom_notifications_are_never_lost() {
        loom::model(|| {
            let words = words();
            let other = words.clone();
            let notifier = thread::spawn(move || {
                other.told[0].store(1, Ordering::Relaxed);
                other.bell().notify();
            });
            words.sleep_until_told(0);
            notifier.join().unwrap();
        });
    }

    #[test]
    fn loom_of_two_notifiers_both_are_heard() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let words = words();
            let notifiers = [0, 1].map(|by| {
                let other = words.clone();
                thread::spawn(move || {
                    other.told[by].store(1, Ordering::Relaxed);
                    other.bell().notify();
                })
            });
            words.sleep_until_told(0);
            words.sleep_until_told(1);
            for notifier in notifiers {
                notifier.join().unwrap();
            }
        });
    }

    #[test]
    fn loom_a_woken_sleeper_finds_the_message() {
        loom::model(|| {
            let words = words();
            let other = words.clone();
            let sender = thread::spawn(move || {
                other.told[0].store(1, Ordering::Relaxed);
                other.bell().ring_after_message()
            });
            let slept = words.bell().announce() && words.told[0].load(Ordering::Relaxed) == 0;
            let woken = slept && words.sleeping.load(Ordering::Acquire) == 0;
            if woken {
                // Woken rightly: no further look is needed. (Asleep and never woken is possible; the time limit ends it.)
                assert_eq!(words.told[0].load(Ordering::Relaxed), 1);
            }
            sender.join().unwrap();
        });
    }
}
