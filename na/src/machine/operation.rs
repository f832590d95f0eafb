//! Operations that are under way.

use std::sync::Arc;

use conduit_core::ni::Rank;
use slab::Slab;

use super::memory::Segments;
use super::wire::MemoryKey;
use crate::error::Error;

/// Names an operation, also after it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationId {
    index: u32,
    generation: u32,
}

impl OperationId {
    /// It as a number.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The opposite of [`to_u64`](Self::to_u64).
    pub fn of_u64(id: u64) -> Self {
        Self {
            // The lower half.
            index: id as u32,
            generation: (id >> 32) as u32,
        }
    }
}

/// Memory of the user that messages are copied from or to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

// SAFETY: an address; the caller of `Class`'s unsafe functions keeps it valid until the operation
// has ended.
unsafe impl Send for Buffer {}

/// Which expected messages a receive takes.
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
    /// Requests without an answer, and of these the copies: the peer may access the memory here.
    pub(crate) requests: u32,
    pub(crate) copies: u32,
    /// Bytes of replies to a get that have not come: between channels they come in any order, so
    /// the last one may not be the last to come.
    pub(crate) missing: u64,
    /// Pieces that a transport may still read.
    pub(crate) reading: u32,
    /// Nothing more is requested: it ends with this.
    pub(crate) error: Option<Error>,
    /// A piece is in its peer's queue.
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
        /// Bytes of messages received, if it takes several.
        several: Option<usize>,
    },
    ReceiveExpected {
        of: Match,
        buffer: Buffer,
    },
    /// Much larger than the others.
    Transfer(Box<Transfer>),
}

impl OperationKind {
    /// A transfer that ends with an error as soon as it can.
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
            // Fits: each takes much more than a byte.
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

    /// Those with a peer, or of all peers.
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
