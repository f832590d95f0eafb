//! What a rank knows about one peer, and every rule that concerns one peer alone.
//!
//! *Loan* fields are about credits of ours that we lend the peer, *send* fields about credits of its that it lends us.
//! Recent-use fields decay at the end of an epoch: loan fields with our epochs, send fields with the peer's, as it tells
//! them.

use bitflags::bitflags;

use super::tuning::Tuning;
use super::want::Want;
use crate::{CreditByte, Short};

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(super) struct Flags: u8 {
        /// A revoke is under way to the peer, its return has not come.
        const ASKED = 1;
        /// It had nothing to return in this epoch.
        const ZERO_REPLY = 2;
        /// We have ended an epoch since the last message that could tell it.
        const REACHED_EPOCH = 4;
        /// It is on the list of those that can be asked.
        const LISTED = 8;
        /// It has sent requests in this epoch.
        const FRESH = 16;
        /// It has sent requests in this epoch or the one before.
        const RECENT = 32;
    }
}

/// 32 bytes per peer: 320 kB at 10,000 ranks, 32 MB at 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Credits of ours that the peer has.
    pub(super) loan: u16,
    /// Given to it recently. Decays.
    pub(super) given: u16,
    /// Credits that the peer has lent us, at hand or in use.
    pub(super) send: u16,
    /// Of these, in flight.
    pub(super) in_use: u16,
    /// The most in flight recently; never less than in flight now. Decays, or is kept in `held`.
    pub(super) max: u16,
    /// What `max` was before this epoch, if that is [held](Tuning::hold). Decays.
    pub(super) held: u16,
    /// Given back to it recently. Decays.
    pub(super) revoked: u16,
    /// Requests to it that stalled recently. Decays, so 255 are as good as more.
    pub(super) stalls: u8,
    /// Requests from it that asked for more recently. Decays.
    pub(super) requested: u8,
    pub(super) flags: Flags,
    pub(super) want: Want,
    /// How many places the list skips behind this one: 0 leads to the next place.
    pub(super) skip: u32,
    /// The epoch of ours up to which the loan fields have decayed. Of a peer that nobody looks at for 65,536 epochs,
    /// that many are forgotten: its fields then decay later.
    pub(super) epoch: u16,
    /// Requests that stalled since the start.
    pub(super) all_stalls: u32,
    /// Credits given back since the start.
    pub(super) all_revoked: u32,
}

const _: () = assert!(size_of::<Peer>() == 32);

/// After so many epochs nothing is left of any value: two bits go with each, and one epoch more may be
/// [held](Tuning::hold).
pub(super) const EPOCHS_TO_FORGET: u32 = u16::BITS / 2 + 1;

/// What is left of a value after an epoch.
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

    /// Whether no epoch of ours has ended since the peer was last looked at.
    #[inline]
    pub(super) fn is_at(&self, epoch: u32) -> bool {
        // The low bits.
        self.epoch == epoch as u16
    }

    /// Decays the loan fields for all of our epochs that have ended since the peer was last looked at. (The original
    /// visits every peer at the end of each epoch; the values are the same.)
    #[inline]
    pub(super) fn catch_up(&mut self, epoch: u32) {
        // The low bits.
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

    /// The peer has sent a request.
    #[inline]
    pub(super) fn note_request(&mut self) {
        self.flags.insert(Flags::FRESH | Flags::RECENT);
    }

    /// Whether the message to the peer that is being made should tell that we have ended an epoch.
    #[inline]
    pub(super) fn tell_epoch(&mut self) -> bool {
        let tell = self.flags.contains(Flags::REACHED_EPOCH);
        self.flags.remove(Flags::REACHED_EPOCH);
        tell
    }

    /// The peer has ended an epoch: decays the send fields.
    pub(super) fn decay_send(&mut self, hold: bool) {
        self.stalls >>= 2;
        self.revoked = decayed(self.revoked);
        let mut kept = decayed(self.max);
        if hold {
            self.held = self.max.max(decayed(self.held));
            kept = 0;
        }
        // Credits in flight can't be given back, so they count as used however long ago they were sent.
        self.max = kept.max(self.in_use);
    }

    /// Takes credits for a request; the code of what to ask for.
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

    /// A request that has taken this byte is not sent: another one is to tell and to ask what it would have.
    pub(super) fn give_up(&mut self, byte: CreditByte, tuning: &Tuning) {
        self.in_use = self.in_use.saturating_sub(byte.credits().into());
        if byte.end_of_epoch() {
            self.flags.insert(Flags::REACHED_EPOCH);
        }
        if byte.extra() > 0 {
            self.want.wait_on(byte.extra(), tuning);
        }
    }

    /// The lender has granted credits on top, by this code.
    pub(super) fn borrow(&mut self, code: u8, tuning: &Tuning) {
        self.send += tuning.credits(code);
        self.want.settle(code, self.send, tuning);
    }

    /// Credits are in flight that were at hand.
    #[inline]
    pub(super) fn use_credits(&mut self, credits: u16) {
        self.in_use += credits;
        self.max = self.max.max(self.in_use);
    }

    /// Credits for requests that ask and tell nothing, and make no new high above `trusted`.
    #[inline]
    pub(super) fn ready(&self, epoch: u32, trusted: u32) -> u32 {
        // The low bits.
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

    /// How many more credits we may lend it within this epoch, of `asked`.
    pub(super) fn may_lend(&self, asked: u16, tuning: &Tuning) -> u16 {
        asked
            .min(tuning.lender_limit.saturating_sub(self.given))
            .min(tuning.max_per_peer.saturating_sub(self.loan))
    }

    /// Whether it makes sense to ask it for credits: it has some above the minimum, needs no more itself, has not said in
    /// this epoch that it has none to spare, and, if that is `enough`, has been silent for an epoch.
    pub(super) fn may_ask(&self, tuning: &Tuning, enough: bool) -> bool {
        let mut not = Flags::ASKED | Flags::ZERO_REPLY;
        if enough {
            not |= Flags::RECENT;
        }
        self.loan > tuning.minimum && self.requested == 0 && !self.flags.intersects(not)
    }

    /// Gives back what has not been used recently, when the peer asks; how many credits.
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
