//! A second implementation of dynamic credits, which is as simple as the scheme's text. It visits
//! every peer at the end of an epoch, defers nothing, and uses numbers of 64 bits. [`Checked`] runs
//! it beside the real implementation.
//!
//! Where the scheme's text leaves a question open or is mistaken, the reference follows the table
//! in the documentation of `dynamic`. In addition:
//!
//! * A request that is tried again asks for the largest number of credits that it was found short
//!   of. (The text computes that number only once.)
//! * If a reply reports the end of an epoch, its own credits come back before the end of the epoch
//!   is processed. (In the text, the end of the epoch comes first. The text decays a number that
//!   may be less than the credits in flight, so the order does not matter there.)
//! * A cancelled request leaves its reports and demands to the next one. Its credits count as used,
//!   because they were taken.
//! * There is no list. Instead, the reference checks that the real implementation asks only peers
//!   that may be asked, that a peer is asked if there is one to ask, and that no such peer is
//!   skipped for a whole round.
//! * Counts of stalls and requests have no maximum. (Those of the real implementation saturate at
//!   255, which the tests do not reach.)

use credits::{
    Bank, CreditByte, Dynamic, FlowControl, Growth, Peer, PeerState, Short, Store, System, Tuning,
    Violation,
};

/// Returns the number of extra credits for which a code stands.
pub(crate) fn worth(tuning: &Tuning, code: u8) -> u16 {
    match tuning.growth {
        Growth::Missing => code.into(),
        Growth::Doubling => [0, 1, 2, 4, 8, 16, 32, 64][usize::from(code)] * tuning.minimum,
    }
}

/// Returns the code of the largest number of extra credits that is at most `credits`.
fn code(tuning: &Tuning, credits: u64) -> u8 {
    let fits = |code: &u8| u64::from(worth(tuning, *code)) <= credits;
    (0..=7).rev().find(fits).unwrap_or(0)
}

#[derive(Clone, Debug, Default)]
struct Known {
    loan: u64,
    send: u64,
    stalls: u64,
    in_use: u64,
    max: u64,
    held: u64,
    revoked: u64,
    requested: u64,
    given: u64,
    sys_msg_in_flight: bool,
    zero_reply: bool,
    reached_epoch: bool,
    /// The number of our epochs that have ended since the peer last sent a request, or the largest
    /// number if it never did.
    silent: u64,
    /// The number of credits that the waiting request is short of.
    need: u64,
    /// If loans double, the code with which a request last asked.
    asked_with: u8,
    /// Whether the next request asks again.
    again: bool,
    /// The number of times that another peer has been asked while this one could have been asked.
    passed: u32,
    all_stalls: u64,
    all_revoked: u64,
}

impl Known {
    fn decay_send(&mut self, tuning: &Tuning) {
        self.stalls /= 4;
        self.revoked /= 4;
        if tuning.hold {
            self.held = (self.held / 4).max(self.max);
            self.max = self.in_use;
        } else {
            self.max = (self.max / 4).max(self.in_use);
        }
    }

    fn end_of_epoch(&mut self) -> bool {
        std::mem::take(&mut self.reached_epoch)
    }
}

/// The error that says that a step violated the rules and had no effect.
#[derive(Debug)]
pub(crate) struct Refused;

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    tuning: Tuning,
    rank: u32,
    peers: Vec<Known>,
    bank: u64,
    received: u64,
    epochs: u64,
    wanted: u64,
    /// Whether a peer on whose behalf others are to be asked got nothing.
    empty: bool,
    under_way: u64,
    /// The total number of requests received.
    all_received: u64,
    /// The value of `all_received` when a peer was last asked.
    asked_at: Option<u64>,
    /// The number of credits that may move, which are those in the bank and those above the minimum
    /// at the start.
    moving: u64,
}

impl Reference {
    pub(crate) fn new(ranks: u32, rank: u32, loan: u16, banked: u32, tuning: Tuning) -> Reference {
        let known = Known {
            loan: loan.into(),
            send: loan.into(),
            silent: 2,
            ..Known::default()
        };
        let spare = u64::from(loan.saturating_sub(tuning.minimum));
        Reference {
            moving: spare * u64::from(ranks) + u64::from(banked),
            tuning,
            rank,
            peers: vec![known; ranks as usize],
            bank: banked.into(),
            received: 0,
            epochs: 0,
            wanted: 0,
            empty: false,
            under_way: 0,
            all_received: 0,
            asked_at: None,
        }
    }

    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        let known = &mut self.peers[peer as usize];
        let available = known.send - known.in_use;
        let ncredit = u64::from(credits);
        if ncredit > available {
            let missing = ncredit - available;
            if known.need == 0 {
                known.stalls += 1;
                known.all_stalls += 1;
            }
            known.need = known.need.max(missing);
            let missing = missing as u8;
            return Err(Short { missing });
        }
        known.in_use += ncredit;
        known.max = known.max.max(known.in_use);
        let need = std::mem::take(&mut known.need);
        let again = std::mem::take(&mut known.again);
        let extra = match self.tuning.growth {
            Growth::Missing => code(&self.tuning, need),
            Growth::Doubling if need == 0 && !again => 0,
            Growth::Doubling => {
                let most = u64::from(self.tuning.max_per_peer);
                known.asked_with = code(&self.tuning, known.send.min(most - known.send));
                known.asked_with
            }
        };
        Ok(CreditByte::new(known.end_of_epoch(), extra, credits))
    }

    fn give_back(&mut self, peer: u32, byte: CreditByte) {
        let known = &mut self.peers[peer as usize];
        known.in_use -= u64::from(byte.credits());
        known.reached_epoch |= byte.end_of_epoch();
        if byte.extra() > 0 {
            let need = match self.tuning.growth {
                Growth::Missing => byte.extra().into(),
                Growth::Doubling => 1,
            };
            known.need = known.need.max(need);
        }
    }

    fn count_request(&mut self) {
        self.received += 1;
        self.all_received += 1;
        if self.received == u64::from(self.tuning.epoch) {
            self.received = 0;
            self.epochs += 1;
            for known in &mut self.peers {
                known.given /= 4;
                known.requested /= 4;
                known.zero_reply = false;
                known.reached_epoch = true;
                known.silent += 1;
            }
        }
    }

    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        self.count_request();
        let reserve = self.pace().map_or(0, |_| self.moving / 4);
        let Some(known) = self.peers.get_mut(peer as usize) else {
            return CreditByte::new(false, 0, byte.credits());
        };
        if byte.end_of_epoch() {
            known.decay_send(&self.tuning);
        }
        known.silent = 0;
        let end_of_epoch = known.end_of_epoch();
        let mut extra = 0;
        if byte.extra() > 0 {
            known.requested += 1;
            let lender_limit = u64::from(self.tuning.lender_limit);
            let most = u64::from(self.tuning.max_per_peer);
            let allowed = u64::from(worth(&self.tuning, byte.extra()))
                .min(lender_limit.saturating_sub(known.given))
                .min(most.saturating_sub(known.loan));
            let most = match self.tuning.growth {
                Growth::Missing => self.bank,
                Growth::Doubling => (self.bank / 2)
                    .max(self.tuning.minimum.into())
                    .min(self.bank),
            };
            extra = code(&self.tuning, allowed.min(most));
            let given = u64::from(worth(&self.tuning, extra));
            // Credits that were withdrawn but that no code can express are put back at once. This
            // is the bank's level before that.
            let left = self.bank - allowed.min(most);
            if self.bank < allowed || given > 0 && left < reserve {
                self.empty = allowed > 0 && given == 0 || self.empty && self.wanted > 0;
                let scavenge = u64::from(self.tuning.scavenge);
                self.wanted = scavenge.saturating_sub(self.under_way);
            }
            self.bank -= given;
            known.loan += given;
            known.given += given;
        }
        CreditByte::new(end_of_epoch, extra, byte.credits())
    }

    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Refused> {
        let extra = u64::from(worth(&self.tuning, byte.extra()));
        let most = u64::from(self.tuning.max_per_peer);
        let known = self.peers.get_mut(peer as usize).ok_or(Refused)?;
        if extra > 0 && known.send + extra > most || u64::from(byte.credits()) > known.in_use {
            return Err(Refused);
        }
        known.in_use -= u64::from(byte.credits());
        // The code of the number asked for or, if that is less, of the number that the maximum
        // allows.
        let all = known
            .asked_with
            .min(code(&self.tuning, most - known.send.min(most)));
        known.send += extra;
        if self.tuning.growth == Growth::Doubling
            && byte.extra() > 0
            && known.asked_with > 0
            && byte.extra() >= all
        {
            let left = code(&self.tuning, known.send.min(most - known.send));
            known.again = known.send >= most / 4 && left > 0;
        }
        if byte.end_of_epoch() {
            known.decay_send(&self.tuning);
        }
        Ok(())
    }

    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Refused> {
        let known = self.peers.get_mut(peer as usize).ok_or(Refused)?;
        let in_use = known.in_use.checked_sub(credits.into()).ok_or(Refused)?;
        (0..epochs).for_each(|_| known.decay_send(&self.tuning));
        known.in_use = in_use;
        Ok(())
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Refused> {
        let minimum = u64::from(self.tuning.minimum);
        let known = self.peers.get_mut(peer as usize).ok_or(Refused)?;
        match message {
            System::Revoke { end_of_epoch } => {
                if end_of_epoch {
                    known.decay_send(&self.tuning);
                }
                let available = known
                    .send
                    .saturating_sub(known.max.max(known.held).max(minimum));
                let limit = u64::from(self.tuning.revoke_limit);
                let mut credits = available.min(limit.saturating_sub(known.revoked));
                if known.stalls > 0 {
                    credits = 0;
                }
                known.send -= credits;
                known.revoked += credits;
                known.all_revoked += credits;
                Ok(Some(System::Return {
                    credits: credits as u16,
                    end_of_epoch: known.end_of_epoch(),
                }))
            }
            System::Return {
                credits,
                end_of_epoch,
            } => {
                let credits = u64::from(credits);
                if !known.sys_msg_in_flight || credits > known.loan.saturating_sub(minimum) {
                    return Err(Refused);
                }
                known.sys_msg_in_flight = false;
                self.under_way -= 1;
                if end_of_epoch {
                    known.decay_send(&self.tuning);
                }
                known.loan -= credits;
                self.bank += credits;
                known.zero_reply |= credits == 0;
                Ok(None)
            }
        }
    }

    fn may_ask(&self, peer: u32) -> bool {
        let known = &self.peers[peer as usize];
        peer != self.rank
            && known.loan > u64::from(self.tuning.minimum)
            && known.requested == 0
            && !known.sys_msg_in_flight
            && !known.zero_reply
            && (self.pace().is_none() || self.empty || known.silent >= 2)
    }

    fn wants_to_ask(&self) -> bool {
        self.is_time()
            && self.wanted > 0
            && (0..self.peers.len() as u32).any(|peer| self.may_ask(peer))
    }

    /// Asks the peer that the real implementation has asked, if any. Checks that asking it was
    /// allowed or, if no peer was asked, that none could be asked.
    fn next_system(&mut self, asked: Option<u32>) -> Option<System> {
        let Some(peer) = asked else {
            assert!(!self.wants_to_ask(), "asks nobody");
            return None;
        };
        assert!(self.wanted > 0 && self.is_time());
        assert!(self.may_ask(peer), "asks rank {peer}");
        let all = self.peers.len() as u32;
        for other in 0..all {
            let passed = self.may_ask(other) && other != peer;
            let known = &mut self.peers[other as usize];
            known.passed = if passed { known.passed + 1 } else { 0 };
            assert!(known.passed < all, "never comes to rank {other}");
        }
        self.wanted -= 1;
        self.asked_at = Some(self.all_received);
        self.under_way += 1;
        let known = &mut self.peers[peer as usize];
        known.sys_msg_in_flight = true;
        let end_of_epoch = known.end_of_epoch();
        Some(System::Revoke { end_of_epoch })
    }

    /// Returns the maximum number of peers asked per epoch, or `None` if there is no limit.
    fn pace(&self) -> Option<u64> {
        let pace = self.tuning.revokes_per_epoch;
        (pace != u32::MAX).then_some(pace.max(1).into())
    }

    /// Returns whether the pace allows asking a peer now.
    fn is_time(&self) -> bool {
        let (Some(pace), Some(before)) = (self.pace(), self.asked_at) else {
            return true;
        };
        // The distance between two peers' turns is the epoch divided by the pace, rounded up.
        (self.all_received - before) * pace >= self.tuning.epoch.into()
    }
}

/// The real implementation and the reference, which are run side by side. After each step, their
/// answers and states must be the same.
#[derive(Debug)]
pub(crate) struct Checked<S: Store<Value = Peer>, B: Bank> {
    real: Dynamic<S, B>,
    reference: Reference,
}

impl<S: Store<Value = Peer>, B: Bank> Checked<S, B> {
    pub(crate) fn new(real: Dynamic<S, B>, reference: Reference) -> Self {
        Checked { real, reference }
    }

    fn compare(&self, peer: u32) {
        let reference = &self.reference;
        assert_eq!(u64::from(self.real.banked()), reference.bank, "bank");
        assert_eq!(u64::from(self.real.asked()), reference.under_way, "asked");
        assert_eq!(u64::from(self.real.epoch()), reference.epochs, "epochs");
        let Some(known) = reference.peers.get(peer as usize) else {
            return;
        };
        let real = self.real.peer_state(peer);
        let expected = PeerState {
            loan: known.loan as u16,
            send: known.send as u16,
            in_use: known.in_use as u16,
            max: known.max as u16,
            held: known.held as u16,
            stalls: known.stalls as u8,
            revoked: known.revoked as u16,
            requested: known.requested as u8,
            given: known.given as u16,
            asked: known.sys_msg_in_flight,
            zero_reply: known.zero_reply,
        };
        assert_eq!(real, expected, "the reference's state for peer {peer}");
        assert_eq!(self.real.stalls(peer), known.all_stalls);
        assert_eq!(self.real.revoked(peer), known.all_revoked);
        let available = known.send - known.in_use;
        assert_eq!(u64::from(self.real.available(peer)), available);
        assert_eq!(u64::from(self.real.in_flight(peer)), known.in_use);
        assert_eq!(u64::from(self.real.lent(peer)), known.loan);
    }
}

impl<S: Store<Value = Peer>, B: Bank> FlowControl for Checked<S, B> {
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        // The fast path is tried first, as in the engine. The value of `trusted` must not change
        // the credits taken.
        let trusted = self.real.in_flight(peer) + u32::from(credits) / 2;
        let real = match self.real.take_if_ready(peer, credits, trusted) {
            true => Ok(CreditByte::new(false, 0, credits)),
            false => self.real.take(peer, credits),
        };
        assert_eq!(real, self.reference.take(peer, credits), "take");
        self.compare(peer);
        real
    }

    fn give_back(&mut self, peer: u32, byte: CreditByte) {
        self.real.give_back(peer, byte);
        self.reference.give_back(peer, byte);
        self.compare(peer);
    }

    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        // Some plain bytes use the method for many requests at once.
        let real = if byte.is_plain() && byte.credits() % 2 == 1 {
            CreditByte::new(self.real.grant_plain(peer, 1), 0, byte.credits())
        } else {
            self.real.grant(peer, byte)
        };
        assert_eq!(real, self.reference.grant(peer, byte), "grant");
        self.compare(peer);
        real
    }

    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        let real = self.real.settle(peer, byte);
        let reference = self.reference.settle(peer, byte);
        assert_eq!(real.is_ok(), reference.is_ok(), "{real:?}");
        self.compare(peer);
        real
    }

    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation> {
        let real = self.real.settle_many(peer, credits, epochs);
        let reference = self.reference.settle_many(peer, credits, epochs);
        assert_eq!(real.is_ok(), reference.is_ok(), "{real:?}");
        self.compare(peer);
        real
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        let real = self.real.on_system(peer, message);
        let reference = self.reference.on_system(peer, message);
        match (&real, reference) {
            (Err(_), Err(Refused)) => {}
            (Ok(real), Ok(reference)) => assert_eq!(*real, reference),
            (real, reference) => panic!("{real:?}, the reference {reference:?}"),
        }
        self.compare(peer);
        real
    }

    fn next_system(&mut self) -> Option<(u32, System)> {
        let real = self.real.next_system();
        let (peer, message) = real.unzip();
        assert_eq!(message, self.reference.next_system(peer));
        for peer in 0..self.reference.peers.len() {
            self.compare(peer as u32);
        }
        real
    }

    fn has_system(&self) -> bool {
        let real = self.real.has_system();
        assert!(real || !self.reference.wants_to_ask(), "asks nobody");
        real
    }

    fn is_stale(&self, peer: u32, credits: u8) -> bool {
        let real = self.real.is_stale(peer, credits);
        let known = &self.reference.peers[peer as usize];
        assert_eq!(real, known.in_use + u64::from(credits) > known.max);
        real
    }

    fn available(&self, peer: u32) -> u32 {
        self.real.available(peer)
    }

    fn in_flight(&self, peer: u32) -> u32 {
        self.real.in_flight(peer)
    }

    fn lent(&self, peer: u32) -> u32 {
        self.real.lent(peer)
    }

    fn asked(&self) -> u32 {
        self.real.asked()
    }

    fn stalls(&self, peer: u32) -> u64 {
        self.real.stalls(peer)
    }

    fn banked(&self) -> u32 {
        self.real.banked()
    }

    fn revoked(&self, peer: u32) -> u64 {
        self.real.revoked(peer)
    }
}
