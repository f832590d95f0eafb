//! Sleeping until another process has something for this one: the two words and their protocol, without the system call.
//!
//! There are two ways to ring, both without a fence, as both are on hot paths:
//!
//! - [`Bell::ring_after_message`], after a commit into one of the sleeper's rings: one load. The sleeper looks at its rings
//!   once more after it has announced itself.
//! - [`Bell::notify`], after stores that the sleeper's rings don't show: it also leaves a mark, so that a sleeper that has
//!   looked at its memory but not yet announced itself finds it.
//!
//! Between a processor's store and its next load there is no order, so the load may miss a sleeper that has just looked in
//! vain. To exclude that needs a full fence with every message, which costs more than the message (a fence waits until all
//! stores have left the processor). Instead the sleeper never sleeps longer than [`MAX_SLEEP`] at a stretch: the rare loss
//! costs that much.

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
        // SYNC (bell): the announcement comes before the look at `notified` (and at the rings). The other side has no
        // fence: see the module for what may be lost.
        fence(Ordering::SeqCst);
        // SYNC (mark): pairs with the release in `notify`: what it tells is seen after the mark.
        self.notified.swap(0, Ordering::AcqRel) == 0
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
    #[inline]
    pub(crate) fn notify(self) -> bool {
        // In the usual case, an owner that is awake, both words are read only and stay in this processor's cache.
        if self.notified.load(Ordering::Relaxed) == 0 {
            // SYNC (mark): what we tell is stored before the mark. Pairs with `announce`.
            self.notified.store(1, Ordering::Release);
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
    }

    #[test]
    fn loom_a_marked_owner_stays_awake_and_finds_what_it_was_told() {
        loom::model(|| {
            let words = words();
            let other = words.clone();
            let notifier = thread::spawn(move || {
                other.told[0].store(1, Ordering::Relaxed);
                other.bell().notify();
            });
            if !words.bell().announce() {
                // Awake because of the mark: one more look is enough.
                assert_eq!(words.told[0].load(Ordering::Relaxed), 1);
            }
            words.bell().retire();
            notifier.join().unwrap();
            // A mark that was left while the owner was awake keeps it awake the next time it is tired.
            let told_before = words.notified.load(Ordering::Relaxed) == 1;
            assert_eq!(words.bell().announce(), !told_before);
        });
    }

    #[test]
    fn loom_an_announced_sleeper_is_woken_once_by_two_notifiers() {
        loom::model(|| {
            let words = words();
            assert!(words.bell().announce());
            let others = [0, 1].map(|by| {
                let other = words.clone();
                thread::spawn(move || {
                    other.told[by].store(1, Ordering::Relaxed);
                    other.bell().notify()
                })
            });
            let calls = others
                .map(|other| other.join().unwrap())
                .iter()
                .filter(|&&call| call)
                .count();
            assert_eq!(calls, 1, "one of them makes the system call");
            assert_eq!(words.sleeping.load(Ordering::Relaxed), 0);
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
