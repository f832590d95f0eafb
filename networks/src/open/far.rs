//! The open networks between hosts, of which a process uses one.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_ofi::peers::OpenOfi;
use conduit_portals::transport::fragment::{Fragment, FragmentHandler, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};
use conduit_udp::peers::OpenUdp;

/// A network between hosts.
#[derive(Debug)]
pub enum Far {
    /// UDP.
    Udp(Box<OpenUdp>),
    /// libfabric.
    Ofi(Box<OpenOfi>),
}

macro_rules! forward {
    ($self:ident, $network:ident => $call:expr) => {
        match $self {
            Far::Udp($network) => $call,
            Far::Ofi($network) => $call,
        }
    };
}

impl Transport for Far {
    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        forward!(self, network => network.send(peer, fragment))
    }
    #[inline]
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        forward!(self, network => network.receive(handler))
    }
    #[inline]
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        forward!(self, network => network.transmit(handler));
    }
    fn outstanding(&self, peer: Rank) -> usize {
        forward!(self, network => network.outstanding(peer))
    }
    fn settle(&mut self, peer: Rank) {
        forward!(self, network => network.settle(peer));
    }
    fn timeout(&self) -> Option<Duration> {
        forward!(self, network => network.timeout())
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        forward!(self, network => network.waiter())
    }
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        forward!(self, network => network.abandon(peers, handler));
    }
    fn describe(&self, peer: Rank) -> String {
        forward!(self, network => network.describe(peer))
    }
}

impl OpenTransport for Far {
    fn address(&self) -> &[u8] {
        forward!(self, network => network.address())
    }
    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        forward!(self, network => network.address_to_text(address))
    }
    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        forward!(self, network => network.address_of_text(text))
    }
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        forward!(self, network => network.connect(address))
    }
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        forward!(self, network => network.peer_address(peer))
    }
    fn has_session(&self, peer: Rank) -> bool {
        forward!(self, network => network.has_session(peer))
    }
    fn end_session(&mut self, peer: Rank) {
        forward!(self, network => network.end_session(peer));
    }
    fn close(&mut self, peer: Rank) {
        forward!(self, network => network.close(peer));
    }
    fn leave(&mut self) {
        forward!(self, network => network.leave());
    }
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        forward!(self, network => network.descriptors(into));
    }
    fn prepare_sleep(&mut self) -> bool {
        forward!(self, network => network.prepare_sleep())
    }
}
