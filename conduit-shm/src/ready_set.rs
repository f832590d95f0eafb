//! A record of which of many rings have messages, for a consumer that polls only a few of the
//! rings. This module contains the words in shared memory and their protocol, without the system
//! calls.
//!
//! A process has a ring from each of its peers. The process *watches* a few of these rings, which
//! means that it polls them and that their producers merely publish. For the other rings, it has a
//! [`ReadySet`] (a bit for each peer and a word that summarises the bits) and a word that says
//! whether the process sleeps. The producer of an unwatched ring sets its bit after publishing, and
//! wakes a sleeper.
//!
//! Each side stores one word and then loads another word, which the other side stores. The pairs of
//! words are a record and `watched`, a bit and `sleeping`, and a ring's head and `waiting`. Full
//! fences between the two accesses ensure that at least one side sees the other's store (Dekker's
//! algorithm). Hence no wake-up is lost, and a sleeper needs no time limit.

use conduit_portals::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The number of bits of a word.
const BITS: u32 = 64;

/// The words of one consumer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadySet<'a> {
    /// 1 while the owner sleeps or is about to sleep.
    pub(crate) sleeping: &'a AtomicU32,
    /// Bit `w % 64` says that word `w` may have bits set.
    pub(crate) summary: &'a AtomicU64,
    /// Bit `p % 64` of word `p / 64` says that the ring of producer `p` has messages, or has room
    /// again.
    pub(crate) words: &'a [AtomicU64],
}

impl ReadySet<'_> {
    /// Sets the bit of producer `number` unless its ring is watched. The producer calls this after
    /// it has published in the ring. Returns whether the caller must wake the owner.
    #[inline]
    pub(crate) fn notify(self, watched: &AtomicU32, number: u32) -> bool {
        // SYNC (watch): the record is stored before `watched` is loaded. This fence pairs with the
        // fence in `unwatch`, `announce` or `take`, after which the owner checks the ring.
        fence(Ordering::SeqCst);
        watched.load(Ordering::Relaxed) == 0 && self.set(number)
    }

    /// Sets the bit of `number`. Returns whether the caller must wake the owner.
    #[cold]
    pub(crate) fn set(self, number: u32) -> bool {
        let (index, bit) = (number / BITS, 1 << (number % BITS));
        let Some(word) = self.words.get(index as usize) else {
            return false;
        };
        // If the bit is set, the owner has yet to take it, and will check the ring after that. The
        // fence that must precede this load is in `notify` or `has_waiter`.
        if word.load(Ordering::Relaxed) & bit != 0 {
            return false;
        }
        // SYNC (ready): this release pairs with the acquire in `take`, so an owner that sees the
        // bit sees everything that was published before it.
        word.fetch_or(bit, Ordering::Release);
        self.summary
            .fetch_or(1 << (index % BITS), Ordering::Release);
        // SYNC (sleep): the bit is set before `sleeping` is loaded. This fence pairs with the fence
        // in `announce`.
        fence(Ordering::SeqCst);
        // If several producers find the owner asleep, only one of them wakes it.
        self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::Relaxed) != 0
    }

    /// Returns whether no bit is set.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.summary.load(Ordering::Relaxed) == 0
    }

    /// Takes all bits that are set. Only the owner may call this method.
    pub(crate) fn take(self, mut each: impl FnMut(u32)) {
        // SYNC (ready): this acquire pairs with the release in `set`. A producer that sets its bit
        // after the word was taken sets the summary again.
        let summary = self.summary.swap(0, Ordering::Acquire);
        for (index, word) in (0..).zip(self.words) {
            if summary & 1 << (index % BITS) == 0 || word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            // SYNC (watch): a producer that found its bit still set published its message before
            // this fence.
            fence(Ordering::SeqCst);
            while bits != 0 {
                each(index * BITS + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Clears a bit that was set by mistake. This is necessary because the producer does not notify
    /// again while its bit is set. Only the owner may call this method.
    pub(crate) fn clear(self, number: u32) {
        if let Some(word) = self.words.get((number / BITS) as usize) {
            word.fetch_and(!(1 << (number % BITS)), Ordering::AcqRel);
        }
    }

    /// Announces that the owner is about to sleep. Before the announcement, the owner must have
    /// stopped watching all rings and [asked for room](ask_for_room) in every ring in which it
    /// needs room. After the announcement, the owner must not sleep if the set is not
    /// [empty](Self::is_empty), if a ring that it watched has messages, or if a ring that was full
    /// has room.
    pub(crate) fn announce(self) {
        self.sleeping.store(1, Ordering::Relaxed);
        // SYNC (sleep, watch, room): the earlier stores come before the checks that the owner makes
        // next.
        fence(Ordering::SeqCst);
    }

    /// Marks the owner as awake.
    pub(crate) fn retire(self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }
}

/// Marks a ring as polled from now on. Only the ring's consumer may call this function.
pub(crate) fn watch(watched: &AtomicU32) {
    watched.store(1, Ordering::Relaxed);
}

/// Marks a ring as no longer polled. Only the ring's consumer may call this function, and it must
/// check the ring once more after this call or after [`ReadySet::announce`].
pub(crate) fn unwatch(watched: &AtomicU32) {
    watched.store(0, Ordering::Relaxed);
    // SYNC (watch): this fence pairs with the fence in `notify`.
    fence(Ordering::SeqCst);
}

/// Marks a ring's producer as waiting for room. The producer must check the ring's head once more
/// after [`ReadySet::announce`].
pub(crate) fn ask_for_room(waiting: &AtomicU32) {
    waiting.store(1, Ordering::Relaxed);
}

/// Returns whether a ring's producer waits for room, in which case the bit for the ring has to be
/// [set](ReadySet::set). The consumer calls this after it has published the head.
pub(crate) fn has_waiter(waiting: &AtomicU32) -> bool {
    // SYNC (room): the head is stored before `waiting` is loaded. This fence pairs with the fence
    // in `announce`.
    fence(Ordering::SeqCst);
    waiting.load(Ordering::Relaxed) != 0 && waiting.swap(0, Ordering::Relaxed) != 0
}

#[cfg(all(test, loom))]
mod loom {
    use loom::sync::Arc;
    use loom::thread;

    use super::{ReadySet, ask_for_room, has_waiter, unwatch};
    use conduit_portals::sync::{AtomicU32, AtomicU64, Ordering};

    /// A consumer's words, and those of two rings, each of which has a single word as its only
    /// record.
    #[derive(Debug)]
    struct Words {
        sleeping: AtomicU32,
        summary: AtomicU64,
        words: [AtomicU64; 1],
        watched: [AtomicU32; 2],
        records: [AtomicU32; 2],
        wakes: AtomicU32,
        head: AtomicU32,
        waiting: AtomicU32,
    }

    fn words(watched: u32) -> Arc<Words> {
        Arc::new(Words {
            sleeping: AtomicU32::new(0),
            summary: AtomicU64::new(0),
            words: [AtomicU64::new(0)],
            watched: [AtomicU32::new(watched), AtomicU32::new(0)],
            records: [AtomicU32::new(0), AtomicU32::new(0)],
            wakes: AtomicU32::new(0),
            head: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        })
    }

    impl Words {
        fn set(&self) -> ReadySet<'_> {
            ReadySet {
                sleeping: &self.sleeping,
                summary: &self.summary,
                words: &self.words,
            }
        }

        fn publish(&self, number: u32, record: u32) {
            let ring = number as usize;
            self.records[ring].store(record, Ordering::Release);
            if self.set().notify(&self.watched[ring], number) {
                self.wakes.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn record(&self, ring: usize) -> u32 {
            self.records[ring].load(Ordering::Acquire)
        }

        /// Takes the newest records of the rings whose bits are set.
        fn take(&self, found: &mut [u32; 2]) {
            let set = self.set();
            set.take(|number| found[number as usize] = self.record(number as usize));
        }
    }

    #[test]
    fn loom_every_record_is_found_by_its_bit() {
        loom::model(|| {
            let words = words(0);
            let other = words.clone();
            let producer = thread::spawn(move || {
                other.publish(1, 1);
                other.publish(1, 2);
            });
            let mut found = [0; 2];
            words.take(&mut found);
            producer.join().unwrap();
            // The producer has ended, so the second call must find its last record.
            words.take(&mut found);
            assert_eq!(found, [0, 2]);
        });
    }

    #[test]
    fn loom_two_producers_share_a_word() {
        loom::model(|| {
            let words = words(0);
            let producers = [0, 1].map(|number| {
                let other = words.clone();
                thread::spawn(move || other.publish(number, 1))
            });
            let mut found = [0; 2];
            words.take(&mut found);
            producers.map(|producer| producer.join().unwrap());
            words.take(&mut found);
            assert_eq!(found, [1, 1]);
        });
    }

    #[test]
    fn loom_a_record_is_found_in_a_ring_that_is_watched_no_more() {
        loom::model(|| {
            let words = words(1);
            let other = words.clone();
            let producer = thread::spawn(move || other.publish(0, 1));
            unwatch(&words.watched[0]);
            let seen = words.record(0) == 1;
            producer.join().unwrap();
            assert!(seen || !words.set().is_empty());
        });
    }

    #[test]
    fn loom_a_sleeper_has_seen_the_record_or_is_woken() {
        for watched in [0, 1] {
            loom::model(move || {
                let words = words(watched);
                let other = words.clone();
                let producer = thread::spawn(move || other.publish(0, 1));
                unwatch(&words.watched[0]);
                words.set().announce();
                let sleeps = words.set().is_empty() && (watched == 0 || words.record(0) == 0);
                producer.join().unwrap();
                assert!(!sleeps || words.wakes.load(Ordering::Relaxed) == 1);
            });
        }
    }

    #[test]
    fn loom_who_waits_for_room_sees_it_or_is_woken() {
        loom::model(|| {
            // The owner of the words is the ring's producer.
            let words = words(0);
            let other = words.clone();
            let consumer = thread::spawn(move || {
                other.head.store(1, Ordering::Release);
                if has_waiter(&other.waiting) && other.set().set(0) {
                    other.wakes.fetch_add(1, Ordering::Relaxed);
                }
            });
            ask_for_room(&words.waiting);
            words.set().announce();
            let sleeps = words.set().is_empty() && words.head.load(Ordering::Acquire) == 0;
            consumer.join().unwrap();
            assert!(!sleeps || words.wakes.load(Ordering::Relaxed) == 1);
        });
    }
}
