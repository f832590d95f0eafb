//! The transport between hosts: one of several, chosen at start.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use conduit_ofi::wire::Wire;
use conduit_ofi::wire::connected::Connected;
use conduit_portals::transport::connections::Connections;
use conduit_portals::transport::fragment::{Fragment, FragmentHandler, Refused};
use conduit_portals::transport::{Access, NativeAtomic, PortalsCounters, Remote, Transport, Wait};
use conduit_udp::job::Carrier;
use conduit_udp::job::UdpCounters;

use crate::settings::NetworkSettings;

/// One rank's end of the inter-host network.
#[derive(Debug)]
pub enum InterHost {
    /// Reliable datagrams over UDP.
    Udp(Box<Carrier>),
    /// An endpoint of libfabric.
    Ofi(Box<Wire>),
    /// The same, with connections to a few peers.
    Connected(Box<Connections<Connected>>),
}

impl InterHost {
    /// Whether the settings ask for a report of its counters.
    pub(crate) fn is_reported(&self, settings: NetworkSettings<'_>) -> bool {
        match self {
            Self::Udp(_) => settings.udp.statistics,
            Self::Ofi(_) | Self::Connected(_) => settings.ofi.statistics,
        }
    }

    /// A report of its counters, a line for each part.
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

/// Dispatches a call to the network chosen.
macro_rules! each {
    ($inter_host:expr, $network:ident => $call:expr) => {
        match $inter_host {
            InterHost::Udp($network) => $call,
            InterHost::Ofi($network) => $call,
            InterHost::Connected($network) => $call,
        }
    };
}

impl Transport for InterHost {
    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        each!(self, network => network.send(peer, fragment))
    }
    #[inline]
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        each!(self, network => network.receive(handler))
    }
    #[inline]
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        each!(self, network => network.transmit(handler));
    }
    #[inline]
    fn is_idle(&self, peer: Rank) -> bool {
        each!(self, network => network.is_idle(peer))
    }
    fn outstanding(&self, peer: Rank) -> usize {
        each!(self, network => network.outstanding(peer))
    }
    fn settle(&mut self, peer: Rank) {
        each!(self, network => network.settle(peer));
    }
    fn timeout(&self) -> Option<Duration> {
        each!(self, network => network.timeout())
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        each!(self, network => network.waiter())
    }
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        each!(self, network => network.abandon(peers, handler));
    }
    fn describe(&self, peer: Rank) -> String {
        each!(self, network => network.describe(peer))
    }
    fn has_direct(&self) -> bool {
        each!(self, network => network.has_direct())
    }
    fn has_atomic(&self, op: AtomicOp, ty: AtomicType, fetch: bool) -> bool {
        each!(self, network => network.has_atomic(op, ty, fetch))
    }
    fn atomic(&mut self, peer: Rank, remote: Remote, atomic: &NativeAtomic) -> Result<(), Refused> {
        each!(self, network => network.atomic(peer, remote, atomic))
    }
    unsafe fn expose(&mut self, base: *mut u8, len: usize) -> Result<Option<Remote>, String> {
        // SAFETY: the caller keeps the same contract.
        each!(self, network => unsafe { network.expose(base, len) })
    }
    #[inline]
    unsafe fn write(&mut self, peer: Rank, access: &Access) -> Result<(), Refused> {
        // SAFETY: as above.
        each!(self, network => unsafe { network.write(peer, access) })
    }
    #[inline]
    unsafe fn read(&mut self, peer: Rank, access: &Access) -> Result<(), Refused> {
        // SAFETY: as above.
        each!(self, network => unsafe { network.read(peer, access) })
    }
}
