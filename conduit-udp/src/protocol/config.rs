//! The configuration of the protocol.

use conduit_core::ni::Rank;

use super::contract::Nanos;

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
/// The longest accepted time, more than nine years. Longer times are clamped to this value, so that
/// sums of times do not overflow.
const LONGEST: Nanos = 1 << 58;

/// The smallest packet size in bytes, which suffices for the longest tiny fragment with headers and
/// tag. Smaller values are clamped to it.
pub const MIN_PACKET: usize = 1024;
/// The largest packet size in bytes, which is the largest payload of a UDP datagram over IPv4.
/// Larger values are clamped to it.
pub const MAX_PACKET: usize = 65_507;
/// The largest window, which is the number of segments that one acknowledgement can report.
pub const MAX_WINDOW: u32 = 4096;

/// Limits and times of an [`Endpoint`](super::Endpoint). Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// The number of ranks in the job. Packets that name any other rank are dropped.
    pub size: u32,
    /// The number of bytes of the largest packet, which is the path's MTU less the headers of IP
    /// and UDP. It ranges from [`MIN_PACKET`] to [`MAX_PACKET`].
    pub packet: usize,
    /// The number of segments that may be outstanding on one channel of a link, at most
    /// [`MAX_WINDOW`].
    pub window: u32,
    /// The number of segments that may be outstanding on a channel before the peer has advertised
    /// credits. It is also the initial congestion window, in full packets.
    pub initial_window: u32,
    /// The dead time. A peer that answers nothing for this long has failed.
    pub dead_time: Nanos,
    /// If the peer answers tiny probes but no full-sized ones for this long, the link fails because
    /// the path's MTU is too small.
    pub mtu_timeout: Nanos,
    /// The longest interval between probes of a silent peer. The interval doubles up to this value.
    pub probe_interval: Nanos,
    /// The time without traffic after which a link is made idle. An idle link keeps 64 bytes, and
    /// is reopened when it is used. If the time is 0, links are never made idle.
    pub idle_time: Nanos,
    /// The number of links that may be open at once. Above this limit, quiet links are made idle
    /// earlier.
    pub open_links: usize,
    /// The longest time that an acknowledgement waits for a packet to carry it, or for another
    /// segment.
    pub ack_delay: Nanos,
    /// The shortest probe time-out (PTO).
    pub min_timeout: Nanos,
    /// The queueing delay on the path, beyond twice the min RTT, above which the congestion window
    /// shrinks.
    pub delay_target: Nanos,
    /// The number of fragments of [`Payload::Read`](super::Payload::Read) that a link holds.
    /// Further fragments are refused ([`Refused::Full`](super::Refused::Full)).
    pub link_fragments: usize,
    /// The number of bytes of [`Payload::Copied`](super::Payload::Copied) that a link holds,
    /// rounded up to a power of two. Each fragment counts 3 bytes more than its own.
    pub link_commands: usize,
    /// The number of bytes of segments that a link buffers because they arrived out of order or
    /// because the fragment handler had no room for them. Further segments are not acknowledged, so
    /// the peer sends them again.
    pub link_early: usize,
    /// The number of bytes of such segments that all links together buffer.
    pub early: usize,
    /// The number of bytes that the socket's receive buffer holds. The peers that are sending share
    /// this space.
    pub socket_buffer: usize,
    /// The sequence number of the first segment of every channel, which must be the same on all
    /// ranks. Only tests of the wrap-around change it.
    pub first_sequence: u64,
}

impl Default for Config {
    /// Creates the configuration of a single rank on Ethernet.
    fn default() -> Self {
        Self {
            rank: 0,
            size: 1,
            packet: 1472,
            window: MAX_WINDOW,
            initial_window: 64,
            dead_time: 10 * SECOND,
            mtu_timeout: 10 * SECOND,
            probe_interval: 250 * MILLISECOND,
            idle_time: SECOND,
            open_links: 1024,
            ack_delay: 50 * MICROSECOND,
            min_timeout: MILLISECOND,
            delay_target: MILLISECOND,
            link_fragments: 256,
            link_commands: 256 << 10,
            link_early: 4 << 20,
            early: 16 << 20,
            socket_buffer: 4 << 20,
            first_sequence: 0,
        }
    }
}

impl Config {
    /// Clamps every limit to its bounds.
    pub(super) fn bounded(mut self) -> Self {
        self.packet = self.packet.clamp(MIN_PACKET, MAX_PACKET);
        self.window = self.window.clamp(1, MAX_WINDOW);
        self.initial_window = self.initial_window.clamp(1, self.window);
        self.dead_time = self.dead_time.clamp(MILLISECOND, LONGEST);
        self.mtu_timeout = self.mtu_timeout.clamp(MILLISECOND, LONGEST);
        self.probe_interval = self.probe_interval.clamp(100 * MICROSECOND, self.dead_time);
        self.idle_time = self.idle_time.min(LONGEST);
        self.ack_delay = self.ack_delay.min(SECOND);
        self.min_timeout = self.min_timeout.clamp(10 * MICROSECOND, SECOND);
        self.delay_target = self.delay_target.min(SECOND);
        self.first_sequence = self.first_sequence.min(1 << 48);
        self.link_fragments = self.link_fragments.clamp(1, 1 << 20);
        self.link_commands = self.link_commands.clamp(1024, 1 << 26).next_power_of_two();
        self
    }

    /// Returns the keep-alive time. A peer that has been silent for this time is probed.
    pub(super) fn keep_alive(&self) -> Nanos {
        self.dead_time / 4
    }
}
