//! A place for one message between who makes progress, under the network's lock, and who polls a queue, outside of it.
//!
//! A message that comes while nothing else waits, as each of a round trip does, goes through here and not through its queue: nothing
//! is moved, no buffer is taken and given back. One side writes only while the place is free, the other reads only while it is taken.

#[cfg(all(test, loom))]
mod loom;

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use conduit_core::ni::{PtIndex, PutEvent, Rank};

use crate::sync::AtomicBool;

struct Mailbox<T> {
    /// The reader's, else the writer's.
    full: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one side at a time reaches the value, see the module; it may be sent.
unsafe impl<T: Send> Sync for Mailbox<T> {}

/// The side that fills it. There is one.
pub(crate) struct Writer<T>(Arc<Mailbox<T>>);

/// The side that empties it. There is one.
pub(crate) struct Reader<T>(Arc<Mailbox<T>>);

/// Both sides of a new one, which is empty.
pub(crate) fn mailbox<T>(value: T) -> (Writer<T>, Reader<T>) {
    let mailbox = Arc::new(Mailbox {
        full: AtomicBool::new(false),
        value: UnsafeCell::new(value),
    });
    (Writer(Arc::clone(&mailbox)), Reader(mailbox))
}

/// A free one, which stays so until it is filled.
pub(crate) struct Vacant<'a, T>(&'a Mailbox<T>);

impl<T> Writer<T> {
    /// The same, if it is free.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_, T>> {
        // SYNC: pairs with the reader's Release: what it has read is not written before it is done.
        (!self.0.full.load(Acquire)).then_some(Vacant(&self.0))
    }
}

impl<T> Vacant<'_, T> {
    /// Fills it.
    #[inline(always)]
    pub(crate) fn fill(self, write: impl FnOnce(&mut T)) {
        // SAFETY: free, so the reader does not look, and this is the only writer's, borrowed exclusively.
        write(unsafe { &mut *self.0.value.get() });
        // SYNC: pairs with the reader's Acquire.
        self.0.full.store(true, Release);
    }
}

impl<T> Reader<T> {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.full.load(Acquire)
    }

    /// Reads what is there, which is gone after that, also if `read` panics.
    #[inline(always)]
    pub(crate) fn take<R>(&mut self, read: impl FnOnce(&T) -> R) -> Option<R> {
        struct Emptied<'a>(&'a AtomicBool);
        impl Drop for Emptied<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                self.0.store(false, Release);
            }
        }
        if !self.is_full() {
            return None;
        }
        let _emptied = Emptied(&self.0.full);
        // SAFETY: full, so the writer does not touch it, and this is the only reader, borrowed exclusively.
        Some(read(unsafe { &*self.0.value.get() }))
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// Bytes of a letter's data at most.
pub(crate) const LETTER: usize = 64;

/// A short put to a managed entry.
#[repr(C, align(64))]
pub(crate) struct Letter {
    data: [u8; LETTER],
    tag: u64,
    match_bits: u64,
    offset: u64,
    hdr_data: u64,
    source: Rank,
    index: PtIndex,
    /// Bytes of data, all that was sent.
    length: u8,
}

/// Both sides of a queue's mailbox.
pub(crate) fn of_letters() -> (Writer<Letter>, Reader<Letter>) {
    mailbox(Letter {
        data: [0; LETTER],
        tag: 0,
        match_bits: 0,
        offset: 0,
        hdr_data: 0,
        source: 0,
        index: PtIndex(0),
        length: 0,
    })
}

/// Copies what fits, as two pieces that meet or overlap: a call would take longer.
#[inline(always)]
fn copy_short(to: &mut [u8; LETTER], from: &[u8]) {
    #[inline(always)]
    fn ends<const N: usize>(to: &mut [u8; LETTER], from: &[u8]) {
        if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>())
            && let Some(to) = to.get_mut(..from.len())
        {
            to[..N].copy_from_slice(first);
            to[from.len() - N..].copy_from_slice(last);
        }
    }
    match from.len() {
        0 => {}
        1 => ends::<1>(to, from),
        2..4 => ends::<2>(to, from),
        4..8 => ends::<4>(to, from),
        8..=16 => ends::<8>(to, from),
        17..=32 => ends::<16>(to, from),
        _ => ends::<32>(to, from),
    }
}

impl Letter {
    /// Writes a put of at most [`LETTER`] bytes that have all been taken.
    #[inline(always)]
    pub(crate) fn write(&mut self, put: &PutEvent<'_>, data: &[u8]) {
        self.tag = put.tag;
        self.match_bits = put.match_bits;
        self.offset = put.offset;
        self.hdr_data = put.hdr_data;
        self.source = put.source;
        self.index = put.index;
        // Fits: at most LETTER.
        self.length = data.len() as u8;
        copy_short(&mut self.data, data);
    }

    #[inline(always)]
    pub(crate) fn event(&self) -> PutEvent<'_> {
        let data = self.data.get(..self.length.into()).unwrap_or_default();
        PutEvent {
            index: self.index,
            tag: self.tag,
            source: self.source,
            match_bits: self.match_bits,
            hdr_data: self.hdr_data,
            offset: self.offset,
            length: data.len(),
            requested: data.len(),
            data,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_once() {
        let (mut writer, mut reader) = mailbox(0);
        assert_eq!(reader.take(|value| *value), None);
        for round in 1..4 {
            assert!(!reader.is_full());
            writer.vacant().expect("empty").fill(|value| *value = round);
            assert!(writer.vacant().is_none() && reader.is_full());
            assert_eq!(reader.take(|value| *value), Some(round));
            assert_eq!(reader.take(|value| *value), None);
        }
    }

    proptest! {
        #[test]
        fn letters_of_any_length_are_whole(data in prop::collection::vec(any::<u8>(), 0..=LETTER)) {
            let mut to = [0; LETTER];
            copy_short(&mut to, &data);
            prop_assert_eq!(&to[..data.len()], &data[..]);
            prop_assert!(to[data.len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn what_panics_is_gone() {
        let (mut writer, mut reader) = mailbox(());
        writer.vacant().expect("empty").fill(|()| {});
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            reader.take(|()| panic!("at it"))
        }));
        assert!(taken.is_err() && writer.vacant().is_some());
    }
}
