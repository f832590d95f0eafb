//! Fragments that arrive in pieces: puts, and replies to this rank's gets.

use std::ptr;

use conduit_core::ni::{Outcome, Rank};

use super::{Found, Held, ProtocolError, to_process};
use crate::matching::{Hit, Incoming, Location, MessageKind};
use crate::transport::buffers::Buffer;
use crate::transport::regions;
use crate::transport::state::Portals;
use crate::transport::window::Cost;
use crate::transport::wire::{Header, Put};

/// The destination of a fragment's bytes as they arrive.
#[derive(Debug)]
pub(crate) enum Destination {
    /// An address in a region.
    Region(usize),
    /// An address of the process.
    Process(u64),
    /// A buffer, until the event is delivered.
    Buffer(Buffer),
    /// The bytes are discarded.
    Nowhere,
}

/// A fragment that has begun to arrive.
#[derive(Debug)]
pub(crate) enum Arrival {
    Put {
        source: Rank,
        put: Put,
        requested: usize,
        cost: Cost,
        /// The entry that the put has matched.
        hit: Option<Hit>,
        to: Destination,
    },
    /// A put to an index that is not open.
    Held {
        source: Rank,
        put: Put,
        data: Buffer,
        cost: Cost,
    },
    /// The data of one of this rank's gets.
    Reply {
        source: Rank,
        operation: u32,
        outcome: Outcome,
        length: usize,
    },
    /// The fragment has violated the protocol.
    Discarded { source: Rank },
}

impl Arrival {
    fn source(&self) -> Rank {
        match *self {
            Self::Put { source, .. }
            | Self::Held { source, .. }
            | Self::Reply { source, .. }
            | Self::Discarded { source } => source,
        }
    }
}

impl Portals {
    /// Returns whether a put can begin now. A put to a closed index has to wait if it is too long
    /// to be held.
    pub(crate) fn can_begin(&self, put: &Put, length: usize) -> bool {
        let index = self.indices.get(usize::from(put.index));
        length <= self.config.max_managed
            || index.is_none_or(|index| index.is_ready(self.on_progress_thread))
    }

    /// Matches a put whose arrival begins.
    pub(crate) fn put_begins(
        &mut self,
        source: Rank,
        put: &Put,
        length: usize,
        cost: Cost,
    ) -> Result<Arrival, ProtocolError> {
        let incoming = Incoming {
            kind: MessageKind::Put,
            source,
            match_bits: put.match_bits,
            offset: put.offset,
            length,
        };
        let (hit, to) = match self.accept(put.index, &incoming)? {
            Found::Closed => {
                let data = self.pool.take(length);
                return Ok(Arrival::Held {
                    source,
                    put: *put,
                    data,
                    cost,
                });
            }
            Found::Nothing => (None, Destination::Nowhere),
            Found::Entry(hit) => {
                let hit = self.within_limits(hit);
                self.advertise(source, put.index, hit.id);
                self.unlinked(put.index, &hit);
                self.begin_use(put.index, hit.id);
                self.freed(put.index, &hit);
                let to = match hit.location {
                    Location::Region(address) => Destination::Region(address),
                    Location::Process(address) => Destination::Process(address),
                    Location::Managed => Destination::Buffer(self.pool.take(hit.length)),
                    Location::Nothing => Destination::Nowhere,
                };
                (Some(hit), to)
            }
        };
        Ok(Arrival::Put {
            source,
            put: *put,
            requested: length,
            cost,
            hit,
            to,
        })
    }

    /// Writes a piece of a fragment to its destination.
    pub(crate) fn piece_arrives(&mut self, at: usize, offset: usize, bytes: &[u8]) {
        let Some(arrival) = self.arrivals.get_mut(at) else {
            return;
        };
        match arrival {
            Arrival::Put {
                hit: Some(hit), to, ..
            } => {
                // The bytes beyond the matched length are truncated.
                let wanted = hit.length.saturating_sub(offset).min(bytes.len());
                let bytes = &bytes[..wanted];
                match to {
                    _ if bytes.is_empty() => {}
                    // SAFETY: `hit.length` bytes at `address` lie within the entry. `me_append` has
                    // checked that the entry lies within a region, and the entry is not unlinked
                    // while it is in use.
                    Destination::Region(address) => unsafe {
                        let to = regions::pointer(*address + offset);
                        ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    },
                    // SAFETY: `bytes` is a slice, so its pointer is valid for `bytes.len()` bytes.
                    Destination::Process(address) => unsafe {
                        let at = address.wrapping_add(offset as u64);
                        to_process(hit, at, bytes.as_ptr(), bytes.len());
                    },
                    Destination::Buffer(buffer) => copy_into(buffer, offset, bytes),
                    Destination::Nowhere => {}
                }
            }
            Arrival::Held { data, .. } => copy_into(data, offset, bytes),
            Arrival::Reply { operation, .. } => {
                let operation = *operation;
                if let Some(operation) = self.operations.get(operation)
                    && !operation.abandoned
                    && offset + bytes.len() <= operation.length
                {
                    // SAFETY: the bytes lie within the operation's part of its descriptor, which is
                    // valid while the operation is in flight and not given up.
                    unsafe {
                        let to = operation.memory.add(offset);
                        ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                    }
                }
            }
            Arrival::Put { hit: None, .. } | Arrival::Discarded { .. } => {}
        }
    }

    /// Completes a fragment that has arrived in full.
    pub(crate) fn arrival_ends(&mut self, at: usize) {
        let Some(arrival) = self.arrivals.try_remove(at) else {
            return;
        };
        match arrival {
            Arrival::Put {
                source,
                put,
                requested,
                cost,
                hit,
                to,
            } => {
                let data = match to {
                    Destination::Buffer(buffer) => Some(buffer),
                    Destination::Region(_) | Destination::Process(_) | Destination::Nowhere => None,
                };
                let result = self.put_done(source, &put, requested, cost, hit, data);
                if let Some(hit) = hit {
                    self.end_use(put.index, hit.id);
                }
                if result.is_err() {
                    self.protocol_error(source);
                }
            }
            Arrival::Held {
                source,
                put,
                data,
                cost,
            } => {
                let held = Held {
                    source,
                    header: Header::Put(put),
                    data,
                    cost,
                };
                self.hold(put.index, held);
            }
            Arrival::Reply {
                source,
                operation,
                outcome,
                length,
            } => {
                if self.end_get(source, operation, outcome, length).is_err() {
                    self.protocol_error(source);
                }
            }
            Arrival::Discarded { .. } => {}
        }
    }

    /// Drops the partially arrived fragments of a peer.
    pub(crate) fn drop_arrivals_of(&mut self, peer: Rank) {
        let begun: Vec<_> = self
            .arrivals
            .iter()
            .filter(|(_, arrival)| arrival.source() == peer)
            .map(|(at, _)| at)
            .collect();
        for at in begun {
            if let Arrival::Put { put, hit, to, .. } = self.arrivals.remove(at) {
                if let Destination::Buffer(buffer) = to {
                    self.pool.give(buffer);
                }
                if let Some(hit) = hit {
                    self.end_use(put.index, hit.id);
                }
            }
        }
    }
}

/// Copies a piece that lies within the buffer.
fn copy_into(buffer: &mut Buffer, offset: usize, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len());
    if let Some(to) = buffer.bytes_mut().get_mut(offset..end) {
        to.copy_from_slice(bytes);
    }
}
