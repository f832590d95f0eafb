//! An open network within the test. Processes have addresses. Sessions begin, end and break as the
//! test requires. Fragments arrive when their receiver polls.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};

/// The maximum number of fragments to a peer that a process holds.
const ROOM: usize = 4;
/// The size of a chunk of a longer fragment, which is also the maximum size of a fragment delivered
/// as a whole.
const CHUNK: usize = 5000;

type Address = u8;
/// The number of a session. Its lowest byte is the address of the process that began the session.
type SessionId = u64;

#[derive(Debug, Clone)]
enum Packet {
    Open,
    Whole(Vec<u8>, Vec<u8>),
    Begin(Vec<u8>, usize),
    Chunk(usize, Vec<u8>),
    End,
    Sent(u64),
    Closed,
}

#[derive(Default)]
struct World {
    /// The current incarnation, by address.
    alive: HashMap<Address, u64>,
    /// Packets by receiver, with their sender and session.
    packets: HashMap<Address, VecDeque<(Address, SessionId, Packet)>>,
    sessions: u64,
}

/// All processes of a test.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<World>>);

struct Reading {
    token: u64,
    header: Vec<u8>,
    length: usize,
    next: usize,
}

struct Peer {
    address: Address,
    session: Option<SessionId>,
    queue: VecDeque<Reading>,
    arriving: Option<u64>,
    to_fail: bool,
}

/// One process's end of the network.
pub(crate) struct Node {
    hub: Hub,
    address: [u8; 1],
    peers: Vec<Option<Peer>>,
    /// Whether processes have access to each other's memory.
    copies: bool,
    pub(crate) ended: bool,
}

impl Hub {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub(crate) fn start(&self, address: Address, copies: bool) -> Node {
        let mut world = self.world();
        world.sessions += 1;
        let incarnation = world.sessions;
        world.alive.insert(address, incarnation);
        world.packets.remove(&address);
        Node {
            hub: self.clone(),
            address: [address],
            peers: Vec::new(),
            copies,
            ended: false,
        }
    }

    /// Kills a process. Its peers notice when they poll.
    pub(crate) fn kill(&self, address: Address) {
        let mut world = self.world();
        world.alive.remove(&address);
        world.packets.remove(&address);
        let all: Vec<_> = world.packets.keys().copied().collect();
        for other in all {
            let queue = world.packets.entry(other).or_default();
            queue.push_back((address, 0, Packet::Closed));
        }
    }
}

impl Node {
    fn own(&self) -> Address {
        self.address[0]
    }

    fn peer(&mut self, peer: Rank) -> Option<&mut Peer> {
        self.peers.get_mut(peer as usize)?.as_mut()
    }

    fn number_of(&mut self, address: Address) -> (Rank, bool) {
        let is = |peer: &Option<Peer>| peer.as_ref().is_some_and(|p| p.address == address);
        if let Some(found) = self.peers.iter().position(is) {
            return (found as Rank, false);
        }
        let peer = Some(Peer {
            address,
            session: None,
            queue: VecDeque::new(),
            arriving: None,
            to_fail: false,
        });
        let free = self.peers.iter().position(Option::is_none);
        let at = free.unwrap_or(self.peers.len());
        match free {
            Some(at) => self.peers[at] = peer,
            None => self.peers.push(peer),
        }
        (at as Rank, true)
    }

    fn post(&self, to: Address, session: SessionId, packet: Packet) {
        let mut world = self.hub.world();
        if world.alive.contains_key(&to) {
            let own = self.own();
            world
                .packets
                .entry(to)
                .or_default()
                .push_back((own, session, packet));
        }
    }

    /// Handles one packet.
    fn handle(
        &mut self,
        from: Address,
        session: SessionId,
        packet: Packet,
        handler: &mut impl FragmentHandler,
    ) {
        let (number, is_new) = self.number_of(from);
        if is_new {
            match packet {
                Packet::Open => handler.joined(number),
                _ => {
                    self.peers[number as usize] = None;
                    return;
                }
            }
        }
        let own = self.own();
        let Some(peer) = self.peer(number) else {
            return;
        };
        match packet {
            Packet::Open => {
                // If the two sides begin sessions simultaneously, the session of the lower address
                // is kept.
                let keeps = peer.session.is_some_and(|known| known >> 8 == session >> 8);
                if keeps {
                    return;
                }
                if let Some(old) = peer.session {
                    if from > own && old & 0xff == u64::from(own) {
                        return;
                    }
                    peer.session = None;
                    peer.queue.clear();
                    peer.arriving = None;
                    handler.failed(number, Failure::Network("was restarted"));
                }
                if let Some(peer) = self.peer(number) {
                    peer.session = Some(session);
                }
            }
            Packet::Closed => {
                let is_it = session == 0 || peer.session == Some(session);
                if is_it && peer.session.take().is_some() {
                    peer.queue.clear();
                    peer.arriving = None;
                    handler.failed(number, Failure::Left);
                }
            }
            _ if peer.session != Some(session) => {}
            Packet::Whole(header, payload) => {
                assert!(handler.fragment(number, &header, &payload));
            }
            Packet::Begin(header, length) => {
                peer.arriving = handler.begin(number, &header, length);
                assert!(peer.arriving.is_some());
            }
            Packet::Chunk(offset, bytes) => {
                if let Some(id) = peer.arriving {
                    handler.place(id, offset, &bytes);
                }
            }
            Packet::End => {
                if let Some(id) = peer.arriving.take() {
                    handler.end(id);
                }
            }
            Packet::Sent(token) => handler.sent(number, token),
        }
    }
}

struct Never;

impl Wait for Never {
    fn wait(&self, _: Option<&std::os::fd::OwnedFd>, _: Option<Duration>) -> bool {
        true
    }
}

impl Transport for Node {
    fn send(&mut self, to: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        let own = self.own();
        let hub = self.hub.clone();
        let peer = self.peer(to).ok_or(Refused::NoSuchRank)?;
        let Some(session) = peer.session else {
            let mut world = hub.world();
            if !world.alive.contains_key(&peer.address) {
                peer.to_fail = true;
                return Err(Refused::Full);
            }
            world.sessions += 1;
            let session = world.sessions << 8 | u64::from(own);
            peer.session = Some(session);
            let address = peer.address;
            drop(world);
            self.post(address, session, Packet::Open);
            return Err(Refused::Full);
        };
        let address = peer.address;
        match fragment.payload {
            Payload::Copied(pieces) => {
                let waiting = hub.world().packets.get(&address).map_or(0, VecDeque::len);
                if waiting >= 4 * ROOM {
                    return Err(Refused::Full);
                }
                let whole = Packet::Whole(fragment.header.to_vec(), pieces.concat());
                self.post(address, session, whole);
            }
            Payload::Read { token, length } => {
                if peer.queue.len() >= ROOM {
                    return Err(Refused::Full);
                }
                peer.queue.push_back(Reading {
                    token,
                    header: fragment.header.to_vec(),
                    length: length as usize,
                    next: 0,
                });
            }
        }
        Ok(())
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut did = false;
        for number in 0..self.peers.len() {
            if let Some(peer) = &mut self.peers[number]
                && std::mem::take(&mut peer.to_fail)
            {
                handler.failed(number as Rank, Failure::Unreachable);
                did = true;
            }
        }
        for _ in 0..3 {
            let own = self.own();
            let next = self.hub.world().packets.entry(own).or_default().pop_front();
            let Some((from, session, packet)) = next else {
                break;
            };
            self.handle(from, session, packet, handler);
            did = true;
        }
        did
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        for number in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[number] else {
                continue;
            };
            let (Some(session), Some(first)) = (peer.session, peer.queue.front_mut()) else {
                continue;
            };
            let count = CHUNK.min(first.length - first.next);
            let mut bytes = vec![0; count];
            let number = number as Rank;
            match handler.source(number, first.token, first.next, count) {
                Some(lent) => bytes.copy_from_slice(lent),
                None => handler.read(number, first.token, first.next, &mut bytes),
            }
            let mut packets = Vec::new();
            if first.length <= CHUNK {
                packets.push(Packet::Whole(first.header.clone(), bytes));
            } else {
                if first.next == 0 {
                    packets.push(Packet::Begin(first.header.clone(), first.length));
                }
                packets.push(Packet::Chunk(first.next, bytes));
            }
            first.next += count;
            let (token, ended) = (first.token, first.next == first.length);
            if ended && first.length > CHUNK {
                packets.push(Packet::End);
            }
            let address = peer.address;
            if ended {
                peer.queue.pop_front();
            }
            for packet in packets {
                self.post(address, session, packet);
            }
            if ended {
                // The peer receives the fragment when it polls, and the next poll of this process
                // reports that the fragment was sent.
                let own = self.own();
                let mut world = self.hub.world();
                let queue = world.packets.entry(own).or_default();
                queue.push_back((address, session, Packet::Sent(token)));
            }
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let peer = self.peers.get(peer as usize).and_then(Option::as_ref);
        peer.map_or(0, |peer| peer.queue.len())
    }
    fn timeout(&self) -> Option<Duration> {
        None
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Never)
    }
    fn abandon(&mut self, _: &[Rank], _: &mut impl FragmentHandler) {}
    fn describe(&self, _: Rank) -> String {
        String::new()
    }
}

impl OpenTransport for Node {
    fn address(&self) -> &[u8] {
        &self.address
    }
    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        Some(format!("{address:?}"))
    }
    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        let number = text.trim_matches(['[', ']']).parse();
        Ok(vec![
            number.map_err(|_| ConnectError::Malformed("not a number"))?,
        ])
    }
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        let &[address] = address else {
            return Err(ConnectError::Malformed("not one byte"));
        };
        match address == self.own() {
            true => Err(ConnectError::Own),
            false => Ok(self.number_of(address).0),
        }
    }
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        let peer = self.peers.get(peer as usize)?.as_ref()?;
        Some(vec![peer.address])
    }
    fn has_session(&self, peer: Rank) -> bool {
        let peer = self.peers.get(peer as usize).and_then(Option::as_ref);
        peer.is_some_and(|peer| peer.session.is_some())
    }
    fn end_session(&mut self, number: Rank) {
        let Some(peer) = self.peer(number) else {
            return;
        };
        peer.queue.clear();
        peer.arriving = None;
        peer.to_fail = false;
        let address = peer.address;
        if let Some(session) = peer.session.take() {
            self.post(address, session, Packet::Closed);
        }
    }
    fn close(&mut self, peer: Rank) {
        self.end_session(peer);
        if let Some(place) = self.peers.get_mut(peer as usize) {
            *place = None;
        }
    }
    fn leave(&mut self) {
        for peer in 0..self.peers.len() {
            self.end_session(peer as Rank);
        }
        self.ended = true;
    }
    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
    fn can_copy(&self, _: Rank) -> bool {
        self.copies
    }
    unsafe fn copy_from(
        &mut self,
        _: Rank,
        remote: u64,
        local: *mut u8,
        length: usize,
    ) -> std::io::Result<()> {
        let remote = std::ptr::with_exposed_provenance::<u8>(remote as usize);
        // SAFETY: all processes of the hub are simulated within this process, and keep memory alive
        // while a peer may use its address.
        unsafe { std::ptr::copy(remote, local, length) };
        Ok(())
    }
    unsafe fn copy_to(
        &mut self,
        _: Rank,
        remote: u64,
        local: *const u8,
        length: usize,
    ) -> std::io::Result<()> {
        let remote = std::ptr::with_exposed_provenance_mut::<u8>(remote as usize);
        // SAFETY: as in `copy_from`, the remote address is in this process, and the memory is
        // alive.
        unsafe { std::ptr::copy(local, remote, length) };
        Ok(())
    }
}
