//! Event queues.

use std::collections::VecDeque;

use portals4_sys::ptl_event_t;

/// Room of a queue beyond its size, for events such as those of flow control.
const SPARE: usize = 64;

pub(crate) struct Queue {
    events: VecDeque<ptl_event_t>,
    size: usize,
    unordered: bool,
    /// Whether events were lost.
    pub(crate) dropped: bool,
}

impl Queue {
    pub(crate) fn new(size: usize, unordered: bool) -> Self {
        Self {
            events: VecDeque::new(),
            size,
            unordered,
            dropped: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.size
    }

    /// `early`: before some of the queued events.
    pub(crate) fn push(&mut self, event: ptl_event_t, early: bool) {
        if self.events.len() == self.size + SPARE {
            self.events.pop_front();
            self.dropped = true;
        }
        let last = self.events.len();
        let at = if early {
            fastrand::usize(..=last)
        } else {
            last
        };
        self.events.insert(at, event);
    }

    pub(crate) fn pop(&mut self) -> Option<ptl_event_t> {
        if !self.unordered {
            return self.events.pop_front();
        }
        if self.events.is_empty() || fastrand::bool() {
            return None;
        }
        self.events
            .swap_remove_back(fastrand::usize(..self.events.len()))
    }
}
