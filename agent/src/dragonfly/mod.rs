//! A dragonfly topology of nodes, which limits incast: each node exchanges short fragments directly
//! with at most ⌈√n⌉ of the n nodes. These bundle the fragments that they pass on to the others.
//!
//! ```text
//! Machine ── fragments ──▶ Dragonfly ── frames to neighbours, long fragments to all ──▶ network
//! ```
//!
//! A [`Dragonfly`] is a network on top of a network, so the agent's protocol is unaware of it.
//! Routes are fixed: a fragment goes from its sender to the node of the sender's group that has the
//! link to the target's group, over that link to the node at its other end, and from there to the
//! target. Fragments from one node to another therefore arrive in order. Long fragments go directly
//! to their target, because no more of them arrive there than the target has requested.
//!
//! **Bounds.** For each neighbour, a node holds at most [`WINDOW`] bytes that it passes on to its
//! own group, and as many that it passes on to other groups. It reports to the neighbour how many
//! bytes it has passed on. This is deadlock-free: the target always accepts an item, so passing on
//! within the last group always makes progress, and therefore passing on to another group does too.
//!
//! **Sessions** connect nodes that are not neighbours. Each end draws a random name for the
//! session, and fragments with other names are discarded. Nothing is therefore duplicated or
//! reordered, whichever node on the route dies. A node that loses a neighbour loses the sessions
//! that are routed through the neighbour. It notifies the nodes whose items it passed on to that
//! neighbour, and these lose their sessions too.
//!
//! The topology is that of Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable
//! Dragonfly Topology" (ISCA 2008), with one link between each pair of groups.

mod item;
mod routes;
mod state;

use conduit_core::ni::Rank;
use conduit_portals::forward_transport;
use conduit_portals::transport::Transport;
use conduit_portals::transport::fragment::{
    Failure, Fragment, FragmentHandler, MAX_HEADER, Payload, Refused,
};
use conduit_portals::transport::open::{ConnectError, OpenTransport};

use routes::Routes;
pub use state::WINDOW;
use state::{FRAME, LONG, Landing, State};

/// The maximum number of frames to a neighbour that the network reads. While it reads one, the next
/// frame is sent only when it is full.
const FLYING: usize = 4;
/// The first byte of a frame's header. No header of the agent's own protocol starts with it.
const FRAMED: u8 = 0x80;
/// The number of bytes that precede a long fragment's own header.
const NAMES: usize = 9;
/// The bit that marks the tokens of frames.
const TOKEN: u64 = 1 << 63;

/// See the [module](self).
pub struct Dragonfly<N> {
    network: N,
    state: State,
}

impl<N: OpenTransport> Dragonfly<N> {
    /// Creates the dragonfly of node `own`, an index of `addresses`. All nodes of the job must be
    /// given the same addresses in the same order, and either all nodes or none must use a
    /// dragonfly.
    ///
    /// # Errors
    /// Returns an error if an address is invalid, or the network has no room for more peers.
    pub fn new<'a>(
        mut network: N,
        own: u32,
        addresses: impl Iterator<Item = &'a [u8]>,
        seed: u64,
    ) -> Result<Self, ConnectError> {
        let ranks = (0..)
            .zip(addresses)
            .map(|(node, address)| match node == own {
                true => Ok(None),
                false => network.connect(address).map(Some),
            });
        let ranks: Vec<Option<Rank>> = ranks.collect::<Result<_, _>>()?;
        // The cast is lossless: node numbers have 32 bits.
        let routes = Routes::new(ranks.len() as u32);
        Ok(Self {
            network,
            state: State::new(routes, own, ranks, seed),
        })
    }

    /// Returns the underlying network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// Returns how many bytes wait here for a link.
    pub fn waiting(&self) -> usize {
        self.state.waiting()
    }

    /// Ends the sessions of the network that are no longer needed or whose node violated the
    /// protocol.
    fn part(&mut self) {
        for node in std::mem::take(&mut self.state.broken) {
            tracing::warn!(
                node,
                "a node's agent violated the dragonfly protocol or does not use it (DRAGON_HSTA_DRAGONFLY)"
            );
            self.state.lose(node, Failure::Broken("malformed frame"));
            if let Some(rank) = self.state.ranks[node as usize] {
                self.state.fail(rank);
                self.network.end_session(rank);
            }
        }
        for rank in std::mem::take(&mut self.state.ending) {
            if self.network.has_session(rank) {
                self.network.end_session(rank);
            }
        }
    }

    fn send_frames(&mut self) {
        let hops: Vec<u32> = self.state.hops.keys().copied().collect();
        for node in hops {
            while self.send_frame(node) {}
        }
    }

    /// Sends a frame to a neighbour if one is due. Otherwise, reports to the neighbour how many
    /// bytes were passed on, if they are many. Returns whether a frame was sent.
    fn send_frame(&mut self, node: u32) -> bool {
        let (Some(hop), Some(rank)) = (self.state.hops.get(&node), self.state.ranks[node as usize])
        else {
            return false;
        };
        let goes = match hop.flying {
            0 => hop.ready() > 0,
            1..FLYING => hop.ready() >= FRAME,
            _ => false,
        };
        let packed = match goes || hop.packed.is_some() {
            true => {
                let hop = self.state.hops.get_mut(&node);
                let packed = hop.and_then(|hop| hop.packed.take());
                packed.or_else(|| self.state.pack(node))
            }
            false => None,
        };
        let Some(hop) = self.state.hops.get_mut(&node) else {
            return false;
        };
        let mut header = vec![FRAMED];
        header.extend(hop.owed.iter().flat_map(|owed| owed.to_le_bytes()));
        let header = &header;
        let Some(packed) = packed else {
            // A smaller number can wait: the rest of the window, at least half of it, always
            // suffices for the next item.
            let half = hop.owed.iter().any(|owed| *owed as usize >= WINDOW / 2);
            let payload = Payload::Copied(&[]);
            if half
                && self
                    .network
                    .send(rank, &Fragment { header, payload })
                    .is_ok()
            {
                hop.owed = [0; 2];
            }
            return false;
        };
        let length = packed.len() as u32;
        let token = self.state.frames.insert((node, packed));
        let payload = Payload::Read {
            token: token as u64 | TOKEN,
            // The cast is lossless: a frame has at most `FRAME` bytes.
            length,
        };
        match self.network.send(rank, &Fragment { header, payload }) {
            Ok(()) => {
                hop.owed = [0; 2];
                hop.flying += 1;
                true
            }
            Err(_) => {
                hop.packed = Some(self.state.frames.remove(token).1);
                false
            }
        }
    }
}

/// The handler of the network's events, which passes those of the agent's fragments on to the
/// agent's handler.
struct Between<'a, H> {
    state: &'a mut State,
    handler: &'a mut H,
}

impl<H: FragmentHandler> Between<'_, H> {
    /// Decides which handler gets a fragment.
    fn sort(&mut self, peer: Rank, header: &[u8]) -> Sorted {
        let Some(&node) = self.state.nodes.get(&peer) else {
            return Sorted::Handler(0);
        };
        let is_far = !self.state.routes.are_neighbours(self.state.own, node);
        let sorted = match header.first() {
            Some(&FRAMED) => Sorted::Frame(node),
            Some(&LONG) if is_far => match self.state.is_current(node, header) {
                true => Sorted::Handler(NAMES),
                false => Sorted::Nothing(node),
            },
            _ if is_far => {
                self.state.broken.push(node);
                Sorted::Nothing(node)
            }
            _ => Sorted::Handler(0),
        };
        if let Sorted::Handler(_) = sorted {
            self.state.meet(node, self.handler);
        }
        sorted
    }

    fn take(&mut self, node: u32, header: &[u8], frame: &[u8]) {
        if self.state.take(node, header, frame, self.handler).is_none() {
            self.state.broken.push(node);
        }
    }
}

enum Sorted {
    /// The agent's handler gets the fragment without this many bytes at the start of its header.
    Handler(usize),
    /// The fragment is a frame from this node.
    Frame(u32),
    /// The fragment, which is from this node, is discarded.
    Nothing(u32),
}

impl<H: FragmentHandler> FragmentHandler for Between<'_, H> {
    forward_transport!(handler in [Self { handler, .. }]: joined, link_idle, room);

    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        if token & TOKEN == 0 {
            self.handler.read(peer, token, offset, into);
        } else if let Some((_, frame)) = self.state.frames.get((token ^ TOKEN) as usize) {
            into.copy_from_slice(&frame[offset..][..into.len()]);
        }
    }

    fn source(&self, peer: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        if token & TOKEN == 0 {
            return self.handler.source(peer, token, offset, length);
        }
        let (_, frame) = self.state.frames.get((token ^ TOKEN) as usize)?;
        frame.get(offset..)?.get(..length)
    }

    fn sent(&mut self, peer: Rank, token: u64) {
        if token & TOKEN == 0 {
            self.handler.sent(peer, token);
        } else if let Some((node, _)) = self.state.frames.try_remove((token ^ TOKEN) as usize)
            && let Some(hop) = self.state.hops.get_mut(&node)
        {
            hop.flying -= 1;
        }
    }

    fn is_awaited(&self, peer: Rank, token: u64) -> bool {
        token & TOKEN != 0 || self.handler.is_awaited(peer, token)
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        match self.sort(peer, header) {
            Sorted::Handler(skip) => self.handler.fragment(peer, &header[skip..], payload),
            Sorted::Frame(node) => {
                self.take(node, header, payload);
                true
            }
            Sorted::Nothing(_) => true,
        }
    }

    /// The returned ids of the handler's fragments are even, and those of frames are odd.
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        let landing = match self.sort(peer, header) {
            Sorted::Handler(skip) => {
                let id = self.handler.begin(peer, &header[skip..], length)?;
                return Some(id << 1);
            }
            Sorted::Frame(node) if length <= FRAME => (
                node,
                Some(Landing {
                    header: header.to_vec(),
                    frame: vec![0; length],
                }),
            ),
            Sorted::Frame(node) => {
                self.state.broken.push(node);
                (node, None)
            }
            Sorted::Nothing(node) => (node, None),
        };
        Some((self.state.landing.insert(landing) as u64) << 1 | 1)
    }

    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        if id & 1 == 0 {
            self.handler.place(id >> 1, offset, bytes);
        } else if let Some((_, Some(Landing { frame, .. }))) =
            self.state.landing.get_mut((id >> 1) as usize)
        {
            frame[offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn end(&mut self, id: u64) {
        if id & 1 == 0 {
            self.handler.end(id >> 1);
        } else if let Some((node, Some(Landing { header, frame }))) =
            self.state.landing.try_remove((id >> 1) as usize)
        {
            self.take(node, &header, &frame);
        }
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        let node = self.state.nodes.get(&peer).copied();
        let tells = node.is_none_or(|node| self.state.lose(node, failure));
        if tells {
            self.handler.failed(peer, failure);
        }
        self.state.flush(self.handler);
    }
}

impl<N: OpenTransport> Transport for Dragonfly<N> {
    const AT_ONCE: bool = false;

    forward_transport!(network in [Self { network, .. }]: settle, timeout, waiter, describe);

    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        let Some(node) = self.state.far(peer) else {
            return self.network.send(peer, fragment);
        };
        if fragment.header.len() + NAMES > MAX_HEADER {
            return Err(Refused::TooLong);
        }
        let Fragment { header, payload } = fragment;
        match self.state.send(node, header, payload)? {
            None => Ok(()),
            Some(header) => {
                let (header, payload) = (&header[..], *payload);
                self.network.send(peer, &Fragment { header, payload })
            }
        }
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut did = self.state.flush(handler);
        let state = &mut self.state;
        did |= self.network.receive(&mut Between { state, handler });
        self.part();
        did
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        self.state.read(handler);
        self.send_frames();
        let state = &mut self.state;
        self.network.transmit(&mut Between { state, handler });
        self.part();
    }

    fn is_idle(&self, peer: Rank) -> bool {
        match self.state.far(peer) {
            Some(node) => self.state.queued(node) == 0 && self.network.is_idle(peer),
            None => self.network.is_idle(peer),
        }
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let queued = self
            .state
            .far(peer)
            .map_or(0, |node| self.state.queued(node));
        queued + self.network.outstanding(peer)
    }

    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        let state = &mut self.state;
        self.network.abandon(peers, &mut Between { state, handler });
    }
}

impl<N: OpenTransport> OpenTransport for Dragonfly<N> {
    forward_transport!(network in [Self { network, .. }]:
        address, address_to_text, address_of_text, peer_address, leave, descriptors, prepare_sleep);

    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        let rank = self.network.connect(address)?;
        if let Some(&node) = self.state.nodes.get(&rank) {
            self.state.known[node as usize] = true;
        }
        Ok(rank)
    }

    fn has_session(&self, peer: Rank) -> bool {
        match self.state.far(peer) {
            Some(node) => self.state.has_session(node),
            None => self.network.has_session(peer),
        }
    }

    fn end_session(&mut self, peer: Rank) {
        match (self.state.far(peer), self.state.nodes.get(&peer)) {
            (Some(node), _) => self.state.close(node),
            (None, Some(&node)) => {
                self.state.lose(node, Failure::Left);
                self.network.end_session(peer);
            }
            (None, None) => self.network.end_session(peer),
        }
        self.part();
    }

    /// Closes the peer in the network only if it is not a node, so that the nodes keep their ranks.
    fn close(&mut self, peer: Rank) {
        self.end_session(peer);
        if !self.state.nodes.contains_key(&peer) {
            self.network.close(peer);
        }
    }
}
