//! Copies of received events, which a case owns and can examine after their delivery.

use conduit_core::ni::{EqId, Event, Outcome, PtIndex, PutEvent, Rank};

/// A put that an entry took. The fields are those of [`PutEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPut {
    /// The index of the entry.
    pub index: PtIndex,
    /// The entry's tag.
    pub tag: u64,
    /// The rank that sent the put.
    pub source: Rank,
    /// The match bits as sent.
    pub match_bits: u64,
    /// The header data as sent.
    pub hdr_data: u64,
    /// The offset within the entry's memory at which the bytes were placed.
    pub offset: u64,
    /// The number of bytes placed.
    pub length: usize,
    /// The number of bytes sent.
    pub requested: usize,
    /// A copy of the bytes that were passed to the sink.
    pub data: Vec<u8>,
    /// Whether those bytes were aligned to 16 bytes. True if there were none.
    pub aligned: bool,
}

impl From<PutEvent<'_>> for SeenPut {
    fn from(put: PutEvent<'_>) -> Self {
        Self {
            index: put.index,
            tag: put.tag,
            source: put.source,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            offset: put.offset,
            length: put.length,
            requested: put.requested,
            data: put.data.to_vec(),
            aligned: put.data.is_empty() || put.data.as_ptr().addr().is_multiple_of(16),
        }
    }
}

/// An [`Event`] that owns its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are those of `Event`, where they are documented"
)]
pub enum Seen {
    /// A peer's put.
    Put(SeenPut),
    /// A peer's get.
    Get {
        tag: u64,
        source: Rank,
        match_bits: u64,
        offset: u64,
        length: usize,
    },
    /// A peer's atomic.
    Atomic {
        tag: u64,
        source: Rank,
        match_bits: u64,
        offset: u64,
    },
    /// An entry has unlinked itself.
    Unlinked { tag: u64 },
    /// The last message of an unlinked managed entry has been delivered.
    Free { tag: u64 },
    /// A put's source may be reused.
    Send { token: u64 },
    /// A put or a non-fetching atomic has ended at its target.
    Ack {
        token: u64,
        outcome: Outcome,
        length: usize,
    },
    /// The data of a get or of a fetching atomic has arrived.
    Reply {
        token: u64,
        outcome: Outcome,
        length: usize,
        value: u64,
    },
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Put(put) => Self::Put(put.into()),
            Event::Get {
                tag,
                source,
                match_bits,
                offset,
                length,
            } => Self::Get {
                tag,
                source,
                match_bits,
                offset,
                length,
            },
            Event::Atomic {
                tag,
                source,
                match_bits,
                offset,
            } => Self::Atomic {
                tag,
                source,
                match_bits,
                offset,
            },
            Event::Unlinked { tag } => Self::Unlinked { tag },
            Event::Free { tag } => Self::Free { tag },
            Event::Send { token } => Self::Send { token },
            Event::Ack {
                token,
                outcome,
                length,
            } => Self::Ack {
                token,
                outcome,
                length,
            },
            Event::Reply {
                token,
                outcome,
                length,
                value,
            } => Self::Reply {
                token,
                outcome,
                length,
                value,
            },
        }
    }
}

impl Seen {
    /// Returns the token of the operation that an event ends at its initiator, or `None` for an
    /// event at a target.
    pub fn token(&self) -> Option<u64> {
        match *self {
            Self::Send { token } | Self::Ack { token, .. } | Self::Reply { token, .. } => {
                Some(token)
            }
            _ => None,
        }
    }
}

/// An event and the place of its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The rank that received the event.
    pub rank: Rank,
    /// The queue that delivered the event.
    pub eq: EqId,
    /// The event.
    pub event: Seen,
}
