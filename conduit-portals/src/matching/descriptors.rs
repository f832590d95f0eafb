//! Memory descriptors, which describe memory at the initiator.
//!
//! Every put and get looks up a descriptor, from any thread. The table therefore consists of
//! atomics and has a fixed size; a lock guards only the list of free slots.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use conduit_core::ni::{EqId, MdId, NiError, Unlink};
use conduit_core::threads::{Lock, Mode};

use super::over_limit;

/// The maximum number of descriptors bound at once.
pub const DESCRIPTORS: usize = 4096;

/// A slot for a memory descriptor.
#[derive(Debug)]
struct Descriptor {
    /// The slot's generation, which is odd while a descriptor is bound, and increases with every
    /// bind and release.
    generation: AtomicU32,
    base: AtomicPtr<u8>,
    len: AtomicUsize,
    eq: AtomicU8,
    /// Number of the descriptor's operations whose completion has not been delivered.
    pending: AtomicU32,
}

/// The memory and event queue of a bound descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// The memory's first byte.
    pub base: *mut u8,
    /// The memory's length in bytes.
    pub len: usize,
    /// The event queue that receives the completions.
    pub eq: EqId,
}

/// All descriptors of a rank.
pub struct Descriptors<M: Mode> {
    table: Box<[Descriptor]>,
    free: M::Lock<Vec<u16>>,
}

fn unknown(operation: &'static str, md: MdId) -> NiError {
    NiError::NoSuchObject {
        operation,
        what: "memory descriptor",
        value: u64::from(md.0),
    }
}

impl<M: Mode> Descriptors<M> {
    /// Creates a table without bound descriptors.
    pub fn new() -> Self {
        let empty = || Descriptor {
            generation: AtomicU32::new(0),
            base: AtomicPtr::new(ptr::null_mut()),
            len: AtomicUsize::new(0),
            eq: AtomicU8::new(0),
            pending: AtomicU32::new(0),
        };
        Self {
            table: (0..DESCRIPTORS).map(|_| empty()).collect(),
            free: M::Lock::new((0..DESCRIPTORS as u16).rev().collect()),
        }
    }

    /// Implements [`md_bind`](conduit_core::ni::Ni::md_bind). The caller must have checked that the
    /// queue exists.
    pub fn bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        let slot = self.free.lock().pop().ok_or(NiError::Exhausted {
            operation: "md_bind",
            what: "memory descriptors",
            limit: DESCRIPTORS as u64,
            setting: "fixed",
        })?;
        let descriptor = &self.table[usize::from(slot)];
        descriptor.base.store(base, Ordering::Relaxed);
        descriptor.len.store(len, Ordering::Relaxed);
        descriptor.eq.store(eq.0, Ordering::Relaxed);
        // The slot was free, so the generation is even, and no other thread writes to it.
        let generation = descriptor
            .generation
            .load(Ordering::Relaxed)
            .wrapping_add(1);
        descriptor.generation.store(generation, Ordering::Release);
        Ok(MdId(generation << 16 | u32::from(slot)))
    }

    /// Implements [`md_release`](conduit_core::ni::Ni::md_release).
    pub fn release(&self, md: MdId) -> Result<Unlink, NiError> {
        let descriptor = self.find(md).ok_or_else(|| unknown("md_release", md))?;
        if descriptor.pending.load(Ordering::Acquire) != 0 {
            return Ok(Unlink::InUse);
        }
        let generation = descriptor.generation.load(Ordering::Relaxed);
        let ended = descriptor.generation.compare_exchange(
            generation,
            generation.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if ended.is_err() {
            return Err(unknown("md_release", md));
        }
        self.free.lock().push(md.0 as u16);
        Ok(Unlink::Done)
    }

    #[inline]
    fn find(&self, md: MdId) -> Option<&Descriptor> {
        let descriptor = self.table.get(md.0 as usize & 0xffff)?;
        let generation = descriptor.generation.load(Ordering::Acquire);
        (generation & 0xffff == md.0 >> 16 && generation & 1 == 1).then_some(descriptor)
    }

    /// Returns the memory and event queue of a descriptor.
    #[inline]
    pub fn get(&self, operation: &'static str, md: MdId) -> Result<Bound, NiError> {
        let descriptor = self.find(md).ok_or_else(|| unknown(operation, md))?;
        Ok(Bound {
            base: descriptor.base.load(Ordering::Relaxed),
            len: descriptor.len.load(Ordering::Relaxed),
            eq: EqId(descriptor.eq.load(Ordering::Relaxed)),
        })
    }

    /// Does the same as [`Self::get`], and checks that the `length` bytes at `offset` lie within
    /// the descriptor, and that `length` is at most `limit`.
    #[inline]
    pub fn piece(
        &self,
        operation: &'static str,
        md: MdId,
        offset: usize,
        length: usize,
        limit: usize,
    ) -> Result<Bound, NiError> {
        let bound = self.get(operation, md)?;
        let end = offset.checked_add(length);
        if length > limit || end.is_none_or(|end| end > bound.len) {
            return Err(range_error(operation, offset, length, limit, bound.len));
        }
        Ok(bound)
    }

    /// Does the same as [`Self::get`], for a number received from a peer.
    #[inline]
    pub fn bound(&self, md: u32) -> Option<Bound> {
        self.get("completion", MdId(md)).ok()
    }

    /// Counts an operation as pending. Must be called before the operation is submitted, because
    /// its completion may arrive before the submission returns.
    #[inline]
    pub fn start(&self, md: MdId) {
        if let Some(descriptor) = self.find(md) {
            if M::PARALLEL {
                descriptor.pending.fetch_add(1, Ordering::AcqRel);
            } else {
                let pending = descriptor.pending.load(Ordering::Relaxed);
                descriptor.pending.store(pending + 1, Ordering::Relaxed);
            }
        }
    }

    /// Ends a pending operation, whose completion was delivered or whose submission failed. Returns
    /// `None` if no operation is pending, which only a peer's protocol violation can cause.
    #[inline]
    pub fn finish(&self, md: u32) -> Option<()> {
        let md = MdId(md);
        let descriptor = self.find(md)?;
        let pending = descriptor.pending.load(Ordering::Relaxed);
        if pending == 0 {
            return None;
        }
        if M::PARALLEL {
            descriptor.pending.fetch_sub(1, Ordering::AcqRel);
        } else {
            descriptor.pending.store(pending - 1, Ordering::Relaxed);
        }
        Some(())
    }
}

impl<M: Mode> Default for Descriptors<M> {
    fn default() -> Self {
        Self::new()
    }
}

#[cold]
fn range_error(
    operation: &'static str,
    offset: usize,
    length: usize,
    limit: usize,
    len: usize,
) -> NiError {
    if length > limit {
        return over_limit(operation, "length", length as u64, limit as u64);
    }
    let end = (offset as u64).saturating_add(length as u64);
    over_limit(
        operation,
        "end within the memory descriptor",
        end,
        len as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use conduit_core::threads::{Par, Seq};

    fn walk<M: Mode>() {
        let descriptors = Descriptors::<M>::new();
        let mut byte = 0_u8;
        let md = descriptors.bind(&raw mut byte, 1, EqId(3)).unwrap();
        assert_eq!(descriptors.get("put", md).unwrap().eq, EqId(3));
        descriptors.start(md);
        assert_eq!(descriptors.release(md), Ok(Unlink::InUse));
        assert!(descriptors.finish(md.0).is_some());
        assert!(descriptors.finish(md.0).is_none());
        assert_eq!(descriptors.release(md), Ok(Unlink::Done));
        assert!(descriptors.release(md).is_err());
        assert!(descriptors.get("put", md).is_err());
        let again = descriptors.bind(&raw mut byte, 1, EqId(3)).unwrap();
        assert_eq!(again.0 as u16, md.0 as u16);
        assert_ne!(again, md);
        assert!(descriptors.get("put", MdId(u32::MAX)).is_err());
        assert!(descriptors.piece("put", again, 0, 1, 1).is_ok());
        for (offset, length, limit) in [(0, 1, 0), (0, 2, 9), (1, 1, 9), (usize::MAX, 1, 9)] {
            let piece = descriptors.piece("put", again, offset, length, limit);
            assert!(matches!(piece, Err(NiError::OverLimit { .. })));
        }
        for _ in 1..DESCRIPTORS {
            descriptors.bind(&raw mut byte, 1, EqId(3)).unwrap();
        }
        assert!(descriptors.bind(&raw mut byte, 1, EqId(3)).is_err());
    }

    #[test]
    fn descriptors_come_and_go() {
        walk::<Seq>();
        walk::<Par>();
    }
}
