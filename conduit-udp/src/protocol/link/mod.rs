//! What a rank keeps of one peer that it talks to.

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
/// The channel of all others.
pub(super) const DATA: usize = 1;

/// The probe that is to be answered.
#[derive(Debug, Clone, Copy)]
struct UnansweredProbe {
    stamp: u64,
    size: u16,
}

/// A peer that this rank sends to or hears from.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Rank,
    /// Which queues of the endpoint it is in.
    pub(super) queued: u8,
    /// When something was last to be sent, was acknowledged, or came; probes don't count.
    pub(super) active_at: Nanos,
    /// In which of the endpoint's periods it last sent a segment.
    pub(super) period: u32,
    /// The number of the next packet.
    number: u64,
    pub(super) replay: Replay,
    /// One more than the number of the newest packet that has brought credits.
    credits_from: u64,
    /// Credits that were last told, so that a peer that was told none hears when there are some.
    pub(super) advertised_credits: u16,
    outbound: [Outbound; 2],
    inbound: [Inbound; 2],
    commands: Commands,
    outgoing: Outgoing,
    assembly: Assembly,
    /// Fragments of the next bundle that the fragment handler has taken already.
    taken: u32,
    /// The fragment handler has had no room for the next fragment.
    pub(super) is_refused: bool,
    /// The data channel has ended in this direction.
    abandoned: bool,
    /// Segments that may be sent again whatever congestion and pace say.
    urgent: u8,
    /// Segments of the data channel sent since one has asked for an acknowledgement at once.
    unasked: u8,
    /// Tiny and full-sized probes to be answered.
    unanswered_probes: [Option<UnansweredProbe>; 2],
    pub(super) ack_state: AckState,
    rtt: RttEstimator,
    congestion: Congestion,
    pub(super) liveness: Liveness,
    pub(super) counters: Counters,
}

// What `docs/udp.md` says of memory.
const _: () = assert!(size_of::<Link>() <= 1088);

impl Link {
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
            unasked: 0,
            unanswered_probes: [None; 2],
            ack_state: AckState::default(),
            rtt: RttEstimator::default(),
            congestion: Congestion::new(config),
            liveness: Liveness::new(now, config.rank, peer),
            counters: Counters::default(),
        }
    }

    /// Bytes of what is kept until its turn.
    fn kept_bytes(&self) -> usize {
        self.inbound[COMMAND].kept_bytes() + self.inbound[DATA].kept_bytes()
    }

    /// What the link gives back to the budget of kept segments when it goes.
    pub(super) fn release(&self, budget: &mut Budget) {
        budget.held -= self.kept_bytes();
    }

    /// Bytes of memory, all in all.
    pub(super) fn memory(&self) -> usize {
        let channels: usize = self.outbound.iter().map(Outbound::memory).sum::<usize>()
            + self.inbound.iter().map(Inbound::memory).sum::<usize>();
        size_of::<Self>()
            + channels
            + self.commands.memory()
            + self.outgoing.memory()
            + self.assembly.memory()
    }

    /// Gives back the memory of all that is empty.
    fn shrink(&mut self) {
        self.outbound.iter_mut().for_each(Outbound::shrink);
        self.inbound.iter_mut().for_each(Inbound::shrink);
        self.commands.shrink();
        self.outgoing.shrink();
        self.assembly.shrink();
    }

    /// Whether nothing waits to go out or to be acknowledged.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbound
            .iter()
            .all(|outbound| outbound.outstanding() == 0)
            && self.commands.held() == 0
            && self.outgoing.held() == 0
    }

    /// No byte of a fragment that the fragment handler keeps is asked for any more. The peer waits
    /// for the segments that were not acknowledged, so nothing more goes by the data channel.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.outgoing = Outgoing::default();
        self.outbound[DATA].forget();
    }

    /// How much waits to go out or to be acknowledged: segments, and bytes of what is put together
    /// in segments.
    pub(super) fn unacknowledged(&self) -> usize {
        let segments: u32 = self.outbound.iter().map(Outbound::outstanding).sum();
        // Of a long fragment a window is under way for long: what it still misses gets less all the
        // time.
        segments as usize + self.commands.held() + self.outgoing.missing()
    }

    /// What a user may want to know.
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

/// What is to be known of a link. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStatus {
    /// Nothing has happened for a while: only what is needed to go on is kept, and the counts begin
    /// again.
    pub is_idle: bool,
    /// Full-sized packets get through.
    pub is_mtu_validated: bool,
    /// The peer has shown that it hears this rank.
    pub has_answered: bool,
    /// Smoothed round trip.
    pub smoothed_rtt: Nanos,
    /// The shortest of the last ten to twenty seconds; 0 before the first.
    pub min_rtt: Nanos,
    /// Mean deviation of the round trip.
    pub rtt_variation: Nanos,
    /// Bytes that congestion control lets be under way.
    pub congestion_window: u64,
    /// Segments sent and not acknowledged, of the command and the data channel.
    pub outstanding: [u32; 2],
    /// Segments more that the peer has room for.
    pub credits: [u32; 2],
    /// Bytes of tiny fragments held.
    pub waiting_commands: usize,
    /// Fragments of the data channel held.
    pub waiting_fragments: usize,
    /// Bytes of memory, all in all.
    pub memory: usize,
    /// Counts of this link.
    pub counters: Counters,
}
