//! The transport of a rank, which joins the endpoint, the seal and the socket into a [`Transport`]
//! for the portals.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::{SoftPortals, Transport, Wait};

use crate::protocol::{
    Counters, Dropped, Endpoint, Fragment, FragmentHandler, LinkStatus, Nanos, Received, Refused,
    Seal, Transmit,
};
use crate::socket::{
    DrivenMachine, Driver, FaultCounters, ForeignDatagrams, SocketCounters, Waiter,
};
use seal::Sealer;

impl DrivenMachine for Endpoint {
    const TELLS_LENGTH: bool = true;
    #[inline]
    fn length_of(begin: &[u8]) -> Option<usize> {
        Endpoint::length_of(begin)
    }
    #[inline]
    fn send(&mut self, now: Nanos, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        Endpoint::send(self, now, peer, fragment)
    }
    #[inline]
    fn sender_of(packet: &[u8]) -> Option<Rank> {
        Endpoint::sender_of(packet)
    }
    #[inline]
    fn receive(
        &mut self,
        now: Nanos,
        packet: &mut [u8],
        seal: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        // The endpoint itself counts the packets that it drops.
        let received = Endpoint::receive(self, now, packet, seal, handler);
        !matches!(
            received,
            Received::Dropped(Dropped::Malformed | Dropped::BadTag)
        )
    }
    #[inline]
    fn timeout(&self) -> Option<Nanos> {
        Endpoint::timeout(self)
    }
    fn on_timeout(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        Endpoint::on_timeout(self, now, handler);
    }
    #[inline]
    fn is_quiet(&self) -> bool {
        Endpoint::is_quiet(self)
    }
    #[inline]
    fn transmit<'u>(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        seal: &mut impl Seal,
        handler: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>> {
        Endpoint::transmit(self, now, buffer, seal, handler)
    }
}

/// One rank's end of the network over UDP.
pub type Udp<M, T = Carrier> = SoftPortals<M, T>;

/// One rank's wire, and the names of all ranks' hosts for error texts.
#[derive(Debug)]
pub struct Carrier {
    wire: Driver<Endpoint, Sealer>,
    waiter: Arc<Waiter>,
    /// The host name of each rank. Ranks on the same host share the string.
    hosts: Box<[Arc<str>]>,
}

impl Carrier {
    /// Creates a rank's carrier. `hosts` holds the name of each rank's host.
    ///
    /// # Errors
    /// Returns the system's error if it has no file descriptor left.
    pub fn new(wire: Driver<Endpoint, Sealer>, hosts: Box<[Arc<str>]>) -> std::io::Result<Self> {
        let waiter = Arc::new(wire.waiter()?);
        Ok(Self {
            wire,
            waiter,
            hosts,
        })
    }

    /// Returns the protocol's counters.
    pub fn counters(&self) -> Counters {
        self.wire.machine().counters()
    }

    /// Returns the socket's counters.
    pub fn socket_counters(&self) -> SocketCounters {
        *self.wire.socket().counters()
    }

    /// Returns the numbers of datagrams that no rank of the job sent.
    pub fn foreign(&self) -> ForeignDatagrams {
        *self.wire.foreign()
    }

    /// Returns the numbers of injected faults, or `None` if no faults are injected.
    pub fn fault_counters(&self) -> Option<FaultCounters> {
        self.wire.faults().copied()
    }

    /// Returns the status of the link to a peer, if there is one.
    pub fn link(&self, peer: Rank) -> Option<LinkStatus> {
        self.wire.machine().link(peer)
    }

    /// Returns the memory used by the protocol, in bytes.
    pub fn memory(&self) -> usize {
        self.wire.machine().memory()
    }
}

impl Transport for Carrier {
    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        self.wire.send(peer, fragment)
    }
    #[inline]
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        self.wire.receive(handler)
    }
    #[inline]
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        self.wire.flush(handler);
    }
    #[inline]
    fn is_idle(&self, peer: Rank) -> bool {
        self.wire.machine().is_flushed(peer)
    }
    fn outstanding(&self, peer: Rank) -> usize {
        self.wire.machine().outstanding(peer)
    }
    fn timeout(&self) -> Option<Duration> {
        self.wire.next_timeout()
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        let waiter: Arc<Waiter> = Arc::clone(&self.waiter);
        waiter
    }
    fn abandon(&mut self, peers: &[Rank], _: &mut impl FragmentHandler) {
        for &peer in peers {
            self.wire.machine_mut().abandon(peer);
        }
    }
    fn describe(&self, peer: Rank) -> String {
        let peers = self.wire.peers();
        if peer >= peers.size() {
            return String::new();
        }
        let host = self.hosts.get(peer as usize).map_or("", |host| host);
        let address = peers.address(peer);
        let foreign = self.wire.foreign();
        let mut text = format!("on host {host} ({address}");
        if let Some(errors) = peers.errors(peer) {
            let _ = write!(text, "; {errors}");
        }
        // The datagrams counted in `foreign` may be the peer's, if addresses are translated on the
        // path.
        if foreign.datagrams > 0 {
            let _ = write!(text, "; {foreign}");
        }
        text + ")"
    }
}
