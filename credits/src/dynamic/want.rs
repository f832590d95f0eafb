//! A rank's demand on a lender, which says whether the rank's next request asks for more credits.

use super::tuning::{Growth, Tuning};
use crate::{MAX_CREDITS, MAX_EXTRA};

/// The demand, packed in a byte. It contains the largest number of credits that the waiting request
/// has been short of, the code that was last asked for (if loans double), and a flag for whether
/// the next request asks even if it has not waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Want(u8);

const _: () =
    assert!(MAX_CREDITS == Want::SHORT && MAX_EXTRA << Want::ASKED == !(Want::SHORT | Want::AGAIN));

impl Want {
    const SHORT: u8 = 0x0f;
    const ASKED: u32 = 4;
    const AGAIN: u8 = 0x80;

    const fn short(self) -> u8 {
        self.0 & Self::SHORT
    }

    const fn asked(self) -> u8 {
        (self.0 & !Self::AGAIN) >> Self::ASKED
    }

    /// Returns whether the next request asks for credits.
    #[inline]
    pub(super) const fn asks(self) -> bool {
        self.0 & (Self::SHORT | Self::AGAIN) != 0
    }

    /// Notes that the request being tried lacks `missing` credits. Returns whether this is the
    /// request's first try.
    pub(super) fn wait(&mut self, missing: u8) -> bool {
        let before = self.short();
        let short = before.max(missing.min(Self::SHORT));
        self.0 = self.0 & !Self::SHORT | short;
        before == 0
    }

    /// Notes that a request that asked with this code was cancelled. The next request has to ask
    /// instead.
    pub(super) fn wait_on(&mut self, code: u8, tuning: &Tuning) {
        self.wait(match tuning.growth {
            Growth::Missing => code,
            Growth::Doubling => 1,
        });
    }

    /// Returns the code with which the request being sent asks, given that the peer has lent `send`
    /// credits.
    #[cold]
    pub(super) fn ask(&mut self, send: u16, tuning: &Tuning) -> u8 {
        let code = tuning.ask(self.short().max(1), send);
        self.0 = match tuning.growth {
            Growth::Missing => 0,
            Growth::Doubling => code << Self::ASKED,
        };
        code
    }

    /// Notes a grant with this code, after which the peer has lent `send` credits. The next request
    /// asks again if loans double, the grant was all that was last asked for, and the loan [is
    /// large](Tuning::is_large).
    pub(super) fn settle(&mut self, code: u8, send: u16, tuning: &Tuning) {
        let before = send - tuning.credits(code);
        let fits = tuning.at_most(tuning.max_per_peer.saturating_sub(before));
        if self.asked() == 0 || code < self.asked().min(fits) {
            return;
        }
        if tuning.is_large(send) && tuning.ask(1, send) > 0 {
            self.0 |= Self::AGAIN;
        } else {
            self.0 &= !Self::AGAIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubling() -> Tuning {
        Tuning {
            growth: Growth::Doubling,
            max_per_peer: 640,
            ..Tuning::default()
        }
    }

    /// Returns the successive loans of a peer that waited once while it had `send` credits. Each
    /// request gets the number of credits that `lend` returns for the number asked for.
    fn loans(mut send: u16, tuning: &Tuning, lend: impl Fn(u16) -> u16) -> Vec<u16> {
        let mut want = Want::default();
        want.wait(3);
        let mut loans = vec![send];
        while want.asks() {
            let asked = tuning.credits(want.ask(send, tuning));
            let code = tuning.at_most(lend(asked).min(tuning.max_per_peer - send));
            send += tuning.credits(code);
            want.settle(code, send, tuning);
            loans.push(send);
        }
        loans
    }

    #[test]
    fn a_large_loan_goes_on_to_the_most() {
        let all = |asked| asked;
        assert_eq!(loans(4, &doubling(), all), [4, 8]);
        assert_eq!(loans(64, &doubling(), all), [64, 128]);
        assert_eq!(loans(80, &doubling(), all), [80, 144]);
        assert_eq!(loans(128, &doubling(), all), [128, 256, 512, 640]);
        assert_eq!(loans(448, &doubling(), all), [448, 576, 640]);
        // The loan is below the maximum by less than the smallest number of credits that can be
        // asked for.
        assert_eq!(loans(637, &doubling(), all), [637, 637]);
    }

    #[test]
    fn whoever_gets_less_waits_before_asking_again() {
        let half = |asked| asked / 2;
        assert_eq!(loans(128, &doubling(), half), [128, 192]);
        assert_eq!(loans(512, &doubling(), half), [512, 576]);
        assert_eq!(loans(512, &doubling(), |_| 0), [512, 512]);
    }

    #[test]
    fn of_several_that_ask_the_last_counts() {
        let tuning = doubling();
        let mut want = Want::default();
        let mut asked = Vec::new();
        for send in [160, 256] {
            want.wait(1);
            asked.push(want.ask(send, &tuning));
        }
        want.settle(asked[0], 160 + 128, &tuning);
        assert!(!want.asks());
        want.settle(asked[1], 288 + 256, &tuning);
        assert!(want.asks());
        // The next requests ask without having waited.
        let code = want.ask(544, &tuning);
        want.settle(code, 608, &tuning);
        let code = want.ask(608, &tuning);
        want.settle(code, 640, &tuning);
        assert!(!want.asks(), "it has the maximum");
        let mut want = Want::default();
        want.settle(asked[1], 256, &tuning);
        assert!(!want.asks(), "nothing was asked for");
    }

    #[test]
    fn the_original_rule_asks_for_what_was_missing() {
        let tuning = Tuning::default();
        let mut want = Want::default();
        assert!(want.wait(2) && !want.wait(5) && !want.wait(3));
        assert_eq!(want.ask(300, &tuning), 5);
        want.settle(5, 305, &tuning);
        assert_eq!(want, Want::default());
    }
}
