//! The settings of the network over UDP.

use settings::{MOST_TIME, Percent, ValueKind};

use crate::socket::FaultConfig;

/// The largest delay in microseconds, which is ten seconds, the default dead time.
const MOST_DELAY: u32 = 10_000_000;

settings::group! {
    /// The settings of the network over UDP.
    pub struct Settings, acts [udp];

    "CONDUIT_UDP_INTERFACE" interface: Option<String> = None,
        ValueKind::Text("comma-separated interface names, addresses and subnets"),
        unset "the interface of the default route, else the first interface that is up",
        "interfaces to use for UDP, in order of preference";
    "CONDUIT_UDP_PORTS" ports: Option<String> = None, ValueKind::Text("a range of ports, as in 40000-40099"),
        unset "any free ports",
        "ports for the UDP sockets of a host's ranks: each rank takes one, and up to four more while they are free";
    "CONDUIT_UDP_MTU" mtu: Option<usize> = None, ValueKind::bytes(1280, 65_535, 1),
        unset "the interface's MTU",
        "bytes of the largest IP packet to send";
    "CONDUIT_UDP_DEAD_TIME" dead_time: u32 = 10_000, ValueKind::integer(100, MOST_TIME),
        "milliseconds without an answer after which a rank on another host is considered failed";
    "CONDUIT_UDP_PROBE_INTERVAL" probe_interval: u32 = 250, ValueKind::integer(1, MOST_TIME),
        "longest interval in milliseconds between probes of a silent rank on another host; the interval doubles up to this";
    "CONDUIT_UDP_IDLE_TIME" idle_time: u32 = 1_000, ValueKind::integer(0, MOST_TIME),
        "milliseconds without traffic after which the link to a rank on another host becomes idle and frees its memory; 0: never";
    "CONDUIT_UDP_ACK_DELAY" ack_delay: u32 = 50, ValueKind::integer(0, 100_000),
        "microseconds that an acknowledgement may wait for a packet to carry it";
    "CONDUIT_UDP_WINDOW" window: u32 = 4096, ValueKind::integer(1, 4096),
        "segments that may be outstanding to one rank";
    "CONDUIT_UDP_SOCKET_BUFFER" socket_buffer: usize = 4 << 20,
        ValueKind::bytes(64 << 10, 1 << 30, 1),
        "bytes to request for the send buffer and for the receive buffer of a rank's socket";
    "CONDUIT_UDP_ARRIVALS" arrivals: usize = 64 << 20, ValueKind::bytes(1 << 20, 1 << 40, 1),
        "bytes of messages from other hosts that may have arrived without being handled yet", is SameOnAllRanks;
    "CONDUIT_UDP_ENCRYPT" encrypt: bool = false, ValueKind::Bool,
        "encrypt traffic to other hosts; otherwise it is only authenticated", is SameOnAllRanks;
    "CONDUIT_UDP_OFFLOAD" offload: bool = true, ValueKind::Bool,
        "use segmentation offload if the system supports it";
    "CONDUIT_UDP_ATTEND" attend: u32 = 20, ValueKind::integer(1, 60_000),
        "milliseconds without a poll after which the progress thread answers other hosts on behalf of its rank; at most a quarter of the dead time";
    "CONDUIT_UDP_STATISTICS" statistics: bool = false, ValueKind::Bool,
        "print the UDP counters when a rank leaves";
    "CONDUIT_UDP_LOSS" loss: Percent = Percent::NONE, ValueKind::Percent,
        warning "UDP packets are dropped on purpose",
        "percentage of packets from other hosts to drop", is ForTests;
    "CONDUIT_UDP_DUPLICATES" duplicates: Percent = Percent::NONE, ValueKind::Percent,
        warning "UDP packets are duplicated on purpose",
        "percentage of packets to duplicate", is ForTests;
    "CONDUIT_UDP_CORRUPTION" corruption: Percent = Percent::NONE, ValueKind::Percent,
        warning "UDP packets are corrupted on purpose",
        "percentage of packets to corrupt", is ForTests;
    "CONDUIT_UDP_REORDER" reorder: Percent = Percent::NONE, ValueKind::Percent,
        warning "UDP packets are reordered on purpose",
        "percentage of packets to delay by up to a millisecond, which reorders them", is ForTests;
    "CONDUIT_UDP_DELAY" delay: u32 = 0, ValueKind::integer(0, MOST_DELAY),
        warning "UDP packets are delayed on purpose",
        "microseconds by which to delay all packets", is ForTests;
    "CONDUIT_UDP_FAULT_SEED" fault_seed: u32 = 1, ValueKind::integer(0, u32::MAX),
        "seed that, with a packet's sender and number, determines whether the packet is dropped, duplicated, corrupted or delayed", is ForTests;
}

impl Settings {
    /// Returns the faults to inject, for tests.
    pub fn faults(&self) -> FaultConfig {
        FaultConfig {
            seed: self.fault_seed,
            loss: self.loss,
            duplicates: self.duplicates,
            corruption: self.corruption,
            reorder: self.reorder,
            delay: u64::from(self.delay) * 1_000,
        }
    }
}
