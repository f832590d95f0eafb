//! The parameters of the dynamic algorithm.

use crate::{MAX_EXTRA, defaults};

/// The parameters of the dynamic algorithm. All ranks of a job must use the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// The number of credits that a peer keeps even if it is asked to give some back. This is the
    /// cost of a full medium.
    pub minimum: u16,
    /// The maximum number of credits lent to one peer (`GASNET_PORTAL_MAX_CRED_PER_NODE`).
    pub max_per_peer: u16,
    /// The number of requests received per epoch (`GASNET_PORTAL_EPOCH_DURATION`), at least 1.
    pub epoch: u32,
    /// The maximum number of credits that a rank gives back to one lender within an epoch
    /// (`GASNET_PORTAL_REVOKE_LIMIT`).
    pub revoke_limit: u16,
    /// The maximum number of credits that a rank lends to one peer within an epoch
    /// (`GASNET_PORTAL_LENDER_LIMIT`).
    pub lender_limit: u16,
    /// The number of peers asked for credits at a time (`GASNET_PORTAL_NUM_SCAVENGE`).
    pub scavenge: u32,
    /// The pace, which is the maximum number of peers asked per epoch, spread evenly over the
    /// epoch. `u32::MAX` means no pace. (The original has no pace: it asks many peers at once, and
    /// never stops asking if peers want more credits than there are.) With a pace, peers are asked
    /// early, as soon as the bank has lent credits and holds less than a [fraction](Self::RESERVE)
    /// of all credits that may move. As long as the bank has something to give, only peers that
    /// have sent nothing in this epoch and the previous one are asked. (The original asks only when
    /// the bank is short, but then it asks any peer with more than the minimum. Between two bursts,
    /// a peer may therefore have to give back credits that it needs for the next burst.)
    pub revokes_per_epoch: u32,
    /// The rule for the number of credits that a stalled request asks for.
    pub growth: Growth,
    /// Whether a rank that a lender asks for credits keeps as many as were in flight in the
    /// previous epoch. (With the original's rule, the rank keeps a quarter of that number, although
    /// the next burst may need all of it, because an epoch can end between two bursts or within
    /// one.)
    pub hold: bool,
}

impl Default for Tuning {
    /// Returns the original's parameters, with the minimum for chunks whose full medium costs 4
    /// credits.
    fn default() -> Tuning {
        Tuning {
            minimum: 4,
            max_per_peer: defaults::MAX_PER_PEER,
            epoch: defaults::EPOCH,
            revoke_limit: defaults::REVOKE_LIMIT,
            lender_limit: defaults::LENDER_LIMIT,
            scavenge: defaults::SCAVENGE,
            revokes_per_epoch: u32::MAX,
            growth: Growth::Missing,
            hold: false,
        }
    }
}

impl Tuning {
    /// The parameters that jobs use by default, except for the minimum and the maximum per peer,
    /// which a [plan](crate::Plan) computes. Loans double, the pace is four, and there are no
    /// limits per epoch, so the maximum per peer is the only limit of a loan.
    pub const SHIPPED: Tuning = Tuning {
        minimum: 4,
        max_per_peer: defaults::MAX_PER_PEER,
        epoch: defaults::EPOCH,
        revoke_limit: u16::MAX,
        lender_limit: u16::MAX,
        scavenge: defaults::SCAVENGE,
        revokes_per_epoch: 4,
        growth: Growth::Doubling,
        hold: false,
    };

    /// The divisor that gives the bank's reserve, if there is a pace: the number of all credits
    /// that may move is divided by it.
    pub const RESERVE: u32 = 4;

    /// The divisor that says when a loan that [doubles](Growth::Doubling) is large: a large loan is
    /// at least the maximum per peer divided by this number.
    pub const LARGE: u16 = 4;

    pub(super) const fn has_pace(&self) -> bool {
        self.revokes_per_epoch < u32::MAX
    }

    /// Returns the number of requests that must be received after a peer is asked before the next
    /// peer may be asked.
    pub(super) const fn revokes_apart(&self) -> u32 {
        match self.revokes_per_epoch {
            u32::MAX => 0,
            // A pace of 0 is treated as 1.
            0 => self.epoch,
            revokes => self.epoch.div_ceil(revokes),
        }
    }

    /// Returns the level of the bank below which peers are asked, given that `moving` credits may
    /// move.
    pub(super) const fn reserve(&self, moving: u32) -> u32 {
        if self.has_pace() {
            moving / Self::RESERVE
        } else {
            0
        }
    }

    /// Returns the maximum number of credits that a bank with `banked` credits lends to one
    /// request.
    pub(super) fn share(&self, banked: u32) -> u32 {
        match self.growth {
            Growth::Missing => banked,
            Growth::Doubling => (banked / 2).max(self.minimum.into()),
        }
    }

    /// Returns the number of extra credits for which `code`, the value of the three bits, stands.
    #[inline]
    #[must_use]
    pub const fn credits(&self, code: u8) -> u16 {
        match self.growth {
            Growth::Missing => code as u16,
            Growth::Doubling if code == 0 => 0,
            Growth::Doubling => {
                let credits = (self.minimum as u32) << (code - 1);
                if credits > u16::MAX as u32 {
                    u16::MAX
                } else {
                    credits as u16
                }
            }
        }
    }

    /// Returns the code of the largest number of extra credits that is at most `credits`.
    #[inline]
    #[must_use]
    pub const fn at_most(&self, credits: u16) -> u8 {
        let code = match self.growth {
            Growth::Missing => credits as u32,
            // The minimum may be 0 here, although no plan has such a minimum.
            Growth::Doubling => match credits.checked_div(self.minimum) {
                Some(times) => u16::BITS - times.leading_zeros(),
                None => 0,
            },
        };
        if code > MAX_EXTRA as u32 {
            MAX_EXTRA
        } else {
            code as u8
        }
    }

    /// Returns the code with which a request asks for credits, given that it was short of `missing`
    /// credits and that the peer has lent `send`.
    pub(super) const fn ask(&self, missing: u8, send: u16) -> u8 {
        match self.growth {
            Growth::Missing => self.at_most(missing as u16),
            Growth::Doubling if missing == 0 => 0,
            Growth::Doubling => {
                let left = self.max_per_peer.saturating_sub(send);
                self.at_most(if send < left { send } else { left })
            }
        }
    }

    /// Returns whether a loan of `send` credits is so large that it grows on to the maximum.
    pub(super) const fn is_large(&self, send: u16) -> bool {
        send >= self.max_per_peer / Self::LARGE
    }
}

/// The meaning of the three bits for extra credits, and the rule for the number of credits that a
/// stalled request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Growth {
    /// The original's rule: a request asks for the number of credits that it was short of, from 1
    /// to 7.
    #[default]
    Missing,
    /// A request asks for about as many credits as the sender already has, so that its loan
    /// doubles. The values 1 to 7 of the bits stand for 1, 2, 4, …, 64 times the minimum per peer.
    /// The bank gives at most half of the credits that it has, or the minimum if that is more.
    /// Without this limit, the first peer to ask could take credits that it may not need and that
    /// others do.
    ///
    /// A loan that is at least a [fraction](Tuning::LARGE) of the maximum grows on to the maximum:
    /// as long as the borrower gets all the credits that it asks for, its next request asks again
    /// without having stalled. With a loan of half the credits that a burst needs, requests stall
    /// only when their receiver happens to be late. Without this rule, such loans would grow late,
    /// and a large job would hardly ever come to rest. Excess credits go back as soon as another
    /// peer needs them.
    Doubling,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(growth: Growth, minimum: u16) -> Tuning {
        Tuning {
            growth,
            minimum,
            ..Tuning::default()
        }
    }

    #[test]
    fn codes_fit_three_bits_and_never_exceed_what_they_are_for() {
        for growth in [Growth::Missing, Growth::Doubling] {
            for minimum in [1, 4, 5, 8] {
                let tuning = tuning(growth, minimum);
                for credits in 0..=u16::MAX {
                    let code = tuning.at_most(credits);
                    assert!(code <= MAX_EXTRA && tuning.credits(code) <= credits);
                    let next = tuning.credits(code + 1);
                    assert!(code == MAX_EXTRA || next > credits, "{tuning:?} {credits}");
                }
            }
        }
        // Extreme minimums are handled as well.
        for minimum in [0, u16::MAX] {
            let tuning = tuning(Growth::Doubling, minimum);
            for code in 0..=MAX_EXTRA {
                assert_eq!(tuning.credits(code), if code == 0 { 0 } else { minimum });
                assert!(tuning.credits(tuning.at_most(7)) <= 7);
            }
        }
    }

    #[test]
    fn a_request_that_did_not_stall_asks_for_nothing() {
        let missing = tuning(Growth::Missing, 4);
        assert_eq!(missing.ask(0, 100), 0);
        assert_eq!((missing.ask(3, 100), missing.ask(9, 100)), (3, 7));
        let doubling = tuning(Growth::Doubling, 4);
        assert_eq!(doubling.ask(0, 100), 0);
        let asked = |send| doubling.credits(doubling.ask(3, send));
        assert_eq!((asked(4), asked(8), asked(11)), (4, 8, 8));
        assert_eq!((asked(100), asked(200), asked(5000)), (64, 128, 0));
        // No request asks for more than may still be lent, given a maximum of 400.
        assert_eq!((asked(256), asked(396), asked(397)), (128, 4, 0));
        let large = |send| doubling.is_large(send);
        assert!(large(100) && !large(99));
    }
}
