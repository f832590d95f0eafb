//! Records of denied lanes, which say when to ask again.

use crate::tracker::decayed;
use crate::{Weight, scramble, seeded};

/// The maximum number of denials that are remembered. If there is no room for a new one, the denial
/// whose wait ends first is dropped.
const REMEMBERED: usize = 32;
/// The decay of prices, which lose 1 part in 2^7 per round. They decay because a weight that was
/// too low may suffice later, when the holders' weights have changed.
const DECAY: u32 = 7;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Denial {
    peer: u32,
    price: Weight,
    /// The first round in which the peer may be asked again.
    until: u32,
    /// The number of consecutive denials, or 0 in an unused entry.
    tries: u32,
}

/// The denials of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Denials {
    all: [Denial; REMEMBERED],
    random: u32,
    backoff: u32,
}

impl Denials {
    /// Creates an empty set of denials. Waits double up to 2^`backoff` rounds.
    pub(crate) fn new(seed: u32, backoff: u32) -> Self {
        Self {
            all: [Denial::default(); REMEMBERED],
            random: seeded(seed),
            backoff,
        }
    }

    fn of(&mut self, peer: u32) -> Option<&mut Denial> {
        self.all
            .iter_mut()
            .find(|denial| denial.tries > 0 && denial.peer == peer)
    }

    /// Records that a peer denied a lane. The wait doubles with each consecutive denial, and a
    /// random part of it is added so that ranks denied together do not retry together.
    pub(crate) fn note(&mut self, peer: u32, price: Weight, rest: u32, round: u32) {
        let tries = self.of(peer).map_or(0, |denial| denial.tries) + 1;
        let wait = 1 << tries.min(self.backoff);
        self.random = scramble(self.random);
        let until = round.wrapping_add(rest.max(wait) + self.random % wait);
        let denial = Denial {
            peer,
            price,
            until,
            tries,
        };
        match self.of(peer) {
            Some(old) => *old = denial,
            None => {
                let left = |denial: &&mut Denial| match denial.tries {
                    0 => i32::MIN,
                    _ => denial.until.wrapping_sub(round).cast_signed(),
                };
                if let Some(first) = self.all.iter_mut().min_by_key(left) {
                    *first = denial;
                }
            }
        }
    }

    /// Returns whether a peer of weight `weight` must not be asked in round `round`.
    pub(crate) fn rests(&self, peer: u32, weight: Weight, round: u32) -> bool {
        self.all.iter().any(|denial| {
            let is_early = denial.until.wrapping_sub(round).cast_signed() > 0;
            denial.tries > 0 && denial.peer == peer && (is_early || weight < denial.price)
        })
    }

    /// Ends a round.
    pub(crate) fn progress(&mut self) {
        for denial in &mut self.all {
            denial.price = decayed(denial.price, DECAY);
        }
    }

    /// Forgets the denials of a peer that granted a lane or died.
    pub(crate) fn forget(&mut self, peer: u32) {
        if let Some(denial) = self.of(peer) {
            *denial = Denial::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_end() {
        let mut denials = Denials::new(1, 4);
        let mut round = u32::MAX - 20; // The number of the round wraps around.
        for wait in [2, 4, 8, 16, 16, 16] {
            denials.note(3, 0, 0, round);
            let waits = (0..).position(|more| !denials.rests(3, 0, round.wrapping_add(more)));
            assert!((wait..2 * wait).contains(&waits.unwrap()), "{waits:?}");
            round = round.wrapping_add(64);
        }
        assert!(!denials.rests(4, 0, round));
        denials.note(3, 0, 0, round);
        denials.forget(3);
        assert!(!denials.rests(3, 0, round));
    }

    #[test]
    fn a_price_decays() {
        let mut denials = Denials::new(1, 4);
        denials.note(3, 1000, 5, 0);
        assert!(denials.rests(3, 1000, 4) && denials.rests(3, 999, 60));
        assert!(!denials.rests(3, 1000, 60));
        for _ in 0..100 {
            denials.progress();
        }
        assert!(denials.rests(3, 400, 60) && !denials.rests(3, 500, 60));
    }

    #[test]
    fn the_ones_that_wait_longest_are_remembered() {
        let mut denials = Denials::new(1, 0);
        for peer in 0..1000 {
            denials.note(peer, 0, 100 + peer, 0);
        }
        let resting: Vec<u32> = (0..1000)
            .filter(|&peer| denials.rests(peer, 0, 50))
            .collect();
        assert_eq!(resting, (968..1000).collect::<Vec<_>>());
    }
}
