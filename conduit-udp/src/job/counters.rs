//! All counters of a rank, and their report.

use std::fmt::Write as _;

use conduit_core::ni::Rank;
use conduit_portals::transport::PortalsCounters;

use super::Carrier;
use crate::protocol::Counters;
use crate::socket::{FaultCounters, ForeignDatagrams, SocketCounters};

/// All counters of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpCounters {
    /// The counters of the portals.
    pub portals: PortalsCounters,
    /// The counters of the protocol.
    pub protocol: Counters,
    /// The counters of the socket.
    pub socket: SocketCounters,
    /// The numbers of datagrams that no rank of the job sent.
    pub foreign: ForeignDatagrams,
    /// The numbers of injected faults, or `None` if no faults are injected.
    pub faults: Option<FaultCounters>,
    /// The number of bytes of memory that the protocol uses now.
    pub memory: usize,
}

impl UdpCounters {
    /// Collects the current values of the counters.
    pub fn of(portals: &PortalsCounters, carrier: &Carrier) -> Self {
        Self {
            portals: *portals,
            protocol: carrier.counters(),
            socket: carrier.socket_counters(),
            foreign: carrier.foreign(),
            faults: carrier.fault_counters(),
            memory: carrier.memory(),
        }
    }

    /// Returns a report of all counters that are not zero, with one line for each part.
    pub fn report(&self, rank: Rank) -> String {
        let mut text = String::new();
        let portals = self.portals.each();
        let faults = self.faults.map(|faults| ("faults", faults.each().into()));
        let parts: [(&str, Vec<(&'static str, u64)>); 4] = [
            ("portals", portals.into()),
            ("protocol", self.protocol.each().collect()),
            ("socket", self.socket.each().into()),
            ("protocol's memory", vec![("bytes", self.memory as u64)]),
        ];
        for (part, counts) in parts.into_iter().chain(faults) {
            let _ = write!(text, "rank {rank}: udp {part}:");
            for (name, count) in counts.iter().filter(|(_, count)| *count > 0) {
                let _ = write!(text, " {name} {count}");
            }
            text.push('\n');
        }
        if self.foreign.datagrams > 0 {
            let _ = writeln!(text, "rank {rank}: udp: {}", self.foreign);
        }
        text
    }
}
