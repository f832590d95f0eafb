//! Dynamic credits, which are loans that follow the traffic.
//!
//! * A request that has stalled for credits asks its receiver for more; the receiver lends from its
//!   bank.
//! * When the bank is low, its owner asks peers that have more than the minimum to give back what
//!   they don't use.
//! * Only recent use counts, because the recorded use is divided by four at the end of each epoch.
//!   An epoch is a fixed number of requests received.
//!
//! A traffic pattern that does not stall moves no credits, and with a pattern that lasts, credits
//! eventually stop moving. The scheme is that of GASNet's original Portals conduit ("Scheme for
//! credit balancing and re-distribution" in its documentation). The table shows what this module
//! does where the text and the code of that scheme differ or leave a question open:
//!
//! | question | here |
//! |---|---|
//! | What if the bank has less than asked for? | It gives what it has, as in the code. |
//! | What if the lender limit allows less? | The lender gives what the limit allows. |
//! | When are peers asked for credits? | When the bank could not give what the limits allowed. |
//! | When does a peer's state decay after an epoch? | When it is next used. |
//! | How do credits in flight count at a decay? | As used, so that a revoke never takes them. |
//! | What if no peer has anything to spare? | No peer is asked again before the next epoch. |
//!
//! [`Tuning`] adds optional rules to those of the scheme. Loans can double and, once large, grow on
//! to the maximum. Use can count for one more epoch. A pace can limit how often peers are asked.

mod list;
mod peer;
#[cfg(test)]
mod tests;
mod tuning;
mod want;

use crate::{
    Bank, CreditByte, Dense, FlowControl, OwnBank, Part, Plan, Short, Store, System, Violation,
};
use list::List;
use peer::Flags;
pub use peer::Peer;
pub use tuning::{Growth, Tuning};

/// The maximum number of peers that one search for a peer to ask looks at.
const WALK: u32 = 64;

/// Dynamic credits of one rank, for all its peers or a [part](Part) of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dynamic<S = Dense<Peer>, B = OwnBank> {
    peers: S,
    bank: B,
    list: List,
    part: Part,
    ranks: u32,
    rank: u32,
    tuning: Tuning,
    /// If the bank holds fewer credits than this after it has lent some, peers are asked.
    reserve: u32,
    /// The number of consecutive peers on the list that were checked in vain in epoch `walked`.
    /// Once the count reaches the length of the list, no peer has anything to spare. The count is
    /// reset in the next epoch and whenever a peer returns credits and may have more.
    fruitless: u32,
    walked: u32,
    /// Whether the `fruitless` peers were checked under the stricter rule of
    /// [`silent`](Self::silent).
    walked_silent: bool,
}

/// The state between a rank and one peer, for inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerState {
    /// The number of the rank's credits that the peer has.
    pub loan: u16,
    /// The number of the peer's credits that the rank has.
    pub send: u16,
    /// The number of the credits in `send` that are in flight.
    pub in_use: u16,
    /// The largest number of credits that were in flight recently.
    pub max: u16,
    /// The largest number of credits that were in flight in the previous epoch, if [`Tuning::hold`]
    /// is set.
    pub held: u16,
    /// The number of requests to the peer that stalled recently.
    pub stalls: u8,
    /// The number of credits recently given back to the peer.
    pub revoked: u16,
    /// The number of recent requests from the peer that asked for more.
    pub requested: u8,
    /// The number of credits recently given to the peer.
    pub given: u16,
    /// Whether a revoke to the peer is outstanding.
    pub asked: bool,
    /// Whether the peer had nothing to return in this epoch.
    pub zero_reply: bool,
}

impl<S: Store<Value = Peer>> Dynamic<S> {
    /// Creates the dynamic credits of rank `rank` in a job of `ranks` ranks. Each rank has lent
    /// `loan` credits to every rank and banked `banked` credits.
    ///
    /// `loan` should be at least the minimum, because a smaller loan may never grow to the cost of
    /// a full medium. [`Plan`] ensures that.
    #[must_use]
    pub fn new(ranks: u32, rank: u32, loan: u16, banked: u32, tuning: Tuning) -> Self {
        let bank = OwnBank::open(banked, 1).remove(0);
        Self::part(ranks, rank, loan, bank, Part::WHOLE, tuning)
    }
}

impl<S: Store<Value = Peer>, B: Bank> Dynamic<S, B> {
    /// Creates the planned credits, in `parts` parts that share the bank.
    pub fn from_plan(plan: &Plan, rank: u32, parts: u32) -> impl Iterator<Item = Self> {
        Part::all(parts)
            .zip(B::open(plan.banked(), parts))
            .map(move |(part, bank)| {
                let tuning = *plan.tuning();
                Self::part(
                    plan.ranks(),
                    rank,
                    plan.credits_per_peer(),
                    bank,
                    part,
                    tuning,
                )
            })
    }

    fn part(ranks: u32, rank: u32, loan: u16, bank: B, part: Part, tuning: Tuning) -> Self {
        let len = part.len(ranks);
        let listed = loan > tuning.minimum;
        let spare = u32::from(loan.saturating_sub(tuning.minimum));
        let moving = spare.saturating_mul(ranks).saturating_add(bank.credits());
        Dynamic {
            reserve: tuning.reserve(moving),
            peers: S::new(len, Peer::new(loan, listed)),
            bank,
            list: List::new(len, listed),
            part,
            ranks,
            rank,
            tuning,
            fruitless: 0,
            walked: 0,
            walked_silent: false,
        }
    }

    /// Returns the state between this rank and `peer`.
    #[must_use]
    pub fn peer_state(&self, peer: u32) -> PeerState {
        let mut state = self.peers.get(self.part.place(peer));
        state.catch_up(self.bank.epoch());
        PeerState {
            loan: state.loan,
            send: state.send,
            in_use: state.in_use,
            max: state.max,
            held: state.held,
            stalls: state.stalls,
            revoked: state.revoked,
            requested: state.requested,
            given: state.given,
            asked: state.flags.contains(Flags::ASKED),
            zero_reply: state.flags.contains(Flags::ZERO_REPLY),
        }
    }

    /// Resets the state of a peer that has restarted and has forgotten this rank. Afterwards, each
    /// side has lent the other the minimum, which is the initial state if the plan lends no more
    /// than that. The rest of the peer's loan is banked.
    ///
    /// # Panics
    /// Panics if `peer` is not a rank of the job.
    pub fn restart(&mut self, peer: u32) {
        let place = self.part.place(peer);
        let minimum = self.tuning.minimum;
        let state = self.peers.get_mut(place);
        self.bank.deposit(state.loan.saturating_sub(minimum).into());
        if state.flags.contains(Flags::ASKED) {
            self.bank.end_revoke();
        }
        *state = Peer {
            flags: state.flags & Flags::LISTED,
            skip: state.skip,
            epoch: state.epoch,
            all_stalls: state.all_stalls,
            all_revoked: state.all_revoked,
            ..Peer::new(minimum, false)
        };
        self.fruitless = 0;
    }

    /// Returns the number of epochs ended.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.bank.epoch()
    }

    /// Returns the number of requests received since the start.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.bank.received(self.tuning.epoch)
    }

    /// Returns the store with the state of all peers.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.peers
    }

    #[inline]
    fn place(&self, peer: u32) -> Result<u32, Violation> {
        if peer < self.ranks {
            Ok(self.part.place(peer))
        } else {
            let ranks = self.ranks;
            Err(Violation::UnknownPeer { peer, ranks })
        }
    }

    /// Counts received requests.
    #[inline]
    fn note_requests(&mut self, requests: u32) {
        self.bank.note_requests(requests, self.tuning.epoch);
    }

    /// Does the work of [`FlowControl::grant`] for requests that the fast path does not handle:
    /// those whose byte is not plain, those that end an epoch, and the first one from a peer in an
    /// epoch. `noted` says whether the request has already been counted.
    #[inline(never)]
    fn grant_otherwise(&mut self, peer: u32, byte: CreditByte, noted: bool) -> CreditByte {
        if !noted {
            self.note_requests(1);
        }
        let Ok(place) = self.place(peer) else {
            return CreditByte::new(false, 0, byte.credits());
        };
        let state = self.peers.get_mut(place);
        state.catch_up(self.bank.epoch());
        if byte.end_of_epoch() {
            state.decay_send(self.tuning.hold);
        }
        state.note_request();
        let end_of_epoch = state.tell_epoch();
        let extra = match byte.extra() {
            0 => 0,
            code => self.lend(place, code),
        };
        CreditByte::new(end_of_epoch, extra, byte.credits())
    }

    /// Does the work of [`FlowControl::settle`] for a reply whose byte contains more than its
    /// request's credits.
    #[inline(never)]
    fn settle_otherwise(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        let credits = byte.credits().into();
        let place = self.place(peer)?;
        let extra = self.tuning.credits(byte.extra());
        let send = self.peers.get(place).send;
        if extra > self.tuning.max_per_peer.saturating_sub(send) {
            return Err(Violation::UnexpectedGrant {
                peer,
                extra: byte.extra(),
            });
        }
        self.settle_many(peer, credits, 0)?;
        let state = self.peers.get_mut(place);
        if extra > 0 {
            state.borrow(byte.extra(), &self.tuning);
        }
        if byte.end_of_epoch() {
            state.decay_send(self.tuning.hold);
        }
        Ok(())
    }

    /// Lends as many of the credits that a request asks for as the limits and the bank allow.
    /// Returns the code of the number lent.
    #[cold]
    fn lend(&mut self, place: u32, code: u8) -> u8 {
        let state = self.peers.get_mut(place);
        state.requested = state.requested.saturating_add(1);
        let wanted = state.may_lend(self.tuning.credits(code), &self.tuning);
        let banked = self.bank.credits();
        let share = self.tuning.share(banked);
        let withdrawn = self.bank.withdraw(share.min(wanted.into()));
        // The cast is lossless, because the number is at most `wanted`.
        let code = self.tuning.at_most(withdrawn as u16);
        let given = self.tuning.credits(code);
        if u32::from(given) < withdrawn {
            self.bank.deposit(withdrawn - u32::from(given));
        }
        let low = given > 0 && banked.saturating_sub(withdrawn) < self.reserve;
        if banked < u32::from(wanted) || low {
            self.bank
                .want(self.tuning.scavenge, given == 0 && wanted > 0);
        }
        state.loan += given;
        state.given = state.given.saturating_add(given);
        if state.loan > self.tuning.minimum {
            self.list.insert(&mut self.peers, place);
        }
        code
    }

    /// Gives back to a lender the credits that are not needed.
    fn on_revoke(&mut self, place: u32, end_of_epoch: bool) -> System {
        let state = self.peers.get_mut(place);
        state.catch_up(self.bank.epoch());
        if end_of_epoch {
            state.decay_send(self.tuning.hold);
        }
        System::Return {
            credits: state.give_back(&self.tuning),
            end_of_epoch: state.tell_epoch(),
        }
    }

    /// Banks the credits that a peer gives back.
    fn on_return(
        &mut self,
        peer: u32,
        place: u32,
        credits: u16,
        end_of_epoch: bool,
    ) -> Result<(), Violation> {
        let state = self.peers.get_mut(place);
        if !state.flags.contains(Flags::ASKED) {
            return Err(Violation::UnexpectedReturn { peer, credits });
        }
        let most = state.loan.saturating_sub(self.tuning.minimum);
        if credits > most {
            return Err(Violation::ReturnBelowMinimum {
                peer,
                returned: credits,
                most,
            });
        }
        state.catch_up(self.bank.epoch());
        state.flags.remove(Flags::ASKED);
        if end_of_epoch {
            state.decay_send(self.tuning.hold);
        }
        if credits == 0 {
            state.flags.insert(Flags::ZERO_REPLY);
        } else {
            state.loan -= credits;
            self.fruitless = 0;
        }
        self.bank.deposit(credits.into());
        self.bank.end_revoke();
        Ok(())
    }

    /// Returns whether only peers that have been silent for an epoch are asked. That is the case if
    /// there is a pace and the bank had something to give.
    fn silent(&self) -> bool {
        self.tuning.has_pace() && !self.bank.was_empty()
    }

    /// Returns whether it is known that no peer on the list has anything to spare.
    fn is_barren(&self) -> bool {
        self.fruitless >= self.list.listed()
            && self.walked == self.bank.epoch()
            && (self.silent() || !self.walked_silent)
    }

    /// Returns the next peer to ask and the message to it, if one of the next [`WALK`] peers on the
    /// list can be asked.
    #[cold]
    fn find_lender(&mut self) -> Option<(u32, System)> {
        let epoch = self.bank.epoch();
        let silent = self.silent();
        if self.walked != epoch || self.walked_silent && !silent {
            self.walked = epoch;
            self.walked_silent = silent;
            self.fruitless = 0;
        }
        self.walked_silent |= silent;
        for _ in 0..WALK {
            let place = self.list.peek(&self.peers)?;
            if self.fruitless >= self.list.listed() {
                return None;
            }
            let state = self.peers.get(place);
            if state.loan <= self.tuning.minimum {
                self.list.remove_next(&mut self.peers);
                continue;
            }
            let state = self.peers.get_mut(place);
            state.catch_up(epoch);
            let peer = self.part.rank(place);
            if peer != self.rank && state.may_ask(&self.tuning, silent) {
                if !self
                    .bank
                    .begin_revoke(self.tuning.revokes_apart(), self.tuning.epoch)
                {
                    return None;
                }
                state.flags.insert(Flags::ASKED);
                let end_of_epoch = state.tell_epoch();
                self.list.advance(&self.peers);
                self.fruitless = 0;
                return Some((peer, System::Revoke { end_of_epoch }));
            }
            self.list.advance(&self.peers);
            self.fruitless += 1;
        }
        None
    }
}

impl<S: Store<Value = Peer>, B: Bank> FlowControl for Dynamic<S, B> {
    #[inline]
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        debug_assert!((1..=crate::MAX_CREDITS).contains(&credits));
        let epoch = self.bank.epoch();
        let state = self.peers.get_mut(self.part.place(peer));
        state.catch_up(epoch);
        let extra = state.take(credits, &self.tuning)?;
        Ok(CreditByte::new(state.tell_epoch(), extra, credits))
    }

    #[inline]
    fn ready(&self, peer: u32, trusted: u32) -> u32 {
        let state = self.peers.get(self.part.place(peer));
        state.ready(self.bank.epoch(), trusted)
    }

    #[inline]
    fn take_ready(&mut self, peer: u32, credits: u32) {
        let state = self.peers.get_mut(self.part.place(peer));
        debug_assert!(credits <= u32::from(state.send - state.in_use));
        // The cast is lossless, because `credits` is at most `send`, a `u16`.
        state.use_credits(credits as u16);
    }

    #[inline(always)]
    fn take_if_ready(&mut self, peer: u32, credits: u8, trusted: u32) -> bool {
        // The peer's state is looked up only once, because most single requests take this path.
        let epoch = self.bank.epoch();
        let state = self.peers.get_mut(self.part.place(peer));
        let ready = state.ready(epoch, trusted) >= u32::from(credits);
        if ready {
            state.use_credits(credits.into());
        }
        ready
    }

    fn give_back(&mut self, peer: u32, byte: CreditByte) {
        let state = self.peers.get_mut(self.part.place(peer));
        state.give_up(byte, &self.tuning);
    }

    #[inline]
    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        let noted = self.bank.note_within_epoch(1, self.tuning.epoch);
        // For nearly all single requests, this is all that is done, because no epoch has ended and
        // nothing is reported or asked for.
        if noted && byte.is_plain() && peer < self.ranks {
            let epoch = self.bank.epoch();
            let state = self.peers.get_mut(self.part.place(peer));
            if state.is_at(epoch) {
                state.note_request();
                return CreditByte::new(state.tell_epoch(), 0, byte.credits());
            }
        }
        self.grant_otherwise(peer, byte, noted)
    }

    #[inline]
    fn grant_plain(&mut self, peer: u32, requests: u32) -> bool {
        self.note_requests(requests);
        let Ok(place) = self.place(peer) else {
            return false;
        };
        let state = self.peers.get_mut(place);
        state.catch_up(self.bank.epoch());
        state.note_request();
        state.tell_epoch()
    }

    #[inline]
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        let credits = byte.credits().into();
        match byte.is_plain() {
            true => self.settle_many(peer, credits, 0),
            false => self.settle_otherwise(peer, byte),
        }
    }

    #[inline]
    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation> {
        let place = self.place(peer)?;
        let state = self.peers.get_mut(place);
        let in_flight = u32::from(state.in_use);
        if credits > in_flight {
            return Err(Violation::TooManyReturned {
                peer,
                returned: credits,
                in_flight,
            });
        }
        for _ in 0..epochs.min(peer::EPOCHS_TO_FORGET) {
            state.decay_send(self.tuning.hold);
        }
        // The cast is lossless, because `credits` is at most `in_use`.
        state.in_use -= credits as u16;
        Ok(())
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        let place = self.place(peer)?;
        match message {
            System::Revoke { end_of_epoch } => Ok(Some(self.on_revoke(place, end_of_epoch))),
            System::Return {
                credits,
                end_of_epoch,
            } => self
                .on_return(peer, place, credits, end_of_epoch)
                .map(|()| None),
        }
    }

    #[inline]
    fn next_system(&mut self) -> Option<(u32, System)> {
        if self.has_system() {
            self.find_lender()
        } else {
            None
        }
    }

    #[inline]
    fn has_system(&self) -> bool {
        self.bank.is_wanting(self.tuning.epoch) && self.list.listed() > 0 && !self.is_barren()
    }

    #[inline]
    fn is_stale(&self, peer: u32, credits: u8) -> bool {
        let state = self.peers.get(self.part.place(peer));
        // If more than `max` credits were in flight, that would be a new maximum or, because `max`
        // is at most `send`, a stall.
        u32::from(state.in_use) + u32::from(credits) > u32::from(state.max)
    }

    fn available(&self, peer: u32) -> u32 {
        let state = self.peers.get(self.part.place(peer));
        u32::from(state.send - state.in_use)
    }

    fn in_flight(&self, peer: u32) -> u32 {
        u32::from(self.peers.get(self.part.place(peer)).in_use)
    }

    fn lent(&self, peer: u32) -> u32 {
        u32::from(self.peers.get(self.part.place(peer)).loan)
    }

    fn asked(&self) -> u32 {
        self.bank.revokes()
    }

    fn stalls(&self, peer: u32) -> u64 {
        u64::from(self.peers.get(self.part.place(peer)).all_stalls)
    }

    fn banked(&self) -> u32 {
        self.bank.credits()
    }

    fn revoked(&self, peer: u32) -> u64 {
        u64::from(self.peers.get(self.part.place(peer)).all_revoked)
    }
}
