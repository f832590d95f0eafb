//! A [`Transport`] between ranks of one process: fragments are handed over without packets, loss or time. It is the oracle for
//! what a protocol promises and for nothing more: by its [`Disorder`] it uses all the freedom that the promise leaves.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use parking_lot::{Condvar, Mutex};

use crate::transport::fragment::{
    Failure, Fragment, FragmentHandler, MAX_HEADER, MAX_TINY, Payload, Refused,
};

use super::interface::{Access, NativeAtomic, Remote, Transport, Wait};

mod direct;

use direct::{Ended, Exposed, Operation, What};

/// How a fabric treats its fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disorder {
    /// Where its choices begin; `None`: it makes none, everything goes at once and in order.
    pub seed: Option<u64>,
    /// One in so many sends is refused; 0 for none.
    pub refuse: u32,
    /// Bytes of the largest payload that comes in one piece, and of the pieces of others.
    pub packet: usize,
    /// Fragments that a link holds.
    pub link_fragments: usize,
    /// Ranks reach each other's regions directly.
    pub direct: bool,
    /// Which atomics they do directly.
    pub atomics: Atomics,
    /// Bytes of regions that a rank may expose, as the limit of locked memory.
    pub exposed_bytes: usize,
}

/// Atomics of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// It has none.
    None,
    /// Additions and compare-and-swap on 64 bits, both fetching: what InfiniBand has.
    Few,
    /// It has all.
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
        }
    }
}

#[derive(Debug)]
struct Packet {
    header: Vec<u8>,
    payload: Vec<u8>,
    /// The sender's name for it, if it hears of its arrival.
    token: Option<u64>,
    /// Whether it travels by itself; else in a bundle with others that are tiny.
    tiny: bool,
}

/// What has come for a rank and was not looked at.
#[derive(Debug, Default)]
struct Inbox {
    packets: Vec<(Rank, Packet)>,
    /// Peers and tokens of what has arrived there.
    sent: Vec<(Rank, u64)>,
    failures: Vec<(Rank, Failure)>,
    /// Something has come since the rank was about to sleep; ends sleeps.
    news: bool,
}

#[derive(Debug, Default)]
struct Seat {
    inbox: Mutex<Inbox>,
    bell: Condvar,
    /// What peers reach directly. Held while one does.
    exposed: Mutex<Vec<Exposed>>,
}

impl Wait for Seat {
    /// By a bell of this process, which no descriptor rings.
    fn wait(&self, _: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        let mut inbox = self.inbox.lock();
        if !inbox.news {
            match limit {
                Some(limit) => {
                    self.bell.wait_for(&mut inbox, limit);
                }
                None => self.bell.wait(&mut inbox),
            }
        }
        inbox.news
    }
}

/// The seats of all ranks.
#[derive(Debug, Clone)]
pub struct Fabric(Arc<[Arc<Seat>]>);

impl Fabric {
    /// For so many ranks.
    pub fn new(ranks: u32) -> Self {
        Self((0..ranks).map(|_| Arc::default()).collect())
    }

    /// A rank's end.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn transport(&self, rank: Rank, disorder: Disorder) -> FabricTransport {
        assert!((rank as usize) < self.0.len(), "a rank of the fabric");
        let seed = disorder.seed.map(|seed| seed ^ u64::from(rank) << 32);
        FabricTransport {
            rank,
            fabric: self.clone(),
            disorder,
            random: seed.map(fastrand::Rng::with_seed),
            links: (0..self.0.len()).map(|_| FabricLink::default()).collect(),
            dead: vec![false; self.0.len()].into(),
            direct: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Tells all other ranks that this one has failed.
    pub fn fail(&self, rank: Rank, failure: Failure) {
        for (peer, seat) in (0..).zip(self.0.iter()) {
            if peer != rank {
                seat.inbox.lock().failures.push((rank, failure));
                seat.bell.notify_all();
            }
        }
    }
}

/// A fragment whose pieces come one by one.
#[derive(Debug)]
struct Begun {
    place: u64,
    payload: Vec<u8>,
    token: Option<u64>,
    /// Where the pieces that are missing begin.
    missing: Vec<usize>,
}

#[derive(Debug, Default)]
struct Channel {
    packets: VecDeque<Packet>,
    begun: VecDeque<Begun>,
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

#[derive(Debug, Default)]
struct FabricLink {
    /// To the peer: not handed over yet.
    waiting: VecDeque<Waiting>,
    /// To the peer: not arrived, where this rank hears of it.
    unacknowledged: usize,
    /// From the peer: commands and data.
    channels: [Channel; 2],
    /// Of what has arrived there: not told yet.
    sent: VecDeque<u64>,
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
    /// SubmitError done yet.
    direct: Vec<Operation>,
    /// Done and not told.
    ended: Vec<Ended>,
}

impl FabricTransport {
    /// True once in so many, if choices are made at all.
    fn chance(&mut self, one_in: u32) -> bool {
        match &mut self.random {
            Some(random) if one_in > 0 => random.u32(0..one_in) == 0,
            _ => false,
        }
    }

    /// Takes over what has come.
    fn collect(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let seat = &self.fabric.0[self.rank as usize];
        let (packets, sent, failures) = {
            let mut inbox = seat.inbox.lock();
            let Inbox {
                packets,
                sent,
                failures,
                ..
            } = &mut *inbox;
            (
                std::mem::take(packets),
                std::mem::take(sent),
                std::mem::take(failures),
            )
        };
        let any = !packets.is_empty() || !sent.is_empty();
        for (from, packet) in packets {
            let channel = usize::from(!packet.tiny);
            self.links[from as usize].channels[channel]
                .packets
                .push_back(packet);
        }
        for (peer, token) in sent {
            self.links[peer as usize].sent.push_back(token);
        }
        for (peer, failure) in failures {
            self.dead[peer as usize] = true;
            self.links[peer as usize] = FabricLink::default();
            self.drop_direct(peer);
            handler.failed(peer, failure);
        }
        any
    }

    /// Hands over what one channel has, as far as its choices go; what has arrived whole.
    fn deliver(
        &mut self,
        from: Rank,
        number: usize,
        handler: &mut impl FragmentHandler,
    ) -> Vec<Option<u64>> {
        let packet = self.disorder.packet;
        let mut arrived = Vec::new();
        let channel = &mut self.links[from as usize].channels[number];
        let mut steps = match &mut self.random {
            Some(random) => random.usize(0..12),
            None => usize::MAX,
        };
        while steps > 0 {
            steps -= 1;
            // The next fragment begins, or a piece of one that has begun comes.
            let next = match (&mut self.random, channel.begun.is_empty()) {
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
                        if let Some(random) = &mut self.random {
                            random.shuffle(&mut missing);
                        }
                        channel.begun.push_back(Begun {
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
            let at = match &mut self.random {
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

    /// Tells a peer that its fragments have arrived.
    fn acknowledge(&self, peer: Rank, arrived: Vec<Option<u64>>) {
        if arrived.is_empty() {
            return;
        }
        let seat = &self.fabric.0[peer as usize];
        let mut inbox = seat.inbox.lock();
        let tokens = arrived.into_iter().flatten();
        inbox.sent.extend(tokens.map(|token| (self.rank, token)));
        inbox.news = true;
        seat.bell.notify_all();
    }
}

impl Transport for FabricTransport {
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        if self.dead.get(peer as usize).is_some_and(|dead| *dead) {
            return Err(Refused::Dead);
        }
        assert!(fragment.header.len() <= MAX_HEADER, "a header's length");
        let refused = self.chance(self.disorder.refuse);
        let Some(link) = self.links.get_mut(peer as usize) else {
            return Err(Refused::NoSuchRank);
        };
        if refused || link.waiting.len() + link.unacknowledged >= self.disorder.link_fragments {
            return Err(Refused::Full);
        }
        let header = fragment.header.to_vec();
        link.waiting.push_back(match fragment.payload {
            Payload::Copied(pieces) => {
                let payload = pieces.concat();
                assert!(header.len() + payload.len() <= MAX_TINY, "a tiny fragment");
                Waiting::Whole(Packet {
                    header,
                    payload,
                    token: None,
                    tiny: true,
                })
            }
            Payload::Read { token, length } => {
                link.unacknowledged += 1;
                Waiting::Read {
                    header,
                    token,
                    length: length as usize,
                }
            }
        });
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
                let arrived = self.deliver(from as Rank, channel, handler);
                self.acknowledge(from as Rank, arrived);
            }
            // The news of what has been sent comes late.
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
                packets.extend(match self.links[peer].waiting.pop_front() {
                    Some(Waiting::Whole(packet)) => Some(packet),
                    Some(Waiting::Read {
                        header,
                        token,
                        length,
                    }) => {
                        let mut payload = vec![0; length];
                        let (packet, mut rest) = (self.disorder.packet, &mut payload[..]);
                        let mut offset = 0;
                        while !rest.is_empty() {
                            let (piece, others) = rest.split_at_mut(packet.min(rest.len()));
                            handler.read(peer as Rank, token, offset, piece);
                            offset += piece.len();
                            rest = others;
                        }
                        Some(Packet {
                            header,
                            payload,
                            token: Some(token),
                            tiny: false,
                        })
                    }
                    None => None,
                });
            }
            if packets.is_empty() {
                continue;
            }
            let seat = &self.fabric.0[peer];
            let mut inbox = seat.inbox.lock();
            let from = self.rank;
            inbox.packets.extend(packets.into_iter().map(|p| (from, p)));
            inbox.news = true;
            seat.bell.notify_all();
        }
    }

    fn abandon(&mut self, peers: &[Rank], _: &mut impl FragmentHandler) {
        for &peer in peers {
            let link = &mut self.links[peer as usize];
            let before = link.waiting.len();
            link.waiting.retain(|w| !matches!(w, Waiting::Read { .. }));
            link.unacknowledged -= before - link.waiting.len();
            self.abandon_direct(peer);
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let link = &self.links[peer as usize];
        let direct = usize::from(self.has_direct_to(peer));
        link.waiting.len() + link.unacknowledged + direct
    }

    fn timeout(&self) -> Option<Duration> {
        let mut inbox = self.fabric.0[self.rank as usize].inbox.lock();
        inbox.news = !(inbox.packets.is_empty() && inbox.sent.is_empty());
        drop(inbox);
        // Where choices are made, what has come waits for the next look.
        let waits = self.random.is_some() || !self.direct.is_empty() || !self.ended.is_empty();
        waits.then_some(Duration::from_millis(1))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        let seat: Arc<Seat> = Arc::clone(&self.fabric.0[self.rank as usize]);
        seat
    }

    fn describe(&self, peer: Rank) -> String {
        format!("(seat {peer} of this process)")
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
        self.begin_direct(peer, What::Write(*access))
    }

    unsafe fn read(&mut self, peer: Rank, access: &Access) -> Result<(), Refused> {
        self.begin_direct(peer, What::Read(*access))
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
        self.begin_direct(peer, What::Atomic(remote, *atomic))
    }
}
