//! The operations that have not ended.

use std::sync::Arc;

use conduit_core::ni::Rank;
use slab::Slab;

use super::memory::Segments;
use super::wire::MemoryKey;
use crate::error::Error;

/// The id of an operation, which is not reused after the operation has ended.
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

    /// Converts a number that [`to_u64`](Self::to_u64) returned back to the id.
    pub fn of_u64(id: u64) -> Self {
        Self {
            // The truncation is intended: the index is the lower half.
            index: id as u32,
            generation: (id >> 32) as u32,
        }
    }
}

/// The user's memory, from or to which a message is copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

// SAFETY: a buffer is only an address and a length. The callers of the unsafe functions of `Class`
// guarantee that the memory is valid until the operation has ended.
unsafe impl Send for Buffer {}

/// The properties that an expected message and its receive share.
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
    /// The number of bytes that were requested from the peer.
    pub(crate) requested: u64,
    /// The number of unanswered requests.
    pub(crate) requests: u32,
    /// The number of unanswered requests that are copies, for which the peer may access the local
    /// memory.
    pub(crate) copies: u32,
    /// The number of bytes of a get whose replies have not arrived. They are counted because
    /// replies on different channels arrive in any order, so the reply marked as the last may not
    /// arrive last.
    pub(crate) missing: u64,
    /// The number of pieces of the local memory that the network may still read.
    pub(crate) reading: u32,
    /// The error with which the transfer will end. If it is set, nothing more is requested.
    pub(crate) error: Option<Error>,
    /// Whether the transfer is in its peer's queue.
    pub(crate) queued: bool,
}

#[derive(Debug)]
pub(crate) enum OperationKind {
    /// A message that the network has not accepted yet.
    Send {
        message: super::MessageHeader,
        buffer: Buffer,
    },
    ReceiveUnexpected {
        buffer: Buffer,
        /// The number of bytes of the buffer used so far, if the receive takes several messages.
        several: Option<usize>,
    },
    ReceiveExpected {
        of: Match,
        buffer: Buffer,
    },
    /// A transfer, boxed because it is much larger than the other kinds.
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
    /// The operation's peer, or `None` for a receive of unexpected messages and for an operation
    /// with this process itself.
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
            // The cast is lossless, because each operation takes much more than a byte, so that
            // memory limits the number of operations to less than 2^32.
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

    /// Returns the operations with a peer, or all operations if `peer` is `None`.
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
