//! Memory descriptors, which are bound in both networks.
//!
//! Every put and get looks up a descriptor, from any thread, so descriptors are kept in a
//! fixed-size table of atomics. Only the list of free places has a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use conduit_core::ni::{EqId, MdId, Ni, NiError, Unlink};
use conduit_core::threads::{Lock, Mode};

use super::{MultiHost, Side};

/// The maximum number of places. It is limited because an `MdId` has 16 bits for the place.
const MOST: u32 = 1 << 16;

#[derive(Debug)]
struct Descriptor {
    /// A number that is odd while the descriptor is bound. It changes with every bind and release.
    generation: AtomicU32,
    intra: AtomicU32,
    inter: AtomicU32,
}

#[derive(Debug)]
struct FreeList {
    free: VecDeque<u32>,
    /// Descriptors that the intra-host network has released but the inter-host network has not.
    half_released: Vec<MdId>,
}

pub(super) struct Descriptors<M: Mode> {
    table: Box<[Descriptor]>,
    free_list: M::Lock<FreeList>,
}

fn unknown(operation: &'static str, md: MdId) -> NiError {
    NiError::NoSuchObject {
        operation,
        what: "memory descriptor",
        value: u64::from(md.0),
    }
}

impl<M: Mode> Descriptors<M> {
    pub(super) fn new(most: u32) -> Self {
        let most = most.min(MOST);
        let empty = |_| Descriptor {
            generation: AtomicU32::new(0),
            intra: AtomicU32::new(0),
            inter: AtomicU32::new(0),
        };
        Self {
            table: (0..most).map(empty).collect(),
            free_list: M::Lock::new(FreeList {
                free: (0..most).collect(),
                half_released: Vec::new(),
            }),
        }
    }

    #[inline]
    fn find(&self, operation: &'static str, md: MdId) -> Result<&Descriptor, NiError> {
        let found = self.table.get(md.0 as usize & 0xffff).filter(|place| {
            let generation = place.generation.load(Ordering::Acquire);
            generation & 0xffff == md.0 >> 16 && generation & 1 == 1
        });
        found.ok_or_else(|| unknown(operation, md))
    }

    /// Returns the descriptor's id in one of the networks.
    #[inline]
    pub(super) fn get(
        &self,
        operation: &'static str,
        md: MdId,
        side: Side,
    ) -> Result<MdId, NiError> {
        let found = self.find(operation, md)?;
        let name = match side {
            Side::IntraHost => &found.intra,
            Side::InterHost => &found.inter,
        };
        Ok(MdId(name.load(Ordering::Relaxed)))
    }
}

impl<Inter: Ni, M: Mode> MultiHost<Inter, M> {
    /// See [`Ni::md_bind`].
    ///
    /// # Safety
    /// Same as [`Ni::md_bind`].
    pub(super) unsafe fn bind<Intra: Ni>(
        &self,
        intra: &Intra,
        base: *mut u8,
        len: usize,
        eq: EqId,
    ) -> Result<MdId, NiError> {
        let inter_eq = self.queues.inter("md_bind", eq)?;
        let table = &self.descriptors.table;
        let Some(slot) = self.descriptors.free_list.lock().free.pop_front() else {
            return Err(NiError::Exhausted {
                operation: "md_bind",
                what: "memory descriptors",
                limit: table.len() as u64,
                setting: "fixed",
            });
        };
        let bound = || {
            // SAFETY: the caller guarantees what `Ni::md_bind` requires until the descriptor is
            // released.
            let in_intra = unsafe { intra.md_bind(base, len, eq) }
                .map_err(|error| self.with_job_rank(error))?;
            // SAFETY: the caller guarantees what `Ni::md_bind` requires until the descriptor is
            // released. `release` reports that only once both networks have released it.
            match unsafe { self.inter.md_bind(base, len, inter_eq) } {
                Ok(in_inter) => Ok((in_intra, in_inter)),
                Err(error) => {
                    // No operation was submitted with the descriptor, so it is not in use and its
                    // release cannot fail.
                    let _ = intra.md_release(in_intra);
                    Err(error)
                }
            }
        };
        match bound() {
            Ok((in_intra, in_inter)) => {
                let place = &table[slot as usize];
                place.intra.store(in_intra.0, Ordering::Relaxed);
                place.inter.store(in_inter.0, Ordering::Relaxed);
                // The place was unbound, so its generation is even, and no other thread changes it.
                let generation = place.generation.load(Ordering::Relaxed).wrapping_add(1);
                place.generation.store(generation, Ordering::Release);
                Ok(MdId(generation << 16 | slot))
            }
            Err(error) => {
                self.descriptors.free_list.lock().free.push_back(slot);
                Err(error)
            }
        }
    }

    pub(super) fn release<Intra: Ni>(&self, intra: &Intra, md: MdId) -> Result<Unlink, NiError> {
        // The lock serialises releases. If two threads release the same descriptor, the second one
        // gets an error.
        let mut free_list = self.descriptors.free_list.lock();
        let place = self.descriptors.find("md_release", md)?;
        if !free_list.half_released.contains(&md) {
            let in_intra = MdId(place.intra.load(Ordering::Relaxed));
            let released = intra.md_release(in_intra);
            if released.map_err(|error| self.with_job_rank(error))? == Unlink::InUse {
                return Ok(Unlink::InUse);
            }
            free_list.half_released.push(md);
        }
        let in_inter = MdId(place.inter.load(Ordering::Relaxed));
        if self.inter.md_release(in_inter)? == Unlink::InUse {
            return Ok(Unlink::InUse);
        }
        free_list.half_released.retain(|half| *half != md);
        let generation = place.generation.load(Ordering::Relaxed);
        place
            .generation
            .store(generation.wrapping_add(1), Ordering::Release);
        free_list.free.push_back(md.0 & 0xffff);
        Ok(Unlink::Done)
    }
}
