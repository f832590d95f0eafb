//! Simulated time, and what is to happen in it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Simulated time, in nanoseconds from the start.
pub type Nanos = u64;
/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;

/// An event with its time and number, ordered by these alone, the first one greatest.
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

/// Events in the order of their times, those of the same time in the order in which they were
/// scheduled; and the clock, which is at the event that was taken out last.
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
    /// The time of the event that was taken out last; 0 before the first.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Events that have been taken out.
    pub fn passed(&self) -> u64 {
        self.scheduled - self.events.len() as u64
    }

    /// Something happens at a time, which is not before [`now`](Self::now).
    pub fn schedule(&mut self, at: Nanos, event: E) {
        debug_assert!(at >= self.now, "{at} is before {}", self.now);
        self.events.push(Scheduled(at, self.scheduled, event));
        self.scheduled += 1;
    }

    /// When the next event is; `None` if there is none.
    pub fn next_at(&self) -> Option<Nanos> {
        self.events.peek().map(|next| next.0)
    }

    /// Takes out the next event: it is now.
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
        // Stable, so equal times keep their order.
        expected.sort_by_key(|&(at, _)| at);
        for (at, number) in expected {
            assert_eq!(events.next_at(), Some(at));
            assert_eq!((events.pop(), events.now()), (Some(number), at));
        }
        assert_eq!((events.pop(), events.passed()), (None, 1000));
    }
}
