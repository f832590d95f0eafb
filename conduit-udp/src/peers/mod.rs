//! UDP as a network of processes that come and go ([`OpenTransport`]).
//!
//! [`OpenUdp`] is one process's end. A peer's address is its IP address and port. Two processes
//! have a session after a handshake (module `handshake`). Before either process keeps state for the
//! other, the handshake proves that the two share the secret and receive at their addresses. During
//! a session, packets, acknowledgements, liveness and the driver are the same as for a job's ranks
//! ([`crate::protocol`], [`crate::socket`]). `docs/udp.md` describes the messages and the reasons
//! for their design.
//!
//! **Promises.** A session never continues with a different process, because the sessions of a
//! process end if it is restarted at the same address. Outsiders without the secret cannot make
//! this process allocate state.
//!
//! **Costs.** Before the first fragment, a handshake takes two round trips and a key agreement on
//! each side. A peer takes 310 bytes while its link is idle. [`OpenConfig::max_peers`] bounds the
//! memory.

mod address;
mod error;
mod handshake;
mod host;
mod node;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};
use seal::{Protection, Seal, Secret, SessionSealer};

use crate::protocol::{Config, Counters, Fragment, FragmentHandler, LinkStatus, Refused};
use crate::socket::{
    Driver, FaultConfig, FaultCounters, Interface, Options, Peers, Socket, SocketCounters,
    SocketError, Waiter, default_source, interfaces,
};

use address::Address;
use node::Node;

pub use error::OpenError;
pub use handshake::HandshakeCounters;
pub use host::Family;

/// The setting that limits the number of peers.
pub const MAX_PEERS_SETTING: &str = "CONDUIT_NA_MAX_PEERS";

/// The configuration of an open network over UDP.
#[derive(Debug)]
pub struct OpenConfig {
    /// The name of an interface, an IP address or a name of this host, followed by a colon and the
    /// port. If either part is missing, it is chosen automatically.
    pub host: Option<String>,
    /// A subnet, such as `10.0.0.0/24`, that restricts the choice.
    pub subnet: Option<String>,
    /// An address family that restricts the choice.
    pub family: Family,
    /// The secret shared with all peers that this process trusts. If it is `None`, this process
    /// trusts every peer that can receive at the address from which the peer sends.
    pub secret: Option<Secret>,
    /// Whether packets are encrypted. All processes that communicate must use the same value.
    pub encrypt: bool,
    /// The maximum number of peers that can have numbers at the same time.
    pub max_peers: u32,
    /// The number of bytes of the largest IP packet, or `None` for the interface's MTU.
    pub mtu: Option<usize>,
    /// The number of bytes to request for each of the socket's buffers.
    pub socket_buffer: usize,
    /// Whether to use segmentation offload if the system supports it.
    pub offload: bool,
    /// The protocol's limits and times. [`OpenUdp::start`] overwrites the rank, the size, the
    /// packet size and the socket buffer.
    pub protocol: Config,
    /// Injected faults, for tests.
    pub faults: FaultConfig,
}

impl OpenConfig {
    /// Creates a configuration with default limits. The interface and the port are chosen
    /// automatically.
    pub fn new(secret: Option<Secret>) -> Self {
        Self {
            host: None,
            subnet: None,
            family: Family::Any,
            secret,
            encrypt: false,
            max_peers: 1 << 16,
            mtu: None,
            socket_buffer: Options::BUFFER,
            offload: true,
            protocol: Config {
                dead_time: 30_000_000_000,
                ..Config::default()
            },
            faults: FaultConfig::default(),
        }
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |error| OpenError::System { what, error }
}

/// The wire's seal, which is never used, because the node has its own seal, which changes with the
/// sessions.
#[derive(Debug)]
struct NodesOwn;

impl Seal for NodesOwn {
    fn seal(&mut self, _: Rank, _: u64, _: &mut [u8], _: usize) {}
    fn open(&mut self, _: Rank, _: u64, _: &mut [u8], _: usize) -> bool {
        false
    }
}

/// One process's end of an open network over UDP.
#[derive(Debug)]
pub struct OpenUdp {
    wire: Driver<Node, NodesOwn>,
    waiter: Arc<Waiter>,
}

impl OpenUdp {
    /// Opens the network.
    ///
    /// # Errors
    /// Returns an [`OpenError`] that names the reason.
    pub fn start(config: &OpenConfig) -> Result<Self, OpenError> {
        let exist = interfaces().map_err(system("list the interfaces of this host"))?;
        let (host, port) = host::parse(config.host.as_deref().unwrap_or_default())?;
        let subnet = config.subnet.as_deref();
        let source = default_source();
        let interface = host::find(&exist, host, subnet, config.family, source, host::lookup)?;
        let socket = open_socket(config, &interface, port)?.with_one_port();
        let own = Address::of(socket.address().ip(), socket.address().port());
        let protection = match config.encrypt {
            true => Protection::Encrypt,
            false => Protection::Authenticate,
        };
        let seed = Secret::random().map_err(system("random numbers"))?;
        let sealer = SessionSealer::new(config.secret.as_ref(), protection, &seed);
        let fault_rank = sealer.incarnation() as Rank;
        let protocol = Config {
            packet: socket.packet(),
            socket_buffer: socket.buffers().receive,
            ..config.protocol.clone()
        };
        let node = Node::new(sealer, own, interface.index, config.max_peers, protocol);
        let packet = node.endpoint.config().packet;
        let nobody = Peers::new(&[], interface.index);
        let mut wire = Driver::new(node, NodesOwn, socket, nobody, packet)
            .map_err(system("wait for packets"))?;
        wire.inject_faults(fault_rank, &config.faults);
        let waiter = Arc::new(wire.waiter().map_err(system("wait for packets"))?);
        Ok(Self { wire, waiter })
    }

    /// Returns the counters of handshakes.
    pub fn handshake_counters(&self) -> HandshakeCounters {
        self.wire.machine().handshakes.counters
    }

    /// Returns the protocol's counters, summed over all sessions.
    pub fn counters(&self) -> Counters {
        self.wire.machine().endpoint.counters()
    }

    /// Returns the socket's counters.
    pub fn socket_counters(&self) -> SocketCounters {
        *self.wire.socket().counters()
    }

    /// Returns the numbers of injected faults, or `None` if no faults are injected.
    pub fn fault_counters(&self) -> Option<FaultCounters> {
        self.wire.faults().copied()
    }

    /// Returns the status of the link to a peer, if there is a session.
    pub fn link(&self, peer: Rank) -> Option<LinkStatus> {
        self.wire.machine().endpoint.link(peer)
    }

    /// Returns the memory used for peers and data in flight, in bytes.
    pub fn memory(&self) -> usize {
        self.wire.machine().memory()
    }

    fn node(&mut self) -> &mut Node {
        self.wire.machine_mut()
    }

    /// Sends the waiting messages of handshakes.
    #[inline]
    fn send_messages(&mut self) {
        if self.wire.machine().handshakes.has_messages() {
            self.send_waiting_messages();
        }
    }

    #[cold]
    fn send_waiting_messages(&mut self) {
        while let Some((to, message)) = self.node().next_message() {
            self.wire.send_datagram(&to, message.bytes());
        }
    }
}

fn open_socket(config: &OpenConfig, interface: &Interface, port: u16) -> Result<Socket, OpenError> {
    let mut options = Options::on(interface);
    options.ports = port..=port;
    options.mtu = config.mtu.or(options.mtu);
    options.send_buffer = config.socket_buffer;
    options.receive_buffer = config.socket_buffer;
    options.offload = config.offload;
    Socket::open(&options).map_err(|error| match error {
        SocketError::System { address, error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
            OpenError::Taken(address)
        }
        error => error.into(),
    })
}

impl Transport for OpenUdp {
    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        self.wire.send(peer, fragment)
    }
    #[inline]
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let did = self.wire.receive(handler);
        self.send_messages();
        did
    }
    #[inline]
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        self.wire.flush(handler);
        self.send_messages();
    }
    #[inline]
    fn is_idle(&self, peer: Rank) -> bool {
        self.wire.machine().endpoint.is_flushed(peer)
    }
    fn outstanding(&self, peer: Rank) -> usize {
        self.wire.machine().endpoint.outstanding(peer)
    }
    fn timeout(&self) -> Option<Duration> {
        match self.wire.machine().handshakes.has_messages() {
            true => Some(Duration::ZERO),
            false => self.wire.next_timeout(),
        }
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        let waiter: Arc<Waiter> = Arc::clone(&self.waiter);
        waiter
    }
    fn abandon(&mut self, peers: &[Rank], _: &mut impl FragmentHandler) {
        for &peer in peers {
            self.node().endpoint.abandon(peer);
        }
    }
    fn describe(&self, peer: Rank) -> String {
        match self.wire.machine().handshakes.address(peer) {
            Some(address) => format!("at {address}"),
            None => String::new(),
        }
    }
}

impl OpenTransport for OpenUdp {
    fn address(&self) -> &[u8] {
        self.wire.machine().handshakes.own().as_bytes()
    }
    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        Some(Address::decode(address).ok()?.to_string())
    }
    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        Ok(Address::parse(text)?.as_bytes().to_vec())
    }
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        let address = Address::decode(address)?;
        let node = self.node();
        let own = *node.handshakes.own();
        if address == own {
            return Err(ConnectError::Own);
        }
        if address.is_ipv4() != own.is_ipv4() {
            return Err(ConnectError::Malformed(match own.is_ipv4() {
                true => "it is an IPv6 address, but this process has an IPv4 address",
                false => "it is an IPv4 address, but this process has an IPv6 address",
            }));
        }
        node.connect(address).ok_or(ConnectError::Exhausted {
            limit: node.handshakes.max_peers(),
            setting: MAX_PEERS_SETTING,
        })
    }
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        let address = self.wire.machine().handshakes.address(peer)?;
        Some(address.as_bytes().to_vec())
    }
    fn has_session(&self, peer: Rank) -> bool {
        self.wire.machine().handshakes.is_used(peer)
    }
    fn end_session(&mut self, peer: Rank) {
        self.node().end_session(peer);
        self.send_messages();
    }
    fn close(&mut self, peer: Rank) {
        self.node().close(peer);
        self.send_messages();
    }
    fn leave(&mut self) {
        self.node().leave();
        self.send_messages();
    }
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.push(self.wire.socket().as_fd());
    }
}
