//! Tests with faulty ranks. The checker must find each fault and report the property that the fault
//! violates. Each property detects at least one fault.

use credits::{CreditByte, Dynamic, FlowControl, MAX_CREDITS, PeerState, Short, System, Violation};
use credits_model::{
    ASKED, BANK, BOUNDS, DEMAND, ENDS, Flow, IN_FLIGHT, LOANS, REFUSED, Report, SENT, SPACE, World,
    check, find, small,
};

/// The rank gives back a credit that is in flight.
const GIVES_BACK_IN_FLIGHT: u8 = 0;
/// The rank reports to its lender one credit more than it has given up.
const MISCOUNTS: u8 = 1;
/// The rank lends the amount asked for, even if the bank has less.
const OVERDRAWS: u8 = 2;
/// The rank forgets to bank returned credits.
const LOSES: u8 = 3;
/// The rank counts a reply's credits twice if enough credits are in flight.
const SETTLES_TWICE: u8 = 4;
/// The rank asks peers for credits although no rank lacks any.
const ASKS_IDLY: u8 = 5;
/// The rank claims to have a system message to send, but has none.
const FUSSES: u8 = 6;
/// The rank answers a revoke with two returns.
const ANSWERS_TWICE: u8 = 7;
/// The rank sends requests for which it has no credits, and does not count them.
const SENDS_WITHOUT: u8 = 8;
/// The rank, if idle, gives back so many credits that it keeps fewer than the minimum.
const GIVES_BACK_ALL: u8 = 9;
/// The rank asks a peer again that has not answered yet.
const ASKS_TWICE: u8 = 10;
/// The rank refuses every return that brings credits.
const REFUSES: u8 = 11;
/// Once a request has lacked credits, the rank never gets these credits.
const STARVES: u8 = 12;
/// The rank grants an extra credit to a request that did not ask for any.
const GRANTS_IDLY: u8 = 13;

/// The flow control of a faulty rank, which wraps the real one and adds the fault `FAULT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Faulty<const FAULT: u8> {
    inner: Dynamic,
    /// For each peer, the difference from the real flow control's state. Depending on the fault,
    /// the peer has lent that many credits fewer or has been lent that many more.
    differs: Vec<u16>,
    /// The number of credits lost.
    lost: u32,
    /// Whether to send a system message without a reason. A value other than 0 is 1 or the
    /// receiving peer plus 1, depending on the fault.
    idle: u32,
}

impl<const FAULT: u8> Flow for Faulty<FAULT> {
    fn of(world: &World, rank: u32) -> Self {
        Faulty {
            inner: Dynamic::of(world, rank),
            differs: vec![0; world.ranks as usize],
            lost: 0,
            idle: 0,
        }
    }

    fn state(&self, peer: u32) -> PeerState {
        let mut state = self.inner.peer_state(peer);
        match FAULT {
            GIVES_BACK_IN_FLIGHT | GIVES_BACK_ALL => state.send -= self.differs[peer as usize],
            OVERDRAWS | GRANTS_IDLY => state.loan += self.differs[peer as usize],
            _ => {}
        }
        state
    }

    fn epochs(&self) -> u32 {
        self.inner.epoch()
    }
}

impl<const FAULT: u8> FlowControl for Faulty<FAULT> {
    fn lent(&self, peer: u32) -> u32 {
        self.inner.lent(peer)
    }

    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        if FAULT == STARVES && self.inner.stalls(peer) > 0 {
            return Err(Short { missing: credits });
        }
        match self.inner.take(peer, credits) {
            Err(_) if FAULT == SENDS_WITHOUT => Ok(CreditByte::new(false, 0, credits)),
            taken => taken,
        }
    }

    fn give_back(&mut self, peer: u32, byte: CreditByte) {
        self.inner.give_back(peer, byte);
    }

    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        let back = self.inner.grant(peer, byte);
        if FAULT == OVERDRAWS && back.extra() < byte.extra() {
            self.differs[peer as usize] += u16::from(byte.extra() - back.extra());
            return CreditByte::new(back.end_of_epoch(), byte.extra(), back.credits());
        }
        if FAULT == GRANTS_IDLY && byte.extra() == 0 {
            self.differs[peer as usize] += 1;
            return CreditByte::new(back.end_of_epoch(), 1, back.credits());
        }
        if FAULT == ASKS_IDLY {
            self.idle = 1;
        }
        back
    }

    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        self.inner.settle(peer, byte)?;
        if FAULT == SETTLES_TWICE {
            let _ = self.inner.settle_many(peer, byte.credits().into(), 0);
        }
        Ok(())
    }

    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation> {
        self.inner.settle_many(peer, credits, epochs)
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        match (FAULT, message) {
            (LOSES, System::Return { credits, .. }) => self.lost += u32::from(credits),
            (ASKS_IDLY, System::Return { .. }) => return Ok(None),
            (REFUSES, System::Return { credits, .. }) if credits > 0 => {
                return Err(Violation::UnexpectedReturn { peer, credits });
            }
            (ANSWERS_TWICE, System::Return { credits: 0, .. }) => {
                // The fault: the return is answered with a return, as if it had been a revoke.
                let _ = self.inner.on_system(peer, message);
                return Ok(Some(message));
            }
            _ => {}
        }
        let answer = self.inner.on_system(peer, message)?;
        let Some(System::Return {
            credits,
            end_of_epoch,
        }) = answer
        else {
            return Ok(answer);
        };
        let more = match FAULT {
            GIVES_BACK_IN_FLIGHT => {
                let state = self.state(peer);
                let more = u16::from(state.in_use > 0 && state.send > 1);
                self.differs[peer as usize] += more;
                more
            }
            GIVES_BACK_ALL => {
                let state = self.state(peer);
                let more = if state.in_use == 0 { state.send } else { 0 };
                self.differs[peer as usize] += more;
                more
            }
            MISCOUNTS => 1,
            _ => 0,
        };
        Ok(Some(System::Return {
            credits: credits + more,
            end_of_epoch,
        }))
    }

    fn next_system(&mut self) -> Option<(u32, System)> {
        let next = self.inner.next_system();
        if let (ASKS_TWICE, Some((peer, _))) = (FAULT, next) {
            self.idle = peer + 1;
        } else if FAULT == ASKS_TWICE && self.idle > 0 {
            let peer = std::mem::take(&mut self.idle) - 1;
            let end_of_epoch = false;
            return Some((peer, System::Revoke { end_of_epoch }));
        }
        if FAULT == ASKS_IDLY && next.is_none() && std::mem::take(&mut self.idle) > 0 {
            let end_of_epoch = false;
            return Some((0, System::Revoke { end_of_epoch }));
        }
        next
    }

    fn has_system(&self) -> bool {
        FAULT == FUSSES || self.idle > 0 || self.inner.has_system()
    }

    fn available(&self, peer: u32) -> u32 {
        match FAULT {
            STARVES if self.inner.stalls(peer) > 0 => 0,
            SENDS_WITHOUT => u32::from(MAX_CREDITS),
            _ => self.inner.available(peer),
        }
    }

    fn in_flight(&self, peer: u32) -> u32 {
        self.inner.in_flight(peer)
    }

    fn stalls(&self, peer: u32) -> u64 {
        self.inner.stalls(peer)
    }

    fn banked(&self) -> u32 {
        self.inner.banked() - self.lost
    }

    fn revoked(&self, peer: u32) -> u64 {
        self.inner.revoked(peer)
    }
}

/// Returns the world in which one rank can have the credits that the other needs.
fn world() -> World {
    small().remove(1)
}

/// Checks ranks with the fault, and asserts that the checker finds a state that violates the
/// property.
fn finds<const FAULT: u8>(property: &'static str) {
    let mut world = world();
    if FAULT == SENDS_WITHOUT {
        // The rank sends more requests than its receiver has credits.
        world.requests[0].costs = vec![1; world.total() as usize + 1];
    }
    let report = find::<Faulty<FAULT>>(world, property);
    let Report {
        failures, states, ..
    } = &report;
    assert!(
        report.failed().any(|name| name == property),
        "{failures:#?} in {states} states"
    );
}

#[test]
fn giving_back_credits_in_flight_is_found() {
    finds::<GIVES_BACK_IN_FLIGHT>(IN_FLIGHT);
}

#[test]
fn credits_settled_twice_are_found() {
    finds::<SETTLES_TWICE>(IN_FLIGHT);
}

#[test]
fn miscounted_returns_are_found() {
    finds::<MISCOUNTS>(LOANS);
}

#[test]
fn lending_more_than_the_bank_has_is_found() {
    finds::<OVERDRAWS>(BANK);
}

#[test]
fn lost_credits_are_found() {
    finds::<LOSES>(BANK);
}

#[test]
fn requests_without_credits_are_found_to_overflow() {
    finds::<SENDS_WITHOUT>(SPACE);
}

#[test]
fn giving_back_below_the_minimum_is_found() {
    finds::<GIVES_BACK_ALL>(BOUNDS);
}

#[test]
fn asking_twice_is_found() {
    finds::<ASKS_TWICE>(ASKED);
}

#[test]
fn answers_to_nothing_are_found() {
    finds::<ANSWERS_TWICE>(ASKED);
}

#[test]
fn honest_returns_that_are_refused_are_found() {
    finds::<REFUSES>(REFUSED);
}

#[test]
fn asking_without_need_is_found() {
    finds::<ASKS_IDLY>(DEMAND);
}

#[test]
fn granting_what_nobody_wanted_is_found() {
    finds::<GRANTS_IDLY>(DEMAND);
}

#[test]
fn endless_business_is_found() {
    finds::<FUSSES>(ENDS);
}

#[test]
fn a_request_that_is_never_sent_is_found() {
    finds::<STARVES>(SENT);
}

#[test]
fn a_minimum_below_a_request_s_cost_is_found_to_deadlock() {
    // Requests cost two credits, but a loan may fall to one.
    let mut world = world();
    world.requests[1].costs = vec![2; 2];
    let Report { failures, .. } = check::<Dynamic>(world);
    let [(SENT, run)] = failures.as_slice() else {
        panic!("{failures:#?}");
    };
    assert!(
        run.contains("Revoke"),
        "a revoke leads to the fault:\n{run}"
    );
}
