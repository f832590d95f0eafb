//! Limits how long a rank that leaves waits until its peers have received everything it sent.

use std::time::{Duration, Instant};

/// Expires after a time without progress at the peers, so a slow network gets the time it needs.
/// Only a new minimum of the outstanding amount prolongs the wait, so the wait ends whatever the
/// peers do.
#[derive(Debug)]
pub(crate) struct Linger {
    timeout: Duration,
    end: Instant,
    minimum: usize,
}

impl Linger {
    pub(crate) fn new(now: Instant, timeout: Duration) -> Self {
        Self {
            timeout,
            end: now + timeout,
            minimum: usize::MAX,
        }
    }

    /// Returns whether to give up, given the amount that is outstanding.
    pub(crate) fn is_over(&mut self, now: Instant, outstanding: usize) -> bool {
        if outstanding < self.minimum {
            self.minimum = outstanding;
            self.end = now + self.timeout;
        }
        now >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);
    const STEP: Duration = Duration::from_millis(1900);

    #[test]
    fn progress_prolongs_the_wait() {
        let start = Instant::now();
        let mut linger = Linger::new(start, TIMEOUT);
        for turn in 0..100 {
            assert!(!linger.is_over(start + STEP * turn, 100 - turn as usize));
        }
    }

    #[test]
    fn only_a_new_minimum_prolongs_the_wait() {
        let start = Instant::now();
        let mut linger = Linger::new(start, TIMEOUT);
        assert!(!linger.is_over(start, 5));
        assert!(!linger.is_over(start + STEP, 4));
        // The amount grows and shrinks again.
        assert!(!linger.is_over(start + STEP + TIMEOUT / 2, 9));
        assert!(linger.is_over(start + STEP + TIMEOUT, 4));
    }
}
