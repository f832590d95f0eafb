//! The collective operations of a team, as a state machine without I/O: start from [`TeamMachine`].
//!
//! # Algorithm
//! Data moves along a binomial tree whose root is the operation's: a broadcast down, a reduction to
//! one rank up, a reduction to all ranks up and then down. Each rank reduces its own data with that
//! of its children in their order, so a reduction of the same data gives the same bits every time,
//! and all ranks get the same. One that keeps the ranks' order has the last rank for its root, and
//! each rank's children below it: then whoever has reduced a subtree has ranks that follow one
//! another, and the child's come before its own. Where each pair of ranks has data of its own
//! (scatter, gather, exchange), that goes from the one to the other, step by step: `pair`.
//!
//! An operation is split into *parts* of at most [`Limits::part`] bytes (one element, if that is
//! larger). A part is what the protocol knows: the parts of a team are numbered in the order in
//! which all ranks start its operations, and at each rank at most [`Limits::window`] of them are
//! under way. The others wait in their operations until the oldest part is over. Within the window
//! parts go on independently, so a long operation fills the tree as a pipeline, and a short one
//! behind another does not wait for it. The parts of a long reduction to all have different roots,
//! so that ranks share the work, if the order of the ranks does not matter.
//!
//! A rank that has started a part answers for it whenever its [`TeamMachine`] is given messages;
//! nobody has to wait for an operation for the others to go on.
//!
//! # Who may send what, and why memory is bounded
//! A rank may be far behind its neighbours in the tree. What they send must then not pile up at it:
//!
//! - *Long parts are announced.* Data is sent only after a ready message from its receiver, which
//!   has started the part and has its memory: for a broadcast the caller's, for a reduction one
//!   buffer for the part's sum, into which children are let one by one.
//! - *Short parts* (at most [`Limits::eager`] bytes) *are eager.* They are sent at once. A receiver
//!   that has not started the part keeps the data, up to [`Limits::early`] bytes in all, and
//!   *refuses* what is more: it remembers only that it has, and sends a ready message when it
//!   starts the part. The sender keeps the data until it is told that it was taken (a broadcast, a
//!   reduction to one) or has the result that it was needed for (a reduction to all).
//! - *Results of a reduction to all* are sent without asking, as whoever has sent its operand waits
//!   for the result.
//!
//! A ready message and a refusal are each about a part that is still under way at the other side,
//! since it is not over there before this side has answered. So a rank remembers at most `window`
//! of them for each rank of the team (in fact: for each that is its neighbour in some tree), a few
//! words each. With what is kept, a rank has at most
//!
//! - `window` sums of `part` bytes, and as many operands being put together where one element is
//!   larger than a message;
//! - for each part of the window and child `eager` bytes that came before their turn;
//! - `early` bytes for parts that it has not started.
//!
//! # Why it ends
//! Messages are about parts in the window of both ends or behind at one; each part needs at each
//! rank a bounded number of messages, none of which waits for another part. The oldest part that is
//! not over somewhere is, once all ranks have started its operation, in every rank's window or
//! over, so its messages are answered, and it ends.

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

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectiveKind {
    /// The root's data goes to all ranks.
    Broadcast {
        /// Which of the team has the data.
        root: u32,
    },
    /// The reduced data of all ranks goes to one.
    ReduceToOne {
        /// Which of the team gets it.
        root: u32,
    },
    /// The reduced data of all ranks goes to all.
    ReduceToAll,
    /// One rank has a block for each, in their order.
    Scatter {
        /// Which of the team.
        root: u32,
    },
    /// One rank gets the blocks of all, in their order.
    Gather {
        /// Which of the team.
        root: u32,
    },
    /// Every rank gets the blocks of all, in their order.
    GatherAll,
    /// Every rank has a block for each, and gets one of each, both in their order.
    Exchange,
    /// Ends nowhere before it has been started everywhere. One byte that says nothing is reduced.
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
    /// Bits of a signature that say it.
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

    /// The rank that all have to agree on, where there is one.
    pub(crate) fn root(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::ReduceToOne { root }
            | Self::Scatter { root }
            | Self::Gather { root } => Some(root),
            Self::Barrier | Self::ReduceToAll | Self::GatherAll | Self::Exchange => None,
        }
    }

    /// Does all ranks' data go up a tree?
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::ReduceToOne { .. }) || self.reduces_to_all()
    }

    /// A barrier is a reduction of nothing.
    fn reduces_to_all(self) -> bool {
        matches!(self, Self::ReduceToAll | Self::Barrier)
    }

    /// Is the data of each pair of ranks its own? Otherwise it moves along a tree.
    fn is_of_pairs(self) -> bool {
        match self {
            Self::Broadcast { .. } | Self::ReduceToOne { .. } => false,
            Self::ReduceToAll | Self::Barrier => false,
            Self::Scatter { .. } | Self::Gather { .. } | Self::GatherAll | Self::Exchange => true,
        }
    }

    /// Does whoever sends data of an eager part want to know when it has been taken?
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

/// What all ranks must give alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is done.
    pub kind: CollectiveKind,
    /// Bytes of an element, which is never split between two calls of [`Operand::reduce`]; 1 where
    /// nothing is reduced. At most [`Shape::MAX_ELEMENT`], not 0.
    pub element: usize,
    /// Elements of each rank; where each pair of ranks has its own, of each pair.
    pub count: usize,
    /// What the elements are and how they are reduced, as any number: only compared.
    pub meaning: u32,
    /// The elements of a [reduction to all](CollectiveKind::ReduceToAll) are reduced in the order
    /// of the ranks: those of the lower ranks are on the left. Otherwise the order is any, the same
    /// each time.
    pub in_order: bool,
}

impl Shape {
    /// Offsets within a part travel in 32 bits.
    pub const MAX_ELEMENT: usize = 1 << 31;

    /// That of a barrier.
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

    /// Bytes of the longer of a rank's two vectors in a team of this size; `None`: more than there
    /// are.
    pub(crate) fn bytes_in_all(&self, size: u32) -> Option<usize> {
        let bytes = self.element.checked_mul(self.count)?;
        bytes.checked_mul(self.steps(size))
    }

    /// How often the bytes go through a team of this size.
    fn steps(&self, size: u32) -> usize {
        match self.kind.is_of_pairs() {
            true => size as usize,
            false => 1,
        }
    }

    /// What ranks have to agree on about a part: the kind, and a hash of the rest.
    fn signature(&self, part: u32) -> u32 {
        let words = [
            self.kind.root().unwrap_or(0).into(),
            self.element as u64,
            self.count as u64,
            u64::from(self.meaning) << 1 | u64::from(self.in_order),
            part.into(),
        ];
        // Multiply and fold, as good as any here.
        let hash = words.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |hash, word| {
            let product = u128::from(hash ^ word) * 0xbf58_476d_1ce4_e5b9;
            (product >> 64) as u64 ^ product as u64
        });
        (hash >> 32) as u32 & !CollectiveKind::MASK | self.kind.code()
    }
}

/// A caller's memory and how its elements are reduced.
pub trait Operand {
    /// Bytes that this rank gives. Asked for only where it gives some.
    fn source(&self, offset: usize, len: usize) -> &[u8];
    /// Bytes of the result, after they have been [stored](Self::store) or [copied](Self::copy).
    fn result(&self, offset: usize, len: usize) -> &[u8];
    /// Stores bytes of the result. Never asked for at ranks that get none.
    fn store(&mut self, offset: usize, bytes: &[u8]);
    /// Makes bytes of the source, from one offset on, bytes of the result, from another on;
    /// nothing, where they are the same memory.
    fn copy(&mut self, from: usize, to: usize, len: usize);
    /// Reduces whole elements, one by one; the result replaces `right`. Both are aligned to 16
    /// bytes, if elements are, and do not overlap.
    fn reduce(&mut self, left: &[u8], right: &mut [u8]);
}

/// Bounds of a [`TeamMachine`]; all ranks of a team need the same. See the [module](self) for what
/// memory they allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a part.
    pub part: usize,
    /// Parts under way at a rank.
    pub window: u32,
    /// Bytes of a message.
    pub piece: usize,
    /// Bytes of the largest part that is sent at once.
    pub eager: usize,
    /// Bytes that are kept of what came early.
    pub early: usize,
}

impl Limits {
    /// With messages of at most this many bytes.
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

    /// Nothing is 0, and an eager part is one message.
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

    /// The largest message, and whether it is too small for an element.
    fn piece_of(&self, shape: &Shape) -> (usize, bool) {
        match self.piece / shape.element {
            0 => (self.piece, true),
            elements => (elements * shape.element, false),
        }
    }
}

/// A peer's message that does not fit what this rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The peer has started another operation in this one's place.
    #[error(
        "collective operations do not match: {theirs} there, {ours} here \
         (or roots, sizes, types or operations differ)"
    )]
    Mismatch {
        /// The peer.
        peer: Rank,
        /// Its operation.
        theirs: &'static str,
        /// This rank's.
        ours: &'static str,
    },
    /// The peer breaks the protocol.
    #[error("collective operation: {what}")]
    Unexpected {
        /// The peer.
        peer: Rank,
        /// What it has sent.
        what: &'static str,
    },
}

impl Violation {
    /// Whose message it was.
    #[must_use]
    pub fn peer(&self) -> Rank {
        match *self {
            Self::Mismatch { peer, .. } | Self::Unexpected { peer, .. } => peer,
        }
    }
}
