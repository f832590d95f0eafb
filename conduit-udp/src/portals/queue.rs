//! Event queues: what is in them, and how it becomes events.

use conduit_core::ni::{Event, Outcome, PtIndex, PutEvent, Rank};

use super::buffers::Buffer;
use super::window::Cost;

/// Event queues of a rank.
pub(super) const QUEUES: usize = 16;

/// A put that an entry took.
#[derive(Debug)]
pub(super) struct QueuedPut {
    pub(super) index: u8,
    pub(super) source: Rank,
    pub(super) tag: u64,
    pub(super) match_bits: u64,
    pub(super) hdr_data: u64,
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) requested: usize,
    /// Of a managed entry, at least `length` bytes.
    pub(super) data: Option<Buffer>,
    pub(super) cost: Cost,
}

impl QueuedPut {
    #[inline]
    pub(super) fn event(&self) -> PutEvent<'_> {
        let data = self
            .data
            .as_ref()
            .and_then(|data| data.bytes().get(..self.length));
        PutEvent {
            index: PtIndex(self.index),
            tag: self.tag,
            source: self.source,
            match_bits: self.match_bits,
            hdr_data: self.hdr_data,
            offset: self.offset,
            length: self.length,
            requested: self.requested,
            data: data.unwrap_or_default(),
        }
    }
}

/// An event in its queue.
#[derive(Debug)]
pub(super) enum Queued {
    Put(QueuedPut),
    Get {
        tag: u64,
        source: Rank,
        match_bits: u64,
        offset: u64,
        length: usize,
    },
    Atomic {
        tag: u64,
        source: Rank,
        match_bits: u64,
        offset: u64,
    },
    Unlinked {
        tag: u64,
    },
    Free {
        tag: u64,
    },
    Send {
        token: u64,
    },
    Ack {
        token: u64,
        outcome: Outcome,
        length: usize,
    },
    Reply {
        token: u64,
        outcome: Outcome,
        length: usize,
        value: u64,
    },
}

impl Queued {
    #[inline]
    pub(super) fn event(&self) -> Event<'_> {
        match *self {
            Self::Put(ref put) => Event::Put(put.event()),
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

    /// Whose operation has been taken with this event's delivery, and what it has used.
    #[inline]
    pub(super) fn taken(&self) -> Option<(Rank, Cost)> {
        match *self {
            Self::Put(ref put) => Some((put.source, put.cost)),
            Self::Get { source, .. } | Self::Atomic { source, .. } => Some((source, Cost::HEADER)),
            _ => None,
        }
    }
}
