//! One process's end, which consists of the handshakes and the reliability protocol, without I/O
//! and without a clock.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use conduit_core::ni::Rank;
use seal::SessionSealer;

use super::address::Address;
use super::handshake::{Event, Handshakes, Message};
use crate::protocol::{
    Config, Dropped, Endpoint, Fragment, FragmentHandler, Nanos, Received, Refused, Seal, Transmit,
};
use crate::socket::DrivenMachine;

/// The handshakes and the endpoint. The endpoint knows a peer only during a session.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) handshakes: Handshakes<SessionSealer>,
    pub(super) endpoint: Endpoint,
    /// The index of this process's interface, for link-local addresses.
    scope: u32,
}

impl Node {
    pub(super) fn new(
        sealer: SessionSealer,
        own: Address,
        scope: u32,
        max_peers: u32,
        protocol: Config,
    ) -> Self {
        let endpoint = Endpoint::new(Config {
            rank: 0,
            size: 0,
            ..protocol
        });
        let dead_time = endpoint.config().dead_time;
        Self {
            handshakes: Handshakes::new(sealer, own, max_peers, dead_time),
            endpoint,
            scope,
        }
    }

    /// Returns the number of the peer with this address. Returns `None` if there are too many
    /// peers.
    pub(super) fn connect(&mut self, address: Address) -> Option<Rank> {
        let peer = self.handshakes.connect(address)?;
        self.fit();
        Some(peer)
    }

    pub(super) fn end_session(&mut self, peer: Rank) {
        self.end_failed();
        self.handshakes.end(peer);
        self.endpoint.end(peer);
    }

    pub(super) fn close(&mut self, peer: Rank) {
        self.end_failed();
        self.handshakes.close(peer);
        self.endpoint.end(peer);
        self.fit();
    }

    pub(super) fn leave(&mut self) {
        self.end_failed();
        self.handshakes.leave();
        for peer in self.handshakes.numbers() {
            self.endpoint.end(peer);
        }
    }

    /// Returns the next handshake message and its destination.
    pub(super) fn next_message(&mut self) -> Option<(SocketAddr, Message)> {
        let (to, message) = self.handshakes.next_message()?;
        Some((to.to_socket_address(self.scope), message))
    }

    /// Returns the memory used, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.endpoint.memory() + self.handshakes.memory() + self.handshakes.crypto.memory()
    }

    /// Sets the endpoint's number of peers, so that it covers the numbers of all peers.
    fn fit(&mut self) {
        let size = self.handshakes.size();
        if self.endpoint.config().size != size {
            self.endpoint.set_size(size);
        }
    }

    /// Ends the sessions of peers that the endpoint has given up. The endpoint has already reported
    /// their failures to the fragment handler.
    fn end_failed(&mut self) {
        while let Some(peer) = self.endpoint.take_failed() {
            self.handshakes.end(peer);
            self.endpoint.end(peer);
        }
    }

    /// Handles the events of the handshakes.
    fn handle_events(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        while let Some(event) = self.handshakes.next_event() {
            match event {
                Event::Joined(peer) => {
                    self.fit();
                    handler.joined(peer);
                }
                Event::Began(peer) => {
                    self.fit();
                    self.endpoint.begin(now, peer);
                }
                Event::Ended(peer, failure) => {
                    self.endpoint.end(peer);
                    handler.failed(peer, failure);
                }
            }
        }
    }

    /// Handles a failed send to a peer without a session by beginning a handshake.
    #[cold]
    fn begin(&mut self, now: Nanos, peer: Rank) -> Refused {
        self.end_failed();
        if self.handshakes.address(peer).is_none() {
            return Refused::NoSuchRank;
        }
        self.handshakes.begin(now, peer);
        Refused::Full
    }
}

impl DrivenMachine for Node {
    const OPEN: bool = true;

    #[inline]
    fn send(&mut self, now: Nanos, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        match self.endpoint.send(now, peer, fragment) {
            Err(Refused::Dead | Refused::NoSuchRank) => Err(self.begin(now, peer)),
            sent => sent,
        }
    }

    fn receive(
        &mut self,
        _: Nanos,
        _: &mut [u8],
        _: &mut impl Seal,
        _: &mut impl FragmentHandler,
    ) -> bool {
        // A packet without a source address belongs to no session.
        false
    }

    #[inline]
    fn receive_from(
        &mut self,
        now: Nanos,
        packet: &mut [u8],
        source: SocketAddrV6,
        _: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        let source = Address::of_source(&source);
        let Some(peer) = Endpoint::sender_of(packet) else {
            let is_message = self.handshakes.receive(now, &source, packet);
            self.handle_events(now, handler);
            return is_message;
        };
        if !self.handshakes.is_session(peer, &source) {
            self.handshakes.on_unknown_packet(now, &source, peer);
            return false;
        }
        let seal = &mut self.handshakes.crypto;
        match self.endpoint.receive(now, packet, seal, handler) {
            Received::Taken(_) => {
                self.end_failed();
                true
            }
            Received::Dropped(Dropped::BadTag) => {
                // The peer may have a newer session with this process than the one known here.
                self.handshakes.on_unknown_packet(now, &source, peer);
                false
            }
            Received::Dropped(dropped) => dropped != Dropped::Malformed,
        }
    }

    fn address(&self, peer: Rank) -> Option<SocketAddr> {
        Some(self.handshakes.address(peer)?.to_socket_address(self.scope))
    }

    fn on_report(
        &mut self,
        now: Nanos,
        to: SocketAddr,
        errno: i32,
        _: Option<IpAddr>,
        handler: &mut impl FragmentHandler,
    ) {
        self.handshakes
            .on_report(&Address::of(to.ip(), to.port()), errno);
        self.handle_events(now, handler);
    }

    fn timeout(&self) -> Option<Nanos> {
        let times = [self.endpoint.timeout(), self.handshakes.timeout()];
        times.into_iter().flatten().min()
    }

    fn on_timeout(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        if self.endpoint.timeout().is_some_and(|at| at <= now) {
            self.endpoint.on_timeout(now, handler);
            self.end_failed();
        }
        if self.handshakes.timeout().is_some_and(|at| at <= now) {
            self.handshakes.on_timeout(now);
            self.handle_events(now, handler);
        }
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.endpoint.is_quiet()
    }

    fn transmit<'u>(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        _: &mut impl Seal,
        handler: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>> {
        self.end_failed();
        let seal = &mut self.handshakes.crypto;
        self.endpoint.transmit(now, buffer, seal, handler)
    }
}
