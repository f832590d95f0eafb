//! What bounds the work that others can cause: cookies work once, and answers without a session are
//! few, and so are products for nothing.

use std::collections::BTreeSet;

use super::message::Tag;
use crate::protocol::Nanos;

/// Cookies that were used, as long as they could be used again.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Spent {
    /// Two generations, each with cookies of one life.
    young: BTreeSet<u64>,
    old: BTreeSet<u64>,
    /// When the younger generation began.
    since: Nanos,
}

impl Spent {
    /// Forgets cookies that are older than `life`.
    pub(super) fn advance(&mut self, now: Nanos, life: Nanos) {
        let passed = now.saturating_sub(self.since);
        if passed >= life {
            self.old = match passed < 2 * life {
                true => std::mem::take(&mut self.young),
                false => BTreeSet::new(),
            };
            self.young.clear();
            self.since = now;
        }
    }

    /// When there will be something to forget.
    pub(super) fn due(&self, life: Nanos) -> Option<Nanos> {
        (!self.young.is_empty() || !self.old.is_empty()).then_some(self.since + life)
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(super) fn contains(&self, cookie: &Tag) -> bool {
        let short = short(cookie);
        self.young.contains(&short) || self.old.contains(&short)
    }

    pub(super) fn insert(&mut self, cookie: &Tag) {
        self.young.insert(short(cookie));
    }
}

/// A cookie is a code that nobody else can make, so half of it tells it from others.
fn short(cookie: &Tag) -> u64 {
    let mut half = [0; 8];
    half.copy_from_slice(&cookie[..8]);
    u64::from_le_bytes(half)
}

/// A token bucket.
#[derive(Debug, Clone, Hash)]
pub(super) struct Bucket {
    tokens: u32,
    since: Nanos,
}

impl Bucket {
    const MOST: u32 = 64;
    /// Time in which a token comes.
    const INTERVAL: Nanos = 1_000_000;

    pub(super) fn new() -> Self {
        Self {
            tokens: Self::MOST,
            since: 0,
        }
    }

    /// Takes a token, if there is one.
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

    /// Gives back what was taken.
    pub(super) fn give(&mut self) {
        self.tokens = Self::MOST.min(self.tokens + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_known_for_their_life_and_forgotten_after_two() {
        let mut spent = Spent::default();
        spent.insert(&[1; 16]);
        spent.advance(99, 100);
        assert!(spent.contains(&[1; 16]) && !spent.contains(&[2; 16]));
        spent.insert(&[2; 16]);
        spent.advance(100, 100);
        assert!(spent.contains(&[1; 16]) && spent.contains(&[2; 16]));
        assert_eq!((spent.len(), spent.due(100)), (2, Some(200)));
        spent.advance(200, 100);
        assert_eq!((spent.len(), spent.due(100)), (0, None));
        spent.insert(&[3; 16]);
        spent.advance(500, 100);
        assert_eq!(spent.len(), 0);
    }

    #[test]
    fn tokens_come_back_slowly() {
        let mut bucket = Bucket::new();
        assert_eq!((0..200).filter(|_| bucket.take(5)).count(), 64);
        assert!(bucket.take(2 * Bucket::INTERVAL) && bucket.take(2 * Bucket::INTERVAL));
        assert!(!bucket.take(2 * Bucket::INTERVAL));
    }
}
