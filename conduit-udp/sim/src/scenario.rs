//! Scenarios: network, ranks, traffic and faults of a run. A scenario determines the run
//! completely.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Config, Nanos};
use serde::Serialize;

use crate::seal::SealKind;

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Scenario {
    /// Seed of all that is random during the run.
    pub seed: u64,
    /// Ranks of the job.
    pub ranks: u32,
    /// Between each two of them.
    pub path: Path,
    /// Each of them.
    pub host: Host,
    /// Each endpoint.
    pub protocol: Protocol,
    /// The layer above each endpoint.
    pub handler: FragmentHandler,
    /// What they send, one after the other.
    pub phases: Vec<Phase>,
    /// What goes wrong at certain times.
    pub faults: Vec<Fault>,
    /// Packets' seals.
    pub seal: SealKind,
}

/// What happens to packets in one direction between two ranks. Parts are of 1, times in
/// nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Path {
    /// From interface to interface.
    pub latency: Nanos,
    /// Largest additional delay of a packet, which reorders packets.
    pub jitter: Nanos,
    /// Fraction of the packets that take the longest time.
    pub jittered: f64,
    /// Fraction of the packets that are lost.
    pub loss: f64,
    /// So many are lost in a row on average.
    pub burst: f64,
    /// Fraction of the packets without a segment that are lost in addition.
    pub ack_loss: f64,
    /// Fraction of the packets that come twice.
    pub duplicate: f64,
    /// Fraction of the packets in which some bits are changed.
    pub corrupt: f64,
    /// Fraction of the packets that an attacker replays, up to [`Path::replay_after`] later.
    pub replay: f64,
    /// See there.
    pub replay_after: Nanos,
    /// Fraction of the packets for which an attacker sends a forged one too.
    pub forge: f64,
    /// Directions that have these faults, the others have none.
    pub faulty: Directions,
}

/// Of each pair of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// Both.
    Both,
    /// From the lower rank to the higher one.
    Up,
    /// From the higher rank to the lower one.
    Down,
}

impl Path {
    /// Nothing but time.
    pub fn perfect(latency: Nanos) -> Self {
        Self {
            latency,
            jitter: 0,
            jittered: 1.0,
            loss: 0.0,
            burst: 1.0,
            ack_loss: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            replay: 0.0,
            replay_after: 0,
            forge: 0.0,
            faulty: Directions::Both,
        }
    }
}

/// A rank's interface, the port of the switch that it is connected to, and its process.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Bytes per second in each direction; 0 is without bound.
    pub bandwidth: u64,
    /// Bytes that may wait for the interface, to leave.
    pub uplink_queue: usize,
    /// Bytes that may wait at the switch's port, to arrive.
    pub downlink_queue: usize,
    /// Bytes that may wait in the socket.
    pub socket: usize,
    /// To take a packet from the socket.
    pub receive_time: Nanos,
    /// To send one.
    pub send_time: Nanos,
    /// Bytes of the buffer that packets are made in: at least one packet fits.
    pub transmit_buffer: usize,
    /// Packets taken from the socket before anything else is done.
    pub batch: usize,
}

/// What is set for the endpoints.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "they are the fields of `Config`")]
pub struct Protocol {
    pub packet: usize,
    pub window: u32,
    pub initial_window: u32,
    pub dead_time: Nanos,
    pub mtu_timeout: Nanos,
    pub probe_interval: Nanos,
    pub idle_time: Nanos,
    pub open_links: usize,
    pub ack_delay: Nanos,
    pub min_timeout: Nanos,
    pub delay_target: Nanos,
    pub link_fragments: usize,
    pub link_commands: usize,
    pub link_early: usize,
    pub early: usize,
    pub socket_buffer: usize,
    pub first_sequence: u64,
}

impl Protocol {
    /// What a rank has when nothing is set.
    pub fn usual() -> Self {
        Self::from(&Config::default())
    }

    pub(crate) fn config(&self, rank: Rank, size: u32) -> Config {
        Config {
            rank,
            size,
            packet: self.packet,
            window: self.window,
            initial_window: self.initial_window,
            dead_time: self.dead_time,
            mtu_timeout: self.mtu_timeout,
            probe_interval: self.probe_interval,
            idle_time: self.idle_time,
            open_links: self.open_links,
            ack_delay: self.ack_delay,
            min_timeout: self.min_timeout,
            delay_target: self.delay_target,
            link_fragments: self.link_fragments,
            link_commands: self.link_commands,
            link_early: self.link_early,
            early: self.early,
            socket_buffer: self.socket_buffer,
            first_sequence: self.first_sequence,
        }
    }
}

impl From<&Config> for Protocol {
    fn from(config: &Config) -> Self {
        Self {
            packet: config.packet,
            window: config.window,
            initial_window: config.initial_window,
            dead_time: config.dead_time,
            mtu_timeout: config.mtu_timeout,
            probe_interval: config.probe_interval,
            idle_time: config.idle_time,
            open_links: config.open_links,
            ack_delay: config.ack_delay,
            min_timeout: config.min_timeout,
            delay_target: config.delay_target,
            link_fragments: config.link_fragments,
            link_commands: config.link_commands,
            link_early: config.link_early,
            early: config.early,
            socket_buffer: config.socket_buffer,
            first_sequence: config.first_sequence,
        }
    }
}

/// The layer above a rank's endpoint.
#[derive(Debug, Clone, Serialize)]
pub struct FragmentHandler {
    /// Bytes of fragments that it holds, unless it holds nothing: then it takes one of any size.
    pub room: usize,
    /// Bytes that it is done with in a second; 0 is at once.
    pub speed: u64,
    /// Part of the fragments that it refuses at first without any reason.
    pub refuse: f64,
}

/// Traffic.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// When it begins, in nanoseconds.
    pub begin: Nanos,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// To each of them so many fragments; `u32::MAX` is without end.
    pub fragments: u32,
    /// How large they are.
    pub sizes: Sizes,
    /// Time between a rank's sends, on average.
    pub gap: Nanos,
    /// A rank sends so many at a time.
    pub burst: u32,
}

/// Who sends to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Rank 0 to rank 1, 2 to 3 and so on.
    OneWay,
    /// The same, in both directions.
    Pairs,
    /// Each to the next.
    Ring,
    /// Each to all others.
    AllToAll,
    /// All others to rank 0.
    ManyToOne,
    /// Rank 0 to all others.
    OneToMany,
    /// Some to some others.
    Random,
}

/// How large fragments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// Those of the command channel, of up to 100 bytes mostly.
    Tiny,
    /// Those of the data channel that fit a packet.
    Packet,
    /// Of some packets to 100 KB.
    Large,
    /// Of the largest size: 1 MiB.
    Stream,
    /// Full packets, without anything else.
    Full,
    /// The data channel's, of a few bytes.
    Short,
    /// All of these, and those at their limits.
    Mixed,
}

/// What goes wrong. Times are in nanoseconds; an `end` of `None` is never.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// No packet gets from one rank to another.
    BlackHole {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// Begin.
        begin: Nanos,
        /// End.
        end: Option<Nanos>,
    },
    /// A rank's link is down: no packet gets in or out.
    LinkDown {
        /// Whose.
        rank: Rank,
        /// Begin.
        begin: Nanos,
        /// End.
        end: Option<Nanos>,
    },
    /// Packets of more bytes don't get from one rank to another, from the start on.
    SmallMtu {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// UDP payload that gets through.
        bytes: usize,
    },
    /// A rank does not poll, and has no progress thread.
    Asleep {
        /// The rank.
        rank: Rank,
        /// Begin.
        begin: Nanos,
        /// End.
        end: Option<Nanos>,
    },
    /// A rank does not poll; its progress thread serves the protocol now and then, and its fragment
    /// handler accepts nothing.
    Busy {
        /// The rank.
        rank: Rank,
        /// Begin.
        begin: Nanos,
        /// End.
        end: Nanos,
    },
    /// A rank's process is replaced by a new one, without the others' knowledge.
    Restart {
        /// The rank.
        rank: Rank,
        /// When.
        at: Nanos,
    },
    /// All processes are replaced by new ones, at the same addresses.
    RestartAll {
        /// When.
        at: Nanos,
    },
}

impl Fault {
    /// The last moment at which it changes anything.
    pub(crate) fn last(&self) -> Nanos {
        match *self {
            Self::BlackHole { begin, end, .. }
            | Self::LinkDown { begin, end, .. }
            | Self::Asleep { begin, end, .. } => end.unwrap_or(begin),
            Self::SmallMtu { .. } => 0,
            Self::Busy { end, .. } => end,
            Self::Restart { at, .. } | Self::RestartAll { at } => at,
        }
    }
}
