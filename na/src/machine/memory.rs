//! Registered memory, which consists of segments that peers may read or write.

use std::ptr;
use std::sync::Arc;

use slab::Slab;

use super::wire::{MemoryKey, Status};
use crate::error::{Error, Result};

/// The peers' rights to registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Peers may get from the memory.
    ReadOnly,
    /// Peers may put to the memory.
    WriteOnly,
    /// Peers may get from the memory and put to it.
    ReadWrite,
}

impl Rights {
    pub(crate) fn may_read(self) -> bool {
        self != Self::WriteOnly
    }
    pub(crate) fn may_write(self) -> bool {
        self != Self::ReadOnly
    }
}

/// A contiguous part of a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub base: *mut u8,
    /// The length in bytes.
    pub length: usize,
}

// SAFETY: a segment is only an address and a length. The user guarantees that the memory is valid
// when it is accessed.
unsafe impl Send for Segment {}
// SAFETY: a shared reference to a segment only gives access to an address and a length.
unsafe impl Sync for Segment {}

/// The segments of a memory as a single sequence of bytes.
#[derive(Debug)]
pub(crate) struct Segments {
    all: Box<[Segment]>,
    /// The end offset of each segment.
    ends: Box<[u64]>,
}

impl Segments {
    pub(crate) fn new(segments: &[Segment]) -> Result<Self> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(segments.len());
        for segment in segments {
            if segment.base.is_null() && segment.length > 0 {
                return Err(Error::Invalid("a memory segment has address 0"));
            }
            end = end
                .checked_add(segment.length as u64)
                .ok_or(Error::Invalid("the memory segments exceed 2^64 bytes"))?;
            ends.push(end);
        }
        Ok(Self {
            all: segments.into(),
            ends: ends.into(),
        })
    }

    pub(crate) fn length(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns whether `[offset, offset + length)` lies within the memory.
    pub(crate) fn holds(&self, offset: u64, length: u64) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length())
    }

    /// Returns the address and the length of the contiguous piece that begins at `offset` and has
    /// at most `length` bytes. Returns `None` if the offset is beyond the end or the piece is
    /// empty.
    pub(crate) fn piece(&self, offset: u64, length: usize) -> Option<(*mut u8, usize)> {
        let number = self.ends.partition_point(|end| *end <= offset);
        let segment = self.all.get(number)?;
        let left = self.ends[number] - offset;
        // The casts are lossless: `left` is at most the segment's length.
        let skip = segment.length - left as usize;
        let length = length.min(left as usize);
        // SAFETY: the offset is within the segment, which the user guarantees to be memory of one
        // object.
        (length > 0).then(|| (unsafe { segment.base.add(skip) }, length))
    }

    /// Calls `each` with every contiguous piece of `[offset, offset + length)` and the number of
    /// bytes that precede the piece. Bytes beyond the end of the memory are omitted.
    pub(crate) fn each_piece(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(usize, *mut u8, usize),
    ) {
        let mut done = 0;
        while let Some((at, count)) = self.piece(offset + done as u64, length - done) {
            each(done, at, count);
            done += count;
            if done == length {
                return;
            }
        }
    }

    /// Copies bytes to this memory, starting at `offset`.
    ///
    /// # Safety
    /// The memory must be valid for writes.
    pub(crate) unsafe fn write(&self, offset: u64, bytes: &[u8]) {
        // SAFETY: the caller guarantees that the memory is valid for writes, and a slice's bytes
        // are valid for reads.
        unsafe { self.write_from(offset, bytes.as_ptr(), bytes.len()) };
    }

    /// Does the same as [`write`](Self::write) for bytes that may be part of this memory.
    ///
    /// # Safety
    /// The memory must be valid for writes, and `[bytes, bytes + length)` for reads.
    pub(crate) unsafe fn write_from(&self, offset: u64, bytes: *const u8, length: usize) {
        self.each_piece(offset, length, |before, at, count| {
            // SAFETY: the caller guarantees that the memory is valid for writes and `[bytes, bytes
            // + length)` for reads, and `before + count` is at most `length`.
            unsafe { ptr::copy(bytes.add(before), at, count) };
        });
    }

    /// Copies bytes from this memory, starting at `offset`.
    ///
    /// # Safety
    /// The memory must be valid for reads.
    pub(crate) unsafe fn read(&self, offset: u64, into: &mut [u8]) {
        let length = into.len();
        self.each_piece(offset, length, |before, at, count| {
            // SAFETY: the caller guarantees that the memory is valid for reads, and `into` is
            // exclusively borrowed.
            unsafe { ptr::copy_nonoverlapping(at, into[before..].as_mut_ptr(), count) };
        });
    }
}

/// Memory registered by this process.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) key: u64,
    pub(crate) rights: Rights,
    pub(crate) segments: Arc<Segments>,
    /// The number of replies that a transport still reads from the memory.
    pub(crate) replies: u32,
    /// Whether the memory is being deregistered, so that no new access may begin.
    pub(crate) is_closing: bool,
}

/// All memory that this process has registered.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    all: Slab<Registered>,
}

impl Memories {
    pub(crate) fn register(
        &mut self,
        key: u64,
        rights: Rights,
        segments: Arc<Segments>,
    ) -> Result<MemoryKey> {
        let index = u32::try_from(self.all.vacant_key())
            .map_err(|_| Error::Exhausted("all memory handles are in use".to_owned()))?;
        self.all.insert(Registered {
            key,
            rights,
            segments,
            replies: 0,
            is_closing: false,
        });
        Ok(MemoryKey { index, key })
    }

    pub(crate) fn get(&mut self, memory: MemoryKey) -> Option<&mut Registered> {
        let registered = self.all.get_mut(memory.index as usize)?;
        (registered.key == memory.key).then_some(registered)
    }

    pub(crate) fn deregister(&mut self, memory: MemoryKey) {
        if self.get(memory).is_some() {
            self.all.remove(memory.index as usize);
        }
    }

    /// Returns the memory of a peer's request if the request is allowed.
    pub(crate) fn check(
        &mut self,
        memory: MemoryKey,
        offset: u64,
        length: u64,
        writes: bool,
    ) -> Result<&mut Registered, Status> {
        let registered = self.get(memory).filter(|registered| !registered.is_closing);
        let registered = registered.ok_or(Status::NoSuchMemory)?;
        if writes && !registered.rights.may_write() {
            return Err(Status::NotWritable);
        }
        if !writes && !registered.rights.may_read() {
            return Err(Status::NotReadable);
        }
        match registered.segments.holds(offset, length) {
            true => Ok(registered),
            false => Err(Status::OutOfBounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Segments behave like a vector of all their bytes.
        #[test]
        fn segments_are_one_sequence(
            lengths in prop::collection::vec(0usize..20, 0..8),
            writes in prop::collection::vec((0usize..100, prop::collection::vec(any::<u8>(), 0..40)), 0..10),
        ) {
            let mut parts: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
            let segments: Vec<_> = parts
                .iter_mut()
                .map(|part| Segment { base: part.as_mut_ptr(), length: part.len() })
                .collect();
            let segments = Segments::new(&segments).unwrap();
            let mut model = vec![0u8; lengths.iter().sum()];
            prop_assert_eq!(segments.length(), model.len() as u64);
            for (offset, bytes) in writes {
                let fits = segments.holds(offset as u64, bytes.len() as u64);
                prop_assert_eq!(fits, offset + bytes.len() <= model.len());
                if fits {
                    // SAFETY: the segments are those of the vectors, which are valid for writes.
                    unsafe { segments.write(offset as u64, &bytes) };
                    model[offset..][..bytes.len()].copy_from_slice(&bytes);
                }
            }
            let mut all = vec![1; model.len()];
            // SAFETY: the segments are those of the vectors, which are valid for reads.
            unsafe { segments.read(0, &mut all) };
            prop_assert_eq!(all, model);
        }
    }
}
