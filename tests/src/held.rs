//! Events that are kept, with a copy of their data, to be delivered later.

use conduit_core::ni::{Event, PutEvent};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A block of 16 bytes with an alignment of 16 bytes, which the contract requires for the data of a
/// managed entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(16))]
struct Block([u8; 16]);

/// An owned copy of an event.
#[derive(Debug)]
pub(crate) struct Held {
    /// The event without its data.
    event: Event<'static>,
    blocks: Vec<Block>,
    len: usize,
}

impl Held {
    pub(crate) fn of(event: Event<'_>) -> Self {
        let Event::Put(put) = event else {
            return Self {
                event: event.without_data(),
                blocks: Vec::new(),
                len: 0,
            };
        };
        let len = put.data.len();
        let mut blocks = vec![Block([0; 16]); len.div_ceil(16)];
        blocks.as_mut_bytes()[..len].copy_from_slice(put.data);
        Self {
            event: event.without_data(),
            blocks,
            len,
        }
    }

    /// Returns the event with its data, which is borrowed from `self`.
    pub(crate) fn event(&self) -> Event<'_> {
        match self.event {
            Event::Put(put) => Event::Put(PutEvent {
                data: &self.blocks.as_bytes()[..self.len],
                ..put
            }),
            other => other,
        }
    }
}
