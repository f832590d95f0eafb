//! One flat table of what each ring waits for, so that a rank with nothing to do finds that out with a load and a
//! comparison per ring.
//!
//! An entry is the word at which the ring's next message will be published and the tag that publishes it. It is written
//! by whoever holds the ring's queue, after each poll that took something, and read by anybody without a lock. A reader in
//! another thread may see the two fields of different moments: it then takes a ring for idle or busy which is not, once;
//! the next look is right.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use conduit_core::threads::Mode;

use super::Shm;
use super::receive::Inbox;

/// What an entry waits for that must be polled in any case: always there.
static ALWAYS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
struct Watch {
    word: AtomicPtr<AtomicU32>,
    tag: AtomicU32,
}

/// The table. The entries of a queue's rings follow one another.
#[derive(Debug)]
pub(super) struct Watches {
    entries: Box<[Watch]>,
    used: AtomicUsize,
}

impl Watches {
    /// Room for so many rings.
    pub(super) fn new(rings: usize) -> Self {
        let unused = || Watch {
            word: AtomicPtr::new((&raw const ALWAYS).cast_mut()),
            tag: AtomicU32::new(0),
        };
        Self {
            entries: (0..rings).map(|_| unused()).collect(),
            used: AtomicUsize::new(0),
        }
    }

    /// Entries for the rings of a new queue; gives the first one's place.
    pub(super) fn add(&self, rings: usize) -> usize {
        self.used.fetch_add(rings, Ordering::Release)
    }

    /// Whether no ring has anything.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.are_idle(0, self.used.load(Ordering::Acquire))
    }

    /// Whether none of `count` rings from entry `first` has anything.
    #[inline]
    pub(super) fn are_idle(&self, first: usize, count: usize) -> bool {
        let entries = self.entries.get(first..first + count).unwrap_or(&[]);
        entries.iter().all(|watch| {
            let word = watch.word.load(Ordering::Relaxed);
            // SAFETY: `ALWAYS`, or a word of one of this rank's own rings, which stay mapped as long as the network lives.
            let found = unsafe { (*word).load(Ordering::Relaxed) };
            found != watch.tag.load(Ordering::Relaxed)
        })
    }

    /// Waits for `tag` at `word` on behalf of a ring; `None`: the ring must be polled in any case.
    #[inline]
    fn set(&self, place: usize, awaited: Option<(&AtomicU32, u32)>) {
        let (word, tag) = awaited.unwrap_or((&ALWAYS, 0));
        if let Some(watch) = self.entries.get(place) {
            watch
                .word
                .store(std::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
            watch.tag.store(tag, Ordering::Relaxed);
        }
    }
}

impl<M: Mode> Shm<M> {
    /// Notes what the rings of a queue wait for now.
    #[inline]
    pub(super) fn watch(&self, first: usize, inbox: &Inbox) {
        for (place, ring) in (first..).zip(&inbox.rings) {
            self.watches
                .set(place, ring.awaited().filter(|_| !inbox.is_owing()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_until_one_awaited_tag_is_there() {
        let watches = Watches::new(3);
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        assert!(watches.is_idle(), "no rings");
        let first = watches.add(2);
        assert!(!watches.is_idle(), "rings that nobody has looked at");
        watches.set(first, Some((&words[0], 7)));
        watches.set(first + 1, Some((&words[1], 8)));
        assert!(watches.is_idle());
        words[1].store(8, Ordering::Relaxed);
        assert!(!watches.is_idle());
        words[1].store(7, Ordering::Relaxed);
        assert!(watches.is_idle());
        watches.set(first, None);
        assert!(!watches.is_idle(), "to be polled in any case");
    }
}
