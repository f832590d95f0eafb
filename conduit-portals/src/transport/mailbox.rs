//! A slot for one message. A thread that holds the lock and makes progress fills the slot; a thread
//! that polls the queue empties it, without the lock.
//!
//! A message that arrives while its queue is empty, as in a ping-pong, goes through this slot
//! instead of the queue, which saves a buffer. The writer writes only while the slot is empty; the
//! reader reads only while the slot is full.

#[cfg(all(test, loom))]
mod loom;

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use conduit_core::ni::{PtIndex, PutEvent, Rank};

use crate::sync::AtomicBool;

struct Mailbox<T> {
    /// If set, the reader owns the value; otherwise the writer does.
    full: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `full` ensures that only one side at a time accesses the value, and `T` is `Send`.
unsafe impl<T: Send> Sync for Mailbox<T> {}

/// The side that fills the slot. There is only one, because the type is not `Clone`.
pub(crate) struct Writer<T>(Arc<Mailbox<T>>);

/// The side that empties the slot. There is only one, because the type is not `Clone`.
pub(crate) struct Reader<T>(Arc<Mailbox<T>>);

/// Creates both sides of an empty slot.
pub(crate) fn mailbox<T>(value: T) -> (Writer<T>, Reader<T>) {
    let mailbox = Arc::new(Mailbox {
        full: AtomicBool::new(false),
        value: UnsafeCell::new(value),
    });
    (Writer(Arc::clone(&mailbox)), Reader(mailbox))
}

/// An empty slot, which stays empty until the writer fills it.
pub(crate) struct Vacant<'a, T>(&'a Mailbox<T>);

impl<T> Writer<T> {
    /// Returns the slot if it is empty.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_, T>> {
        // SYNC: this Acquire pairs with the reader's Release, so that the reader's reads happen
        // before the writer's writes.
        (!self.0.full.load(Acquire)).then_some(Vacant(&self.0))
    }
}

impl<T> Vacant<'_, T> {
    #[inline(always)]
    pub(crate) fn fill(self, write: impl FnOnce(&mut T)) {
        // SAFETY: the slot is empty, so the reader does not read it, and the only writer is
        // borrowed exclusively.
        write(unsafe { &mut *self.0.value.get() });
        // SYNC: this Release pairs with the reader's Acquire, so that the reader sees the written
        // value.
        self.0.full.store(true, Release);
    }
}

impl<T> Reader<T> {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.full.load(Acquire)
    }

    /// Reads the value and empties the slot, even if `read` panics.
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
        // SAFETY: the slot is full, so the writer does not touch it, and the only reader is
        // borrowed exclusively.
        Some(read(unsafe { &*self.0.value.get() }))
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// The maximum number of bytes of data in an [`InlinePut`].
pub(crate) const MAX_INLINE: usize = 64;

/// A short put to a managed entry, with its data.
#[repr(C, align(64))]
pub(crate) struct InlinePut {
    data: [u8; MAX_INLINE],
    tag: u64,
    match_bits: u64,
    offset: u64,
    hdr_data: u64,
    source: Rank,
    index: PtIndex,
    /// Number of bytes of data.
    length: u8,
}

/// Creates the mailbox of a queue.
pub(crate) fn inline_puts() -> (Writer<InlinePut>, Reader<InlinePut>) {
    mailbox(InlinePut {
        data: [0; MAX_INLINE],
        tag: 0,
        match_bits: 0,
        offset: 0,
        hdr_data: 0,
        source: 0,
        index: PtIndex(0),
        length: 0,
    })
}

/// Copies bytes as two pieces that are adjacent or overlap, which is faster than a call of
/// `memcpy`.
#[inline(always)]
fn copy_short(to: &mut [u8; MAX_INLINE], from: &[u8]) {
    #[inline(always)]
    fn ends<const N: usize>(to: &mut [u8; MAX_INLINE], from: &[u8]) {
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

impl InlinePut {
    /// Writes a put of at most [`MAX_INLINE`] bytes, which must not be truncated.
    #[inline(always)]
    pub(crate) fn write(&mut self, put: &PutEvent<'_>, data: &[u8]) {
        self.tag = put.tag;
        self.match_bits = put.match_bits;
        self.offset = put.offset;
        self.hdr_data = put.hdr_data;
        self.source = put.source;
        self.index = put.index;
        // The cast is lossless: the length is at most `MAX_INLINE`.
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
        fn inline_puts_of_any_length_are_whole(data in prop::collection::vec(any::<u8>(), 0..=MAX_INLINE)) {
            let mut to = [0; MAX_INLINE];
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
