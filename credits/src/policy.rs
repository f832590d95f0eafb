//! The flow control algorithm that is chosen at run time.

use crate::{
    Bank, CreditByte, Dense, Dynamic, FlowControl, OwnBank, Peer, Plan, Short, Static, System,
    Unlimited, Violation,
};

/// The flow control that the settings select. Each call dispatches by a `match`.
// `repr` gives the discriminant a byte of its own. Otherwise, it would be encoded in unused values
// of another field, and each of the three reads per message would take eight instructions.
#[derive(Clone, Debug)]
#[repr(u8)]
pub enum Policy<B = OwnBank> {
    /// Each rank lends the same number of credits for the whole job.
    Static(Static),
    /// Credits that move with demand.
    Dynamic(Dynamic<Dense<Peer>, B>),
    /// No flow control.
    Unlimited(Unlimited),
}

impl Policy {
    /// Creates the planned algorithm for all peers of rank `rank`.
    #[must_use]
    pub fn from_plan(plan: &Plan, rank: u32) -> Policy {
        Policy::parts(plan, rank, 1).remove(0)
    }
}

impl<B: Bank> Policy<B> {
    /// Creates the planned algorithm in `parts` [parts](crate::Part), so that threads that talk to
    /// different peers need not share a lock.
    ///
    /// # Panics
    /// Panics if the number of parts is not a power of two, or exceeds [`Bank::MOST_PARTS`].
    #[must_use]
    pub fn parts(plan: &Plan, rank: u32, parts: u32) -> Vec<Policy<B>> {
        if !plan.flow_control() {
            (0..parts).map(|_| Policy::Unlimited(Unlimited)).collect()
        } else if plan.dynamic() {
            Dynamic::from_plan(plan, rank, parts)
                .map(Policy::Dynamic)
                .collect()
        } else {
            Static::from_plan(plan, parts).map(Policy::Static).collect()
        }
    }

    /// Returns the dynamic algorithm, if it was selected.
    #[must_use]
    pub const fn as_dynamic(&self) -> Option<&Dynamic<Dense<Peer>, B>> {
        match self {
            Policy::Dynamic(dynamic) => Some(dynamic),
            _ => None,
        }
    }
}

/// Evaluates `$call`, in which `$flow` is the selected algorithm.
macro_rules! each {
    ($policy:expr, $flow:ident => $call:expr) => {
        match $policy {
            Policy::Static($flow) => $call,
            Policy::Dynamic($flow) => $call,
            Policy::Unlimited($flow) => $call,
        }
    };
}

impl<B: Bank> FlowControl for Policy<B> {
    #[inline]
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        each!(self, flow => flow.take(peer, credits))
    }

    #[inline]
    fn ready(&self, peer: u32, trusted: u32) -> u32 {
        each!(self, flow => flow.ready(peer, trusted))
    }

    #[inline]
    fn take_ready(&mut self, peer: u32, credits: u32) {
        each!(self, flow => flow.take_ready(peer, credits))
    }

    #[inline(always)]
    fn take_if_ready(&mut self, peer: u32, credits: u8, trusted: u32) -> bool {
        each!(self, flow => flow.take_if_ready(peer, credits, trusted))
    }

    fn give_back(&mut self, peer: u32, byte: CreditByte) {
        each!(self, flow => flow.give_back(peer, byte))
    }

    #[inline]
    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        each!(self, flow => flow.grant(peer, byte))
    }

    #[inline]
    fn grant_plain(&mut self, peer: u32, requests: u32) -> bool {
        each!(self, flow => flow.grant_plain(peer, requests))
    }

    #[inline]
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        each!(self, flow => flow.settle(peer, byte))
    }

    #[inline]
    fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation> {
        each!(self, flow => flow.settle_many(peer, credits, epochs))
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        each!(self, flow => flow.on_system(peer, message))
    }

    #[inline]
    fn next_system(&mut self) -> Option<(u32, System)> {
        each!(self, flow => flow.next_system())
    }

    #[inline]
    fn has_system(&self) -> bool {
        each!(self, flow => flow.has_system())
    }

    #[inline]
    fn is_stale(&self, peer: u32, credits: u8) -> bool {
        each!(self, flow => flow.is_stale(peer, credits))
    }

    #[inline]
    fn available(&self, peer: u32) -> u32 {
        each!(self, flow => flow.available(peer))
    }

    #[inline]
    fn in_flight(&self, peer: u32) -> u32 {
        each!(self, flow => flow.in_flight(peer))
    }

    fn lent(&self, peer: u32) -> u32 {
        each!(self, flow => flow.lent(peer))
    }

    fn asked(&self) -> u32 {
        each!(self, flow => flow.asked())
    }

    fn stalls(&self, peer: u32) -> u64 {
        each!(self, flow => flow.stalls(peer))
    }

    fn banked(&self) -> u32 {
        each!(self, flow => flow.banked())
    }

    fn revoked(&self, peer: u32) -> u64 {
        each!(self, flow => flow.revoked(peer))
    }
}
