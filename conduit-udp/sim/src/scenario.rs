//! Scenarios, which describe the network, the ranks, the traffic and the faults of a run. A
//! scenario determines its run completely.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Config, Nanos};
use serde::Serialize;

use crate::seal::SealKind;

/// The scenario of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Scenario {
    /// The seed of all random choices during the run.
    pub seed: u64,
    /// The number of ranks.
    pub ranks: u32,
    /// The path between any two ranks.
    pub path: Path,
    /// The hardware and process of each rank.
    pub host: Host,
    /// The settings of each endpoint.
    pub protocol: Protocol,
    /// The layer above each endpoint.
    pub handler: FragmentHandler,
    /// The traffic, in phases.
    pub phases: Vec<Phase>,
    /// The timed faults.
    pub faults: Vec<Fault>,
    /// The packets' seal.
    pub seal: SealKind,
}

/// The properties of the path in one direction between two ranks. Fractions are from 0 to 1, times
/// in nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Path {
    /// The latency between two interfaces.
    pub latency: Nanos,
    /// The maximum additional delay of a packet, which reorders packets.
    pub jitter: Nanos,
    /// The fraction of the packets that are delayed by up to `jitter`.
    pub jittered: f64,
    /// The fraction of the packets that are lost.
    pub loss: f64,
    /// The mean number of packets lost in a row.
    pub burst: f64,
    /// The fraction of the packets without a segment that are lost in addition to `loss`.
    pub ack_loss: f64,
    /// The fraction of the packets that are duplicated.
    pub duplicate: f64,
    /// The fraction of the packets in which some bits are changed.
    pub corrupt: f64,
    /// The fraction of the packets that an attacker replays, up to [`Path::replay_after`] later.
    pub replay: f64,
    /// The maximum delay of a replay.
    pub replay_after: Nanos,
    /// The fraction of the packets for which an attacker also sends a forged one.
    pub forge: f64,
    /// The directions that have these faults. The other directions have none.
    pub faulty: Directions,
}

/// The affected directions of each pair of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// Both directions.
    Both,
    /// From the lower rank to the higher one.
    Up,
    /// From the higher rank to the lower one.
    Down,
}

impl Path {
    /// Returns a path without faults.
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

/// A rank's interface, the switch port to which the interface is connected, and the rank's process.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Bytes per second in each direction, or 0 for no limit.
    pub bandwidth: u64,
    /// The maximum number of bytes in the interface's send queue.
    pub uplink_queue: usize,
    /// The maximum number of bytes in the queue of the switch's port.
    pub downlink_queue: usize,
    /// The maximum number of bytes in the socket's receive buffer.
    pub socket: usize,
    /// The time to take a packet from the socket.
    pub receive_time: Nanos,
    /// The time to send a packet.
    pub send_time: Nanos,
    /// The size of the buffer in which packets are made. The buffer must hold at least one packet.
    pub transmit_buffer: usize,
    /// The maximum number of packets taken from the socket in one poll.
    pub batch: usize,
}

/// The settings of the endpoints.
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
    /// Returns a rank's default settings.
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
    /// The maximum number of bytes of fragments that the layer holds. While the layer holds
    /// nothing, it accepts a fragment of any size.
    pub room: usize,
    /// The number of bytes that the layer processes per second, or 0 if it processes them
    /// immediately.
    pub speed: u64,
    /// The fraction of the fragments that the layer refuses at first, although it has room.
    pub refuse: f64,
}

/// A phase of traffic.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// The time at which the phase begins, in nanoseconds.
    pub begin: Nanos,
    /// The pairs of ranks that communicate.
    pub pattern: Pattern,
    /// The number of fragments per pair, or `u32::MAX` for no limit.
    pub fragments: u32,
    /// The sizes of the fragments.
    pub sizes: Sizes,
    /// The mean time between a rank's sends.
    pub gap: Nanos,
    /// The number of fragments that a rank sends at a time.
    pub burst: u32,
}

/// The pairs of ranks that communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Rank 0 sends to rank 1, 2 to 3 and so on
    OneWay,
    /// The same in both directions
    Pairs,
    /// Each rank sends to the next
    Ring,
    /// Each rank sends to all others
    AllToAll,
    /// All other ranks send to rank 0
    ManyToOne,
    /// Rank 0 sends to all others
    OneToMany,
    /// Some ranks send to some others
    Random,
}

/// The sizes of the fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// Fragments of the command channel, mostly of up to 100 bytes
    Tiny,
    /// Fragments of the data channel that fit a packet
    Packet,
    /// Fragments from a few packets to 100 KB
    Large,
    /// Fragments of the largest size: 1 MiB
    Stream,
    /// Fragments that fill a packet exactly
    Full,
    /// Fragments of the data channel, of a few bytes
    Short,
    /// All of these, and fragments at the size limits
    Mixed,
}

/// A timed fault. Times are in nanoseconds. If `end` is `None`, the fault never ends.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// No packet of one rank reaches another.
    BlackHole {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// When the fault begins.
        begin: Nanos,
        /// When the fault ends.
        end: Option<Nanos>,
    },
    /// A rank's link is down, so packets from and to the rank are lost.
    LinkDown {
        /// The rank.
        rank: Rank,
        /// When the fault begins.
        begin: Nanos,
        /// When the fault ends.
        end: Option<Nanos>,
    },
    /// During the whole run, packets of one rank to another that exceed a size are lost.
    SmallMtu {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
        /// The largest UDP payload that gets through.
        bytes: usize,
    },
    /// A rank does not poll, and has no progress thread.
    Asleep {
        /// The rank.
        rank: Rank,
        /// When the fault begins.
        begin: Nanos,
        /// When the fault ends.
        end: Option<Nanos>,
    },
    /// A rank does not poll. Its progress thread serves the protocol from time to time, and its
    /// fragment handler accepts nothing.
    Busy {
        /// The rank.
        rank: Rank,
        /// When the fault begins.
        begin: Nanos,
        /// When the fault ends.
        end: Nanos,
    },
    /// A rank's process is replaced by a new one, of which the other ranks are not informed.
    Restart {
        /// The rank.
        rank: Rank,
        /// When the process is replaced.
        at: Nanos,
    },
    /// All processes are replaced by new ones, at the same addresses.
    RestartAll {
        /// When the processes are replaced.
        at: Nanos,
    },
}

impl Fault {
    /// Returns the last time at which the fault has a new effect.
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
