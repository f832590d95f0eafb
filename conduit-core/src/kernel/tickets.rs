//! Tickets, which limit the number of operations of a kind in flight.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A counter of free resources that need no identity: send tickets (`MSG_LIMIT`) or TMPMD tickets
/// (`NUM_TMPMD`).
#[derive(Debug)]
pub(crate) struct Tickets {
    free: AtomicU32,
}

impl Tickets {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            free: AtomicU32::new(count),
        }
    }

    /// Takes `count` tickets, or none if fewer are free.
    pub(crate) fn take(&self, count: u32) -> bool {
        self.free
            .fetch_update(Relaxed, Relaxed, |free| free.checked_sub(count))
            .is_ok()
    }

    pub(crate) fn give(&self, count: u32) {
        self.free.fetch_add(count, Relaxed);
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_taken_all_or_none() {
        let tickets = Tickets::new(3);
        assert!(tickets.take(2));
        assert!(!tickets.take(2));
        assert!(tickets.take(1));
        tickets.give(3);
        assert_eq!(tickets.free(), 3);
    }
}
