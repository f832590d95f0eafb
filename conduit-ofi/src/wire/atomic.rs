//! Atomics on peers' memory, performed by the provider.
//!
//! Each operation is a fetching atomic even if the old value is not needed, because the arrival of
//! the old value proves that the operation has been performed.

use std::ffi::c_void;

use conduit_core::ni::{AtomicOp, Rank};
use conduit_portals::transport::fragment::Refused;
use conduit_portals::transport::{NativeAtomic, Remote};
use libfabric_sys::{FI_EAGAIN, fi_compare_atomic, fi_fetch_atomic};

use crate::wire::slots::Operation;
use crate::wire::watch::Call;

use super::OfiEndpoint;
use super::atomic_ops::{EACH, RESULT, datatype, op, put};
use super::scope::Scope;

impl<S: Scope> OfiEndpoint<S> {
    /// See [`conduit_portals::transport::Transport::atomic`].
    pub(super) fn atomic_there(
        &mut self,
        peer: Rank,
        remote: Remote,
        atomic: &NativeAtomic,
    ) -> Result<(), Refused> {
        const AGAIN: isize = -(FI_EAGAIN as isize);
        let link = self.open(peer)?;
        link.liveness.sent();
        let address = link.address;
        let buffer = self.small.take().ok_or(Refused::Full)?;
        let is_wide = atomic.ty.size() == EACH;
        let operation = Operation::Atomic {
            peer,
            token: atomic.token,
            buffer,
            is_wide,
        };
        let Some((slot, context)) = self.slots.take(operation) else {
            self.small.give(buffer);
            return Err(Refused::Full);
        };
        let operand = match atomic.op {
            AtomicOp::Sub => atomic.ty.negated(atomic.operand),
            _ => atomic.operand,
        };
        let words = self.small.bytes(buffer);
        put(words, 0, operand, is_wide);
        put(words, EACH, atomic.comparand, is_wide);
        let place: *mut c_void = self.small.place(buffer).cast();
        let descriptor = self.small.descriptor;
        let (ty, code) = (datatype(atomic.op, atomic.ty), op(atomic.op));
        self.calls.begin(Call::Peer(peer));
        // SAFETY: the endpoint is open. The library uses the buffer until the completion, and until
        // then the buffer is not given to another operation. The operand, the comparand and the
        // result do not overlap in the buffer.
        let result = unsafe {
            let (compare, result) = (place.byte_add(EACH), place.byte_add(RESULT));
            match atomic.op {
                AtomicOp::CompareSwap => fi_compare_atomic(
                    self.objects.ep,
                    place,
                    1,
                    descriptor,
                    compare,
                    descriptor,
                    result,
                    descriptor,
                    address,
                    remote.address,
                    remote.key,
                    ty,
                    code,
                    context,
                ),
                _ => fi_fetch_atomic(
                    self.objects.ep,
                    place,
                    1,
                    descriptor,
                    result,
                    descriptor,
                    address,
                    remote.address,
                    remote.key,
                    ty,
                    code,
                    context,
                ),
            }
        };
        self.calls.end();
        if result == 0 {
            if let Some(link) = self.links.get(peer) {
                link.pending += 1;
            }
            self.counters.atomics += 1;
            return Ok(());
        }
        self.slots.give(slot);
        self.small.give(buffer);
        if result == AGAIN {
            self.counters.again += 1;
            return Err(Refused::Full);
        }
        self.counters.errors += 1;
        let name = match atomic.op {
            AtomicOp::CompareSwap => "fi_compare_atomic",
            _ => "fi_fetch_atomic",
        };
        self.refused(peer, name, result as i64);
        Err(Refused::Dead)
    }
}
