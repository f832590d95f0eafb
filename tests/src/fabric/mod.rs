//! A [`Transport`] between the ranks of one process, for tests. It delivers fragments without
//! packets, loss or delay, unless a [`Disorder`] makes it use the freedom that the contract gives a
//! transport. It has [connections](conduit_portals::transport::Connect) if the disorder allows
//! some.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use parking_lot::{Condvar, Mutex};

use conduit_portals::transport::fragment::{
    Failure, Fragment, FragmentHandler, MAX_HEADER, MAX_TINY, Payload, Refused,
};

use conduit_portals::transport::{Access, NativeAtomic, Remote, Transport, Wait};

mod connections;
mod direct;

use connections::Connection;
use direct::{Completed, DirectOp, Exposed, Operation};

/// How a fabric delays, reorders and refuses fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disorder {
    /// The seed of the random choices. If it is `None`, fragments are delivered at once and in
    /// order.
    pub seed: Option<u64>,
    /// One in this many sends is refused. If it is 0, none is.
    pub refuse: u32,
    /// The maximum number of payload bytes that are delivered in one piece. Longer payloads are
    /// delivered in pieces of this length.
    pub packet: usize,
    /// The maximum number of fragments that a link holds.
    pub link_fragments: usize,
    /// Whether ranks have direct access to each other's regions.
    pub direct: bool,
    /// The fabric's native atomics.
    pub atomics: Atomics,
    /// The maximum number of bytes in all regions that a rank exposes, comparable to a limit of
    /// locked memory.
    pub exposed_bytes: usize,
    /// The maximum number of concurrent connections of a rank.
    pub connections: u16,
    /// One in this many connections fails to be established. If it is 0, none fails.
    pub refuse_connections: u32,
}

/// The native atomics of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// The fabric has no atomics.
    None,
    /// The fabric has addition and compare-and-swap on 64 bits, as on InfiniBand. The two return
    /// the old value.
    Few,
    /// The fabric has all atomics.
    All,
}

impl Default for Disorder {
    fn default() -> Self {
        Self {
            seed: None,
            refuse: 0,
            packet: 1400,
            link_fragments: 64,
            direct: false,
            atomics: Atomics::None,
            exposed_bytes: usize::MAX,
            connections: 0,
            refuse_connections: 0,
        }
    }
}

#[derive(Debug)]
struct Packet {
    header: Vec<u8>,
    payload: Vec<u8>,
    /// The sender's token, if the packet's arrival is to be reported.
    token: Option<u64>,
    /// Whether the packet uses the command channel.
    tiny: bool,
    /// The number of the connection that the packet uses, if it uses one.
    connection: Option<u32>,
}

/// Packets and reports that a rank has not received yet.
#[derive(Debug, Default)]
struct Inbox {
    packets: Vec<(Rank, Packet)>,
    /// The peer and the token of each fragment that has arrived at that peer.
    sent: Vec<(Rank, u64)>,
    /// The peer, the connection number and the channel of each fragment that the peer has taken.
    taken: Vec<(Rank, u32, usize)>,
    failures: Vec<(Rank, Failure)>,
    /// Whether the inbox holds anything that wakes the rank.
    wakes: bool,
}

#[derive(Debug, Default)]
struct Port {
    inbox: Mutex<Inbox>,
    arrival: Condvar,
    /// The memory for direct access. It is locked during an access.
    exposed: Mutex<Vec<Exposed>>,
}

impl Wait for Port {
    /// Waits on a condition variable, and therefore ignores the descriptor.
    fn wait(&self, _: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        let mut inbox = self.inbox.lock();
        if !inbox.wakes {
            match limit {
                Some(limit) => {
                    self.arrival.wait_for(&mut inbox, limit);
                }
                None => self.arrival.wait(&mut inbox),
            }
        }
        inbox.wakes
    }
}

/// A network within this process, with a port for each rank.
#[derive(Debug, Clone)]
pub struct Fabric(Arc<[Arc<Port>]>);

impl Fabric {
    /// Creates a fabric for this many ranks.
    pub fn new(ranks: u32) -> Self {
        Self((0..ranks).map(|_| Arc::default()).collect())
    }

    /// Returns the end of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn transport(&self, rank: Rank, disorder: Disorder) -> FabricTransport {
        assert!(
            (rank as usize) < self.0.len(),
            "the fabric has no such rank"
        );
        let seed = disorder.seed.map(|seed| seed ^ u64::from(rank) << 32);
        FabricTransport {
            rank,
            fabric: self.clone(),
            disorder,
            random: seed.map(fastrand::Rng::with_seed),
            links: (0..self.0.len()).map(|_| FabricLink::default()).collect(),
            dead: vec![false; self.0.len()].into(),
            direct: Vec::new(),
            completed: Vec::new(),
        }
    }

    /// Reports to all other ranks that `rank` has failed.
    pub fn fail(&self, rank: Rank, failure: Failure) {
        for (peer, port) in (0..).zip(self.0.iter()) {
            if peer != rank {
                port.inbox.lock().failures.push((rank, failure));
                port.arrival.notify_all();
            }
        }
    }
}

/// A fragment that arrives in pieces.
#[derive(Debug)]
struct Partial {
    place: u64,
    payload: Vec<u8>,
    token: Option<u64>,
    /// The offsets of the missing pieces.
    missing: Vec<usize>,
}

#[derive(Debug, Default)]
struct Channel {
    packets: VecDeque<Packet>,
    begun: VecDeque<Partial>,
}

impl Channel {
    /// Delivers some of a channel's packets. Returns the tokens of the fragments whose last piece
    /// has arrived.
    fn deliver(
        &mut self,
        from: Rank,
        packet: usize,
        random: &mut Option<fastrand::Rng>,
        handler: &mut impl FragmentHandler,
    ) -> Vec<Option<u64>> {
        let mut arrived = Vec::new();
        let channel = self;
        let mut steps = match random {
            Some(random) => random.usize(0..12),
            None => usize::MAX,
        };
        while steps > 0 {
            steps -= 1;
            // Each iteration either begins the next fragment or delivers a piece of a fragment that
            // has begun.
            let next = match (&mut *random, channel.begun.is_empty()) {
                (_, true) => true,
                (Some(random), false) => random.bool(),
                (None, false) => false,
            };
            if next && let Some(first) = channel.packets.front() {
                let whole = first.payload.len() <= packet;
                if whole && channel.begun.is_empty() {
                    if !handler.fragment(from, &first.header, &first.payload) {
                        break;
                    }
                    arrived.extend(channel.packets.pop_front().map(|packet| packet.token));
                    continue;
                }
                if !whole {
                    let Some(place) = handler.begin(from, &first.header, first.payload.len())
                    else {
                        break;
                    };
                    if let Some(Packet { payload, token, .. }) = channel.packets.pop_front() {
                        let mut missing: Vec<_> = (0..payload.len()).step_by(packet).collect();
                        if let Some(random) = random {
                            random.shuffle(&mut missing);
                        }
                        channel.begun.push_back(Partial {
                            place,
                            payload,
                            token,
                            missing,
                        });
                    }
                    continue;
                }
            }
            if channel.begun.is_empty() {
                break;
            }
            let at = match random {
                Some(random) => random.usize(0..channel.begun.len()),
                None => 0,
            };
            let begun = &mut channel.begun[at];
            if let Some(offset) = begun.missing.pop() {
                let end = begun.payload.len().min(offset + packet);
                handler.place(begun.place, offset, &begun.payload[offset..end]);
            }
            while channel.begun.front().is_some_and(|b| b.missing.is_empty()) {
                if let Some(begun) = channel.begun.pop_front() {
                    handler.end(begun.place);
                    arrived.push(begun.token);
                }
            }
        }
        arrived
    }
}

#[derive(Debug)]
enum Waiting {
    Whole(Packet),
    Read {
        header: Vec<u8>,
        token: u64,
        length: usize,
    },
}

impl Waiting {
    fn new(fragment: &Fragment<'_>) -> Self {
        assert!(
            fragment.header.len() <= MAX_HEADER,
            "the header is too long"
        );
        let header = fragment.header.to_vec();
        match fragment.payload {
            Payload::Copied(pieces) => {
                let payload = pieces.concat();
                assert!(
                    header.len() + payload.len() <= MAX_TINY,
                    "the fragment is longer than a tiny one may be"
                );
                Self::Whole(Packet {
                    header,
                    payload,
                    token: None,
                    tiny: true,
                    connection: None,
                })
            }
            Payload::Read { token, length } => Self::Read {
                header,
                token,
                length: length as usize,
            },
        }
    }

    fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// Returns the packet to transmit. Its payload is read in pieces of at most `packet` bytes.
    fn read(self, peer: Rank, packet: usize, handler: &mut impl FragmentHandler) -> Packet {
        let (header, token, length) = match self {
            Self::Whole(packet) => return packet,
            Self::Read {
                header,
                token,
                length,
            } => (header, token, length),
        };
        let mut payload = vec![0; length];
        for (at, piece) in payload.chunks_mut(packet).enumerate() {
            handler.read(peer, token, at * packet, piece);
        }
        Packet {
            header,
            payload,
            token: Some(token),
            tiny: false,
            connection: None,
        }
    }
}

#[derive(Debug, Default)]
struct FabricLink {
    /// The fragments to the peer that have not been transmitted yet.
    waiting: VecDeque<Waiting>,
    /// The number of fragments to the peer whose arrival is still to be reported.
    unacknowledged: usize,
    /// The command channel and the data channel from the peer.
    channels: [Channel; 2],
    /// The tokens of arrived fragments that are still to be reported.
    sent: VecDeque<u64>,
    connection: Option<Connection>,
}

/// A rank's end of a [`Fabric`].
#[derive(Debug)]
pub struct FabricTransport {
    rank: Rank,
    fabric: Fabric,
    disorder: Disorder,
    random: Option<fastrand::Rng>,
    links: Box<[FabricLink]>,
    dead: Box<[bool]>,
    /// The direct operations in flight.
    direct: Vec<Operation>,
    /// The completed direct operations that are still to be reported.
    completed: Vec<Completed>,
}

impl FabricTransport {
    /// Returns true once in `one_in` calls on average. Always returns false if `one_in` is 0 or
    /// nothing is random.
    fn chance(&mut self, one_in: u32) -> bool {
        match &mut self.random {
            Some(random) if one_in > 0 => random.u32(0..one_in) == 0,
            _ => false,
        }
    }

    /// Moves packets and reports from the inbox to the links.
    fn collect(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let port = &self.fabric.0[self.rank as usize];
        let Inbox {
            packets,
            sent,
            taken,
            failures,
            ..
        } = {
            let mut inbox = port.inbox.lock();
            let empty = Inbox {
                wakes: inbox.wakes,
                ..Inbox::default()
            };
            std::mem::replace(&mut *inbox, empty)
        };
        let any = !packets.is_empty() || !sent.is_empty() || !taken.is_empty();
        // A peer that was given up earlier isn't reported again.
        for (from, packet) in packets {
            if self.dead[from as usize] {
                continue;
            }
            let link = &mut self.links[from as usize];
            let channels = match packet.connection {
                None => Some(&mut link.channels),
                Some(number) => connections::channels(link, number),
            };
            // The packets of a connection that no longer exists are lost.
            if let Some(channels) = channels {
                channels[usize::from(!packet.tiny)]
                    .packets
                    .push_back(packet);
            }
        }
        for (peer, token) in sent {
            if self.dead[peer as usize] {
                continue;
            }
            self.links[peer as usize].sent.push_back(token);
        }
        for (peer, number, channel) in taken {
            connections::take(&mut self.links[peer as usize], number, channel);
        }
        for (peer, failure) in failures {
            self.lose(peer, failure, handler);
        }
        any
    }

    /// Gives up a peer.
    fn lose(&mut self, peer: Rank, failure: Failure, handler: &mut impl FragmentHandler) {
        if !std::mem::replace(&mut self.dead[peer as usize], true) {
            self.links[peer as usize] = FabricLink::default();
            self.drop_direct(peer);
            handler.failed(peer, failure);
        }
    }

    /// Reports to a peer that its fragments have arrived. The report names a channel of a
    /// connection if `by` gives one.
    fn acknowledge(&self, peer: Rank, arrived: &[Option<u64>], by: Option<(u32, usize)>) {
        if arrived.is_empty() {
            return;
        }
        let port = &self.fabric.0[peer as usize];
        let mut inbox = port.inbox.lock();
        let tokens = arrived.iter().flatten();
        inbox.sent.extend(tokens.map(|token| (self.rank, *token)));
        if let Some((number, channel)) = by {
            let taken = arrived.iter().map(|_| (self.rank, number, channel));
            inbox.taken.extend(taken);
        }
        inbox.wakes = true;
        port.arrival.notify_all();
    }
}

impl Transport for FabricTransport {
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        if self.dead.get(peer as usize).is_some_and(|dead| *dead) {
            return Err(Refused::Dead);
        }
        let refused = self.chance(self.disorder.refuse);
        let Some(link) = self.links.get_mut(peer as usize) else {
            return Err(Refused::NoSuchRank);
        };
        if refused || link.waiting.len() + link.unacknowledged >= self.disorder.link_fragments {
            return Err(Refused::Full);
        }
        let waiting = Waiting::new(fragment);
        link.unacknowledged += usize::from(waiting.is_read());
        link.waiting.push_back(waiting);
        Ok(())
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let any = self.collect(handler);
        self.do_direct(handler);
        let ranks = self.links.len();
        let first = self
            .random
            .as_mut()
            .map_or(0, |random| random.usize(0..ranks));
        for from in (0..ranks).map(|at| (first + at) % ranks) {
            let order = if self.chance(2) { [1, 0] } else { [0, 1] };
            for channel in order {
                let Self {
                    links,
                    random,
                    disorder,
                    ..
                } = self;
                let channel = &mut links[from].channels[channel];
                let arrived = channel.deliver(from as Rank, disorder.packet, random, handler);
                self.acknowledge(from as Rank, &arrived, None);
            }
            // With random choices, some arrivals are reported in a later call.
            while !self.links[from].sent.is_empty() && !self.chance(2) {
                if let Some(token) = self.links[from].sent.pop_front() {
                    self.links[from].unacknowledged -= 1;
                    handler.sent(from as Rank, token);
                }
            }
        }
        any
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        for peer in 0..self.links.len() {
            let mut packets = Vec::new();
            while !self.links[peer].waiting.is_empty() && !self.chance(8) {
                if let Some(waiting) = self.links[peer].waiting.pop_front() {
                    packets.push(waiting.read(peer as Rank, self.disorder.packet, handler));
                }
            }
            self.transmit_connected(peer as Rank, &mut packets, handler);
            if packets.is_empty() {
                continue;
            }
            let port = &self.fabric.0[peer];
            let mut inbox = port.inbox.lock();
            let from = self.rank;
            inbox.packets.extend(packets.into_iter().map(|p| (from, p)));
            inbox.wakes = true;
            port.arrival.notify_all();
        }
    }

    fn abandon(&mut self, peers: &[Rank], _: &mut impl FragmentHandler) {
        for &peer in peers {
            let link = &mut self.links[peer as usize];
            let before = link.waiting.len();
            link.waiting.retain(|waiting| !waiting.is_read());
            link.unacknowledged -= before - link.waiting.len();
            connections::abandon(link);
            self.abandon_direct(peer);
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let link = &self.links[peer as usize];
        let direct = usize::from(self.has_direct_to(peer));
        link.waiting.len() + link.unacknowledged + connections::outstanding(link) + direct
    }

    fn timeout(&self) -> Option<Duration> {
        let mut inbox = self.fabric.0[self.rank as usize].inbox.lock();
        let nothing = inbox.packets.is_empty() && inbox.sent.is_empty() && inbox.taken.is_empty();
        inbox.wakes = !nothing;
        drop(inbox);
        // With random choices, some packets remain for the next call.
        let waits = self.random.is_some() || !self.direct.is_empty() || !self.completed.is_empty();
        waits.then_some(Duration::from_millis(1))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        let port: Arc<Port> = Arc::clone(&self.fabric.0[self.rank as usize]);
        port
    }

    fn describe(&self, peer: Rank) -> String {
        format!("(port {peer} of this process)")
    }

    fn has_direct(&self) -> bool {
        self.disorder.direct
    }

    unsafe fn expose(&mut self, base: *mut u8, len: usize) -> Result<Option<Remote>, String> {
        match self.disorder.direct {
            true => self.expose_directly(base, len).map(Some),
            false => Ok(None),
        }
    }

    unsafe fn write(&mut self, peer: Rank, access: &Access) -> Result<(), Refused> {
        self.begin_direct(peer, DirectOp::Write(*access))
    }

    unsafe fn read(&mut self, peer: Rank, access: &Access) -> Result<(), Refused> {
        self.begin_direct(peer, DirectOp::Read(*access))
    }

    fn has_atomic(&self, op: AtomicOp, ty: AtomicType, fetch: bool) -> bool {
        match self.disorder.atomics {
            Atomics::None => false,
            Atomics::Few => {
                fetch && ty.size() == 8 && matches!(op, AtomicOp::Add | AtomicOp::CompareSwap)
            }
            Atomics::All => true,
        }
    }

    fn atomic(&mut self, peer: Rank, remote: Remote, atomic: &NativeAtomic) -> Result<(), Refused> {
        if !self.has_atomic(atomic.op, atomic.ty, atomic.fetch) {
            return Err(Refused::TooLong);
        }
        self.begin_direct(peer, DirectOp::Atomic(remote, *atomic))
    }
}
