//! The settings of the network over UDP.

use settings::{MOST_TIME, Percent, ValueKind};

use crate::socket::FaultConfig;

/// Largest delay in microseconds: ten seconds, the default dead time.
const MOST_DELAY: u32 = 10_000_000;

settings::group! {
    /// The settings of the network over UDP.
    pub struct Settings, acts [udp];

    "CONDUIT_UDP_INTERFACE" interface: Option<String> = None,
        ValueKind::Text("names of interfaces, addresses and subnets, with commas between"),
        unset "the interface of the default route, else the first that is up",
        "interface that is used for UDP, the earlier the better";
    "CONDUIT_UDP_MTU" mtu: Option<usize> = None, ValueKind::bytes(1280, 65_535, 1),
        unset "that of the interface",
        "bytes of the largest IP packet that is sent";
    "CONDUIT_UDP_DEAD_TIME" dead_time: u32 = 10_000, ValueKind::integer(100, MOST_TIME),
        "milliseconds after which a rank of another host that answers nothing has failed";
    "CONDUIT_UDP_PROBE_INTERVAL" probe_interval: u32 = 250, ValueKind::integer(1, MOST_TIME),
        "longest interval between probes of a silent rank of another host, in milliseconds, up to which the interval doubles";
    "CONDUIT_UDP_IDLE_TIME" idle_time: u32 = 1_000, ValueKind::integer(0, MOST_TIME),
        "milliseconds without traffic after which the link to a rank of another host is made idle and frees its memory; 0: never";
    "CONDUIT_UDP_ACK_DELAY" ack_delay: u32 = 50, ValueKind::integer(0, 100_000),
        "microseconds that an acknowledgement may wait for a packet to go with";
    "CONDUIT_UDP_WINDOW" window: u32 = 4096, ValueKind::integer(1, 4096),
        "segments that may be outstanding to one rank";
    "CONDUIT_UDP_SOCKET_BUFFER" socket_buffer: usize = 4 << 20,
        ValueKind::bytes(64 << 10, 1 << 30, 1),
        "bytes of the buffers, for sending and for receiving, that are requested for a rank's socket";
    "CONDUIT_UDP_ARRIVALS" arrivals: usize = 64 << 20, ValueKind::bytes(1 << 20, 1 << 40, 1),
        "bytes of messages from other hosts that have arrived and are not handled yet", is SameOnAllRanks;
    "CONDUIT_UDP_ENCRYPT" encrypt: bool = false, ValueKind::Bool,
        "encrypt what is sent to other hosts; without, it is authenticated only", is SameOnAllRanks;
    "CONDUIT_UDP_OFFLOAD" offload: bool = true, ValueKind::Bool,
        "use segmentation offload if the system has it";
    "CONDUIT_UDP_ATTEND" attend: u32 = 20, ValueKind::integer(1, 60_000),
        "milliseconds without a poll after which the progress thread answers other hosts for its rank; at most a quarter of the dead time";
    "CONDUIT_UDP_STATISTICS" statistics: bool = false, ValueKind::Bool,
        "print the counters of UDP when a rank leaves";
    "CONDUIT_UDP_LOSS" loss: Percent = Percent::NONE, ValueKind::Percent,
        warning "packets of UDP are lost on purpose",
        "percentage of packets from other hosts that are lost", is ForTests;
    "CONDUIT_UDP_DUPLICATES" duplicates: Percent = Percent::NONE, ValueKind::Percent,
        warning "packets of UDP are doubled on purpose",
        "percentage of packets that are duplicated", is ForTests;
    "CONDUIT_UDP_CORRUPTION" corruption: Percent = Percent::NONE, ValueKind::Percent,
        warning "packets of UDP are changed on purpose",
        "percentage of packets that are corrupted", is ForTests;
    "CONDUIT_UDP_REORDER" reorder: Percent = Percent::NONE, ValueKind::Percent,
        warning "packets of UDP are reordered on purpose",
        "percentage of packets that are delayed by up to a millisecond, and so reordered", is ForTests;
    "CONDUIT_UDP_DELAY" delay: u32 = 0, ValueKind::integer(0, MOST_DELAY),
        warning "packets of UDP are delayed on purpose",
        "microseconds by which all packets are delayed", is ForTests;
    "CONDUIT_UDP_FAULT_SEED" fault_seed: u32 = 1, ValueKind::integer(0, u32::MAX),
        "seed that decides, with a packet's sender and number, whether the packet is lost, duplicated, corrupted or delayed", is ForTests;
}

impl Settings {
    /// The faults that are injected, for tests.
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
