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
    /// Most peers asked within an epoch.
    pub revokes_per_epoch: u32,
    /// How much a stalled request asks for.
    pub growth: Growth,
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
        }
    }
}

/// What the three bits for extra credits mean, and how much a request that has stalled asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Growth {
    /// The original's rule: what the request was short of, 1 to 7.
    #[default]
    Missing,
    /// As many as the sender has already, so that its loan doubles: the bits are the number's logarithm, 1 to 64.
    Doubling,
}

impl Growth {
    /// Credits that a code stands for.
    #[inline]
    #[must_use]
    pub const fn credits(self, code: u8) -> u16 {
        match self {
            Growth::Missing => code as u16,
            Growth::Doubling if code == 0 => 0,
            Growth::Doubling => 1 << (code - 1),
        }
    }

    /// The code for the most credits that are at most `credits`.
    #[inline]
    #[must_use]
    pub const fn at_most(self, credits: u16) -> u8 {
        let code = match self {
            Growth::Missing if credits > MAX_EXTRA as u16 => MAX_EXTRA as u32,
            Growth::Missing => credits as u32,
            Growth::Doubling => u16::BITS - credits.leading_zeros(),
        };
        if code > MAX_EXTRA as u32 {
            MAX_EXTRA
        } else {
            code as u8
        }
    }

    /// The code with which a request asks that was short of `missing` credits while `send` are lent.
    pub(super) const fn ask(self, missing: u8, send: u16) -> u8 {
        match self {
            Growth::Missing => self.at_most(missing as u16),
            Growth::Doubling if missing == 0 => 0,
            Growth::Doubling => {
                let wanted = if send > missing as u16 {
                    send
                } else {
                    missing as u16
                };
                self.at_most(wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_fit_three_bits_and_never_exceed_what_they_are_for() {
        for growth in [Growth::Missing, Growth::Doubling] {
            for credits in 0..=u16::MAX {
                let code = growth.at_most(credits);
                assert!(code <= MAX_EXTRA && growth.credits(code) <= credits);
                let next = growth.credits(code + 1);
                assert!(code == MAX_EXTRA || next > credits, "{growth:?} {credits}");
            }
        }
    }

    #[test]
    fn a_request_that_did_not_stall_asks_for_nothing() {
        assert_eq!(Growth::Missing.ask(0, 100), 0);
        assert_eq!(Growth::Doubling.ask(0, 100), 0);
        assert_eq!(Growth::Missing.ask(3, 100), 3);
        assert_eq!(Growth::Missing.ask(9, 100), 7);
        assert_eq!(Growth::Doubling.credits(Growth::Doubling.ask(3, 100)), 64);
        assert_eq!(Growth::Doubling.credits(Growth::Doubling.ask(3, 8)), 8);
    }
}
