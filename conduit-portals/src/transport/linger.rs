//! How long a rank that leaves waits for its peers to have what it has sent.

use std::time::{Duration, Instant};

/// Ends when for so long nothing more has reached the peers. A slow network is given its time, and since each wait has to be followed by
/// less that is outstanding than ever before, there is an end whatever peers do meanwhile.
#[derive(Debug)]
pub(crate) struct Linger {
    patience: Duration,
    end: Instant,
    least: usize,
}

impl Linger {
    pub(crate) fn new(now: Instant, patience: Duration) -> Self {
        Self {
            patience,
            end: now + patience,
            least: usize::MAX,
        }
    }

    /// Whether waiting is in vain, where so much is outstanding.
    pub(crate) fn is_over(&mut self, now: Instant, outstanding: usize) -> bool {
        if outstanding < self.least {
            self.least = outstanding;
            self.end = now + self.patience;
        }
        now >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const STEP: Duration = Duration::from_millis(1900);

    #[test]
    fn what_gets_less_is_waited_for() {
        let start = Instant::now();
        let mut linger = Linger::new(start, PATIENCE);
        for turn in 0..100 {
            assert!(!linger.is_over(start + STEP * turn, 100 - turn as usize));
        }
    }

    #[test]
    fn what_does_not_get_less_than_ever_is_given_up() {
        let start = Instant::now();
        let mut linger = Linger::new(start, PATIENCE);
        assert!(!linger.is_over(start, 5));
        assert!(!linger.is_over(start + STEP, 4));
        // More and less again.
        assert!(!linger.is_over(start + STEP + PATIENCE / 2, 9));
        assert!(linger.is_over(start + STEP + PATIENCE, 4));
    }
}
