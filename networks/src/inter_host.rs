//! The transport between hosts, which is one of several and is chosen at the start.

use std::fmt::Write as _;

use conduit_core::ni::Rank;
use conduit_ofi::wire::OfiEndpoint;
use conduit_ofi::wire::connected::Connected;
use conduit_portals::forward_transport;
use conduit_portals::transport::connections::Connections;
use conduit_portals::transport::{PortalsCounters, Transport};
use conduit_udp::job::Carrier;
use conduit_udp::job::UdpCounters;

use crate::settings::NetworkSettings;

/// One rank's end of the inter-host network.
#[derive(Debug)]
pub enum InterHost {
    /// Reliable datagrams over UDP.
    Udp(Box<Carrier>),
    /// An endpoint of libfabric.
    Ofi(Box<OfiEndpoint>),
    /// An endpoint of libfabric that also has connections to a few peers.
    Connected(Box<Connections<Connected>>),
}

impl InterHost {
    /// Returns whether the settings ask for a report of the counters.
    pub(crate) fn is_reported(&self, settings: NetworkSettings<'_>) -> bool {
        match self {
            Self::Udp(_) => settings.udp.statistics,
            Self::Ofi(_) | Self::Connected(_) => settings.ofi.statistics,
        }
    }

    /// Returns a report of the counters, with one line for each part.
    pub(crate) fn report(&self, portals: &PortalsCounters, rank: Rank) -> String {
        match self {
            Self::Udp(carrier) => UdpCounters::of(portals, carrier).report(rank),
            Self::Ofi(wire) => wire.report(portals, rank),
            Self::Connected(connections) => {
                let mut text = connections.network().report(portals, rank);
                let mut to: Vec<Rank> = connections.lanes().map(|lane| lane.peer).collect();
                to.sort_unstable();
                let _ = writeln!(
                    text,
                    "rank {rank}: connections with {to:?}: {:?}",
                    connections.statistics()
                );
                text
            }
        }
    }
}

impl Transport for InterHost {
    forward_transport!(to in [Self::Udp(to), Self::Ofi(to), Self::Connected(to)]:
        send, receive, transmit, is_idle, outstanding, settle, timeout, waiter, abandon, describe,
        has_direct, has_atomic, atomic, expose, write, read);
}
