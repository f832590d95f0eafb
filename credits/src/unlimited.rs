//! The absence of flow control.

use crate::{CreditByte, FlowControl, Short, System, Violation};

/// Flow control switched off (`GASNET_PORTAL_FLOW_CONTROL=0`). Every request may be sent at any
/// time. Credit bytes carry the requests' costs, which have no effect. If a receiver gets too many
/// requests at once, they are lost in its catch basin, which ends the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unlimited;

impl FlowControl for Unlimited {
    #[inline]
    fn take(&mut self, _peer: u32, credits: u8) -> Result<CreditByte, Short> {
        Ok(CreditByte::new(false, 0, credits))
    }

    /// Always returns the largest number.
    #[inline]
    fn ready(&self, _peer: u32, _trusted: u32) -> u32 {
        u32::MAX
    }

    #[inline]
    fn take_ready(&mut self, _peer: u32, _credits: u32) {}

    fn give_back(&mut self, _peer: u32, _byte: CreditByte) {}

    #[inline]
    fn grant(&mut self, _peer: u32, _byte: CreditByte) -> CreditByte {
        CreditByte::default()
    }

    #[inline]
    fn settle(&mut self, _peer: u32, _byte: CreditByte) -> Result<(), Violation> {
        Ok(())
    }

    #[inline]
    fn settle_many(&mut self, _peer: u32, _credits: u32, _epochs: u32) -> Result<(), Violation> {
        Ok(())
    }

    fn on_system(&mut self, peer: u32, message: System) -> Result<Option<System>, Violation> {
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

    /// Always returns the largest number.
    #[inline]
    fn available(&self, _peer: u32) -> u32 {
        u32::MAX
    }

    /// Always returns 0, because credits in flight are not counted.
    #[inline]
    fn in_flight(&self, _peer: u32) -> u32 {
        0
    }

    /// Always returns the largest number.
    fn lent(&self, _peer: u32) -> u32 {
        u32::MAX
    }

    fn stalls(&self, _peer: u32) -> u64 {
        0
    }

    fn banked(&self) -> u32 {
        0
    }

    fn revoked(&self, _peer: u32) -> u64 {
        0
    }
}
