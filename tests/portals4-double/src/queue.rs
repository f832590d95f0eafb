//! Event queues, some of which deliver events in disorder.

use std::collections::VecDeque;

use portals4_sys::ptl_event_t;

/// The number of events that a queue holds beyond its size, such as events of flow control.
const SPARE: usize = 64;

pub(crate) struct Queue {
    events: VecDeque<ptl_event_t>,
    size: usize,
    unordered: bool,
    /// Whether events have been lost.
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

    /// Adds an event at the end, or, with `early`, at a random place.
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
