//! Measurements of the protocol's throughput on networks that lose packets, and with many senders.

use conduit_udp::protocol::Nanos;
use serde::Serialize;
use sim::{MS, US};

use crate::scenario::{FragmentHandler, Host, Path, Pattern, Phase, Protocol, Scenario, Sizes};
use crate::seal::SealKind;
use crate::{Report, Until, run};

/// The result of a measurement of one stream, or of many senders to one receiver. Times are
/// simulated.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// The number of ranks that send to the receiver.
    pub senders: u32,
    /// The fraction of the packets that are lost, in both directions.
    pub loss: f64,
    /// The number of payload bytes per second that the receiver's fragment handler gets.
    pub goodput: f64,
    /// The same rate as a fraction of the bandwidth of the receiver's interface.
    pub part: f64,
    /// The number of retransmitted segments, as a fraction of all segments.
    pub resent: f64,
    /// The number of packets dropped by sockets and queues.
    pub dropped: u64,
    /// The maximum number of bytes that an endpoint had allocated.
    pub memory: i64,
    /// The number of violations.
    pub violations: usize,
}

/// The network of a measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Bench {
    /// Latency between two interfaces, in µs
    #[arg(long, value_name = "US", default_value_t = 20)]
    pub latency: u64,
    /// Bandwidth of every interface, in Gbit/s
    #[arg(long, value_name = "GBIT/S", default_value_t = 10.0)]
    pub bandwidth: f64,
    /// UDP payload of a packet
    #[arg(long, value_name = "BYTES", default_value_t = 1472)]
    pub packet: usize,
    /// Bytes that a socket holds
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    pub socket: usize,
    /// Bytes that the queue of an interface or of a switch's port holds
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub queue: usize,
    /// Simulated milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pub time: u64,
    /// Sizes of the fragments
    #[arg(long, value_enum, default_value_t = Sizes::Stream)]
    pub sizes: Sizes,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Bench {
    /// Returns the scenario of a measurement, in which `senders` ranks send to rank 0 all the time.
    pub fn scenario(&self, senders: u32, loss: f64) -> Scenario {
        let mut path = Path::perfect(self.latency * US);
        path.loss = loss;
        Scenario {
            seed: self.seed,
            ranks: senders + 1,
            path,
            host: Host {
                bandwidth: (self.bandwidth * 1e9 / 8.0) as u64,
                uplink_queue: self.queue,
                downlink_queue: self.queue,
                socket: self.socket,
                receive_time: 200,
                send_time: 200,
                transmit_buffer: 65_536,
                batch: 64,
            },
            protocol: Protocol {
                packet: self.packet,
                socket_buffer: self.socket,
                ..Protocol::usual()
            },
            handler: FragmentHandler {
                room: 64 << 20,
                speed: 0,
                refuse: 0.0,
            },
            phases: vec![Phase {
                begin: 0,
                pattern: Pattern::ManyToOne,
                fragments: u32::MAX,
                sizes: self.sizes,
                gap: 0,
                burst: 1,
            }],
            faults: vec![],
            seal: SealKind::Hash,
        }
    }

    /// Runs a measurement, which leaves out the first quarter of the time.
    pub fn measure(&self, senders: u32, loss: f64) -> Measurement {
        let scenario = self.scenario(senders, loss);
        let end = self.time * MS;
        let begin = end / 4;
        let (before, after) = (
            run(&scenario, Until::Time(begin)),
            run(&scenario, Until::Time(end)),
        );
        let goodput = rate(&before, &after, end - begin);
        let count = |name: &str| counter(&after, name);
        let resent =
            count("resent_packet_threshold") + count("resent_time_threshold") + count("resent_pto");
        Measurement {
            senders,
            loss,
            goodput,
            part: goodput / scenario.host.bandwidth as f64,
            resent: resent as f64 / count("segments_sent").max(1) as f64,
            dropped: after.network.queue_full + after.network.socket_full,
            memory: after.memory,
            violations: after.violations.len(),
        }
    }
}

fn rate(before: &Report, after: &Report, time: Nanos) -> f64 {
    (after.placed - before.placed) as f64 * 1e9 / time as f64
}

/// Returns a counter of all endpoints by its name.
pub fn counter(report: &Report, name: &str) -> u64 {
    report
        .counters
        .iter()
        .find(|(is, _)| *is == name)
        .map_or(0, |(_, value)| *value)
}
