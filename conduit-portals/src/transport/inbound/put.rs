//! Puts that have arrived in full.

use std::ptr;

use conduit_core::ni::{Outcome, Rank};
use conduit_core::shared;

use super::{Found, Held, ProtocolError, to_process};
use crate::matching::{Hit, Incoming, Location, MessageKind};
use crate::transport::buffers::Buffer;
use crate::transport::queue::{Queued, QueuedPut};
use crate::transport::regions;
use crate::transport::state::Portals;
use crate::transport::window::Cost;
use crate::transport::wire::{Header, Put};

impl Portals {
    /// Matches a put and moves its data.
    ///
    /// # Safety
    /// `[bytes, bytes + length)` must be valid for reads.
    pub(crate) unsafe fn put_arrives(
        &mut self,
        source: Rank,
        put: &Put,
        bytes: *const u8,
        length: usize,
        cost: Cost,
    ) -> Result<(), ProtocolError> {
        let incoming = Incoming {
            kind: MessageKind::Put,
            source,
            match_bits: put.match_bits,
            offset: put.offset,
            length,
        };
        let mut data = None;
        let hit = match self.accept(put.index, &incoming)? {
            Found::Closed => {
                let mut data = self.pool.take(length);
                // SAFETY: the caller guarantees that `bytes` is valid for `length` bytes, for which
                // the buffer has room.
                unsafe { ptr::copy_nonoverlapping(bytes, data.bytes_mut().as_mut_ptr(), length) };
                let held = Held {
                    source,
                    header: Header::Put(*put),
                    data,
                    cost,
                };
                self.hold(put.index, held);
                return Ok(());
            }
            Found::Nothing => None,
            Found::Entry(hit) => {
                let mut hit = self.within_limits(hit);
                self.advertise(source, put.index, hit.id);
                match hit.location {
                    // SAFETY: the caller guarantees that `bytes` is valid for reads. `hit.length`
                    // bytes at the address lie within the entry, which `me_append` has found to be
                    // within a region. The two may overlap in a put to oneself.
                    Location::Region(address) => unsafe {
                        shared::copy(bytes, regions::pointer(address), hit.length);
                    },
                    Location::Managed => {
                        let mut copy = self.pool.take(hit.length);
                        let to = copy.bytes_mut().as_mut_ptr();
                        // SAFETY: the caller guarantees that `bytes` is valid for reads, and a new
                        // buffer overlaps nothing.
                        unsafe { ptr::copy_nonoverlapping(bytes, to, hit.length) };
                        data = Some(copy);
                    }
                    // SAFETY: the caller guarantees that `bytes` is valid for `length` bytes.
                    Location::Process(address) => unsafe {
                        let wanted = hit.length;
                        to_process(&mut hit, address, bytes, wanted);
                    },
                    Location::Nothing => {}
                }
                Some(hit)
            }
        };
        let result = self.put_done(source, put, length, cost, hit, data);
        if let Some(hit) = &hit {
            self.unlinked(put.index, hit);
            self.freed(put.index, hit);
        }
        result
    }

    /// Refuses a put that is longer than a managed entry may take according to the contract.
    pub(super) fn within_limits(&self, mut hit: Hit) -> Hit {
        if hit.location == Location::Managed && hit.length > self.config.max_managed {
            hit.outcome = Outcome::OutOfRange;
            hit.length = 0;
        }
        hit
    }

    /// Raises the event of a put whose data have been moved, and responds to it.
    pub(super) fn put_done(
        &mut self,
        source: Rank,
        put: &Put,
        requested: usize,
        cost: Cost,
        hit: Option<Hit>,
        data: Option<Buffer>,
    ) -> Result<(), ProtocolError> {
        let (outcome, length) = hit.map_or((Outcome::NoMatch, 0), |hit| (hit.outcome, hit.length));
        match (hit, self.queue_of(put.index)) {
            (Some(hit), Some(eq)) if Self::raises_event(&hit) => {
                let event = put.event(source, (hit.tag, hit.offset), length, requested);
                self.queue(eq, Queued::Put(QueuedPut { event, data, cost }));
            }
            _ => {
                if let Some(data) = data {
                    self.pool.give(data);
                }
                self.consumed(source, cost);
            }
        }
        let Some(operation) = put.operation else {
            return Ok(());
        };
        // The cast is lossless: a message's size fits in 32 bits.
        self.respond(source, operation, outcome, length as u32, 0)
    }
}
