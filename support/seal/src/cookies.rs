//! Records used cookies of handshakes, so that each cookie works only once.

use std::collections::BTreeSet;

use crate::SESSION_TAG;

/// Used cookies, remembered for as long as they could be reused. Time advances in steps: a cookie
/// used in one step is no longer valid two steps later.
#[derive(Debug, Clone, Default, Hash)]
pub struct SpentCookies {
    /// The cookies used in this step.
    young: BTreeSet<u64>,
    /// The cookies used in the previous step.
    old: BTreeSet<u64>,
    step: u64,
}

impl SpentCookies {
    /// Advances to this step and forgets the cookies that can no longer be reused.
    pub fn advance(&mut self, step: u64) {
        if step != self.step {
            let last = std::mem::take(&mut self.young);
            let is_next = step == self.step.wrapping_add(1);
            self.old = if is_next { last } else { BTreeSet::new() };
            self.step = step;
        }
    }

    /// Returns the next step to [advance](Self::advance) to so that cookies are forgotten, or
    /// `None` if no cookies are remembered.
    pub fn due(&self) -> Option<u64> {
        (self.remembered() > 0).then_some(self.step + 1)
    }

    /// Returns the number of cookies used in this step.
    pub fn recent(&self) -> usize {
        self.young.len()
    }

    /// Returns the number of remembered cookies.
    pub fn remembered(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Returns whether a cookie was used in this step or in the previous one.
    pub fn contains(&self, cookie: &[u8; SESSION_TAG]) -> bool {
        let half = half(cookie);
        self.young.contains(&half) || self.old.contains(&half)
    }

    /// Records that a cookie is used.
    pub fn insert(&mut self, cookie: &[u8; SESSION_TAG]) {
        self.young.insert(half(cookie));
    }
}

/// Returns half of a cookie. Only this process can make cookies, so half is enough to tell them
/// apart.
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
