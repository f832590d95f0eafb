//! Direct access over a fabric. The initiator's end of the fabric runs an operation some time after
//! its submission, in any order, and reports the completion later still.
//!
//! An atomic reads its word in one call and writes it in a later one. Between the two calls, only
//! other atomics of the fabric are excluded. A store that a processor makes in between is lost, as
//! may happen over a real network.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{AtomicType, Rank};
use conduit_core::shared;

use super::FabricTransport;
use conduit_core::ni::atomic_result;
use conduit_portals::transport::fragment::{Failure, FragmentHandler, Refused};
use conduit_portals::transport::{Access, NativeAtomic, Remote};

/// Memory that a rank has exposed.
#[derive(Debug)]
pub(super) struct Exposed {
    remote: Remote,
    base: *mut u8,
    len: usize,
    /// Offsets of the integers that an atomic has read and not yet written.
    busy: Vec<usize>,
}

// SAFETY: the memory is valid in the whole process while it is listed, and it is accessed only
// through raw pointers.
unsafe impl Send for Exposed {}

/// A direct operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum DirectOp {
    Write(Access),
    Read(Access),
    Atomic(Remote, NativeAtomic),
}

impl DirectOp {
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

/// A direct operation in flight.
#[derive(Debug)]
pub(super) struct Operation {
    peer: Rank,
    op: DirectOp,
    /// The value that an atomic has read, once it has read one.
    old: Option<u64>,
}

// SAFETY: the submitter keeps the memory valid in the whole process until the operation has ended.
unsafe impl Send for Operation {}

/// A completed direct operation that is still to be reported.
#[derive(Debug)]
pub(super) struct Completed {
    peer: Rank,
    token: u64,
    value: u64,
}

/// How far an operation has got.
enum Step {
    Done(u64),
    Pending,
    /// The peer's memory is no longer exposed.
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
        // These values are arbitrary, because real networks assign keys and addresses as they like.
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

    pub(super) fn begin_direct(&mut self, peer: Rank, op: DirectOp) -> Result<(), Refused> {
        if !self.disorder.direct {
            return Err(Refused::TooLong);
        }
        match self.dead.get(peer as usize) {
            None => return Err(Refused::NoSuchRank),
            Some(true) => return Err(Refused::Dead),
            Some(false) => {}
        }
        let full = self.direct.len() + self.completed.len() >= 4 * self.disorder.link_fragments;
        if full || self.chance(self.disorder.refuse) {
            return Err(Refused::Full);
        }
        self.direct.push(Operation {
            peer,
            op,
            old: None,
        });
        Ok(())
    }

    pub(super) fn has_direct_to(&self, peer: Rank) -> bool {
        self.direct.iter().any(|operation| operation.peer == peer)
            || self.completed.iter().any(|ended| ended.peer == peer)
    }

    pub(super) fn drop_direct(&mut self, peer: Rank) {
        self.direct.retain(|operation| operation.peer != peer);
        self.completed.retain(|ended| ended.peer != peer);
    }

    /// Drops the operations with a peer that access this rank's memory.
    pub(super) fn abandon_direct(&mut self, peer: Rank) {
        self.direct.retain(|operation| {
            operation.peer != peer || matches!(operation.op, DirectOp::Atomic(..))
        });
    }

    /// Runs some of the operations in flight, and reports some of the completed ones.
    pub(super) fn do_direct(&mut self, handler: &mut impl FragmentHandler) {
        if let Some(random) = &mut self.random {
            random.shuffle(&mut self.direct);
            random.shuffle(&mut self.completed);
        }
        // Reports operations that an earlier call completed.
        while !self.completed.is_empty() && !self.chance(3) {
            if let Some(Completed { peer, token, value }) = self.completed.pop() {
                handler.done(peer, token, value);
            }
        }
        let mut pending = Vec::new();
        while !self.direct.is_empty() && !self.chance(3) {
            let Some(mut operation) = self.direct.pop() else {
                break;
            };
            let peer = operation.peer;
            match self.execute(&mut operation) {
                Step::Done(value) => self.completed.push(Completed {
                    peer,
                    token: operation.op.token(),
                    value,
                }),
                Step::Pending => pending.push(operation),
                // The peer has ended without waiting for this operation to complete.
                Step::Gone => {
                    self.dead[peer as usize] = true;
                    self.drop_direct(peer);
                    pending.retain(|operation: &Operation| operation.peer != peer);
                    handler.failed(peer, Failure::Broken("its memory is no longer exposed"));
                }
            }
        }
        self.direct.append(&mut pending);
    }

    /// Runs the operation or a part of it.
    fn execute(&self, operation: &mut Operation) -> Step {
        let (remote, length) = (operation.op.remote(), operation.op.length());
        let mut exposed = self.fabric.0[operation.peer as usize].exposed.lock();
        let Some(memory) = exposed.iter_mut().find(|e| e.remote.key == remote.key) else {
            return Step::Gone;
        };
        let offset = remote.address.wrapping_sub(memory.remote.address) as usize;
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= memory.len),
            "rank {}: {:?} is outside the {} bytes that rank {} has exposed",
            self.rank,
            operation.op,
            memory.len,
            operation.peer
        );
        // SAFETY: the offset lies within the memory, as checked above. The memory is valid while it
        // is listed, and the list is locked here.
        let target = unsafe { memory.base.add(offset) };
        match operation.op {
            // SAFETY: `target` is valid for `length` bytes, and the submitter keeps `access.memory`
            // valid until the operation has ended.
            DirectOp::Write(access) => unsafe { shared::copy(access.memory, target, length) },
            // SAFETY: `target` is valid for `length` bytes, and the submitter keeps `access.memory`
            // valid until the operation has ended.
            DirectOp::Read(access) => unsafe { shared::copy(target, access.memory, length) },
            DirectOp::Atomic(_, atomic) => {
                let NativeAtomic {
                    op,
                    ty,
                    operand,
                    comparand,
                    ..
                } = atomic;
                assert!(offset.is_multiple_of(length), "the integer isn't aligned");
                let Some(old) = operation.old else {
                    if !memory.busy.contains(&(offset / 8)) {
                        memory.busy.push(offset / 8);
                        // SAFETY: `target` is valid for `length` bytes and aligned to `length`
                        // bytes.
                        operation.old = Some(unsafe { load(target, ty) });
                    }
                    return Step::Pending;
                };
                // SAFETY: `target` is valid for `length` bytes and aligned to `length` bytes.
                unsafe { store(target, ty, atomic_result(op, ty, operand, comparand, old)) };
                memory.busy.retain(|busy| *busy != offset / 8);
                // Without `fetch`, the reported value is arbitrary, so a wrong one is returned on
                // purpose.
                return Step::Done(if atomic.fetch { old } else { !old });
            }
        }
        Step::Done(0)
    }
}

/// # Safety
/// `target` must point to an aligned integer of this type in memory that is valid for reads and
/// writes.
unsafe fn load(target: *mut u8, ty: AtomicType) -> u64 {
    // SAFETY: the caller guarantees that `target` points to a valid, aligned integer of this type.
    unsafe {
        match ty.size() {
            4 => AtomicU32::from_ptr(target.cast())
                .load(Ordering::Acquire)
                .into(),
            _ => AtomicU64::from_ptr(target.cast()).load(Ordering::Acquire),
        }
    }
}

/// # Safety
/// Same as [`load`].
unsafe fn store(target: *mut u8, ty: AtomicType, value: u64) {
    // SAFETY: the caller guarantees that `target` points to a valid, aligned integer of this type.
    unsafe {
        match ty.size() {
            4 => AtomicU32::from_ptr(target.cast()).store(value as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(target.cast()).store(value, Ordering::Release),
        }
    }
}

impl Drop for FabricTransport {
    fn drop(&mut self) {
        // Locking waits for accesses in progress. The memory may be unmapped after this call.
        self.fabric.0[self.rank as usize].exposed.lock().clear();
    }
}
