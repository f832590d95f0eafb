//! What event queues deliver. An enum by kind, so that no field can be read that an event doesn't
//! have.

use super::{PtIndex, Rank};

/// How an operation ended at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As asked (a cut message too: see the length).
    Done,
    /// No entry matched; nothing was moved.
    NoMatch,
    /// The offset lies outside the region entry that matches otherwise, or an atomic's address is
    /// not aligned; nothing was moved, the entry is not used up, and no other one is tried. Or it
    /// is an address of a [process](super::MeMemory::Process) that is no memory.
    OutOfRange,
}

/// A put that an entry of this rank took.
#[derive(Debug, Clone, Copy)]
pub struct PutEvent<'a> {
    /// The index it came to.
    pub index: PtIndex,
    /// The entry's name ([`super::MatchEntry::tag`]).
    pub tag: u64,
    /// Who sent it.
    pub source: Rank,
    /// As sent.
    pub match_bits: u64,
    /// As sent.
    pub hdr_data: u64,
    /// Where it was placed within the entry's memory.
    pub offset: u64,
    /// Bytes that were placed.
    pub length: usize,
    /// Bytes that were sent.
    pub requested: usize,
    /// The bytes, in place: of a [`Managed`](super::MeMemory::Managed) entry only (empty
    /// otherwise), and only during delivery. Aligned to 16.
    pub data: &'a [u8],
}

impl PutEvent<'_> {
    /// The event without the bytes that it shows.
    #[inline]
    pub const fn without_data(self) -> PutEvent<'static> {
        PutEvent { data: &[], ..self }
    }
}

/// An element of an event queue.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A peer's put has been placed.
    Put(PutEvent<'a>),
    /// A peer's get has read.
    Get {
        /// The entry's name.
        tag: u64,
        /// Who asked.
        source: Rank,
        /// As sent.
        match_bits: u64,
        /// Where it read.
        offset: u64,
        /// Bytes.
        length: usize,
    },
    /// A peer's atomic has been done.
    Atomic {
        /// The entry's name.
        tag: u64,
        /// Who asked.
        source: Rank,
        /// As sent.
        match_bits: u64,
        /// Where.
        offset: u64,
    },
    /// An entry has unlinked itself: it was used once, or it is full. Its data may still be in
    /// delivery.
    Unlinked {
        /// The entry's name.
        tag: u64,
    },
    /// All messages of an unlinked managed entry have been delivered; its space may be appended
    /// again.
    Free {
        /// The entry's name.
        tag: u64,
    },
    /// A put's source may be reused.
    Send {
        /// The operation.
        token: u64,
    },
    /// A put, or an atomic that doesn't fetch, has ended at its target.
    Ack {
        /// The operation.
        token: u64,
        /// How.
        outcome: Outcome,
        /// Bytes placed.
        length: usize,
    },
    /// A get, or a fetching atomic, has brought its data.
    Reply {
        /// The operation.
        token: u64,
        /// How.
        outcome: Outcome,
        /// Bytes read.
        length: usize,
        /// The old value of a fetching atomic.
        value: u64,
    },
}

impl Event<'_> {
    /// The event without the bytes that it shows, which live only during delivery.
    #[inline]
    pub const fn without_data(self) -> Event<'static> {
        match self {
            Self::Put(put) => Event::Put(put.without_data()),
            Self::Get {
                tag,
                source,
                match_bits,
                offset,
                length,
            } => Event::Get {
                tag,
                source,
                match_bits,
                offset,
                length,
            },
            Self::Atomic {
                tag,
                source,
                match_bits,
                offset,
            } => Event::Atomic {
                tag,
                source,
                match_bits,
                offset,
            },
            Self::Unlinked { tag } => Event::Unlinked { tag },
            Self::Free { tag } => Event::Free { tag },
            Self::Send { token } => Event::Send { token },
            Self::Ack {
                token,
                outcome,
                length,
            } => Event::Ack {
                token,
                outcome,
                length,
            },
            Self::Reply {
                token,
                outcome,
                length,
                value,
            } => Event::Reply {
                token,
                outcome,
                length,
                value,
            },
        }
    }
}
