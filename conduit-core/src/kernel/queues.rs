//! The event queues of a rank.

use crate::ni::{EqId, Ready};

/// The three event queues: one for system messages, one for completions and replies, and one for
/// requests.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) sys: EqId,
    pub(crate) safe: EqId,
    pub(crate) am: EqId,
    /// The bit of each queue in the result of the network's readiness check.
    pub(crate) sys_ready: Ready,
    pub(crate) safe_ready: Ready,
    pub(crate) am_ready: Ready,
}

impl Queues {
    pub(crate) fn new(sys: EqId, safe: EqId, am: EqId) -> Self {
        Self {
            sys,
            safe,
            am,
            sys_ready: Ready::queue(sys),
            safe_ready: Ready::queue(safe),
            am_ready: Ready::queue(am),
        }
    }
}
