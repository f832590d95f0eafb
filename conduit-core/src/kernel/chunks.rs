//! The resources of operations in flight: chunks of the send buffers, and temporary descriptors.
//!
//! The number of each resource is limited (seed, "Recognized environment variables"). When a
//! resource is exhausted, the caller polls until some of it is free.

use crate::kernel::control::SharedPtr;
use crate::kernel::job::Job;
use crate::kernel::tickets::Tickets;
use crate::ni::{MdId, Ni, Unlink};
use crate::threads::{Lock, Mode};

/// A send buffer (ReqSB or RplSB). It consists of chunks of equal size in network memory, and has
/// one descriptor over all of them.
pub(crate) struct SendBuffer<M: Mode> {
    base: SharedPtr,
    /// Size of a chunk in bytes.
    chunk: usize,
    /// Number of chunks.
    count: u32,
    pub(crate) md: MdId,
    pool: M::Lock<ChunkPool>,
}

impl<M: Mode> SendBuffer<M> {
    /// Creates the buffer over the `count * chunk` bytes at `base`, for which `md` is the
    /// descriptor.
    pub(crate) fn new(base: SharedPtr, chunk: usize, count: u32, md: MdId) -> Self {
        Self {
            base,
            chunk,
            count,
            md,
            pool: Lock::new(ChunkPool::new(count)),
        }
    }

    /// Takes a free chunk, which the caller owns until it frees it.
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        self.pool.lock().take()
    }

    /// Takes up to `most` free chunks and passes each to `taken`.
    pub(crate) fn take_up_to(&self, most: u32, mut taken: impl FnMut(u32)) {
        let mut pool = self.pool.lock();
        for chunk in std::iter::from_fn(|| pool.take()).take(most as usize) {
            taken(chunk);
        }
    }

    /// Frees a chunk. Freeing a chunk that is not in use ends the job.
    pub(crate) fn give<N: Ni>(&self, job: &Job<N>, chunk: u32) {
        if !self.pool.lock().give(chunk) {
            job.fail_by_message(job.rank, format!("chunk {chunk} was freed twice"));
        }
    }

    /// Returns the address of a chunk.
    pub(crate) fn at(&self, chunk: u32) -> *mut u8 {
        // In bounds: chunk numbers come from a pool of `count` chunks, all of which have memory.
        self.base.0.wrapping_add(self.offset(chunk))
    }

    /// Returns the offset of a chunk in the buffer.
    pub(crate) fn offset(&self, chunk: u32) -> usize {
        chunk as usize * self.chunk
    }

    /// Returns the offset of a chunk in units of 64 bytes, by which messages identify chunks.
    pub(crate) fn units(&self, chunk: u32) -> u32 {
        (self.offset(chunk) / 64) as u32
    }

    /// Returns the number of the chunk at an offset in units of 64 bytes. A wrong offset from a
    /// peer yields the number of a chunk that isn't in use, or of a wrong one.
    pub(crate) fn number(&self, units: u32) -> u32 {
        (units as usize * 64 / self.chunk) as u32
    }

    /// Returns the address of the `length` bytes at this offset, or `None` if they do not lie in
    /// one chunk.
    pub(crate) fn in_chunk(&self, offset: u64, length: usize) -> Option<*const u8> {
        let offset = usize::try_from(offset).ok()?;
        let in_one = offset < self.bytes() && length <= self.chunk - offset % self.chunk;
        in_one.then(|| self.base.0.wrapping_add(offset).cast_const())
    }

    /// Returns the number of chunks.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the size of all chunks in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.count as usize * self.chunk
    }

    /// Records the destination of a get that bounces through a chunk.
    pub(crate) fn set_bounce(&self, chunk: u32, bounce: Bounce) {
        self.pool.lock().set_bounce(chunk, bounce);
    }

    /// Ends the get that bounces through a chunk; see [`ChunkPool::bounce`].
    pub(crate) fn bounce(&self, chunk: u32) -> Bounce {
        self.pool.lock().bounce(chunk)
    }

    /// Drops all recorded destinations, so that no further bounced get is copied.
    pub(crate) fn forget_bounces(&self) {
        self.pool.lock().forget_bounces();
    }

    /// Returns the number of chunks in use.
    pub(crate) fn held(&self) -> u32 {
        self.pool.lock().held()
    }
}

/// Temporary descriptors (TMPMD): their tickets, and the descriptors whose release the network has
/// delayed.
#[derive(Debug)]
pub(crate) struct Descriptors<M: Mode> {
    pub(crate) tickets: Tickets,
    /// Descriptors that are still to be released, at most one per ticket.
    unreleased: M::Lock<Vec<MdId>>,
}

impl<M: Mode> Descriptors<M> {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            tickets: Tickets::new(count),
            unreleased: Lock::new(Vec::new()),
        }
    }

    /// Releases a descriptor that has no operations in flight, either now or at one of the next
    /// polls.
    pub(crate) fn release<N: Ni>(&self, job: &Job<N>, md: MdId) {
        if !self.is_released(job, md) {
            self.unreleased.lock().push(md);
            job.want_poll();
        }
    }

    /// Retries the releases that the network has delayed.
    pub(crate) fn release_delayed<N: Ni>(&self, job: &Job<N>) {
        let mut unreleased = self.unreleased.lock();
        unreleased.retain(|&md| !self.is_released(job, md));
        if !unreleased.is_empty() {
            job.want_poll();
        }
    }

    /// Returns whether no release is pending.
    pub(crate) fn are_released(&self) -> bool {
        self.unreleased.lock().is_empty()
    }

    fn is_released<N: Ni>(&self, job: &Job<N>, md: MdId) -> bool {
        match job.ni.md_release(md) {
            Ok(Unlink::InUse) => return false,
            Ok(Unlink::Done) => self.tickets.give(1),
            Err(error) => job.fail(error.into()),
        }
        true
    }
}

/// The free chunks of a send buffer. The chunk freed last is used first, because it is likely to be
/// cached.
///
/// Chunks are identified by number; only the buffer knows their addresses.
#[derive(Debug)]
struct ChunkPool {
    free: Vec<u32>,
    /// The destination of the get that bounces through each chunk.
    bounce: Vec<Bounce>,
    held: Vec<bool>,
}

/// The destination of a bounced get.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounce {
    pub(crate) destination: *mut u8,
    pub(crate) length: usize,
}

impl Bounce {
    /// The value for chunks through which no get bounces: nothing is copied.
    const NONE: Self = Self {
        destination: std::ptr::null_mut(),
        length: 0,
    };
}

// SAFETY: the pointer is only stored here. The caller of `get`, which is unsafe, guarantees that
// the memory remains valid until the get has completed, on whatever thread.
unsafe impl Send for Bounce {}

impl ChunkPool {
    fn new(count: u32) -> Self {
        Self {
            free: (0..count).rev().collect(),
            bounce: vec![Bounce::NONE; count as usize],
            held: vec![false; count as usize],
        }
    }

    fn take(&mut self) -> Option<u32> {
        let chunk = self.free.pop()?;
        self.held[chunk as usize] = true;
        Some(chunk)
    }

    /// Frees a chunk. Returns `false` if the chunk was not in use, which means that a peer's
    /// message named a wrong chunk.
    #[must_use]
    fn give(&mut self, chunk: u32) -> bool {
        match self.held.get_mut(chunk as usize) {
            Some(held) if *held => {
                *held = false;
                self.free.push(chunk);
                true
            }
            _ => false,
        }
    }

    fn set_bounce(&mut self, chunk: u32, bounce: Bounce) {
        self.bounce[chunk as usize] = bounce;
    }

    /// Ends the get that bounces through a chunk and returns the destination of its data. Returns
    /// [`Bounce::NONE`] if there is no such get: the number comes from a peer and must not give
    /// access to memory that has been returned to its caller.
    fn bounce(&mut self, chunk: u32) -> Bounce {
        let noted = self.bounce.get_mut(chunk as usize);
        noted.map_or(Bounce::NONE, |noted| std::mem::replace(noted, Bounce::NONE))
    }

    /// Drops all recorded destinations.
    fn forget_bounces(&mut self) {
        self.bounce.fill(Bounce::NONE);
    }

    /// Returns the number of chunks in use.
    fn held(&self) -> u32 {
        (self.held.len() - self.free.len()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_given_back_once() {
        let mut pool = ChunkPool::new(2);
        let first = pool.take().unwrap();
        let second = pool.take().unwrap();
        assert_ne!(first, second);
        assert_eq!(pool.take(), None);
        assert!(pool.give(first));
        assert!(!pool.give(first));
        assert!(!pool.give(77));
        assert_eq!(pool.take(), Some(first));
        assert_eq!(pool.held(), 2);
    }

    #[test]
    fn a_bounced_get_is_copied_once() {
        let mut pool = ChunkPool::new(2);
        let chunk = pool.take().unwrap();
        let mut byte = 0_u8;
        pool.set_bounce(
            chunk,
            Bounce {
                destination: &raw mut byte,
                length: 1,
            },
        );
        assert_eq!(pool.bounce(chunk).length, 1);
        assert_eq!(pool.bounce(chunk).length, 0);
        assert_eq!(pool.bounce(77).length, 0);
        pool.set_bounce(
            chunk,
            Bounce {
                destination: &raw mut byte,
                length: 1,
            },
        );
        pool.forget_bounces();
        assert_eq!(pool.bounce(chunk).length, 0);
    }
}
