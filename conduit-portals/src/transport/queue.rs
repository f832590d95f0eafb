//! The items of event queues, and their conversion to events.

use conduit_core::ni::{Event, PutEvent, Rank};

use super::buffers::Buffer;
use super::window::Cost;

/// The maximum number of event queues per rank.
pub(crate) const QUEUES: usize = 16;

/// A put that matched an entry.
#[derive(Debug)]
pub(crate) struct QueuedPut {
    pub(crate) event: PutEvent<'static>,
    /// The bytes for a managed entry, at least as many as the event states.
    pub(crate) data: Option<Buffer>,
    pub(crate) cost: Cost,
}

impl QueuedPut {
    #[inline]
    pub(crate) fn event(&self) -> PutEvent<'_> {
        let data = self
            .data
            .as_ref()
            .and_then(|data| data.bytes().get(..self.event.length));
        PutEvent {
            data: data.unwrap_or_default(),
            ..self.event
        }
    }
}

/// An event in its queue.
#[derive(Debug)]
pub(crate) enum Queued {
    Put(QueuedPut),
    /// A get or an atomic that matched an entry.
    Operation {
        source: Rank,
        event: Event<'static>,
        cost: Cost,
    },
    /// Any other event.
    Other(Event<'static>),
}

impl Queued {
    #[inline]
    pub(crate) fn event(&self) -> Event<'_> {
        match *self {
            Self::Put(ref put) => Event::Put(put.event()),
            Self::Operation { event, .. } | Self::Other(event) => event,
        }
    }

    /// Returns the source and cost of the operation that this event's delivery consumes.
    #[inline]
    pub(crate) fn consumed(&self) -> Option<(Rank, Cost)> {
        match *self {
            Self::Put(ref put) => Some((put.event.source, put.cost)),
            Self::Operation { source, cost, .. } => Some((source, cost)),
            Self::Other(_) => None,
        }
    }
}
