//! Links: a link is the state that a rank keeps for one peer.

mod acks;
mod assembly;
mod burst;
mod commands;
mod idle;
mod inbound;
mod outbound;
mod outgoing;
mod receive;
mod send;

use conduit_core::ni::Rank;

use super::ack_state::AckState;
use super::config::Config;
use super::congestion::Congestion;
use super::contract::Nanos;
use super::counters::Counters;
use super::liveness::Liveness;
use super::replay::Replay;
use super::rtt::RttEstimator;

pub(super) use burst::Burst;
pub(super) use idle::IdleLink;
pub(super) use inbound::Budget;
pub(super) use outgoing::Geometry;

use assembly::Assembly;
use commands::Commands;
use inbound::Inbound;
use outbound::Outbound;
use outgoing::Outgoing;

/// The channel of tiny fragments.
pub(super) const COMMAND: usize = 0;
/// The channel of all other fragments.
pub(super) const DATA: usize = 1;

/// A received probe that has to be answered.
#[derive(Debug, Clone, Copy)]
struct UnansweredProbe {
    stamp: u64,
    size: u16,
}

/// The open link to a peer.
#[derive(Debug)]
pub(super) struct UdpLink {
    pub(super) peer: Rank,
    /// A bit for each of the endpoint's queues, set if the queue holds this link.
    pub(super) queued: u8,
    /// When a fragment was last submitted, or a segment was last received or acknowledged. Probes
    /// do not count.
    pub(super) active_at: Nanos,
    /// The period (module `senders`) in which the peer last sent a segment.
    pub(super) period: u32,
    /// The number of the next packet.
    number: u64,
    pub(super) replay: Replay,
    /// One more than the number of the newest packet that carried credits.
    credits_from: u64,
    /// The number of credits last advertised. If it is 0, the peer is notified once there are
    /// credits.
    pub(super) advertised_credits: u16,
    outbound: [Outbound; 2],
    inbound: [Inbound; 2],
    commands: Commands,
    outgoing: Outgoing,
    assembly: Assembly,
    /// The number of fragments already delivered from the next bundle.
    taken: u32,
    /// Whether the fragment handler had no room for the next fragment.
    pub(super) is_refused: bool,
    /// Whether the data channel was abandoned, so that nothing more is sent on it.
    abandoned: bool,
    /// The number of retransmissions that are exempt from the congestion window and from pacing.
    urgent: u8,
    /// The number of segments of the data channel sent since one of them requested an immediate
    /// acknowledgement.
    since_request: u8,
    /// The tiny probe and the full-sized probe that have to be answered, if there are any.
    unanswered_probes: [Option<UnansweredProbe>; 2],
    pub(super) ack_state: AckState,
    rtt: RttEstimator,
    congestion: Congestion,
    pub(super) liveness: Liveness,
    pub(super) counters: Counters,
}

// `docs/udp.md` states this size.
const _: () = assert!(size_of::<UdpLink>() <= 1088);

impl UdpLink {
    pub(super) fn new(now: Nanos, peer: Rank, config: &Config) -> Self {
        let first = config.first_sequence;
        let outbound = || Outbound::new(first, config.initial_window);
        Self {
            peer,
            queued: 0,
            active_at: now,
            period: 0,
            number: 0,
            replay: Replay::default(),
            credits_from: 0,
            advertised_credits: u16::MAX,
            outbound: [outbound(), outbound()],
            inbound: [Inbound::new(first), Inbound::new(first)],
            commands: Commands::default(),
            outgoing: Outgoing::default(),
            assembly: Assembly::default(),
            taken: 0,
            is_refused: false,
            abandoned: false,
            urgent: 0,
            since_request: 0,
            unanswered_probes: [None; 2],
            ack_state: AckState::default(),
            rtt: RttEstimator::default(),
            congestion: Congestion::new(config),
            liveness: Liveness::new(now, config.rank, peer),
            counters: Counters::default(),
        }
    }

    /// Returns the number of bytes in segments that are buffered until they can be delivered.
    fn kept_bytes(&self) -> usize {
        self.inbound[COMMAND].kept_bytes() + self.inbound[DATA].kept_bytes()
    }

    /// Gives the bytes of the link's buffered segments back to the budget.
    pub(super) fn release(&self, budget: &mut Budget) {
        budget.held -= self.kept_bytes();
    }

    /// Returns the total memory used, in bytes.
    pub(super) fn memory(&self) -> usize {
        let channels: usize = self.outbound.iter().map(Outbound::memory).sum::<usize>()
            + self.inbound.iter().map(Inbound::memory).sum::<usize>();
        size_of::<Self>()
            + channels
            + self.commands.memory()
            + self.outgoing.memory()
            + self.assembly.memory()
    }

    /// Frees the memory of all parts that are empty.
    fn shrink(&mut self) {
        self.outbound.iter_mut().for_each(Outbound::shrink);
        self.inbound.iter_mut().for_each(Inbound::shrink);
        self.commands.shrink();
        self.outgoing.shrink();
        self.assembly.shrink();
    }

    /// Returns whether everything submitted has been sent and acknowledged.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbound
            .iter()
            .all(|outbound| outbound.outstanding() == 0)
            && self.commands.held() == 0
            && self.outgoing.held() == 0
    }

    /// Abandons all fragments whose bytes the fragment handler keeps. The peer keeps waiting for
    /// their segments, so nothing more can be sent on the data channel.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.outgoing = Outgoing::default();
        self.outbound[DATA].forget();
    }

    /// Returns a measure of the unacknowledged data, which has no unit. It is the sum of the number
    /// of outstanding segments, the number of bytes of tiny fragments held, the number of
    /// unacknowledged segments of other fragments, and the number of these fragments.
    pub(super) fn unacknowledged(&self) -> usize {
        let segments: u32 = self.outbound.iter().map(Outbound::outstanding).sum();
        // A long fragment keeps the window full for a long time, but the number of its missing
        // segments decreases steadily.
        segments as usize + self.commands.held() + self.outgoing.missing()
    }

    /// Returns the status that users see.
    pub(super) fn status(&self) -> LinkStatus {
        LinkStatus {
            is_idle: false,
            is_mtu_validated: self.liveness.is_mtu_validated(),
            has_answered: self.liveness.has_answered(),
            smoothed_rtt: self.rtt.smoothed(),
            min_rtt: match self.rtt.min() {
                Nanos::MAX => 0,
                min => min,
            },
            rtt_variation: self.rtt.variation(),
            congestion_window: self.congestion.window(),
            outstanding: [
                self.outbound[COMMAND].outstanding(),
                self.outbound[DATA].outstanding(),
            ],
            credits: [
                self.outbound[COMMAND].credits(),
                self.outbound[DATA].credits(),
            ],
            waiting_commands: self.commands.held(),
            waiting_fragments: self.outgoing.held(),
            memory: self.memory(),
            counters: self.counters,
        }
    }
}

/// The status of a link. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStatus {
    /// Whether the link is idle. Only the state needed to reopen an idle link is kept, and its
    /// counters restart when it is reopened.
    pub is_idle: bool,
    /// Whether full-sized packets get through.
    pub is_mtu_validated: bool,
    /// Whether the peer has ever acknowledged or answered anything.
    pub has_answered: bool,
    /// The smoothed RTT (RFC 9002, 5.3).
    pub smoothed_rtt: Nanos,
    /// The shortest RTT of the last ten to twenty seconds, or 0 before the first sample.
    pub min_rtt: Nanos,
    /// The RTT variation (`rttvar`).
    pub rtt_variation: Nanos,
    /// The congestion window in bytes.
    pub congestion_window: u64,
    /// The number of segments sent and not acknowledged, on the command channel and on the data
    /// channel.
    pub outstanding: [u32; 2],
    /// The number of further segments for which the peer has room, on the command channel and on
    /// the data channel.
    pub credits: [u32; 2],
    /// The number of bytes of tiny fragments held.
    pub waiting_commands: usize,
    /// The number of fragments of the data channel held.
    pub waiting_fragments: usize,
    /// The total number of bytes of memory used.
    pub memory: usize,
    /// The counters of this link.
    pub counters: Counters,
}
