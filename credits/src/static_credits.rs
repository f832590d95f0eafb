//! Static credits, with which each rank lends every rank the same number of credits for the whole
//! job.

use crate::{
    CreditByte, Dense, FlowControl, MAX_CREDITS, MAX_EXTRA, Part, Plan, Short, Store, System,
    Violation,
};

/// The credits lent between one rank and all others, in both directions, for the whole job.
///
/// Each rank needs 8 bytes per peer, which is 80 kB in a job of 10,000 ranks and 8 MB in one of
/// 1,000,000. (The request buffers need more; see [`Plan`].) Stalled requests ask for more credits
/// in their extra bits, so that the demand shows on the wire, but none are granted.
#[derive(Clone, Debug)]
pub struct Static<S = Dense<Loan>> {
    peers: S,
    part: Part,
    ranks: u32,
    /// The number of credits that every peer has lent to this rank and this rank to every peer.
    loan: u16,
    /// The number of credits that could not be shared out evenly. They stay in the bank.
    banked: u32,
}

/// The state between a rank and one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loan {
    /// The number of send credits in flight, which is at most the loan.
    in_use: u16,
    /// The largest number of credits that the stalled request was short of, or 0 if no request is
    /// stalled.
    need: u8,
    /// The number of requests that stalled. Saturates.
    stalls: u32,
}

const _: () = assert!(size_of::<Loan>() == 8);

impl<S: Store<Value = Loan>> Static<S> {
    /// Creates the flow control of a rank in a job of `ranks` ranks, each of which has lent `loan`
    /// credits to every rank and keeps `banked` credits. A request that costs more than the loan
    /// can never be sent. [`Plan`] lends enough for a full medium.
    #[must_use]
    pub fn new(ranks: u32, loan: u16, banked: u32) -> Self {
        Self::part(ranks, loan, banked, Part::WHOLE)
    }

    /// Creates the planned flow control in `parts` parts.
    pub fn from_plan(plan: &Plan, parts: u32) -> impl Iterator<Item = Self> {
        let (ranks, loan, banked) = (plan.ranks(), plan.credits_per_peer(), plan.banked());
        Part::all(parts).map(move |part| Self::part(ranks, loan, banked, part))
    }

    fn part(ranks: u32, loan: u16, banked: u32, part: Part) -> Self {
        Static {
            peers: S::new(part.len(ranks), Loan::default()),
            part,
            ranks,
            loan,
            banked,
        }
    }

    #[inline]
    fn peer(&self, peer: u32) -> Loan {
        self.peers.get(self.part.place(peer))
    }

    #[inline]
    fn known(&self, peer: u32) -> Result<u32, Violation> {
        if peer < self.ranks {
            return Ok(self.part.place(peer));
        }
        let ranks = self.ranks;
        Err(Violation::UnknownPeer { peer, ranks })
    }

    #[cold]
    fn stall(peer: &mut Loan, missing: u8) -> Short {
        if peer.need == 0 {
            peer.stalls = peer.stalls.saturating_add(1);
        }
        peer.need = peer.need.max(missing.min(MAX_EXTRA));
        Short { missing }
    }
}

impl<S: Store<Value = Loan>> FlowControl for Static<S> {
    #[inline]
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        debug_assert!((1..=MAX_CREDITS).contains(&credits));
        let loan = self.loan;
        let peer = self.peers.get_mut(self.part.place(peer));
        let available = loan - peer.in_use;
        if u16::from(credits) > available {
            // The cast is lossless, because `available` is less than `credits`.
            return Err(Self::stall(peer, credits - available as u8));
        }
        peer.in_use += u16::from(credits);
        let byte = CreditByte::new(false, peer.need, credits);
        peer.need = 0;
        Ok(byte)
    }

    #[inline]
    fn ready(&self, peer: u32, _trusted: u32) -> u32 {
        let peer = self.peer(peer);
        match peer.need {
            0 => u32::from(self.loan - peer.in_use),
            _ => 0,
        }
    }

    #[inline]
    fn take_ready(&mut self, peer: u32, credits: u32) {
        debug_assert!(credits <= self.ready(peer, 0));
        // The cast is lossless, because `credits` is at most the loan.
        self.peers.get_mut(self.part.place(peer)).in_use += credits as u16;
    }

    fn give_back(&mut self, peer: u32, byte: CreditByte) {
        let state = self.peers.get_mut(self.part.place(peer));
        state.in_use = state.in_use.saturating_sub(byte.credits().into());
        state.need = state.need.max(byte.extra());
    }

    #[inline]
    fn grant(&mut self, _peer: u32, byte: CreditByte) -> CreditByte {
        CreditByte::new(false, 0, byte.credits())
    }

    #[inline]
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        if byte.extra() != 0 {
            return Err(Violation::UnexpectedGrant {
                peer,
                extra: byte.extra(),
            });
        }
        self.settle_many(peer, u32::from(byte.credits()), 0)
    }

    #[inline]
    fn settle_many(&mut self, peer: u32, credits: u32, _epochs: u32) -> Result<(), Violation> {
        let place = self.known(peer)?;
        let state = self.peers.get_mut(place);
        let in_flight = u32::from(state.in_use);
        if credits > in_flight {
            return Err(Violation::TooManyReturned {
                peer,
                returned: credits,
                in_flight,
            });
        }
        // The cast is lossless, because `credits` is at most `in_use`.
        state.in_use -= credits as u16;
        Ok(())
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        self.known(peer)?;
        match message {
            System::Revoke { .. } => Ok(Some(System::Return {
                credits: 0,
                end_of_epoch: false,
            })),
            System::Return { credits, .. } => Err(Violation::UnexpectedReturn { peer, credits }),
        }
    }

    #[inline]
    fn next_system(&mut self) -> Option<(u32, System)> {
        None
    }

    #[inline]
    fn available(&self, peer: u32) -> u32 {
        u32::from(self.loan - self.peer(peer).in_use)
    }

    #[inline]
    fn in_flight(&self, peer: u32) -> u32 {
        u32::from(self.peer(peer).in_use)
    }

    fn lent(&self, _peer: u32) -> u32 {
        self.loan.into()
    }

    fn stalls(&self, peer: u32) -> u64 {
        u64::from(self.peer(peer).stalls)
    }

    fn banked(&self) -> u32 {
        self.banked
    }

    fn revoked(&self, _peer: u32) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Static = super::Static<Dense<Loan>>;

    #[test]
    fn credits_come_back_with_the_reply() {
        let (mut x, mut y) = (Static::new(2, 10, 0), Static::new(2, 10, 0));
        let request = x.take(1, 4).unwrap();
        assert_eq!((x.available(1), x.in_flight(1)), (6, 4));
        let reply = y.grant(0, request);
        assert_eq!(reply, CreditByte::new(false, 0, 4));
        x.settle(1, reply).unwrap();
        assert_eq!((x.available(1), x.in_flight(1)), (10, 0));
    }

    #[test]
    fn a_stalled_request_counts_once_and_asks_for_what_it_lacked() {
        let mut x = Static::new(2, 4, 0);
        let first = x.take(1, 3).unwrap();
        assert_eq!(first.extra(), 0);
        for _ in 0..5 {
            assert_eq!(x.take(1, 4), Err(Short { missing: 3 }));
        }
        assert_eq!(x.stalls(1), 1);
        x.settle(1, first).unwrap();
        assert_eq!(x.take(1, 4), Ok(CreditByte::new(false, 3, 4)));
        assert_eq!(x.take(1, 1), Err(Short { missing: 1 }));
        assert_eq!(x.stalls(1), 2);
        assert_eq!(x.stalls(0), 0);
    }

    #[test]
    fn coalesced_replies_settle_at_once() {
        let mut x = Static::new(2, 100, 0);
        for _ in 0..60 {
            let _ = x.take(1, 1).unwrap();
        }
        x.settle_many(1, 59, 0).unwrap();
        assert_eq!(x.in_flight(1), 1);
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_named_and_changes_nothing() {
        let mut x = Static::new(2, 10, 3);
        let _ = x.take(1, 2).unwrap();
        let too_many = Violation::TooManyReturned {
            peer: 1,
            returned: 3,
            in_flight: 2,
        };
        assert_eq!(x.settle(1, CreditByte::new(false, 0, 3)), Err(too_many));
        assert_eq!(
            x.settle(1, CreditByte::new(false, 1, 2)),
            Err(Violation::UnexpectedGrant { peer: 1, extra: 1 })
        );
        assert!(x.settle_many(1, u32::MAX, 0).is_err());
        assert_eq!(
            x.settle_many(2, 0, 0),
            Err(Violation::UnknownPeer { peer: 2, ranks: 2 })
        );
        let unasked = System::Return {
            credits: 1,
            end_of_epoch: false,
        };
        assert_eq!(
            x.on_system(1, unasked),
            Err(Violation::UnexpectedReturn {
                peer: 1,
                credits: 1
            })
        );
        assert!(
            x.on_system(9, System::Revoke { end_of_epoch: true })
                .is_err()
        );
        assert_eq!((x.available(1), x.in_flight(1), x.banked()), (8, 2, 3));
    }

    #[test]
    fn static_credits_are_never_revoked() {
        let mut x = Static::new(2, 10, 0);
        let answer = x.on_system(1, System::Revoke { end_of_epoch: true });
        assert_eq!(
            answer,
            Ok(Some(System::Return {
                credits: 0,
                end_of_epoch: false
            }))
        );
        assert_eq!(
            (x.next_system(), x.revoked(1), x.available(1)),
            (None, 0, 10)
        );
    }
}
