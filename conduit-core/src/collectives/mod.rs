//! The collective operations of a team, as a state machine without I/O. The entry point is
//! [`TeamMachine`].
//!
//! # Algorithm
//! Data moves along a binomial tree whose root is the operation's root. A broadcast moves data down
//! the tree, a reduction to one rank moves it up, and a reduction to all ranks moves it up and then
//! down. Each rank reduces its own data with that of its children in a fixed order, so a reduction
//! of the same data yields the same bits every time, and all ranks receive the same bits. A
//! reduction that keeps the order of the ranks has the last rank as its root, and the children of
//! each rank are lower ranks. A rank that has reduced a subtree thus has the data of consecutive
//! ranks, in which the data of its children precedes its own. In a scatter, gather or exchange,
//! each pair of ranks has data of its own, which goes directly from one rank to the other, step by
//! step; see `pair`.
//!
//! An operation is split into *parts* of at most [`Limits::part`] bytes, or of one element if an
//! element is larger. Parts are the units of the protocol. They are numbered consistently, because
//! all ranks start a team's operations in the same order. At most [`Limits::window`] parts are in
//! flight at each rank; later parts are created only when the oldest part is over. Parts in the
//! window progress independently, so a long operation fills the tree like a pipeline, and a short
//! operation behind it need not wait for its end. If the order of the ranks does not matter, the
//! parts of a long reduction to all have different roots, so that the ranks share the work.
//!
//! A rank that has started a part responds to messages about the part whenever they are passed to
//! its [`TeamMachine`]. Other ranks therefore progress even if no thread of this rank waits for the
//! operation.
//!
//! # Flow control, and why memory is bounded
//! A rank may be far behind its neighbours in the tree. Their messages must not pile up there:
//!
//! - *Long parts are announced.* Data is sent only after a ready message from its receiver. The
//!   receiver sends it when it has started the part and has memory for the data: in a broadcast the
//!   caller's memory, in a reduction one buffer for the part's sum, to which the children
//!   contribute one after the other.
//! - *Short parts* (at most [`Limits::eager`] bytes) *are eager.* Their data is sent at once. A
//!   receiver that has not started the part keeps the data, up to [`Limits::early`] bytes in total.
//!   It *refuses* data beyond this limit: it records only the refusal, and sends a ready message
//!   when it starts the part. In a broadcast or a reduction to one rank, the sender keeps the data
//!   until the receiver reports that it took the data. In a reduction to all, the sender keeps it
//!   until the result has arrived.
//! - *Results of a reduction to all* are sent without announcement, because each rank that has sent
//!   its operand is waiting for the result.
//!
//! Each ready message and each refusal concerns a part that is still in flight at the peer, because
//! the part can't end there before this rank has answered. A rank therefore records at most
//! `window` ready messages and refusals for each rank of the team (in fact, only for ranks that are
//! its neighbours in some tree). Each record takes a few words. In total, a rank keeps at most
//!
//! - `window` sums of `part` bytes, and as many operands that are being assembled if one element is
//!   larger than a message;
//! - `eager` bytes for each part of the window and each child, for data that was received before
//!   the child's turn;
//! - `early` bytes for parts that it has not started.
//!
//! # Why it terminates
//! Every message concerns a part that is in the windows of both ranks, or that is already finished
//! at one of them. Each part needs a bounded number of messages at each rank, and no message waits
//! for another part. Consider the oldest part that is unfinished at some rank. Once all ranks have
//! started its operation, the part is in every rank's window or finished there. All messages for it
//! are then answered, and it ends.

mod arithmetic;
mod buffer;
pub(crate) mod calls;
mod early;
mod machine;
mod pair;
mod part;
pub(crate) mod state;
mod team;
pub(crate) mod teams;
#[cfg(test)]
mod tests;
mod tree;

pub use arithmetic::{DataType, Fold, ReduceOp, fold};
pub use machine::{Outgoing, TeamMachine};
pub use state::{ReduceFunction, Reduction, Sync as CollectiveSync};
pub use team::{Members, Team, TeamId};
pub use teams::Join;

use crate::ni::Rank;

/// The kind of a collective operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Copies the root's data to all ranks.
    Broadcast {
        /// The team rank that has the data.
        root: u32,
    },
    /// Reduces the data of all ranks to one rank.
    ReduceToOne {
        /// The team rank that receives the result.
        root: u32,
    },
    /// Reduces the data of all ranks to all ranks.
    ReduceToAll,
    /// Distributes the root's blocks, one to each rank, in rank order.
    Scatter {
        /// The team rank that has the blocks.
        root: u32,
    },
    /// Collects a block from each rank at the root, in rank order.
    Gather {
        /// The team rank that receives the blocks.
        root: u32,
    },
    /// Collects a block from each rank at every rank, in rank order.
    GatherAll,
    /// Sends a block from every rank to every rank. Each rank's source and result hold their blocks
    /// in rank order.
    Exchange,
    /// Ends at each rank only once all ranks have started the operation. A barrier is implemented
    /// as a reduction of one byte whose value is irrelevant.
    #[default]
    Barrier,
}

impl CollectiveKind {
    const BROADCAST: u32 = 0;
    const REDUCE_TO_ONE: u32 = 1;
    const REDUCE_TO_ALL: u32 = 2;
    const SCATTER: u32 = 3;
    const GATHER: u32 = 4;
    const GATHER_ALL: u32 = 5;
    const EXCHANGE: u32 = 6;
    const BARRIER: u32 = 7;
    /// Mask of the bits in a signature that hold the kind.
    const MASK: u32 = 7;

    fn code(self) -> u32 {
        match self {
            Self::Broadcast { .. } => Self::BROADCAST,
            Self::ReduceToOne { .. } => Self::REDUCE_TO_ONE,
            Self::ReduceToAll => Self::REDUCE_TO_ALL,
            Self::Scatter { .. } => Self::SCATTER,
            Self::Gather { .. } => Self::GATHER,
            Self::GatherAll => Self::GATHER_ALL,
            Self::Exchange => Self::EXCHANGE,
            Self::Barrier => Self::BARRIER,
        }
    }

    /// Returns the root, if the kind has one. All ranks must agree on it.
    pub(crate) fn root(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::ReduceToOne { root }
            | Self::Scatter { root }
            | Self::Gather { root } => Some(root),
            Self::Barrier | Self::ReduceToAll | Self::GatherAll | Self::Exchange => None,
        }
    }

    /// Returns whether the data of all ranks moves up a tree and is reduced.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::ReduceToOne { .. }) || self.reduces_to_all()
    }

    /// Returns whether the operation is a reduction to all ranks. A barrier is such a reduction, of
    /// one byte whose value is irrelevant.
    fn reduces_to_all(self) -> bool {
        matches!(self, Self::ReduceToAll | Self::Barrier)
    }

    /// Returns whether each pair of ranks has data of its own. If not, data moves along a tree.
    fn is_of_pairs(self) -> bool {
        match self {
            Self::Broadcast { .. } | Self::ReduceToOne { .. } => false,
            Self::ReduceToAll | Self::Barrier => false,
            Self::Scatter { .. } | Self::Gather { .. } | Self::GatherAll | Self::Exchange => true,
        }
    }

    /// Returns whether the receiver of an eager part's data must acknowledge it.
    fn is_told(signature: u32) -> bool {
        !matches!(signature & Self::MASK, Self::REDUCE_TO_ALL | Self::BARRIER)
    }

    fn name_in(signature: u32) -> &'static str {
        match signature & Self::MASK {
            Self::BROADCAST => "a broadcast",
            Self::REDUCE_TO_ONE => "a reduction to one",
            Self::REDUCE_TO_ALL => "a reduction to all",
            Self::SCATTER => "a scatter",
            Self::GATHER => "a gather",
            Self::GATHER_ALL => "a gather to all",
            Self::EXCHANGE => "an exchange",
            Self::BARRIER => "a barrier",
            _ => "an unknown operation",
        }
    }
}

/// The parameters that must be the same at all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The kind of operation.
    pub kind: CollectiveKind,
    /// The size of an element in bytes, from 1 to [`Shape::MAX_ELEMENT`]. It is 1 for operations
    /// that do not reduce. An element is never split between two calls of [`Operand::reduce`].
    pub element: usize,
    /// The number of elements of each rank or, if each pair of ranks has data of its own, of each
    /// pair.
    pub count: usize,
    /// An arbitrary number that stands for the elements' type and reduction. It is only compared
    /// between ranks.
    pub meaning: u32,
    /// Whether the elements of a [reduction to all](CollectiveKind::ReduceToAll) are reduced in the
    /// order of the ranks, with elements of lower ranks on the left. Otherwise the order is
    /// unspecified, but the same each time.
    pub in_order: bool,
}

impl Shape {
    /// Maximum size of an element in bytes. It is limited because messages carry offsets within a
    /// part in 32 bits.
    pub const MAX_ELEMENT: usize = 1 << 31;

    /// The shape of a barrier.
    pub const BARRIER: Self = Self {
        kind: CollectiveKind::Barrier,
        element: 1,
        count: 1,
        meaning: 0,
        in_order: false,
    };

    fn bytes(&self) -> usize {
        self.element.saturating_mul(self.count)
    }

    /// Returns the size of a rank's source or result, whichever is longer, in a team of this size.
    /// Returns `None` if the size overflows.
    pub(crate) fn bytes_in_all(&self, size: u32) -> Option<usize> {
        let bytes = self.element.checked_mul(self.count)?;
        bytes.checked_mul(self.steps(size))
    }

    /// Returns the number of steps that the operation takes in a team of this size. Each step moves
    /// the bytes of the operation once.
    fn steps(&self, size: u32) -> usize {
        match self.kind.is_of_pairs() {
            true => size as usize,
            false => 1,
        }
    }

    /// Returns the part's signature, on which all ranks must agree: the kind, and a hash of the
    /// other parameters.
    fn signature(&self, part: u32) -> u32 {
        let words = [
            self.kind.root().unwrap_or(0).into(),
            self.element as u64,
            self.count as u64,
            u64::from(self.meaning) << 1 | u64::from(self.in_order),
            part.into(),
        ];
        // The hash multiplies and folds, which is sufficient to detect mismatches.
        let hash = words.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |hash, word| {
            let product = u128::from(hash ^ word) * 0xbf58_476d_1ce4_e5b9;
            (product >> 64) as u64 ^ product as u64
        });
        (hash >> 32) as u32 & !CollectiveKind::MASK | self.kind.code()
    }
}

/// A caller's memory, and the reduction of its elements.
pub trait Operand {
    /// Returns bytes that this rank contributes. Called only if the rank contributes data.
    fn source(&self, offset: usize, len: usize) -> &[u8];
    /// Returns bytes of the result that have been [stored](Self::store) or [copied](Self::copy).
    fn result(&self, offset: usize, len: usize) -> &[u8];
    /// Stores bytes of the result. Never called at ranks that do not receive the result.
    fn store(&mut self, offset: usize, bytes: &[u8]);
    /// Copies bytes at one offset in the source to another offset in the result. Does nothing if
    /// the two ranges are the same memory.
    fn copy(&mut self, from: usize, to: usize, len: usize);
    /// Reduces whole elements one by one and writes the result to `right`. `left` and `right` do
    /// not overlap. Both are aligned to 16 bytes if the element size is a multiple of 16.
    fn reduce(&mut self, left: &[u8], right: &mut [u8]);
}

/// Limits of a [`TeamMachine`]. All ranks of a team must use the same limits. See the
/// [module](self) for the memory that they allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a part in bytes.
    pub part: usize,
    /// Maximum number of parts in flight at a rank.
    pub window: u32,
    /// Maximum size of a message in bytes.
    pub piece: usize,
    /// Maximum size in bytes of a part that is sent eagerly.
    pub eager: usize,
    /// Maximum number of bytes of early data that are kept.
    pub early: usize,
}

impl Limits {
    /// Returns the default limits with messages of at most this many bytes.
    #[must_use]
    pub const fn with_messages_of(bytes: usize) -> Self {
        Self {
            part: 64 << 10,
            window: 16,
            piece: bytes,
            eager: 2048,
            early: 64 << 10,
        }
    }

    /// Adjusts the limits so that the part, window and message sizes are not 0 and an eager part
    /// fits in one message.
    fn sane(self) -> Self {
        let piece = self.piece.max(1);
        Self {
            part: self.part.clamp(1, Shape::MAX_ELEMENT),
            window: self.window.max(1),
            piece,
            eager: self.eager.min(piece),
            early: self.early,
        }
    }

    fn part_of(&self, shape: &Shape) -> usize {
        (self.part / shape.element * shape.element).max(shape.element)
    }

    /// Returns the size of the largest message for a shape, and whether that size is too small for
    /// one element.
    fn piece_of(&self, shape: &Shape) -> (usize, bool) {
        match self.piece / shape.element {
            0 => (self.piece, true),
            elements => (elements * shape.element, false),
        }
    }
}

/// A message from a peer that does not match this rank's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The peer has started a different operation.
    #[error(
        "collective operations do not match: {theirs} by the peer, {ours} here \
         (or roots, sizes, types or operations differ)"
    )]
    Mismatch {
        /// The peer.
        peer: Rank,
        /// The peer's operation.
        theirs: &'static str,
        /// This rank's operation.
        ours: &'static str,
    },
    /// The peer violated the protocol.
    #[error("collective operation: {what}")]
    Unexpected {
        /// The peer.
        peer: Rank,
        /// A description of the message.
        what: &'static str,
    },
}

impl Violation {
    /// Returns the sender of the message.
    #[must_use]
    pub fn peer(&self) -> Rank {
        match *self {
            Self::Mismatch { peer, .. } | Self::Unexpected { peer, .. } => peer,
        }
    }
}
