//! Simulated time and the events scheduled in it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Simulated time, in nanoseconds from the start.
pub type Nanos = u64;
/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;

/// An event with its time and its number. Only these two determine the order. The earliest event is
/// the greatest, because a `BinaryHeap` pops the greatest first.
#[derive(Debug)]
struct Scheduled<E>(Nanos, u64, E);

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Scheduled<E> {}

/// A queue that returns events in the order of their times. Events with the same time are returned
/// in the order in which they were scheduled. The queue also holds the clock, which shows the time
/// of the last event returned.
#[derive(Debug)]
pub struct EventQueue<E> {
    now: Nanos,
    scheduled: u64,
    events: BinaryHeap<Scheduled<E>>,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            now: 0,
            scheduled: 0,
            events: BinaryHeap::new(),
        }
    }
}

impl<E> EventQueue<E> {
    /// Returns the time of the last event returned, or 0 if no event has been returned yet.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the number of events returned so far.
    pub fn passed(&self) -> u64 {
        self.scheduled - self.events.len() as u64
    }

    /// Schedules an event. Its time must not be before [`now`](Self::now).
    pub fn schedule(&mut self, at: Nanos, event: E) {
        debug_assert!(at >= self.now, "{at} is before {}", self.now);
        self.events.push(Scheduled(at, self.scheduled, event));
        self.scheduled += 1;
    }

    /// Returns the time of the next event, or `None` if there is none.
    pub fn next_at(&self) -> Option<Nanos> {
        self.events.peek().map(|next| next.0)
    }

    /// Removes and returns the next event, and advances the clock to its time.
    pub fn pop(&mut self) -> Option<E> {
        let Scheduled(at, _, event) = self.events.pop()?;
        self.now = at;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_at_the_same_time_as_they_were_scheduled() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut events = EventQueue::default();
        let mut expected = Vec::new();
        for number in 0..1000 {
            let at = random.u64(..50);
            events.schedule(at, number);
            expected.push((at, number));
        }
        // The sort is stable, so events of equal times keep their order.
        expected.sort_by_key(|&(at, _)| at);
        for (at, number) in expected {
            assert_eq!(events.next_at(), Some(at));
            assert_eq!((events.pop(), events.now()), (Some(number), at));
        }
        assert_eq!((events.pop(), events.passed()), (None, 1000));
    }
}
