//! One call makes progress with socket, seal and protocol.

use std::io;
use std::time::Duration;

use conduit_core::ni::Rank;

use super::clock::Clock;
use super::faults::Faults;
use super::{Batch, FaultConfig, FaultCounters, ForeignDatagrams, Peers, Sent, Socket, Waiter};
use crate::protocol::{Fragment, FragmentHandler, Nanos, Refused, Seal, Transmit};

/// Datagrams that one call handles, and bytes of them, before it receives no more; what is left
/// stays for the next call.
const MAX_DATAGRAMS: usize = 64;
const MAX_BYTES: usize = 256 << 10;
/// Bytes received by one system call after which the next one probably finds more.
const BULK: usize = 16 << 10;
/// System calls that one call sends with, before it makes no more packets. What one making gives is
/// sent, at the most 32 calls more.
const MAX_SENDS: u64 = 16;
/// Pause before packets that the system had no room for are offered again; doubled each time, up to
/// the second number.
const PAUSE: Nanos = 50_000;
const MAX_PAUSE: Nanos = 1_000_000;

/// The state machine that a wire drives.
pub trait Machine {
    /// [`length_of`](Self::length_of) knows.
    const TELLS_LENGTH: bool = false;
    /// Bytes of the packet that begins so.
    fn length_of(_begin: &[u8]) -> Option<usize> {
        None
    }
    /// Takes a fragment that is to be sent.
    ///
    /// # Errors
    /// [`Refused`]: nothing has happened.
    fn send(&mut self, now: Nanos, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// The rank that a packet names as its sender; `None`: it is none, or cannot be told without
    /// its tag.
    fn sender_of(_packet: &[u8]) -> Option<Rank> {
        None
    }
    /// Takes a packet that has come, whatever it is. `false`: no rank of the job has made it.
    fn receive(
        &mut self,
        now: Nanos,
        packet: &mut [u8],
        seal: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> bool;
    /// When [`on_timeout`](Self::on_timeout) wants to be called.
    fn timeout(&self) -> Option<Nanos>;
    /// The time has come.
    fn on_timeout(&mut self, now: Nanos, handler: &mut impl FragmentHandler);
    /// Whether [`transmit`](Self::transmit) has nothing to make until something else has happened.
    /// It may say no without need.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Makes packets for one peer in `buffer`. `None`: there is nothing to send now.
    fn transmit<'u>(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        seal: &mut impl Seal,
        handler: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>>;
}

/// Packets that have been made and not yet sent.
#[derive(Debug)]
struct Outgoing {
    buffer: Vec<u8>,
    packets: Option<Transmit<'static>>,
    /// Bytes of them that the system has.
    gone: usize,
    /// When the system is asked again, after it had no room.
    again: Option<Nanos>,
    pause: Nanos,
    /// There may be more to send: the last call stopped at its limit.
    more: bool,
}

/// A rank's socket, seal and protocol. It holds no fragment: see [`FragmentHandler`].
#[derive(Debug)]
pub struct Wire<M, S> {
    machine: M,
    seal: S,
    socket: Socket,
    waiter: Waiter,
    peers: Peers,
    foreign: ForeignDatagrams,
    incoming: Batch,
    outgoing: Outgoing,
    /// What packets suffer on purpose; rarely anything.
    faults: Option<Box<Faults>>,
    clock: Clock,
}

impl<M: Machine, S: Seal> Wire<M, S> {
    /// For packets of at most `packet` bytes.
    ///
    /// # Errors
    /// The system's, when it has no descriptor left.
    pub fn new(
        machine: M,
        seal: S,
        socket: Socket,
        peers: Peers,
        packet: usize,
    ) -> io::Result<Self> {
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
            incoming: Batch::new(),
            faults: None,
            clock: Clock::new(),
        })
    }

    /// Lets the packets that come to this rank suffer, for tests.
    pub fn inject_faults(&mut self, rank: Rank, faults: &FaultConfig) {
        self.faults = (!faults.is_none()).then(|| Box::new(Faults::new(faults, rank)));
    }

    /// What packets have suffered, if anything is set.
    pub fn faults(&self) -> Option<&FaultCounters> {
        Some(self.faults.as_ref()?.counters())
    }

    /// The clock that the protocol is given: time since the wire was made.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Takes a fragment to be sent by a later [`progress`](Self::progress) or
    /// [`flush`](Self::flush), so that many travel together.
    ///
    /// # Errors
    /// [`Refused`]: nothing has happened.
    #[inline]
    pub fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        let now = self.clock.coarse();
        self.machine.send(now, peer, fragment)
    }

    /// Sends what is to be sent, receives once, handles what came and what is due, and sends what
    /// follows from that. Says whether anything happened. Makes one system call where nothing is to
    /// be done.
    ///
    /// Its work is bounded: where more is to be done, the next call does it, and
    /// [`next_timeout`](Self::next_timeout) says that it is due at once.
    pub fn progress(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut did = self.flush(handler);
        if self.receive(handler) {
            did = true;
            self.flush(handler);
        }
        did
    }

    /// Receives once, and handles what came and what is due. Sends nothing, so that what the layer
    /// above answers can travel with the acknowledgements. Says whether anything happened.
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
                if self.foreign.checks_sources() {
                    bytes = self.filter_sources(&mut datagrams);
                }
            }
            now = self.clock.coarse();
            bytes += match self.faults {
                None => self.handle(now, &mut datagrams, handler),
                Some(_) => self.handle_with_faults(now, handler),
            };
            handled += bytes;
            // What comes in bulk is handled while it is in the cache, and acknowledged when there
            // is no more of it.
            if bytes < BULK || handled >= MAX_BYTES || datagrams == 0 {
                break;
            }
        }
        while let Some((to, errno, from)) = self.socket.next_report() {
            if let Some(peer) = self.peers.find(to) {
                self.peers.note(peer, errno, from);
            }
        }
        let due = self.machine.timeout().is_some_and(|time| time <= now);
        if due {
            self.machine.on_timeout(now, handler);
        }
        handled > 0 || due
    }

    /// Sends what is to be sent, without receiving.
    pub fn flush(&mut self, handler: &mut impl FragmentHandler) -> bool {
        if self.outgoing.packets.is_none() && self.machine.is_quiet() {
            self.outgoing.more = false;
            return false;
        }
        let now = self.clock.coarse();
        self.transmit(now, handler)
    }

    /// Handles what has been received, not more than `most` datagrams, which are taken off that;
    /// how many bytes.
    fn handle(
        &mut self,
        now: Nanos,
        most: &mut usize,
        handler: &mut impl FragmentHandler,
    ) -> usize {
        let mut bytes = 0;
        while *most > 0 && bytes < MAX_BYTES {
            let Some(packet) = self.incoming.next_datagram() else {
                break;
            };
            *most -= 1;
            // An empty one was something, too.
            bytes += packet.len().max(1);
            if !self.machine.receive(now, packet, &mut self.seal, handler) {
                self.drop_foreign();
            }
        }
        bytes
    }

    /// The last datagram was a stranger's. What was joined with it came from the same sender, or
    /// from one that makes itself look like it: so nobody looks at 2047 tags for one datagram of 64
    /// KiB that seems to be so many. Should it be a peer's that was changed on its way, the peer
    /// sends the rest again.
    #[cold]
    fn drop_foreign(&mut self) {
        self.foreign.note(self.incoming.source());
        self.incoming.skip_rest();
        self.incoming.asks = true;
    }

    /// Leaves out what has just been received from elsewhere than the rank that it names, and takes
    /// it off `most`; how many bytes.
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
        let did = faults.pass(now, &mut self.incoming, limits, |packet| {
            // What is no rank's has been made on purpose as a rule.
            let _ = machine.receive(now, packet, seal, handler);
        });
        // However much it was.
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
                            let to = self.peers.address(packets.peer);
                            let (head, tail) =
                                outgoing.buffer[..packets.length].split_at(zero_copy.at);
                            if self.socket.send_parts(&to, [head, zero_copy.bytes, tail]) {
                                did = true;
                                continue;
                            }
                            // It waits, while its bytes may go.
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
            let to = self.peers.address(packets.peer);
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

    /// How long nothing is due, unless a packet comes or a fragment is sent. `None`: nothing is due
    /// at all.
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

    /// Sleeps until a packet is there or something is due, at most for `limit`. Whoever shares the
    /// wire among threads waits with a [`waiter`](Self::waiter) instead, so that the wire is free
    /// meanwhile.
    pub fn wait(&mut self, limit: Option<Duration>) {
        let timeout = [limit, self.next_timeout()].into_iter().flatten().min();
        self.waiter.wait(timeout);
    }

    /// What other threads wait with.
    ///
    /// # Errors
    /// The system's, when it has no descriptor left.
    pub fn waiter(&self) -> io::Result<Waiter> {
        self.socket.waiter()
    }

    /// The protocol.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The protocol, to ask or tell it what is not here.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    #[cfg(test)]
    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// What has come that no rank has made.
    pub fn foreign(&self) -> &ForeignDatagrams {
        &self.foreign
    }

    /// Where the ranks are, and what was reported of them.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }
}
