//! Idle links. A link without activity is reduced to the state that has to be kept.
//!
//! A link can be made *idle* when neither side has anything to do: everything sent has been
//! acknowledged, everything received has been delivered and acknowledged, and nothing is queued,
//! awaited or unanswered. Then two sequence numbers are the whole state of each channel. The link
//! is reopened when something is sent, or when a packet with a valid tag arrives, and continues
//! with the next numbers. The peer does not notice this, whether or not its own side is idle.
//!
//! - A segment may arrive again because its acknowledgement was lost or the network duplicated it.
//!   Its number is lower than the next number of its channel, so it reopens the link, is
//!   acknowledged again, and is not delivered.
//! - Only the end of the replay window is kept. A packet with a lower number may be a duplicate and
//!   is dropped. If the packet was merely late, its sender sends the segment again under a new
//!   packet number.
//! - Packet numbers continue, so no nonce of the seal is reused.

use conduit_core::ni::Rank;

use super::{COMMAND, DATA, UdpLink};
use crate::protocol::config::Config;
use crate::protocol::contract::Nanos;
use crate::protocol::replay::Replay;
use crate::protocol::rtt::RttEstimator;

use super::inbound::Inbound;
use super::outbound::Outbound;

/// The flag of a link on which full-sized packets get through.
const MTU_VALIDATED: u32 = 1;
/// The flag of a link whose peer has answered at least once.
const ANSWERED: u32 = 2;

/// The state kept of an idle link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleLink {
    /// The number of the next packet.
    number: u64,
    /// One more than the highest packet number received.
    replay_end: u64,
    /// For each channel, the next sequence number to be sent.
    sent: [u64; 2],
    /// For each channel, the next sequence number to be received.
    came: [u64; 2],
    pub(crate) peer: Rank,
    /// The smoothed RTT, at most four seconds, or 0 before the first sample.
    smoothed: u32,
    /// The RTT variation. The two lowest bits are replaced by [`MTU_VALIDATED`] and [`ANSWERED`].
    variation: u32,
    /// When the last packet was received, in units of 2^20 nanoseconds, modulo 2^32.
    heard: u32,
}

// `docs/udp.md` states this size.
const _: () = assert!(size_of::<IdleLink>() == 64);

/// Converts a time to the unit of [`IdleLink::heard`].
fn coarse(time: Nanos) -> u32 {
    (time >> 20) as u32
}

/// Converts a time to 32 bits. Longer times become `u32::MAX`.
fn saturated(time: Nanos) -> u32 {
    u32::try_from(time).unwrap_or(u32::MAX)
}

impl IdleLink {
    /// Returns whether a packet with this number is not a replay.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number >= self.replay_end && number != u64::MAX
    }

    /// Returns the approximate time since the last packet was received.
    pub(crate) fn silence(&self, now: Nanos) -> Nanos {
        u64::from(coarse(now).wrapping_sub(self.heard)) << 20
    }
}

impl UdpLink {
    /// Returns whether [`IdleLink`] can keep all of this link's state.
    pub(crate) fn can_be_idle(&self) -> bool {
        self.queued == 0
            && self.is_flushed()
            && self.inbound.iter().all(Inbound::is_settled)
            && self.assembly.is_empty()
            && self.taken == 0
            && !self.is_refused
            && !self.abandoned
            && !self.ack_state.is_pending()
            && !self.control_ready()
            && self.advertised_credits > 0
            && self.liveness.is_quiet()
    }

    /// Returns the time at which the link is to be made idle, or checked again if it cannot be made
    /// idle now. Returns `None` if links are never made idle.
    pub(crate) fn idle_at(&self, now: Nanos, config: &Config) -> Option<Nanos> {
        if config.idle_time == 0 {
            return None;
        }
        let quiet = self.active_at + config.idle_time;
        Some(if self.can_be_idle() {
            quiet
        } else {
            // The longer a link has been waiting for something else, the less often it is checked.
            let waited = now.saturating_sub(self.active_at) / 2;
            quiet.max(now + waited.max(config.idle_time / 4).max(config.min_timeout))
        })
    }

    /// Returns the time at which the link is due if nothing happens on it.
    pub(crate) fn due_when_idle(&self, now: Nanos, config: &Config) -> Nanos {
        let alive = now + config.keep_alive();
        self.idle_at(now, config)
            .map_or(alive, |idle| idle.min(alive))
    }

    /// Returns the state to keep. The caller must have checked that the link [can be
    /// idle](Self::can_be_idle).
    pub(crate) fn to_idle(&self) -> IdleLink {
        debug_assert!(self.can_be_idle());
        let mut flags = 0;
        if self.liveness.is_mtu_validated() {
            flags |= MTU_VALIDATED;
        }
        if self.liveness.has_answered() {
            flags |= ANSWERED;
        }
        let is_measured = self.rtt.latest() > 0;
        let channels = [COMMAND, DATA];
        IdleLink {
            number: self.number,
            replay_end: self.replay.end(),
            sent: channels.map(|channel| self.outbound[channel].next()),
            came: channels.map(|channel| self.inbound[channel].next()),
            peer: self.peer,
            smoothed: if is_measured {
                saturated(self.rtt.smoothed())
            } else {
                0
            },
            variation: saturated(self.rtt.variation()) & !3 | flags,
            heard: coarse(self.liveness.received_at()),
        }
    }

    /// Reopens an idle link. Until something happens on the link, it may be made idle again at
    /// once.
    pub(crate) fn reopen(now: Nanos, idle: &IdleLink, config: &Config) -> Self {
        let flag = |flag| idle.variation & flag != 0;
        let mut link = Self::new(now, idle.peer, config);
        link.number = idle.number;
        link.replay = Replay::resumed(idle.replay_end);
        link.credits_from = idle.replay_end;
        for channel in [COMMAND, DATA] {
            link.outbound[channel] = Outbound::new(idle.sent[channel], config.initial_window);
            link.inbound[channel] = Inbound::resumed(config.first_sequence, idle.came[channel]);
        }
        if idle.smoothed > 0 {
            link.rtt = RttEstimator::resumed(
                now,
                idle.smoothed.into(),
                (idle.variation & !(MTU_VALIDATED | ANSWERED)).into(),
            );
        }
        link.liveness.restore(flag(MTU_VALIDATED), flag(ANSWERED));
        link.active_at = now.saturating_sub(config.idle_time);
        link
    }
}
