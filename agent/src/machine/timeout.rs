//! One-byte encoding of the time that remains for an operation.
//!
//! The wire carries relative times, because the nodes' clocks differ. The requester's agent
//! enforces the exact deadline while the requester waits. The encoded time matters only
//! for operations whose requester does not wait. It may exceed the exact time by up to an eighth,
//! or by up to 10 µs if the exact time is short.

use crate::host::{Limit, Nanos};

/// The encoded time; see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) u8);

impl Timeout {
    pub(crate) const ONCE: Self = Self(0);
    const NEVER: Self = Self(u8::MAX);

    /// Returns the shortest encodable time that does not end before the limit.
    pub(crate) fn of(limit: Limit, now: Nanos) -> Self {
        let at = match limit {
            Limit::Once => return Self::ONCE,
            Limit::Never => return Self::NEVER,
            Limit::At(at) => at,
        };
        let micros = at.saturating_sub(now).div_ceil(1000);
        let found = (1..u8::MAX).find(|code| Self(*code).micros() >= micros);
        found.map_or(Self::NEVER, Self)
    }

    /// Returns the time in microseconds, which is 8 to 15 times a power of two. The longest time is
    /// about 8 hours and 21 minutes; anything longer is encoded as unlimited.
    fn micros(self) -> u64 {
        u64::from(8 + self.0 % 8) << (self.0 / 8)
    }

    /// Returns the deadline, counted from `now`.
    pub(crate) fn limit(self, now: Nanos) -> Limit {
        match self {
            Self::ONCE => Limit::Once,
            Self::NEVER => Limit::Never,
            timeout => Limit::At(now.saturating_add(timeout.micros().saturating_mul(1000))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_not_shorter_and_an_eighth_longer_at_most(now in 0u64..1 << 50, time in 0u64..30_000_000_000_000) {
            let Limit::At(at) = Timeout::of(Limit::At(now + time), now).limit(now) else {
                panic!("a time");
            };
            prop_assert!(at >= now + time && at <= now + time + (time / 8).max(10_000));
        }
    }

    #[test]
    fn once_and_for_ever_stay_so() {
        assert_eq!(Timeout::of(Limit::Once, 5).limit(7), Limit::Once);
        assert_eq!(Timeout::of(Limit::Never, 5).limit(7), Limit::Never);
        assert_eq!(Timeout::of(Limit::At(u64::MAX), 5).limit(7), Limit::Never);
    }
}
