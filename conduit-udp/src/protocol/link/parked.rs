//! A link on which nothing has happened for a while: what has to be remembered of it, and nothing else.
//!
//! A link is *parked* when neither side of it has anything to do: all that was sent is acknowledged, all that came is delivered
//! and acknowledged, nothing is asked, waited for or queued. Then both channels are two sequence numbers each. It opens again
//! when something is sent, or when a packet with a valid tag comes, and goes on with the next numbers, so the peer notices
//! nothing, whether its side is parked or not.
//!
//! * What comes again, because the acknowledgement was lost or the network has doubled it, is before the next number of its
//!   channel: it opens the link, is acknowledged again, and not delivered.
//! * Of the replay window only its end is kept: a packet with a lower number, which may have come already, is dropped. One that
//!   has not come and is that late is lost by this; its sender sends again, with a new packet number.
//! * Packet numbers go on, so no nonce of the seal is used twice.

use conduit_core::ni::Rank;

use super::{COMMAND, DATA, Link};
use crate::protocol::config::Config;
use crate::protocol::contract::Nanos;
use crate::protocol::replay::Replay;
use crate::protocol::round_trip::RoundTrip;

use super::inbound::Inbound;
use super::outbound::Outbound;

/// Full-sized packets get through.
const PROVEN: u32 = 1;
/// The peer has shown that it hears this rank.
const ANSWERED: u32 = 2;

/// What is kept of a parked link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parked {
    /// The number of the next packet.
    number: u64,
    /// One more than the highest packet number that came.
    replay_end: u64,
    /// The next sequence numbers to be sent, by channel.
    sent: [u64; 2],
    /// And to come.
    came: [u64; 2],
    pub(crate) peer: Rank,
    /// Smoothed round trip, at most four seconds; 0 before the first.
    smoothed: u32,
    /// Its variation; the two lowest bits are [`PROVEN`] and [`ANSWERED`].
    variation: u32,
    /// When the peer was last heard, in 2^20 nanoseconds, modulo their number.
    heard: u32,
}

// What `docs/udp.md` says of memory.
const _: () = assert!(size_of::<Parked>() == 64);

/// In the unit of [`Parked::heard`].
fn coarse(time: Nanos) -> u32 {
    (time >> 20) as u32
}

/// At most what 32 bits hold.
fn saturated(time: Nanos) -> u32 {
    u32::try_from(time).unwrap_or(u32::MAX)
}

impl Parked {
    /// Whether a packet with this number may be looked at.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number >= self.replay_end && number != u64::MAX
    }

    /// How long ago the peer was heard, about.
    pub(crate) fn silence(&self, now: Nanos) -> Nanos {
        u64::from(coarse(now).wrapping_sub(self.heard)) << 20
    }
}

impl Link {
    /// Whether nothing would be lost with all but what [`Parked`] keeps.
    pub(crate) fn is_parkable(&self) -> bool {
        self.queued == 0
            && self.is_idle()
            && self.inbound.iter().all(Inbound::is_settled)
            && self.assembly.is_empty()
            && self.taken == 0
            && !self.is_refused
            && !self.abandoned
            && !self.owed.is_owed()
            && !self.control_ready()
            && self.told_credits > 0
            && self.liveness.is_quiet()
    }

    /// When the link is to be parked, or looked at again because it could not be; `None`: never.
    pub(crate) fn park_at(&self, now: Nanos, config: &Config) -> Option<Nanos> {
        if config.idle_time == 0 {
            return None;
        }
        let quiet = self.active_at + config.idle_time;
        Some(if self.is_parkable() {
            quiet
        } else {
            // The longer something else is waited for, the more rarely.
            let waited = now.saturating_sub(self.active_at) / 2;
            quiet.max(now + waited.max(config.idle_time / 4).max(config.min_timeout))
        })
    }

    /// When the link is to be looked at if nothing happens on it.
    pub(crate) fn due_when_idle(&self, now: Nanos, config: &Config) -> Nanos {
        let alive = now + config.keep_alive();
        self.park_at(now, config)
            .map_or(alive, |park| park.min(alive))
    }

    /// What is kept of it; it [is parkable](Self::is_parkable).
    pub(crate) fn park(&self) -> Parked {
        debug_assert!(self.is_parkable());
        let mut flags = 0;
        if self.liveness.is_proven() {
            flags |= PROVEN;
        }
        if self.liveness.has_answered() {
            flags |= ANSWERED;
        }
        let is_measured = self.round_trip.latest() > 0;
        let channels = [COMMAND, DATA];
        Parked {
            number: self.number,
            replay_end: self.replay.end(),
            sent: channels.map(|channel| self.outbound[channel].next()),
            came: channels.map(|channel| self.inbound[channel].next()),
            peer: self.peer,
            smoothed: if is_measured {
                saturated(self.round_trip.smoothed())
            } else {
                0
            },
            variation: saturated(self.round_trip.variation()) & !3 | flags,
            heard: coarse(self.liveness.heard_at()),
        }
    }

    /// A parked link goes on. Until something happens on it, it may be parked again at once.
    pub(crate) fn reopen(now: Nanos, parked: &Parked, config: &Config) -> Self {
        let flag = |flag| parked.variation & flag != 0;
        let mut link = Self::new(now, parked.peer, config);
        link.number = parked.number;
        link.replay = Replay::resumed(parked.replay_end);
        link.credits_from = parked.replay_end;
        for channel in [COMMAND, DATA] {
            link.outbound[channel] = Outbound::new(parked.sent[channel], config.initial_window);
            link.inbound[channel] = Inbound::resumed(config.first_sequence, parked.came[channel]);
        }
        if parked.smoothed > 0 {
            link.round_trip = RoundTrip::resumed(
                now,
                parked.smoothed.into(),
                (parked.variation & !(PROVEN | ANSWERED)).into(),
            );
        }
        link.liveness.resume(flag(PROVEN), flag(ANSWERED));
        link.active_at = now.saturating_sub(config.idle_time);
        link
    }
}
