//! Direct access over a fabric: done by the initiator's end, some time after it was asked for and in any order, and told later still.
//!
//! An atomic reads its word in one turn and writes it in another, and only other atomics of the fabric keep away meanwhile: what a
//! processor does to the word in between is lost, as it may be over a network.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{AtomicType, Rank};
use conduit_core::shared;

use super::FabricTransport;
use crate::transport::direct::result_of;
use crate::transport::fragment::{Failure, FragmentHandler, Refused};
use crate::transport::interface::{Access, NativeAtomic, Remote};

/// Memory of a rank that its peers reach.
#[derive(Debug)]
pub(super) struct Exposed {
    remote: Remote,
    base: *mut u8,
    len: usize,
    /// Offsets of integers that an atomic has read and not written yet.
    busy: Vec<usize>,
}

// SAFETY: a name for memory that is valid in the whole process as long as it is scheduled; accesses go through raw pointers.
unsafe impl Send for Exposed {}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Write(Access),
    Read(Access),
    Atomic(Remote, NativeAtomic),
}

impl What {
    fn remote(&self) -> Remote {
        match self {
            Self::Write(access) | Self::Read(access) => access.remote,
            Self::Atomic(remote, _) => *remote,
        }
    }

    fn length(&self) -> usize {
        match self {
            Self::Write(access) | Self::Read(access) => access.length,
            Self::Atomic(_, atomic) => atomic.ty.size(),
        }
    }

    fn token(&self) -> u64 {
        match self {
            Self::Write(access) | Self::Read(access) => access.token,
            Self::Atomic(_, atomic) => atomic.token,
        }
    }
}

/// Something that was asked for.
#[derive(Debug)]
pub(super) struct Operation {
    peer: Rank,
    what: What,
    /// What an atomic has read.
    old: Option<u64>,
}

// SAFETY: whoever asks keeps the memory valid in the whole process until it has ended.
unsafe impl Send for Operation {}

/// Something that was done.
#[derive(Debug)]
pub(super) struct Ended {
    peer: Rank,
    token: u64,
    value: u64,
}

/// How far an operation came.
enum Step {
    Done(u64),
    Later,
    /// The peer has nothing exposed any more.
    Gone,
}

impl FabricTransport {
    pub(super) fn expose_directly(&mut self, base: *mut u8, len: usize) -> Result<Remote, String> {
        let mut exposed = self.fabric.0[self.rank as usize].exposed.lock();
        let bytes: usize = exposed.iter().map(|exposed| exposed.len).sum();
        let limit = self.disorder.exposed_bytes;
        if bytes.saturating_add(len) > limit {
            return Err(format!("{bytes} of {limit} bytes are exposed"));
        }
        // Neither is what anybody would guess: networks number keys and addresses as they like.
        let key = 77 + 3 * exposed.len() as u64;
        let remote = Remote {
            key,
            address: key << 40,
        };
        exposed.push(Exposed {
            remote,
            base,
            len,
            busy: Vec::new(),
        });
        Ok(remote)
    }

    /// Takes an operation.
    pub(super) fn begin_direct(&mut self, peer: Rank, what: What) -> Result<(), Refused> {
        if !self.disorder.direct {
            return Err(Refused::TooLong);
        }
        match self.dead.get(peer as usize) {
            None => return Err(Refused::NoSuchRank),
            Some(true) => return Err(Refused::Dead),
            Some(false) => {}
        }
        let full = self.direct.len() + self.ended.len() >= 4 * self.disorder.link_fragments;
        if full || self.chance(self.disorder.refuse) {
            return Err(Refused::Full);
        }
        self.direct.push(Operation {
            peer,
            what,
            old: None,
        });
        Ok(())
    }

    pub(super) fn has_direct_to(&self, peer: Rank) -> bool {
        self.direct.iter().any(|operation| operation.peer == peer)
            || self.ended.iter().any(|ended| ended.peer == peer)
    }

    pub(super) fn drop_direct(&mut self, peer: Rank) {
        self.direct.retain(|operation| operation.peer != peer);
        self.ended.retain(|ended| ended.peer != peer);
    }

    /// Forgets what touches this rank's memory.
    pub(super) fn abandon_direct(&mut self, peer: Rank) {
        self.direct.retain(|operation| {
            operation.peer != peer || matches!(operation.what, What::Atomic(..))
        });
    }

    /// Does some of what was asked for, and tells of some of what was done.
    pub(super) fn do_direct(&mut self, handler: &mut impl FragmentHandler) {
        if let Some(random) = &mut self.random {
            random.shuffle(&mut self.direct);
            random.shuffle(&mut self.ended);
        }
        // Those that were done in an earlier turn.
        while !self.ended.is_empty() && !self.chance(3) {
            if let Some(Ended { peer, token, value }) = self.ended.pop() {
                handler.done(peer, token, value);
            }
        }
        let mut later = Vec::new();
        while !self.direct.is_empty() && !self.chance(3) {
            let Some(mut operation) = self.direct.pop() else {
                break;
            };
            let peer = operation.peer;
            match self.execute(&mut operation) {
                Step::Done(value) => self.ended.push(Ended {
                    peer,
                    token: operation.what.token(),
                    value,
                }),
                Step::Later => later.push(operation),
                // It has ended without waiting for this.
                Step::Gone => {
                    self.dead[peer as usize] = true;
                    self.drop_direct(peer);
                    later.retain(|operation: &Operation| operation.peer != peer);
                    handler.failed(peer, Failure::Broken("its memory is gone"));
                }
            }
        }
        self.direct.append(&mut later);
    }

    /// Does it, or a part of it, now.
    fn execute(&self, operation: &mut Operation) -> Step {
        let (remote, length) = (operation.what.remote(), operation.what.length());
        let mut exposed = self.fabric.0[operation.peer as usize].exposed.lock();
        let Some(place) = exposed.iter_mut().find(|e| e.remote.key == remote.key) else {
            return Step::Gone;
        };
        let offset = remote.address.wrapping_sub(place.remote.address) as usize;
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= place.len),
            "rank {}: {:?} is outside of the {} bytes that rank {} has exposed",
            self.rank,
            operation.what,
            place.len,
            operation.peer
        );
        // SAFETY: within the memory (just checked), which is valid as long as it is scheduled, and the list is locked.
        let there = unsafe { place.base.add(offset) };
        match operation.what {
            // SAFETY: as above; the memory here is valid until the operation has ended.
            What::Write(access) => unsafe { shared::copy(access.memory, there, length) },
            // SAFETY: as above.
            What::Read(access) => unsafe { shared::copy(there, access.memory, length) },
            What::Atomic(_, atomic) => {
                let NativeAtomic {
                    op,
                    ty,
                    operand,
                    comparand,
                    ..
                } = atomic;
                assert!(offset.is_multiple_of(length), "an aligned integer");
                let Some(old) = operation.old else {
                    if !place.busy.contains(&(offset / 8)) {
                        place.busy.push(offset / 8);
                        // SAFETY: as above, and aligned.
                        operation.old = Some(unsafe { load(there, ty) });
                    }
                    return Step::Later;
                };
                // SAFETY: as above.
                unsafe { store(there, ty, result_of(op, ty, operand, comparand, old)) };
                place.busy.retain(|busy| *busy != offset / 8);
                // What is not asked for is nothing to rely on.
                return Step::Done(if atomic.fetch { old } else { !old });
            }
        }
        Step::Done(0)
    }
}

/// # Safety
/// An aligned integer in memory that is valid for reads and writes.
unsafe fn load(there: *mut u8, ty: AtomicType) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match ty.size() {
            4 => AtomicU32::from_ptr(there.cast())
                .load(Ordering::Acquire)
                .into(),
            _ => AtomicU64::from_ptr(there.cast()).load(Ordering::Acquire),
        }
    }
}

/// # Safety
/// As for [`load`].
unsafe fn store(there: *mut u8, ty: AtomicType, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match ty.size() {
            4 => AtomicU32::from_ptr(there.cast()).store(value as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(there.cast()).store(value, Ordering::Release),
        }
    }
}

impl Drop for FabricTransport {
    fn drop(&mut self) {
        // Whoever reaches into it now is waited for; the memory may be gone after this.
        self.fabric.0[self.rank as usize].exposed.lock().clear();
    }
}
