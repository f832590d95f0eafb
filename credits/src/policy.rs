//! The choice of an algorithm at run time.

use crate::{CreditByte, FlowControl, Plan, Short, Static, System, Unlimited, Violation};

/// The flow control that the settings ask for. A `match` per call, no dynamic dispatch.
#[derive(Clone, Debug)]
pub enum Policy {
    /// The same credits for the whole job.
    Static(Static),
    /// No flow control.
    Unlimited(Unlimited),
}

impl Policy {
    /// The algorithm and the numbers that were planned.
    #[must_use]
    pub fn from_plan(plan: &Plan) -> Policy {
        if plan.flow_control() {
            Policy::Static(Static::from_plan(plan))
        } else {
            Policy::Unlimited(Unlimited)
        }
    }
}

/// Calls the same method of whichever it is.
macro_rules! each {
    ($policy:expr, $flow:ident => $call:expr) => {
        match $policy {
            Policy::Static($flow) => $call,
            Policy::Unlimited($flow) => $call,
        }
    };
}

impl FlowControl for Policy {
    #[inline]
    fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
        each!(self, flow => flow.take(peer, credits))
    }

    #[inline]
    fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
        each!(self, flow => flow.grant(peer, byte))
    }

    #[inline]
    fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
        each!(self, flow => flow.settle(peer, byte))
    }

    #[inline]
    fn settle_many(&mut self, peer: u32, credits: u32) -> Result<(), Violation> {
        each!(self, flow => flow.settle_many(peer, credits))
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
        each!(self, flow => flow.on_system(peer, message))
    }

    #[inline]
    fn next_system(&mut self) -> Option<(u32, System)> {
        each!(self, flow => flow.next_system())
    }

    #[inline]
    fn available(&self, peer: u32) -> u32 {
        each!(self, flow => flow.available(peer))
    }

    #[inline]
    fn in_flight(&self, peer: u32) -> u32 {
        each!(self, flow => flow.in_flight(peer))
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
