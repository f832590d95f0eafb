//! The events that event queues deliver. The event type is an enum, so that code can't read a field
//! that an event doesn't have.

use super::{PtIndex, Rank};

/// The outcome of an operation at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The operation was performed. It may have been truncated (see the length in the event).
    Done,
    /// No entry matched, and no data was moved.
    NoMatch,
    /// The offset lies outside the region entry that would otherwise match, or the address of an
    /// atomic is not aligned. No data was moved, the entry is not used up, and no other entry was
    /// tried. This is also the outcome if an address in the memory of a
    /// [process](super::MeMemory::Process) is not valid memory; some data may have been moved in
    /// that case.
    OutOfRange,
}

/// A put that has matched an entry of this rank.
#[derive(Debug, Clone, Copy)]
pub struct PutEvent<'a> {
    /// The portal table index of the entry.
    pub index: PtIndex,
    /// The entry's name ([`super::MatchEntry::tag`]).
    pub tag: u64,
    /// The initiator.
    pub source: Rank,
    /// The put's match bits.
    pub match_bits: u64,
    /// The put's header data.
    pub hdr_data: u64,
    /// The offset of the data within the entry's memory.
    pub offset: u64,
    /// The number of bytes placed.
    pub length: usize,
    /// The number of bytes sent.
    pub requested: usize,
    /// The data, in place and aligned to 16 bytes. It is valid only while the event is delivered.
    /// Empty unless the entry is [`Managed`](super::MeMemory::Managed).
    pub data: &'a [u8],
}

impl PutEvent<'_> {
    /// Returns the event without the data to which it refers.
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
    /// A peer's get has read its data.
    Get {
        /// The entry's name.
        tag: u64,
        /// The initiator.
        source: Rank,
        /// The get's match bits.
        match_bits: u64,
        /// The offset of the data within the entry's memory.
        offset: u64,
        /// The number of bytes read.
        length: usize,
    },
    /// A peer's atomic has been performed.
    Atomic {
        /// The entry's name.
        tag: u64,
        /// The initiator.
        source: Rank,
        /// The atomic's match bits.
        match_bits: u64,
        /// The offset of the number within the entry's memory.
        offset: u64,
    },
    /// An entry has unlinked itself because it was used once or is full. Events with its data may
    /// still be delivered.
    Unlinked {
        /// The entry's name.
        tag: u64,
    },
    /// All messages of an unlinked managed entry have been delivered, so its space may be appended
    /// again.
    Free {
        /// The entry's name.
        tag: u64,
    },
    /// The source of a put may be reused.
    Send {
        /// The operation's token.
        token: u64,
    },
    /// A put, or an atomic that doesn't fetch, has ended at its target.
    Ack {
        /// The operation's token.
        token: u64,
        /// The outcome at the target.
        outcome: Outcome,
        /// The number of bytes placed.
        length: usize,
    },
    /// A get, or a fetching atomic, has brought its data.
    Reply {
        /// The operation's token.
        token: u64,
        /// The outcome at the target.
        outcome: Outcome,
        /// The number of bytes read.
        length: usize,
        /// The old value of a fetching atomic.
        value: u64,
    },
}

impl Event<'_> {
    /// Returns the event without the data to which it refers, because that data is valid only
    /// during delivery.
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
