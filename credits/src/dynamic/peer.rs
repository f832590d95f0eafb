//! The state that a rank keeps about one peer, and all rules that concern only one peer.
//!
//! "We" are the rank. *Loan* fields are about our credits, which we lend to the peer. *Send* fields
//! are about the peer's credits, which it lends to us. Fields about recent use decay at the end of
//! an epoch. For loan fields, these are our own epochs; for send fields, they are the peer's
//! epochs, whose ends the peer reports.

use bitflags::bitflags;

use super::tuning::Tuning;
use super::want::Want;
use crate::{CreditByte, Short};

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(super) struct Flags: u8 {
        /// A revoke to the peer is outstanding: it was sent, and the peer's return has not arrived.
        const ASKED = 1;
        /// The peer had nothing to return in this epoch.
        const ZERO_REPLY = 2;
        /// We have ended an epoch that no message to the peer has reported yet.
        const REACHED_EPOCH = 4;
        /// The peer is on the list of those that can be asked.
        const LISTED = 8;
        /// The peer has sent requests in this epoch.
        const FRESH = 16;
        /// The peer has sent requests in this epoch or the one before.
        const RECENT = 32;
    }
}

/// The state about one peer. Each rank needs 32 bytes per peer, which is 320 kB in a job of 10,000
/// ranks and 32 MB in one of 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The number of our credits that the peer has.
    pub(super) loan: u16,
    /// The number of credits recently given to the peer. Decays.
    pub(super) given: u16,
    /// The number of credits that the peer has lent us, available or in use.
    pub(super) send: u16,
    /// The number of credits in `send` that are in flight.
    pub(super) in_use: u16,
    /// The largest number of credits that were in flight recently. It is never less than `in_use`.
    /// At the end of an epoch, it decays or, if the tuning says to [hold](Tuning::hold) it, is
    /// moved to `held`.
    pub(super) max: u16,
    /// The value of `max` at the end of the previous epoch, if the tuning says to
    /// [hold](Tuning::hold) it. Decays.
    pub(super) held: u16,
    /// The number of credits recently given back to the peer. Decays.
    pub(super) revoked: u16,
    /// The number of requests to the peer that stalled recently. Decays. It saturates at 255, which
    /// does not matter, because only whether it is 0 matters.
    pub(super) stalls: u8,
    /// The number of recent requests from the peer that asked for more credits. Decays.
    pub(super) requested: u8,
    pub(super) flags: Flags,
    pub(super) want: Want,
    /// The number of places between this one and the next one on the list, which is 0 if the next
    /// place is on the list.
    pub(super) skip: u32,
    /// Our epoch up to which the loan fields have decayed. Only its low bits are stored. If a
    /// peer's state is not used for 65,536 epochs, these epochs go unnoticed, and the fields decay
    /// later.
    pub(super) epoch: u16,
    /// The number of requests that stalled since the start.
    pub(super) all_stalls: u32,
    /// The number of credits given back since the start.
    pub(super) all_revoked: u32,
}

const _: () = assert!(size_of::<Peer>() == 32);

/// The number of epochs after which every value has decayed to 0. Each epoch removes two of 16
/// bits, and a value may be [held](Tuning::hold) for one more epoch.
pub(super) const EPOCHS_TO_FORGET: u32 = u16::BITS / 2 + 1;

/// Returns the value after one more epoch.
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

    /// Returns whether none of our epochs has ended since the loan fields last decayed.
    #[inline]
    pub(super) fn is_at(&self, epoch: u32) -> bool {
        // The number is truncated to its low bits.
        self.epoch == epoch as u16
    }

    /// Decays the loan fields for all of our epochs that have ended since the peer's state was last
    /// used. (The original visits every peer at the end of each epoch, which results in the same
    /// values.)
    #[inline]
    pub(super) fn catch_up(&mut self, epoch: u32) {
        // The number is truncated to its low bits.
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

    /// Returns whether the message being created must report to the peer that we have ended an
    /// epoch. If so, later messages need not report it.
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
        // Credits in flight cannot be given back, so they count as used no matter how long ago they
        // were taken.
        self.max = kept.max(self.in_use);
    }

    /// Takes credits for a request. Returns the code of the amount for which the request must ask.
    #[inline]
    pub(super) fn take(&mut self, credits: u8, tuning: &Tuning) -> Result<u8, Short> {
        let available = self.send - self.in_use;
        if u16::from(credits) > available {
            // The cast is lossless, because `available` is less than `credits`.
            return Err(self.stall(credits - available as u8));
        }
        self.use_credits(credits.into());
        if self.want.asks() {
            return Ok(self.want.ask(self.send, tuning));
        }
        Ok(0)
    }

    /// Takes back the byte of a cancelled request. The next request reports and asks for what the
    /// cancelled one would have reported and asked for.
    pub(super) fn give_up(&mut self, byte: CreditByte, tuning: &Tuning) {
        self.in_use = self.in_use.saturating_sub(byte.credits().into());
        if byte.end_of_epoch() {
            self.flags.insert(Flags::REACHED_EPOCH);
        }
        if byte.extra() > 0 {
            self.want.wait_on(byte.extra(), tuning);
        }
    }

    /// Notes that the lender has granted the extra credits for which `code` stands.
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

    /// Returns the number of credits that are [ready](crate::FlowControl::ready): the requests that
    /// use them report and ask for nothing, and the number of credits in flight exceeds neither
    /// `max` nor, if that is larger, `trusted`.
    #[inline]
    pub(super) fn ready(&self, epoch: u32, trusted: u32) -> u32 {
        // The number is truncated to its low bits.
        let plain = self.epoch == epoch as u16
            && !self.want.asks()
            && !self.flags.contains(Flags::REACHED_EPOCH);
        if !plain {
            return 0;
        }
        // The subtraction cannot overflow: `max` is at most `send` and never less than `in_use`.
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

    /// Returns the number of the `asked` credits that the limits allow us to lend to the peer now.
    pub(super) fn may_lend(&self, asked: u16, tuning: &Tuning) -> u16 {
        asked
            .min(tuning.lender_limit.saturating_sub(self.given))
            .min(tuning.max_per_peer.saturating_sub(self.loan))
    }

    /// Returns whether the peer may be asked for credits. The peer must have more than the minimum,
    /// must not need more itself, and must not have reported in this epoch that it has none to
    /// spare. If `enough` is set, it must also have been silent for an epoch.
    pub(super) fn may_ask(&self, tuning: &Tuning, enough: bool) -> bool {
        let mut not = Flags::ASKED | Flags::ZERO_REPLY;
        if enough {
            not |= Flags::RECENT;
        }
        self.loan > tuning.minimum && self.requested == 0 && !self.flags.intersects(not)
    }

    /// Gives back the credits that have not been used recently, because the peer asks for them.
    /// Returns the number given back.
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
