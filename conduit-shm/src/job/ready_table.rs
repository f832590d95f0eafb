//! The ready table: a flat array that says, for each ring, which word will show its next message. A
//! rank finds the rings with work by loading the word of each entry and comparing its tag.
//!
//! An entry consists of the word in which the ring's next message will be published, and of the tag
//! that publishes it. The thread that has locked the ring's queue writes the entry after each poll
//! that took something; the entry for a reply is also written when a slot is offered. Any thread
//! may read an entry without a lock. A reader in another thread may see the two fields from
//! different moments and wrongly take a ring for idle or busy once. Its next read returns the right
//! answer.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use atomic::Atomic;

use conduit_core::ni::Ready;

use crate::ring::{Frame, frame_in, tag_in};

use super::layout;

/// The word of an entry that must be polled in any case, because it always has the tag.
static ALWAYS: AtomicU64 = AtomicU64::new(0);

/// A tag that [`ALWAYS`] never has.
const NEVER: u32 = 1;
/// The index of the entry for [`layout::Control::activations`].
const ACTIVATIONS: usize = 0;

const _: () = assert!(Atomic::<Ready>::is_lock_free());

#[derive(Debug)]
struct ReadyEntry {
    word: AtomicPtr<AtomicU64>,
    tag: AtomicU32,
    /// The bit of the ring's queue.
    queue: Atomic<Ready>,
}

impl ReadyEntry {
    /// Creates an entry that belongs to no queue. Its ring must be polled in any case.
    fn new() -> Self {
        Self {
            word: AtomicPtr::new((&raw const ALWAYS).cast_mut()),
            tag: AtomicU32::new(0),
            queue: Atomic::new(Ready::NONE),
        }
    }

    /// Returns the value of the word if it has the awaited tag.
    #[inline(always)]
    fn found(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: `word` points to `ALWAYS`, to a word in a ring of this rank or of a peer, or to a
        // word in the first page of this rank's memory. All these words stay mapped as long as the
        // network lives.
        let found = unsafe { (*word).load(Ordering::Relaxed) };
        (tag_in(found) == self.tag.load(Ordering::Relaxed)).then_some(found)
    }

    /// Sets the word and the tag to wait for. With `None`, the entry must be polled in any case.
    #[inline(always)]
    fn set(&self, awaited: Option<(&AtomicU64, u32)>) {
        let (word, tag) = awaited.unwrap_or((&ALWAYS, 0));
        self.word
            .store(ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
        self.tag.store(tag, Ordering::Relaxed);
    }
}

/// The table. Rings get entries in the order in which sources begin to send through them. A ring
/// through which no source has sent has no entry.
#[derive(Debug)]
pub(super) struct ReadyTable {
    entries: Box<[ReadyEntry]>,
    used: AtomicUsize,
    /// The entry for a reply (`super::reply_slots`). The reply's frame says to which queue the
    /// reply belongs.
    reply: ReadyEntry,
}

impl ReadyTable {
    /// Creates a table with room for `rings` rings, for a reply and for activations. At first,
    /// neither a reply nor activations are awaited.
    pub(super) fn new(rings: usize) -> Self {
        let ready_table = Self {
            entries: (0..=ACTIVATIONS + rings)
                .map(|_| ReadyEntry::new())
                .collect(),
            used: AtomicUsize::new(ACTIVATIONS + 1),
            reply: ReadyEntry::new(),
        };
        let nothing = Some((&ALWAYS, NEVER));
        ready_table.set(ACTIVATIONS, nothing);
        ready_table.reply.set(nothing);
        ready_table
    }

    /// Adds an entry for a ring of a queue, which at first must be polled in any case. Returns the
    /// entry's index, or `None` if the table is full.
    pub(super) fn add(&self, queue: Ready) -> Option<u32> {
        let place = self.used.fetch_add(1, Ordering::AcqRel);
        // Until this store, the entry stands for no queue.
        let bits = &self.entries.get(place)?.queue;
        bits.store(queue, Ordering::Relaxed);
        Some(place as u32)
    }

    /// Makes an entry wait for nothing, so that its ring is not polled.
    pub(super) fn clear(&self, place: usize) {
        self.set(place, Some((&ALWAYS, NEVER)));
    }

    /// Sets the word that shows activated rings, which may belong to any queue.
    pub(super) fn set_activations(&self, word: &AtomicU64) {
        self.set(ACTIVATIONS, Some((word, tag_in(layout::ACTIVATIONS))));
        let bits = &self.entries[ACTIVATIONS].queue;
        bits.store(Ready::ALL, Ordering::Relaxed);
    }

    /// Returns the queues with rings that have work.
    #[inline]
    pub(super) fn ready(&self) -> Ready {
        let used = self.used.load(Ordering::Acquire);
        let mut ready = Ready::NONE;
        for watch in self.entries.get(..used).unwrap_or(&[]) {
            if watch.found().is_some() {
                ready = ready.union(watch.queue.load(Ordering::Relaxed));
            }
        }
        ready
    }

    /// Sets the word and the tag to wait for a reply. With `None`, no reply is awaited.
    #[inline(always)]
    pub(super) fn set_reply(&self, awaited: Option<(&AtomicU64, u32)>) {
        self.reply.set(Some(awaited.unwrap_or((&ALWAYS, NEVER))));
    }

    /// Returns the frame of the awaited reply if it has arrived.
    #[inline(always)]
    pub(super) fn reply(&self) -> Option<Frame> {
        self.reply.found().map(frame_in)
    }

    /// Sets the word and the tag to wait for on behalf of a ring. With `None`, the ring must be
    /// polled in any case.
    #[inline]
    pub(super) fn set(&self, place: usize, awaited: Option<(&AtomicU64, u32)>) {
        if let Some(watch) = self.entries.get(place) {
            watch.set(awaited);
        }
    }
}

#[cfg(test)]
mod tests {
    use conduit_core::ni::EqId;

    use super::*;

    #[test]
    fn ready_where_an_awaited_tag_is() {
        let ready_table = ReadyTable::new(3);
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let (a, b) = (Ready::queue(EqId(1)), Ready::PROGRESS);
        assert!(ready_table.ready().is_empty(), "no rings");
        let first = ready_table.add(a).unwrap() as usize;
        assert_eq!(
            ready_table.ready(),
            a,
            "a ring that was never polled counts as ready"
        );
        ready_table.set(first, Some((&words[0], 7)));
        let second = ready_table.add(b).unwrap() as usize;
        assert_eq!(ready_table.ready(), b);
        ready_table.set(second, Some((&words[1], 8)));
        assert!(ready_table.ready().is_empty());
        words[1].store(8 | 77 << 32, Ordering::Relaxed);
        assert_eq!(
            ready_table.ready(),
            b,
            "only the tag matters, not the frame"
        );
        words[0].store(7, Ordering::Relaxed);
        assert_eq!(ready_table.ready(), a.union(b));
        words[1].store(7, Ordering::Relaxed);
        assert_eq!(ready_table.ready(), a);
        ready_table.set(second, None);
        assert_eq!(
            ready_table.ready(),
            a.union(b),
            "a ring that must be polled in any case is ready"
        );
    }
}
