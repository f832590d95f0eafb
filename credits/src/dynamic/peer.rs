//! The state that a rank keeps about one peer, and every rule that concerns only one peer.
//!
//! *Loan* fields are about our credits that we lend the peer, *send* fields about its credits that
//! it lends us. Recent-use fields decay at the end of an epoch: loan fields with our epochs, send
//! fields with the peer's, as it reports them.

use bitflags::bitflags;

use super::tuning::Tuning;
use super::want::Want;
use crate::{CreditByte, Short};

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(super) struct Flags: u8 {
        /// A revoke to the peer is outstanding: its return has not arrived.
        const ASKED = 1;
        /// The peer had nothing to return in this epoch.
        const ZERO_REPLY = 2;
        /// We have ended an epoch since the last message that could report it.
        const REACHED_EPOCH = 4;
        /// The peer is on the list of those that can be asked.
        const LISTED = 8;
        /// The peer has sent requests in this epoch.
        const FRESH = 16;
        /// The peer has sent requests in this epoch or the one before.
        const RECENT = 32;
    }
}

/// 32 bytes per peer: 320 kB at 10,000 ranks, 32 MB at 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Our credits that the peer has.
    pub(super) loan: u16,
    /// Credits recently given to the peer. Decays.
    pub(super) given: u16,
    /// Credits that the peer has lent us, available or in use.
    pub(super) send: u16,
    /// The part of these in flight.
    pub(super) in_use: u16,
    /// The most in flight recently; never less than now. Decays, or is moved to `held`.
    pub(super) max: u16,
    /// The value of `max` before this epoch, if that is [held](Tuning::hold). Decays.
    pub(super) held: u16,
    /// Credits recently given back to the peer. Decays.
    pub(super) revoked: u16,
    /// Requests to the peer that stalled recently. Decays, so saturating at 255 does not matter.
    pub(super) stalls: u8,
    /// Recent requests from the peer that asked for more. Decays.
    pub(super) requested: u8,
    pub(super) flags: Flags,
    pub(super) want: Want,
    /// Number of places that the list skips behind this one: 0 leads to the next place.
    pub(super) skip: u32,
    /// Our epoch up to which the loan fields have decayed. If a peer's state is not used for 65,536
    /// epochs, that many are forgotten: its fields then decay later.
    pub(super) epoch: u16,
    /// Requests that stalled since the start.
    pub(super) all_stalls: u32,
    /// Credits given back since the start.
    pub(super) all_revoked: u32,
}

const _: () = assert!(size_of::<Peer>() == 32);

/// After this many epochs every value has decayed to 0: each epoch removes two bits, and one more
/// epoch may be [held](Tuning::hold).
pub(super) const EPOCHS_TO_FORGET: u32 = u16::BITS / 2 + 1;

/// Returns the rest of a value after an epoch.
const fn decayed(value: u16) -> u16 {
    value >> 2
}

impl Peer {
    pub(super) fn new(loan: u16, listed: bool) -> Peer {
        Peer {
            loan,
            send: loan,
            flags: if listed {
                Flags::LISTED
            } else {
                Flags::empty()
            },
            ..Peer::default()
        }
    }

    /// Returns whether none of our epochs has ended since the peer's state was last used.
    #[inline]
    pub(super) fn is_at(&self, epoch: u32) -> bool {
        // Truncated to the low bits.
        self.epoch == epoch as u16
    }

    /// Decays the loan fields for all of our epochs that have ended since the peer's state was last
    /// used. (The original visits every peer at the end of each epoch; the values are the same.)
    #[inline]
    pub(super) fn catch_up(&mut self, epoch: u32) {
        // Truncated to the low bits.
        let epoch = epoch as u16;
        if self.epoch != epoch {
            self.catch_up_now(epoch);
        }
    }

    #[cold]
    fn catch_up_now(&mut self, epoch: u16) {
        let epochs = epoch.wrapping_sub(self.epoch);
        let recent = epochs == 1 && self.flags.contains(Flags::FRESH);
        self.flags.set(Flags::RECENT, recent);
        let shift = u32::from(epochs) * 2;
        self.epoch = epoch;
        self.given = self.given.checked_shr(shift).unwrap_or(0);
        self.requested = self.requested.checked_shr(shift).unwrap_or(0);
        self.flags.remove(Flags::ZERO_REPLY | Flags::FRESH);
        self.flags.insert(Flags::REACHED_EPOCH);
    }

    /// Notes that the peer has sent a request.
    #[inline]
    pub(super) fn note_request(&mut self) {
        self.flags.insert(Flags::FRESH | Flags::RECENT);
    }

    /// Returns whether the message being created should report to the peer that we have ended an
    /// epoch.
    #[inline]
    pub(super) fn tell_epoch(&mut self) -> bool {
        let tell = self.flags.contains(Flags::REACHED_EPOCH);
        self.flags.remove(Flags::REACHED_EPOCH);
        tell
    }

    /// Decays the send fields, because the peer has ended an epoch.
    pub(super) fn decay_send(&mut self, hold: bool) {
        self.stalls >>= 2;
        self.revoked = decayed(self.revoked);
        let mut kept = decayed(self.max);
        if hold {
            self.held = self.max.max(decayed(self.held));
            kept = 0;
        }
        // Credits in flight can't be given back, so they count as used no matter how long ago they
        // were sent.
        self.max = kept.max(self.in_use);
    }

    /// Takes credits for a request; returns the code of the amount to ask for.
    #[inline]
    pub(super) fn take(&mut self, credits: u8, tuning: &Tuning) -> Result<u8, Short> {
        let available = self.send - self.in_use;
        if u16::from(credits) > available {
            // Fits: less than `credits`.
            return Err(self.stall(credits - available as u8));
        }
        self.use_credits(credits.into());
        if self.want.asks() {
            return Ok(self.want.ask(self.send, tuning));
        }
        Ok(0)
    }

    /// Takes back the byte of a request that is not sent: the next request reports and asks for
    /// what it would have.
    pub(super) fn give_up(&mut self, byte: CreditByte, tuning: &Tuning) {
        self.in_use = self.in_use.saturating_sub(byte.credits().into());
        if byte.end_of_epoch() {
            self.flags.insert(Flags::REACHED_EPOCH);
        }
        if byte.extra() > 0 {
            self.want.wait_on(byte.extra(), tuning);
        }
    }

    /// Notes extra credits granted by the lender, as this code.
    pub(super) fn borrow(&mut self, code: u8, tuning: &Tuning) {
        self.send += tuning.credits(code);
        self.want.settle(code, self.send, tuning);
    }

    /// Marks available credits as in flight.
    #[inline]
    pub(super) fn use_credits(&mut self, credits: u16) {
        self.in_use += credits;
        self.max = self.max.max(self.in_use);
    }

    /// Returns the credits for requests that report and ask nothing, and reach no new maximum above
    /// `trusted`.
    #[inline]
    pub(super) fn ready(&self, epoch: u32, trusted: u32) -> u32 {
        // Truncated to the low bits.
        let plain = self.epoch == epoch as u16
            && !self.want.asks()
            && !self.flags.contains(Flags::REACHED_EPOCH);
        if !plain {
            return 0;
        }
        // `max` is at most `send`, and never less than in flight.
        let most = u32::from(self.max).max(trusted.min(self.send.into()));
        most - u32::from(self.in_use)
    }

    #[cold]
    fn stall(&mut self, missing: u8) -> Short {
        if self.want.wait(missing) {
            self.stalls = self.stalls.saturating_add(1);
            self.all_stalls = self.all_stalls.saturating_add(1);
        }
        Short { missing }
    }

    /// Returns how many more credits, of `asked`, we may lend the peer within this epoch.
    pub(super) fn may_lend(&self, asked: u16, tuning: &Tuning) -> u16 {
        asked
            .min(tuning.lender_limit.saturating_sub(self.given))
            .min(tuning.max_per_peer.saturating_sub(self.loan))
    }

    /// Returns whether the peer may be asked for credits: it has some above the minimum, needs no
    /// more itself, has not reported in this epoch that it has none to spare, and, if `enough` is
    /// set, has been silent for an epoch.
    pub(super) fn may_ask(&self, tuning: &Tuning, enough: bool) -> bool {
        let mut not = Flags::ASKED | Flags::ZERO_REPLY;
        if enough {
            not |= Flags::RECENT;
        }
        self.loan > tuning.minimum && self.requested == 0 && !self.flags.intersects(not)
    }

    /// Gives back the credits that have not been used recently, when the peer asks. Returns how
    /// many.
    pub(super) fn give_back(&mut self, tuning: &Tuning) -> u16 {
        if self.stalls > 0 {
            return 0;
        }
        let keep = tuning.minimum.max(self.max).max(self.held);
        let credits = self
            .send
            .saturating_sub(keep)
            .min(tuning.revoke_limit.saturating_sub(self.revoked));
        self.send -= credits;
        self.revoked += credits;
        self.all_revoked = self.all_revoked.saturating_add(u32::from(credits));
        credits
    }
}
