//! The driver's clock. Reading the system's takes 30 ns, several times in the way of a small packet; where the processor has a
//! counter that takes a third of that, the system's is read again only when the counter has moved on.

use std::time::Instant;

use super::system;
use crate::protocol::Nanos;

/// Ticks of the processor's counter for which a reading stays good: less than two microseconds, as no counter is slower than
/// 1 GHz.
const FRESH: u64 = 2000;

/// Time since it was made.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    /// The counter when the system's clock was read last, and what that said.
    ticks: u64,
    last: Nanos,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            ticks: 0,
            last: 0,
        }
    }

    /// The time.
    #[inline]
    pub(super) fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// The time, or what it was at most two microseconds ago. Never goes back.
    #[inline]
    pub(super) fn glance(&mut self) -> Nanos {
        if let Some(ticks) = system::ticks() {
            // Also where the counter goes back, as it may when a virtual machine moves, the system is asked.
            if ticks.wrapping_sub(self.ticks) < FRESH {
                return self.last;
            }
            self.ticks = ticks;
        }
        self.last = self.now();
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_glance_is_never_late_for_long_and_never_goes_back() {
        let mut clock = Clock::new();
        let mut before = 0;
        let end = Instant::now() + Duration::from_millis(5);
        while Instant::now() < end {
            let earlier = clock.now();
            let glance = clock.glance();
            assert!(glance >= before && glance <= clock.now());
            // The counter of some virtual machines is slower than it says.
            assert!(glance + 20_000 > earlier, "{glance} at {earlier}");
            before = glance;
        }
    }
}
