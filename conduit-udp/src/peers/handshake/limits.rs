//! Limits on the work that outsiders can cause. They bound the number of answers sent without a
//! session and the number of futile scalar multiplications.

use crate::protocol::Nanos;

/// A token bucket.
#[derive(Debug, Clone, Hash)]
pub(super) struct Bucket {
    tokens: u32,
    since: Nanos,
}

impl Bucket {
    const MOST: u32 = 64;
    /// The interval between new tokens.
    const INTERVAL: Nanos = 1_000_000;

    pub(super) fn new() -> Self {
        Self {
            tokens: Self::MOST,
            since: 0,
        }
    }

    /// Takes a token. Returns `false` if no token is left.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        let new = now.saturating_sub(self.since) / Self::INTERVAL;
        if new > 0 {
            self.tokens = Self::MOST.min(self.tokens.saturating_add(new.min(1 << 20) as u32));
            self.since = now;
        }
        let has = self.tokens > 0;
        self.tokens -= u32::from(has);
        has
    }

    /// Puts back a token that was taken.
    pub(super) fn give(&mut self) {
        self.tokens = Self::MOST.min(self.tokens + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_slowly() {
        let mut bucket = Bucket::new();
        assert_eq!((0..200).filter(|_| bucket.take(5)).count(), 64);
        assert!(bucket.take(2 * Bucket::INTERVAL) && bucket.take(2 * Bucket::INTERVAL));
        assert!(!bucket.take(2 * Bucket::INTERVAL));
    }
}
