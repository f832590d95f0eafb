//! Ranks that make a mistake: the checker finds it, and under the right name.

use credits::{CreditByte, Dynamic, FlowControl, PeerState, Short, System, Violation};
use credits_model::{
    ASKED, BANK, DEMAND, ENDS, Flow, IN_FLIGHT, LOANS, REFUSED, Report, SENT, World, check, small,
};

/// Gives back a credit that is in flight.
const GIVES_BACK_IN_FLIGHT: u8 = 0;
/// Tells its lender of one credit more than it has given up.
const MISCOUNTS: u8 = 1;
/// Lends what was asked for, whatever the bank has.
const OVERDRAWS: u8 = 2;
/// Forgets to bank what comes back.
const LOSES: u8 = 3;
/// Counts a reply's credits twice, if it can.
const SETTLES_TWICE: u8 = 4;
/// Asks peers for credits that nobody lacks.
const ASKS_IDLY: u8 = 5;
/// Says that it has something to send, and hasn't.
const FUSSES: u8 = 6;
/// Sends a second answer to a revoke.
const ANSWERS_TWICE: u8 = 7;

/// Ranks that all make mistake `FAULT`, around the true flow control.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Faulty<const FAULT: u8> {
    inner: Dynamic,
    /// By how much what it does differs from what the true one thinks, for each peer: fewer send credits, or a higher
    /// loan.
    differs: Vec<u16>,
    /// Credits lost.
    lost: u32,
    /// Requests received; system messages sent for no reason.
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
            GIVES_BACK_IN_FLIGHT => state.send -= self.differs[peer as usize],
            OVERDRAWS => state.loan += self.differs[peer as usize],
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
        self.inner.take(peer, credits)
    }

    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        let back = self.inner.grant(peer, byte);
        if FAULT == OVERDRAWS && back.extra() < byte.extra() {
            self.differs[peer as usize] += u16::from(byte.extra() - back.extra());
            return CreditByte::new(back.end_of_epoch(), byte.extra(), back.credits());
        }
        self.idle = u32::from(FAULT == ASKS_IDLY);
        back
    }

    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        self.inner.settle(peer, byte)?;
        if FAULT == SETTLES_TWICE {
            let _ = self.inner.settle_many(peer, byte.credits().into());
        }
        Ok(())
    }

    fn settle_many(&mut self, peer: u32, credits: u32) -> Result<(), Violation> {
        self.inner.settle_many(peer, credits)
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        match (FAULT, message) {
            (LOSES, System::Return { credits, .. }) => self.lost += u32::from(credits),
            (ASKS_IDLY, System::Return { .. }) => return Ok(None),
            (ANSWERS_TWICE, System::Return { credits: 0, .. }) => {
                // The one that it asked takes its answer for a question, as it were.
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
        if next.is_none() && std::mem::take(&mut self.idle) > 0 {
            let end_of_epoch = false;
            return Some((0, System::Revoke { end_of_epoch }));
        }
        next
    }

    fn has_system(&self) -> bool {
        FAULT == FUSSES || self.idle > 0 || self.inner.has_system()
    }

    fn available(&self, peer: u32) -> u32 {
        self.inner.available(peer)
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

/// The world in which one rank can have what the other needs.
fn world() -> World {
    small().remove(1)
}

/// Checks ranks with a fault: it breaks one of the properties that are named, maybe others besides.
fn finds<const FAULT: u8>(properties: &[&str]) {
    let report = check::<Faulty<FAULT>>(world());
    assert!(
        report.failed().any(|name| properties.contains(&name)),
        "{:#?} in {} states",
        report.failures,
        report.states
    );
}

#[test]
fn giving_back_credits_in_flight_is_found() {
    finds::<GIVES_BACK_IN_FLIGHT>(&[IN_FLIGHT]);
}

#[test]
fn miscounted_returns_are_found() {
    finds::<MISCOUNTS>(&[LOANS]);
}

#[test]
fn lending_more_than_the_bank_has_is_found() {
    finds::<OVERDRAWS>(&[BANK]);
}

#[test]
fn lost_credits_are_found() {
    finds::<LOSES>(&[BANK]);
}

#[test]
fn credits_settled_twice_are_found() {
    finds::<SETTLES_TWICE>(&[IN_FLIGHT, REFUSED]);
}

#[test]
fn asking_without_need_is_found() {
    finds::<ASKS_IDLY>(&[DEMAND]);
}

#[test]
fn endless_business_is_found() {
    finds::<FUSSES>(&[ENDS]);
}

#[test]
fn answers_to_nothing_are_found() {
    finds::<ANSWERS_TWICE>(&[ASKED, REFUSED]);
}

#[test]
fn a_minimum_below_a_request_s_cost_is_found_to_deadlock() {
    // With requests of two credits, a loan that may fall to one.
    let mut world = world();
    world.requests[1].costs = vec![2; 2];
    let Report { failures, .. } = check::<Dynamic>(world);
    let [(SENT, run)] = failures.as_slice() else {
        panic!("{failures:#?}");
    };
    assert!(run.contains("Revoke"), "a revoke leads there:\n{run}");
}
