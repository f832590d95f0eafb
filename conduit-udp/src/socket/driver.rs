//! The driver, which is also called the wire. One call makes progress on socket, seal and protocol.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use conduit_core::ni::Rank;

use super::clock::Clock;
use super::faults::Faults;
use super::{Batch, FaultConfig, FaultCounters, ForeignDatagrams, Peers, Sent, Socket, Waiter};
use crate::protocol::{Fragment, FragmentHandler, Nanos, Refused, Seal, Transmit};

/// The maximum number of datagrams that one call receives. The next call receives the rest.
const MAX_DATAGRAMS: usize = 64;
/// The maximum number of bytes that one call receives.
const MAX_BYTES: usize = 256 << 10;
/// If one system call receives at least this number of bytes, another call probably finds more.
const BULK: usize = 16 << 10;
/// The number of system calls for sending after which a call makes no more packets. The call still
/// sends the packets already made, in at most 32 more system calls.
const MAX_SENDS: u64 = 16;
/// The time in nanoseconds before packets are offered again when the system had no room.
const PAUSE: Nanos = 50_000;
/// The maximum of this time, which is doubled after each attempt that finds no room.
const MAX_PAUSE: Nanos = 1_000_000;

/// The state machine that a wire drives.
pub trait DrivenMachine {
    /// Whether peers come and go. If so, the machine knows their [addresses](Self::address), and
    /// gets the [source](Self::receive_from) of each datagram and the network's
    /// [reports](Self::on_report).
    const OPEN: bool = false;
    /// Whether [`length_of`](Self::length_of) is implemented.
    const TELLS_LENGTH: bool = false;
    /// Returns the number of bytes of the packet that begins with these bytes.
    fn length_of(_begin: &[u8]) -> Option<usize> {
        None
    }
    /// Queues a fragment.
    ///
    /// # Errors
    /// Returns [`Refused`] if the fragment was not queued.
    fn send(&mut self, now: Nanos, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// Returns the rank that a packet names as its sender. Returns `None` if the packet is
    /// malformed, or if the sender cannot be determined without the tag.
    fn sender_of(_packet: &[u8]) -> Option<Rank> {
        None
    }
    /// Handles a received datagram. Returns `false` if the datagram is foreign, which means that no
    /// rank of the job sent it.
    fn receive(
        &mut self,
        now: Nanos,
        packet: &mut [u8],
        seal: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> bool;
    /// Does the same as [`receive`](Self::receive) if peers come and go. IPv4 sources are mapped to
    /// IPv6.
    fn receive_from(
        &mut self,
        now: Nanos,
        packet: &mut [u8],
        _source: SocketAddrV6,
        seal: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        self.receive(now, packet, seal, handler)
    }
    /// Returns a peer's address, if peers come and go. Returns `None` if there is no such peer now.
    fn address(&self, _peer: Rank) -> Option<SocketAddr> {
        None
    }
    /// Handles an error that the network reports for a packet to this address.
    fn on_report(
        &mut self,
        _now: Nanos,
        _to: SocketAddr,
        _errno: i32,
        _from: Option<IpAddr>,
        _handler: &mut impl FragmentHandler,
    ) {
    }
    /// Returns the time at which [`on_timeout`](Self::on_timeout) has to be called.
    fn timeout(&self) -> Option<Nanos>;
    /// Handles the expired time-out.
    fn on_timeout(&mut self, now: Nanos, handler: &mut impl FragmentHandler);
    /// Returns whether [`transmit`](Self::transmit) certainly has nothing to do until another
    /// method is called.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Writes packets for one peer to `buffer`. Returns `None` if there is nothing to send now.
    fn transmit<'u>(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        seal: &mut impl Seal,
        handler: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>>;
}

/// Passes a datagram to a machine.
#[inline(always)]
fn receive<M: DrivenMachine>(
    machine: &mut M,
    now: Nanos,
    packet: &mut [u8],
    source: Option<SocketAddrV6>,
    seal: &mut impl Seal,
    handler: &mut impl FragmentHandler,
) -> bool {
    match source {
        Some(source) if M::OPEN => machine.receive_from(now, packet, source, seal, handler),
        _ if M::OPEN => false,
        _ => machine.receive(now, packet, seal, handler),
    }
}

/// Returns a peer's address.
#[inline(always)]
fn address<M: DrivenMachine>(machine: &M, peers: &Peers, peer: Rank) -> Option<SocketAddr> {
    match M::OPEN {
        true => machine.address(peer),
        false => Some(peers.address(peer)),
    }
}

/// Packets that have been written but not sent.
#[derive(Debug)]
struct Outgoing {
    buffer: Vec<u8>,
    packets: Option<Transmit<'static>>,
    /// The number of the packets' bytes that the system has taken.
    gone: usize,
    /// When to offer the packets again after the system had no room.
    again: Option<Nanos>,
    pause: Nanos,
    /// Whether the last call stopped at its limit, so that there may be more to send.
    more: bool,
}

/// A rank's socket, seal and protocol. It owns no fragments (see [`FragmentHandler`]).
#[derive(Debug)]
pub struct Driver<M, S> {
    machine: M,
    seal: S,
    socket: Socket,
    waiter: Waiter,
    peers: Peers,
    foreign: ForeignDatagrams,
    incoming: Batch,
    outgoing: Outgoing,
    /// Fault injection, for tests.
    faults: Option<Box<Faults>>,
    clock: Clock,
}

impl<M: DrivenMachine, S: Seal> Driver<M, S> {
    /// Creates a wire for packets of at most `packet` bytes.
    ///
    /// # Errors
    /// Returns the system's error if it has no descriptor left.
    pub fn new(
        machine: M,
        seal: S,
        socket: Socket,
        peers: Peers,
        packet: usize,
    ) -> io::Result<Self> {
        let mut incoming = Batch::new();
        incoming.asks = M::OPEN;
        Ok(Self {
            machine,
            seal,
            waiter: socket.waiter()?,
            outgoing: Outgoing {
                buffer: vec![0; socket.burst(packet)],
                packets: None,
                gone: 0,
                again: None,
                pause: PAUSE,
                more: false,
            },
            socket,
            peers,
            foreign: ForeignDatagrams::default(),
            incoming,
            faults: None,
            clock: Clock::new(),
        })
    }

    /// Injects faults into the packets received by this rank, for tests.
    pub fn inject_faults(&mut self, rank: Rank, faults: &FaultConfig) {
        self.faults = (!faults.is_none()).then(|| Box::new(Faults::new(faults, rank)));
    }

    /// Returns the numbers of injected faults, or `None` if no faults are injected.
    pub fn faults(&self) -> Option<&FaultCounters> {
        Some(self.faults.as_ref()?.counters())
    }

    /// Returns the protocol's time, in nanoseconds since the wire was created.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Queues a fragment. A later call of [`progress`](Self::progress) or [`flush`](Self::flush)
    /// sends it together with others.
    ///
    /// # Errors
    /// Returns [`Refused`] if the fragment was not queued.
    #[inline]
    pub fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        let now = self.clock.coarse();
        self.machine.send(now, peer, fragment)
    }

    /// Sends everything queued, receives once, handles everything that arrived or is due, and sends
    /// the results. Returns whether anything happened. If there is nothing to do, the call makes
    /// one system call.
    ///
    /// The work of one call is bounded. If work is left, the next call continues it, and
    /// [`next_timeout`](Self::next_timeout) reports it as due at once.
    pub fn progress(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut did = self.flush(handler);
        if self.receive(handler) {
            did = true;
            self.flush(handler);
        }
        did
    }

    /// Receives once, and handles everything that arrived or is due. Sends nothing, so that
    /// acknowledgements can travel with the answers of the layer above. Returns whether anything
    /// happened.
    pub fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut handled = 0;
        let mut datagrams = MAX_DATAGRAMS;
        let mut now;
        loop {
            let mut bytes = 0;
            if self.incoming.is_empty() {
                match M::TELLS_LENGTH {
                    true => self.socket.receive_joined(&mut self.incoming, M::length_of),
                    false => self.socket.receive(&mut self.incoming),
                };
                if !M::OPEN && self.foreign.checks_sources() {
                    bytes = self.filter_sources(&mut datagrams);
                }
            }
            now = self.clock.coarse();
            bytes += match self.faults {
                None => self.handle(now, &mut datagrams, handler),
                Some(_) => self.handle_with_faults(now, handler),
            };
            handled += bytes;
            // Bulk data are handled while they are in the cache, and are acknowledged at the end.
            if bytes < BULK || handled >= MAX_BYTES || datagrams == 0 {
                break;
            }
        }
        while let Some((to, errno, from)) = self.socket.next_report() {
            if M::OPEN {
                self.machine.on_report(now, to, errno, from, handler);
            } else if let Some(peer) = self.peers.find(to) {
                self.peers.note(peer, errno, from);
            }
        }
        let due = self.machine.timeout().is_some_and(|time| time <= now);
        if due {
            self.machine.on_timeout(now, handler);
        }
        handled > 0 || due
    }

    /// Sends everything queued, without receiving. Returns whether anything was sent.
    pub fn flush(&mut self, handler: &mut impl FragmentHandler) -> bool {
        if self.outgoing.packets.is_none() && self.machine.is_quiet() {
            self.outgoing.more = false;
            return false;
        }
        let now = self.clock.coarse();
        self.transmit(now, handler)
    }

    /// Handles at most `most` received datagrams, and subtracts their number from `most`. Returns
    /// the number of their bytes.
    fn handle(
        &mut self,
        now: Nanos,
        most: &mut usize,
        handler: &mut impl FragmentHandler,
    ) -> usize {
        let mut bytes = 0;
        while *most > 0 && bytes < MAX_BYTES {
            let next = match M::OPEN {
                true => self.incoming.next_datagram_from(),
                false => self.incoming.next_datagram().map(|packet| (packet, None)),
            };
            let Some((packet, source)) = next else {
                break;
            };
            *most -= 1;
            // An empty datagram adds one byte.
            bytes += packet.len().max(1);
            if !receive(
                &mut self.machine,
                now,
                packet,
                source,
                &mut self.seal,
                handler,
            ) {
                self.drop_foreign();
            }
        }
        bytes
    }

    /// Handles the last datagram, which was foreign. Skips the datagrams joined with it, which have
    /// the same sender or claim to have it. Therefore a datagram of 64 KiB that looks like 2047
    /// packets costs only one check of a tag. If the last datagram was a peer's packet that was
    /// corrupted on the path, the peer sends the skipped ones again.
    #[cold]
    fn drop_foreign(&mut self) {
        self.foreign.note(self.incoming.source());
        self.incoming.skip_rest();
        self.incoming.asks = true;
    }

    /// Drops the datagrams just received whose source is not the address of the rank that they
    /// name, and subtracts their number from `most`. Returns the number of their bytes.
    #[cold]
    fn filter_sources(&mut self, most: &mut usize) -> usize {
        let (foreign, peers) = (&mut self.foreign, &self.peers);
        if !self.incoming.is_empty() {
            foreign.received();
        }
        let (buffers, bytes) = self.incoming.filter_sources(|packet, source| {
            let is_foreign = M::sender_of(packet).is_some_and(|peer| !peers.is_at(peer, source));
            if is_foreign {
                foreign.by_source += 1;
                foreign.note(Some(source));
            }
            !is_foreign
        });
        self.incoming.asks = foreign.checks_sources();
        *most = most.saturating_sub(buffers);
        bytes
    }

    #[cold]
    fn handle_with_faults(&mut self, now: Nanos, handler: &mut impl FragmentHandler) -> usize {
        let (machine, seal) = (&mut self.machine, &mut self.seal);
        let Some(faults) = &mut self.faults else {
            return 0;
        };
        let limits = [MAX_DATAGRAMS, MAX_BYTES];
        let did = faults.pass(now, &mut self.incoming, limits, |packet, source| {
            // A foreign packet is usually one that was corrupted on purpose, so it is not counted
            // as foreign.
            let _ = receive(machine, now, packet, source, seal, handler);
        });
        // If anything was handled, the result is an upper bound.
        if did { MAX_BYTES } else { 0 }
    }

    fn transmit(&mut self, now: Nanos, handler: &mut impl FragmentHandler) -> bool {
        let outgoing = &mut self.outgoing;
        if outgoing.again.is_some_and(|again| now < again) {
            return false;
        }
        let mut did = false;
        outgoing.more = false;
        let limit = self.socket.counters().send_calls + MAX_SENDS;
        while self.socket.counters().send_calls < limit {
            let packets = match outgoing.packets {
                Some(packets) => packets,
                None => {
                    let made =
                        self.machine
                            .transmit(now, &mut outgoing.buffer, &mut self.seal, handler);
                    let Some(made) = made else {
                        return did;
                    };
                    let packets = Transmit {
                        zero_copy: None,
                        ..made
                    };
                    let packets = match made.zero_copy {
                        None => packets,
                        Some(zero_copy) => {
                            let Some(to) = address(&self.machine, &self.peers, packets.peer) else {
                                continue;
                            };
                            let (head, tail) =
                                outgoing.buffer[..packets.length].split_at(zero_copy.at);
                            if self.socket.send_parts(&to, [head, zero_copy.bytes, tail]) {
                                did = true;
                                continue;
                            }
                            // The packet has to wait. Its payload may change meanwhile, so the
                            // payload is copied.
                            let length = packets.length + zero_copy.bytes.len();
                            let buffer = &mut outgoing.buffer[..length];
                            buffer.copy_within(
                                zero_copy.at..packets.length,
                                zero_copy.at + zero_copy.bytes.len(),
                            );
                            buffer[zero_copy.at..][..zero_copy.bytes.len()]
                                .copy_from_slice(zero_copy.bytes);
                            Transmit { length, ..packets }
                        }
                    };
                    outgoing.packets = Some(packets);
                    outgoing.gone = 0;
                    packets
                }
            };
            let Some(to) = address(&self.machine, &self.peers, packets.peer) else {
                outgoing.packets = None;
                outgoing.again = None;
                continue;
            };
            let bytes = &outgoing.buffer[outgoing.gone..packets.length];
            match self.socket.send(&to, bytes, packets.segment) {
                Sent::All => {
                    outgoing.packets = None;
                    outgoing.again = None;
                    outgoing.pause = PAUSE;
                    did = true;
                }
                Sent::Part(gone) => {
                    outgoing.gone += gone;
                    outgoing.again = Some(now + outgoing.pause);
                    outgoing.pause = (outgoing.pause * 2).min(MAX_PAUSE);
                    return did | (gone > 0);
                }
            }
        }
        outgoing.more = true;
        did
    }

    /// Sends a datagram that does not come from the machine. The datagram is lost if the system has
    /// no room for it.
    pub fn send_datagram(&mut self, to: &SocketAddr, bytes: &[u8]) {
        let _ = self.socket.send(to, bytes, bytes.len());
    }

    /// Returns the time until something is due, unless a packet arrives or a fragment is sent
    /// earlier. Returns `None` if nothing is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        if self.outgoing.more || !self.incoming.is_empty() {
            return Some(Duration::ZERO);
        }
        let held = self.faults.as_ref().and_then(|faults| faults.due());
        let due = [self.machine.timeout(), self.outgoing.again, held]
            .into_iter()
            .flatten()
            .min()?;
        Some(Duration::from_nanos(due.saturating_sub(self.now())))
    }

    /// Sleeps until a packet arrives or something is due, but at most for `limit`. Threads that
    /// share the wire use a [`waiter`](Self::waiter) instead, which does not borrow the wire.
    pub fn wait(&mut self, limit: Option<Duration>) {
        let timeout = [limit, self.next_timeout()].into_iter().flatten().min();
        self.waiter.wait(timeout);
    }

    /// Creates a waiter for other threads.
    ///
    /// # Errors
    /// Returns the system's error if it has no descriptor left.
    pub fn waiter(&self) -> io::Result<Waiter> {
        self.socket.waiter()
    }

    /// Returns the protocol.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns a mutable reference to the protocol.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    #[cfg(test)]
    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Returns the numbers of foreign datagrams.
    pub fn foreign(&self) -> &ForeignDatagrams {
        &self.foreign
    }

    /// Returns the addresses of the ranks, and the network's reports on them.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }
}
