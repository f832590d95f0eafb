//! Pending operations.

use std::sync::Arc;

use conduit_core::ni::Rank;
use slab::Slab;

use super::memory::Segments;
use super::wire::MemoryKey;
use crate::error::Error;

/// The id of an operation, which stays unique after the operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationId {
    index: u32,
    generation: u32,
}

impl OperationId {
    /// Returns the id as a number.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Converts a number from [`to_u64`](Self::to_u64) back.
    pub fn of_u64(id: u64) -> Self {
        Self {
            // The lower half.
            index: id as u32,
            generation: (id >> 32) as u32,
        }
    }
}

/// Memory of the user from or to which messages are copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

// SAFETY: only an address; the caller of `Class`'s unsafe functions keeps it valid until the
// operation has ended.
unsafe impl Send for Buffer {}

/// The expected messages that a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) peer: Rank,
    /// The sender's context.
    pub(crate) from: u8,
    /// The receiver's context.
    pub(crate) context: u8,
    pub(crate) tag: u32,
}

/// A put or a get.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) is_put: bool,
    pub(crate) local: Arc<Segments>,
    pub(crate) local_offset: u64,
    pub(crate) remote: MemoryKey,
    pub(crate) remote_offset: u64,
    pub(crate) length: u64,
    /// Bytes for which requests were made.
    pub(crate) requested: u64,
    /// The number of unanswered requests, and how many of these are copies, for which the peer may
    /// access the local memory.
    pub(crate) requests: u32,
    pub(crate) copies: u32,
    /// Bytes of replies to a get that have not arrived. Replies on different channels arrive in any
    /// order, so the one marked as last may not be the last to arrive.
    pub(crate) missing: u64,
    /// The number of pieces that a transport may still read.
    pub(crate) reading: u32,
    /// The error with which the transfer ends; nothing more is requested.
    pub(crate) error: Option<Error>,
    /// Whether the transfer is in its peer's queue.
    pub(crate) queued: bool,
}

#[derive(Debug)]
pub(crate) enum OperationKind {
    /// A message that the transport has not taken yet.
    Send {
        message: super::MessageHeader,
        buffer: Buffer,
    },
    ReceiveUnexpected {
        buffer: Buffer,
        /// The bytes of the buffer used so far, if the receive takes several messages.
        several: Option<usize>,
    },
    ReceiveExpected {
        of: Match,
        buffer: Buffer,
    },
    /// Boxed, because it is much larger than the others.
    Transfer(Box<Transfer>),
}

impl OperationKind {
    /// Returns whether this is a transfer that ends with an error as soon as possible.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self, Self::Transfer(transfer) if transfer.error.is_some())
    }
}

#[derive(Debug)]
pub(crate) struct Operation {
    generation: u32,
    pub(crate) context: u8,
    pub(crate) cookie: u64,
    /// `None` for receives of unexpected messages.
    pub(crate) peer: Option<Rank>,
    pub(crate) kind: OperationKind,
}

/// All operations of a process that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    all: Slab<Operation>,
    generation: u32,
}

impl Operations {
    pub(crate) fn insert(
        &mut self,
        context: u8,
        cookie: u64,
        peer: Option<Rank>,
        kind: OperationKind,
    ) -> OperationId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let index = self.all.insert(Operation {
            generation,
            context,
            cookie,
            peer,
            kind,
        });
        OperationId {
            // Fits: each operation takes much more than a byte.
            index: index as u32,
            generation,
        }
    }

    pub(crate) fn get(&mut self, id: OperationId) -> Option<&mut Operation> {
        let operation = self.all.get_mut(id.index as usize)?;
        (operation.generation == id.generation).then_some(operation)
    }

    pub(crate) fn peek(&self, id: OperationId) -> Option<&Operation> {
        let operation = self.all.get(id.index as usize)?;
        (operation.generation == id.generation).then_some(operation)
    }

    pub(crate) fn remove(&mut self, id: OperationId) -> Option<Operation> {
        self.get(id)?;
        Some(self.all.remove(id.index as usize))
    }

    /// Returns the operations with a peer, or with all peers.
    pub(crate) fn of(&self, peer: Option<Rank>) -> Vec<OperationId> {
        self.all
            .iter()
            .filter(|(_, operation)| peer.is_none() || operation.peer == peer)
            .map(|(index, operation)| OperationId {
                index: index as u32,
                generation: operation.generation,
            })
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
