//! The control knobs of the dynamic algorithm.

use crate::{MAX_EXTRA, defaults};

/// The knobs. All ranks of a job must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Credits that a peer is never asked to give back below: what a full medium costs.
    pub minimum: u16,
    /// Most credits lent to one peer (`GASNET_PORTAL_MAX_CRED_PER_NODE`).
    pub max_per_peer: u16,
    /// Requests received that make an epoch (`GASNET_PORTAL_EPOCH_DURATION`), at least 1.
    pub epoch: u32,
    /// Most credits that a rank gives back to one lender within an epoch (`GASNET_PORTAL_REVOKE_LIMIT`).
    pub revoke_limit: u16,
    /// Most credits that a rank lends one peer within an epoch (`GASNET_PORTAL_LENDER_LIMIT`).
    pub lender_limit: u16,
    /// Peers that are being asked for credits at a time (`GASNET_PORTAL_NUM_SCAVENGE`).
    pub scavenge: u32,
    /// The pace: peers asked in an epoch, evenly spread over it; `u32::MAX` is none. (The original asks many at once, and
    /// for ever where the bank can't have what all want.) With a pace peers are asked in good time, when the bank has lent
    /// credits and holds less than a [part](Self::RESERVE) of all that may move; as long as it has something to give, only
    /// those that have sent nothing in this epoch and the one before. (The original asks when the bank is short, whoever has
    /// more than the minimum; between two bursts a peer then gives back what it needs for the next.)
    pub revokes_per_epoch: u32,
    /// How much a stalled request asks for.
    pub growth: Growth,
    /// Whether what was in flight in the epoch before is kept whole when a lender asks. (The original's rule keeps a
    /// quarter of it, although the next burst may need it again: an epoch ends anywhere between two bursts, or within.)
    pub hold: bool,
}

impl Default for Tuning {
    /// The original's constants, with the minimum for a full medium of 4 credits.
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
    /// What is used where nothing is set, with the minimum and the most per peer that a [plan](crate::Plan) computes: loans
    /// that double, a pace of four, and no limits within an epoch beside the most per peer.
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

    /// The part of all credits that may move which the bank holds in reserve, if there is a pace: one in so many.
    pub const RESERVE: u32 = 4;

    /// The part of the most credits per peer with which a loan that [doubles](Growth::Doubling) is large: one in so many.
    pub const LARGE: u16 = 4;

    pub(super) const fn has_pace(&self) -> bool {
        self.revokes_per_epoch < u32::MAX
    }

    /// Requests received between two peers asked.
    pub(super) const fn revokes_apart(&self) -> u32 {
        match self.revokes_per_epoch {
            u32::MAX => 0,
            // As 1.
            0 => self.epoch,
            revokes => self.epoch.div_ceil(revokes),
        }
    }

    /// With less in the bank peers are asked, of `moving` credits that may move.
    pub(super) const fn reserve(&self, moving: u32) -> u32 {
        if self.has_pace() {
            moving / Self::RESERVE
        } else {
            0
        }
    }

    /// Most credits that a bank with `banked` lends at once.
    pub(super) fn share(&self, banked: u32) -> u32 {
        match self.growth {
            Growth::Missing => banked,
            Growth::Doubling => (banked / 2).max(self.minimum.into()),
        }
    }

    /// Credits that the three bits for extra credits stand for.
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

    /// The three bits for the most credits that are at most `credits`.
    #[inline]
    #[must_use]
    pub const fn at_most(&self, credits: u16) -> u8 {
        let code = match self.growth {
            Growth::Missing => credits as u32,
            // A minimum of 0 is none that a plan makes.
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

    /// The bits with which a request asks that was short of `missing` credits while `send` are lent.
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

    /// Whether a loan of `send` credits is so large that it goes on to the most.
    pub(super) const fn is_large(&self, send: u16) -> bool {
        send >= self.max_per_peer / Self::LARGE
    }
}

/// What the three bits for extra credits mean, and how much a request that has stalled asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Growth {
    /// The original's rule: what the request was short of, 1 to 7.
    #[default]
    Missing,
    /// About as many as the sender has already, so that its loan doubles. The bits are a logarithm: 1, 2, 4 to 64 times
    /// the minimum per peer. The bank gives at most half of what it has, if that is more than the minimum: else the first
    /// one to come would take from the others what it doesn't even need.
    ///
    /// A loan of at least a [part](Tuning::LARGE) of the most goes on to the most: as long as it gets all that it asks for the
    /// next request asks again, without having waited. A loan of half of what a burst needs stalls only when its receiver
    /// happens to be late, so it would grow late, and a large job would hardly ever come to rest. What is too much goes
    /// back as soon as somebody needs it.
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
        // Whatever a minimum is said to be.
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
        // No more than may still be lent, of 400.
        assert_eq!((asked(256), asked(396), asked(397)), (128, 4, 0));
        let large = |send| doubling.is_large(send);
        assert!(large(100) && !large(99));
    }
}
