//! The planned request buffers, which behave like Portals' locally managed ones. Messages are put
//! one behind another into the first buffer of a list. When less than a chunk is left in the
//! buffer, it is unlinked, and once all of its messages are processed, it is appended to the list
//! again, empty. If the list is empty, the catch basin takes the message.

use std::collections::VecDeque;

use credits::Plan;

pub(crate) const CHUNK: u32 = 1024;

/// The error that says that a message reached the catch basin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CatchBasin;

#[derive(Clone, Default)]
struct Buffer {
    used: u64,
    unprocessed: u32,
    linked: bool,
}

pub(crate) struct Buffers {
    all: Vec<Buffer>,
    list: VecDeque<usize>,
    size: u64,
}

impl Buffers {
    pub(crate) fn new(plan: &Plan) -> Buffers {
        let buffer = Buffer {
            linked: true,
            ..Buffer::default()
        };
        let all = vec![buffer; plan.buffers() as usize];
        Buffers {
            list: (0..all.len()).collect(),
            all,
            size: plan.buffer_bytes(),
        }
    }

    /// Puts a message into the first buffer. Returns that buffer's index.
    pub(crate) fn put(&mut self, bytes: u64) -> Result<usize, CatchBasin> {
        let at = *self.list.front().ok_or(CatchBasin)?;
        let buffer = &mut self.all[at];
        buffer.used += bytes;
        buffer.unprocessed += 1;
        assert!(buffer.used <= self.size);
        if self.size - buffer.used < u64::from(CHUNK) {
            buffer.linked = false;
            self.list.pop_front();
        }
        Ok(at)
    }

    /// Notes that a message in a buffer has been processed.
    pub(crate) fn processed(&mut self, at: usize) {
        let buffer = &mut self.all[at];
        buffer.unprocessed -= 1;
        if buffer.unprocessed == 0 && !buffer.linked {
            *buffer = Buffer {
                linked: true,
                ..Buffer::default()
            };
            self.list.push_back(at);
        }
    }
}
