//! Cookies of handshakes work once.

use std::collections::BTreeSet;

use crate::SESSION_TAG;

/// Cookies that were used, as long as they could be used again. Time goes by in steps: a cookie
/// that is used in one step can't be used again two steps later.
#[derive(Debug, Clone, Default, Hash)]
pub struct SpentCookies {
    /// Used in this step and in the one before.
    young: BTreeSet<u64>,
    old: BTreeSet<u64>,
    step: u64,
}

impl SpentCookies {
    /// Forgets the cookies that were used before the last step.
    pub fn advance(&mut self, step: u64) {
        if step != self.step {
            let last = std::mem::take(&mut self.young);
            let is_next = step == self.step.wrapping_add(1);
            self.old = if is_next { last } else { BTreeSet::new() };
            self.step = step;
        }
    }

    /// The step in which there will be something to forget.
    pub fn due(&self) -> Option<u64> {
        (self.remembered() > 0).then_some(self.step + 1)
    }

    /// Cookies that were used in this step.
    pub fn recent(&self) -> usize {
        self.young.len()
    }

    /// Cookies that are remembered.
    pub fn remembered(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether a cookie was used.
    pub fn contains(&self, cookie: &[u8; SESSION_TAG]) -> bool {
        let half = half(cookie);
        self.young.contains(&half) || self.old.contains(&half)
    }

    /// A cookie is used.
    pub fn insert(&mut self, cookie: &[u8; SESSION_TAG]) {
        self.young.insert(half(cookie));
    }
}

/// Nobody else can make a cookie, so half of it tells it from others.
fn half(cookie: &[u8; SESSION_TAG]) -> u64 {
    let mut half = [0; 8];
    half.copy_from_slice(&cookie[..8]);
    u64::from_le_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_known_for_a_step_and_forgotten_after_two() {
        let mut spent = SpentCookies::default();
        spent.insert(&[1; 16]);
        spent.advance(0);
        assert!(spent.contains(&[1; 16]) && !spent.contains(&[2; 16]));
        spent.advance(1);
        spent.insert(&[2; 16]);
        assert!(spent.contains(&[1; 16]) && spent.contains(&[2; 16]));
        assert_eq!(
            (spent.recent(), spent.remembered(), spent.due()),
            (1, 2, Some(2))
        );
        spent.advance(2);
        assert!(!spent.contains(&[1; 16]) && spent.contains(&[2; 16]));
        spent.advance(3);
        assert_eq!((spent.remembered(), spent.due()), (0, None));
        spent.insert(&[3; 16]);
        spent.advance(5);
        assert_eq!(spent.remembered(), 0);
    }
}
