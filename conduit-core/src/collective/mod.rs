//! Broadcasts and reductions of a team, as a state machine without I/O: start from [`Machine`].
//!
//! # Algorithm
//! Data moves along a *k*-nomial tree whose root is the operation's: a broadcast down, a reduction to one rank up, a
//! reduction to all ranks up and then down. Each rank reduces its own data with that of its children in their order, so
//! a reduction of the same data gives the same bits every time, and all ranks get the same.
//!
//! An operation is split into *parts* of at most [`Limits::part`] bytes (one element, if that is larger). A part is what
//! the protocol knows: the parts of a team are numbered in the order in which all ranks start its operations, and
//! at each rank at most [`Limits::window`] of them are under way. The others wait in their operations until the oldest
//! part is over. Within the window parts go on independently, so a long operation fills the tree as a pipeline, and a
//! short one behind another does not wait for it. The parts of a long reduction to all have different roots, so that
//! ranks share the work.
//!
//! A rank that has started a part answers for it whenever its [`Machine`] is given messages; nobody has to wait for
//! an operation for the others to go on.
//!
//! # Who may send what, and why memory is bounded
//! A rank may be far behind its neighbours in the tree. What they send must then not pile up at it:
//!
//! - *Long parts are announced.* Data is sent only after a ready message from its receiver, which has started the part
//!   and has its memory: for a broadcast the caller's, for a reduction one buffer for the part's sum, into which children
//!   are let one by one.
//! - *Short parts* (at most [`Limits::eager`] bytes) *are eager.* They are sent at once. A receiver that has not started
//!   the part keeps the data, up to [`Limits::early`] bytes in all, and *refuses* what is more: it remembers only that it
//!   has, and sends a ready message when it starts the part. The sender keeps the data until it is told that it was
//!   taken (a broadcast, a reduction to one) or has the result that it was needed for (a reduction to all).
//! - *Results of a reduction to all* are sent without asking, as whoever has sent its operand waits for the result.
//!
//! A ready message and a refusal are each about a part that is still under way at the other side, since it is not over
//! there before this side has answered. So a rank remembers at most `window` of them for each rank of the team (in fact:
//! for each that is its neighbour in some tree), a few words each. With what is kept, a rank has at most
//!
//! - `window` sums of `part` bytes, and as many operands being put together where one element is larger than a message;
//! - for each part of the window and child `eager` bytes that came before their turn;
//! - `early` bytes for parts that it has not started.
//!
//! # Why it ends
//! Messages are about parts in the window of both ends or behind at one; each part needs at each rank a bounded number
//! of messages, none of which waits for another part. The oldest part that is not over somewhere is, once all ranks have
//! started its operation, in every rank's window or over, so its messages are answered, and it ends.

mod arithmetic;
mod buffer;
mod early;
mod machine;
mod part;
#[cfg(test)]
mod tests;
mod tree;

pub use arithmetic::{DataType, Fold, ReduceOp, fold};
pub use machine::{Machine, Outgoing};

use std::sync::Arc;

use crate::ni::Rank;

/// A set of ranks that do collective operations, in an order.
#[derive(Clone, Debug)]
pub struct Team {
    /// Its number, the same on all its ranks.
    pub id: u32,
    /// This rank's place in it.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Who they are.
    pub members: Members,
}

/// The ranks of a team.
#[derive(Clone, Debug)]
pub enum Members {
    /// All of the job, in its order.
    All,
    /// The rank in the job of each in the team.
    These(Arc<[Rank]>),
}

impl Team {
    /// The team of a whole job.
    #[must_use]
    pub fn of_job(rank: Rank, size: u32) -> Self {
        Self {
            id: 0,
            rank,
            size,
            members: Members::All,
        }
    }

    /// The job's rank for one of the team, which is below its size.
    fn job_rank(&self, rank: u32) -> Rank {
        match &self.members {
            Members::All => rank,
            Members::These(ranks) => ranks[rank as usize],
        }
    }

    fn has(&self, peer: Rank) -> bool {
        match &self.members {
            Members::All => peer < self.size,
            Members::These(ranks) => ranks.contains(&peer),
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
}

impl Kind {
    const BROADCAST: u32 = 0;
    const REDUCE_TO_ONE: u32 = 1;
    const REDUCE_TO_ALL: u32 = 2;
    /// Bits of a signature that say it.
    const MASK: u32 = 3;

    fn code(self) -> u32 {
        match self {
            Self::Broadcast { .. } => Self::BROADCAST,
            Self::ReduceToOne { .. } => Self::REDUCE_TO_ONE,
            Self::ReduceToAll => Self::REDUCE_TO_ALL,
        }
    }

    /// Does whoever sends data of an eager part want to know when it has been taken?
    fn is_told(signature: u32) -> bool {
        signature & Self::MASK != Self::REDUCE_TO_ALL
    }

    fn name_in(signature: u32) -> &'static str {
        match signature & Self::MASK {
            Self::BROADCAST => "a broadcast",
            Self::REDUCE_TO_ONE => "a reduction to one",
            Self::REDUCE_TO_ALL => "a reduction to all",
            _ => "an unknown operation",
        }
    }
}

/// What all ranks must give alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is done.
    pub kind: Kind,
    /// Bytes of an element, which is never split between two calls of [`Operand::reduce`]; of a broadcast 1. At most
    /// [`Shape::MAX_ELEMENT`], not 0.
    pub element: usize,
    /// Elements of each rank.
    pub count: usize,
    /// What the elements are and how they are reduced, as any number: only compared.
    pub meaning: u32,
}

impl Shape {
    /// Offsets within a part travel in 32 bits.
    pub const MAX_ELEMENT: usize = 1 << 31;

    fn bytes(&self) -> usize {
        self.element.saturating_mul(self.count)
    }

    /// What ranks have to agree on about a part: the kind, and a hash of the rest.
    fn signature(&self, part: u32) -> u32 {
        let root = match self.kind {
            Kind::Broadcast { root } | Kind::ReduceToOne { root } => root,
            Kind::ReduceToAll => 0,
        };
        let words = [
            root.into(),
            self.element as u64,
            self.count as u64,
            self.meaning.into(),
            part.into(),
        ];
        // Multiply and fold, as good as any here.
        let hash = words.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |hash, word| {
            let product = u128::from(hash ^ word) * 0xbf58_476d_1ce4_e5b9;
            (product >> 64) as u64 ^ product as u64
        });
        (hash >> 32) as u32 & !Kind::MASK | self.kind.code()
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
    /// Makes bytes of the source bytes of the result; nothing, where they are the same memory.
    fn copy(&mut self, offset: usize, len: usize);
    /// Reduces whole elements, one by one; the result replaces `right`. Both are aligned to 16 bytes, if elements are,
    /// and do not overlap.
    fn reduce(&mut self, left: &[u8], right: &mut [u8]);
}

/// Bounds of a [`Machine`]; all ranks of a team need the same. See the [module](self) for what memory they allow.
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
    /// Of the trees.
    pub radix: u32,
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
            radix: 2,
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
            radix: self.radix.max(2),
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
