//! The ready table: one flat array of what each ring waits for. A rank finds the rings with something to do by a load
//! and a comparison for each.
//!
//! An entry is the word at which the ring's next message will be published, and the tag that publishes it. The holder
//! of the ring's queue writes it after each poll that took something (the one for a reply also when a slot is offered).
//! Any thread reads it without a lock. A reader in another thread may see the two fields of different moments and take
//! a ring for idle or busy once too often; its next look is right.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use atomic::Atomic;

use conduit_core::ni::Ready;

use crate::ring::{Frame, frame_in, tag_in};

use super::layout;

/// What an entry waits for that must be polled in any case: always there.
static ALWAYS: AtomicU64 = AtomicU64::new(0);

/// A tag that is not there.
const NEVER: u32 = 1;
/// The place of the entry for [`layout::Control::activations`].
const ACTIVATIONS: usize = 0;

const _: () = assert!(Atomic::<Ready>::is_lock_free());

#[derive(Debug)]
struct ReadyEntry {
    word: AtomicPtr<AtomicU64>,
    tag: AtomicU32,
    /// The bits of the ring's queue in [`Ready`].
    queue: Atomic<Ready>,
}

impl ReadyEntry {
    /// To be polled in any case, for no queue.
    fn new() -> Self {
        Self {
            word: AtomicPtr::new((&raw const ALWAYS).cast_mut()),
            tag: AtomicU32::new(0),
            queue: Atomic::new(Ready::NONE),
        }
    }

    /// The word, if it has the tag.
    #[inline(always)]
    fn found(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: `ALWAYS`, or a word of a ring of this rank's or a peer's, or of this rank's first page; all stay mapped as long as the
        // network lives.
        let found = unsafe { (*word).load(Ordering::Relaxed) };
        (tag_in(found) == self.tag.load(Ordering::Relaxed)).then_some(found)
    }

    /// Waits for `tag` at `word`; `None`: something is to be done in any case.
    #[inline(always)]
    fn set(&self, awaited: Option<(&AtomicU64, u32)>) {
        let (word, tag) = awaited.unwrap_or((&ALWAYS, 0));
        self.word
            .store(ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
        self.tag.store(tag, Ordering::Relaxed);
    }
}

/// The table. Rings have entries in the order in which somebody has begun to send by them; the others have none.
#[derive(Debug)]
pub(super) struct ReadyTable {
    entries: Box<[ReadyEntry]>,
    used: AtomicUsize,
    /// For a reply (`super::reply_slots`), which names its queue itself.
    reply: ReadyEntry,
}

impl ReadyTable {
    /// Room for so many rings, and for a reply and activations, which nothing awaits yet.
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

    /// An entry for a ring of a queue, which is to be polled in any case at first; gives its place.
    pub(super) fn add(&self, queue: Ready) -> Option<u32> {
        let place = self.used.fetch_add(1, Ordering::AcqRel);
        // Until now it stood for no queue.
        let bits = &self.entries.get(place)?.queue;
        bits.store(queue, Ordering::Relaxed);
        Some(place as u32)
    }

    /// Waits for nothing at this place.
    pub(super) fn clear(&self, place: usize) {
        self.set(place, Some((&ALWAYS, NEVER)));
    }

    /// Reads this word for activated rings, which may be of any queue.
    pub(super) fn set_activations(&self, word: &AtomicU64) {
        self.set(ACTIVATIONS, Some((word, tag_in(layout::ACTIVATIONS))));
        let bits = &self.entries[ACTIVATIONS].queue;
        bits.store(Ready::ALL, Ordering::Relaxed);
    }

    /// Whose rings have something.
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

    /// Waits for a reply: for `tag` at `word`, or for none.
    #[inline(always)]
    pub(super) fn set_reply(&self, awaited: Option<(&AtomicU64, u32)>) {
        self.reply.set(Some(awaited.unwrap_or((&ALWAYS, NEVER))));
    }

    /// The frame of the reply that is waited for, if that is there.
    #[inline(always)]
    pub(super) fn reply(&self) -> Option<Frame> {
        self.reply.found().map(frame_in)
    }

    /// Waits for `tag` at `word` on behalf of a ring; `None`: the ring must be polled in any case.
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
        assert_eq!(ready_table.ready(), a, "a ring that nobody has looked at");
        ready_table.set(first, Some((&words[0], 7)));
        let second = ready_table.add(b).unwrap() as usize;
        assert_eq!(ready_table.ready(), b);
        ready_table.set(second, Some((&words[1], 8)));
        assert!(ready_table.ready().is_empty());
        words[1].store(8 | 77 << 32, Ordering::Relaxed);
        assert_eq!(ready_table.ready(), b, "whatever the frame");
        words[0].store(7, Ordering::Relaxed);
        assert_eq!(ready_table.ready(), a.union(b));
        words[1].store(7, Ordering::Relaxed);
        assert_eq!(ready_table.ready(), a);
        ready_table.set(second, None);
        assert_eq!(ready_table.ready(), a.union(b), "to be polled in any case");
    }
}
