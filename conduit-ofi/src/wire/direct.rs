//! Direct access, which reads and writes peers' memory without involving the peers' processors.

use std::ptr;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::Refused;
use conduit_portals::transport::{Access, Remote};
use libfabric_sys::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_READ, FI_RECV, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fi_msg_rma, fi_read, fi_rma_iov, fi_writemsg, iovec,
};

use crate::wire::failure;
use crate::wire::objects::{Refusal, Registered};
use crate::wire::slots::Operation;
use crate::wire::watch::Call;

use super::OfiEndpoint;
use super::scope::Scope;

impl<S: Scope> OfiEndpoint<S> {
    /// Implements [`conduit_portals::transport::Transport::expose`].
    ///
    /// # Safety
    ///
    /// The caller must guarantee what `Transport::expose` requires.
    pub(super) unsafe fn expose_memory(
        &mut self,
        base: *mut u8,
        length: usize,
    ) -> Result<Option<Remote>, String> {
        if !self.objects.offer.has_direct() {
            return Ok(None);
        }
        if let Some(failure) = self.broken {
            return Err(failure.to_string());
        }
        let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        // SAFETY: the caller guarantees that the memory is valid as long as this wire exists.
        match unsafe { self.objects.register(base, length, access) } {
            Ok(registered) => {
                self.exposed.push((base.addr(), length, registered));
                Ok(Some(Remote {
                    key: registered.key,
                    address: registered.address,
                }))
            }
            Err(refusal) => Err(format!(
                "{} by provider {:?}: {}",
                refusal.operation,
                self.objects.offer,
                refusal.reason(self.objects.offer.library()),
            )),
        }
    }

    /// Returns the descriptor of local memory, if memory must be registered. If the memory is not
    /// part of exposed memory, registers it for this operation alone, and also returns that
    /// registration.
    ///
    /// # Safety
    ///
    /// The memory must be valid for the access until the operation ends.
    unsafe fn own(
        &mut self,
        memory: *mut u8,
        length: usize,
        access: u64,
    ) -> Result<(Option<Registered>, *mut std::ffi::c_void), Refusal> {
        if !self.objects.wants_local() || length == 0 {
            return Ok((None, ptr::null_mut()));
        }
        let within = self.exposed.iter().find(|(base, bytes, _)| {
            memory.addr() >= *base && memory.addr() - *base + length <= *bytes
        });
        if let Some((_, _, registered)) = within {
            return Ok((None, registered.descriptor));
        }
        // SAFETY: the caller guarantees that the memory is valid until the operation ends. The end
        // of the operation also releases the registration.
        let registered = unsafe { self.objects.register(memory, length, access) }?;
        Ok((Some(registered), registered.descriptor))
    }

    /// Submits a direct access.
    ///
    /// # Safety
    ///
    /// The memory of `access` must be valid, as the operation requires, until the operation ends.
    unsafe fn access(
        &mut self,
        peer: Rank,
        access: &Access,
        (operation, use_of_own): (&'static str, u64),
        submit: impl FnOnce(&Self, u64, *mut std::ffi::c_void, *mut std::ffi::c_void) -> isize,
    ) -> Result<(), Refused> {
        const AGAIN: isize = -(FI_EAGAIN as isize);
        let link = self.open(peer)?;
        link.liveness.sent();
        let address = link.address;
        if !self.slots.has_room() {
            return Err(Refused::Full);
        }
        // SAFETY: the caller guarantees that the access's memory is valid until the operation ends.
        let own = unsafe { self.own(access.memory, access.length, use_of_own) };
        let (own, descriptor) = match own {
            Ok(own) => own,
            Err(refusal) if failure::is_own(refusal.error) => {
                self.fail_all(refusal.operation, refusal.error);
                return Err(Refused::Dead);
            }
            // Either the limit on locked memory is reached, or this memory cannot be registered.
            // The access is then sent as messages, from registered buffers.
            Err(_) => {
                self.counters.unregistered += 1;
                return Err(Refused::TooLong);
            }
        };
        let place = Operation::Direct {
            peer,
            token: access.token,
            own,
        };
        let Some((slot, context)) = self.slots.take(place) else {
            return Err(Refused::Full);
        };
        let submit = || submit(self, address, descriptor, context);
        let result = self.calls.make(Call::Peer(peer), submit);
        if result != 0 {
            self.slots.give(slot);
            if let Some(own) = own {
                self.objects.release(own);
            }
        }
        match result {
            0 => {
                if let Some(link) = self.links.get(peer) {
                    link.pending += 1;
                    link.direct += 1;
                }
                Ok(())
            }
            AGAIN => {
                self.counters.again += 1;
                Err(Refused::Full)
            }
            error => {
                self.counters.errors += 1;
                self.refused(peer, operation, error as i64);
                Err(Refused::Dead)
            }
        }
    }

    /// Implements [`conduit_portals::transport::Transport::write`].
    ///
    /// # Safety
    ///
    /// The caller must guarantee what `Transport::write` requires.
    pub(super) unsafe fn write_directly(
        &mut self,
        peer: Rank,
        access: &Access,
    ) -> Result<(), Refused> {
        // SAFETY: the caller guarantees that the access's memory is valid until the write ends. The
        // endpoint is open, and the structures that the call itself reads live until it returns.
        let submitted = unsafe {
            let write = ("fi_writemsg", FI_WRITE);
            self.access(
                peer,
                access,
                write,
                |wire, address, mut descriptor, context| {
                    let piece = iovec {
                        iov_base: access.memory.cast(),
                        iov_len: access.length,
                    };
                    let there = fi_rma_iov {
                        addr: access.remote.address,
                        len: access.length,
                        key: access.remote.key,
                    };
                    let message = fi_msg_rma {
                        msg_iov: &piece,
                        desc: &mut descriptor,
                        iov_count: 1,
                        addr: address,
                        rma_iov: &there,
                        rma_iov_count: 1,
                        context,
                        data: 0,
                    };
                    fi_writemsg(
                        wire.objects.ep,
                        &message,
                        FI_DELIVERY_COMPLETE | FI_COMPLETION,
                    )
                },
            )
        };
        self.counters.writes += u64::from(submitted.is_ok());
        submitted
    }

    /// Implements [`conduit_portals::transport::Transport::read`].
    ///
    /// # Safety
    ///
    /// The caller must guarantee what `Transport::read` requires.
    pub(super) unsafe fn read_directly(
        &mut self,
        peer: Rank,
        access: &Access,
    ) -> Result<(), Refused> {
        // SAFETY: the caller guarantees that the access's memory is valid until the read ends. The
        // endpoint is open.
        let submitted = unsafe {
            let read = ("fi_read", FI_READ);
            self.access(peer, access, read, |wire, address, descriptor, context| {
                fi_read(
                    wire.objects.ep,
                    access.memory.cast(),
                    access.length,
                    descriptor,
                    address,
                    access.remote.address,
                    access.remote.key,
                    context,
                )
            })
        };
        self.counters.reads += u64::from(submitted.is_ok());
        submitted
    }
}
