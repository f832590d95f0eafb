//! The state of a node's links, and of its sessions with nodes that are not neighbours.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, FragmentHandler, Payload, Refused};
use rustix::io::Errno;
use slab::Slab;

use super::item::{Item, ItemKind};
use super::routes::Routes;

/// The maximum size in bytes of a frame to a neighbour.
pub(super) const FRAME: usize = 4096;
/// The number of bytes that a node reserves for each neighbour, for the neighbour's items that it
/// passes on to its own group. It reserves as many for those that it passes on to other groups.
pub const WINDOW: usize = 16 << 10;
/// The first byte of a long fragment's header. The two names of its session and its own header
/// follow.
pub(super) const LONG: u8 = 0x81;
/// The maximum number of bytes to one node that wait here for the first link. While so many wait,
/// no more fragments to the node are accepted. The last fragment accepted may exceed the maximum.
const QUEUED: usize = 4096;
/// The maximum payload in bytes of a fragment that is passed on if the network reads its payload
/// from the handler. Fragments with longer payloads go directly to their node.
pub(super) const PASSED_ON: usize = 2048;

/// A session with a node that is not a neighbour.
struct Session {
    /// This node's name of the session.
    mine: u32,
    /// The other node's name of the session, if that node has answered.
    theirs: Option<u32>,
    /// The number of bytes that wait for the first link.
    queued: usize,
    /// Whether long fragments of this session went directly between the nodes, in a session of the
    /// network.
    is_direct: bool,
}

/// The source of an item.
enum Whence {
    /// The item is from this node.
    Own,
    /// The item came from this neighbour, whose window for this lane it occupies, or from one with
    /// which the session has ended.
    From(Option<(u32, Lane)>),
}

/// An item that waits for a link.
struct Queued {
    bytes: Vec<u8>,
    to: u32,
    whence: Whence,
}

/// The next step of an item at a neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The neighbour passes the item on to another group.
    Out = 0,
    /// The neighbour passes the item on to a node of its own group.
    In = 1,
    /// The item is for the neighbour itself.
    Here = 2,
}

/// The link to a neighbour.
#[derive(Default)]
pub(super) struct Hop {
    /// The items that wait for the link, by lane.
    queues: [VecDeque<Queued>; 3],
    /// The lane from which the next frame is filled first.
    turn: usize,
    /// A frame that the network has refused to take, to be sent again.
    pub(super) packed: Option<Vec<u8>>,
    /// The number of frames that the network still reads.
    pub(super) flying: usize,
    /// Per lane, the number of bytes that this node has given the neighbour to pass on and that the
    /// neighbour has not reported as passed on.
    used: [usize; 2],
    /// Per lane, the number of bytes from the neighbour that this node still has to pass on.
    held: [usize; 2],
    /// Per lane, the number of bytes from the neighbour that this node has passed on and has not
    /// reported yet.
    pub(super) owed: [u32; 2],
}

impl Hop {
    /// Returns how many bytes could be sent in frames now.
    pub(super) fn ready(&self) -> usize {
        let sendable = (0..3).flat_map(|lane| {
            let room = match lane {
                2 => usize::MAX,
                _ => WINDOW - self.used[lane],
            };
            let items = self.queues[lane].iter().map(|item| item.bytes.len());
            items.scan(room, |room, length| {
                *room = room.checked_sub(length)?;
                Some(length)
            })
        });
        // Stops at a full frame, because larger sums make no difference.
        let mut sum = 0;
        for length in sendable {
            sum += length;
            if sum >= FRAME {
                break;
            }
        }
        sum
    }
}

/// A frame that is arriving.
pub(super) struct Landing {
    pub(super) header: Vec<u8>,
    pub(super) frame: Vec<u8>,
}

/// See the [module](self).
pub(super) struct State {
    pub(super) routes: Routes,
    pub(super) own: u32,
    /// The network's ranks of all other nodes, or `None` for this node.
    pub(super) ranks: Vec<Option<Rank>>,
    pub(super) nodes: HashMap<Rank, u32>,
    /// Whether each node has been reported to the handler.
    pub(super) known: Vec<bool>,
    pub(super) hops: BTreeMap<u32, Hop>,
    sessions: BTreeMap<u32, Session>,
    /// The accepted fragments whose payloads are still to be read from the handler. Each has the
    /// number of its node, which is not a neighbour, its header, its token and its length.
    reads: Vec<(u32, Vec<u8>, u64, usize)>,
    /// The frames that the network reads, with their receivers.
    pub(super) frames: Slab<(u32, Vec<u8>)>,
    /// The frames that are arriving, with their senders, or `None` for a fragment to be discarded.
    pub(super) landing: Slab<(u32, Option<Landing>)>,
    /// The failures that are still to be reported to the handler.
    failing: Vec<(Rank, Failure)>,
    /// The nodes that violated the protocol.
    pub(super) broken: Vec<u32>,
    /// The ranks of the nodes whose sessions in the network are to be ended.
    pub(super) ending: Vec<Rank>,
    random: fastrand::Rng,
}

impl State {
    pub(super) fn new(routes: Routes, own: u32, ranks: Vec<Option<Rank>>, seed: u64) -> Self {
        let nodes = (0..).zip(&ranks);
        Self {
            nodes: nodes
                .filter_map(|(node, rank)| Some(((*rank)?, node)))
                .collect(),
            known: vec![false; ranks.len()],
            routes,
            own,
            ranks,
            hops: BTreeMap::new(),
            sessions: BTreeMap::new(),
            reads: Vec::new(),
            frames: Slab::new(),
            landing: Slab::new(),
            failing: Vec::new(),
            broken: Vec::new(),
            ending: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Reports a node to the handler before its first fragment.
    pub(super) fn meet(&mut self, node: u32, handler: &mut impl FragmentHandler) {
        if !std::mem::replace(&mut self.known[node as usize], true)
            && let Some(rank) = self.ranks[node as usize]
        {
            handler.joined(rank);
        }
    }

    /// Returns the node with a rank unless it is a neighbour.
    pub(super) fn far(&self, peer: Rank) -> Option<u32> {
        let node = *self.nodes.get(&peer)?;
        (!self.routes.are_neighbours(self.own, node)).then_some(node)
    }

    pub(super) fn has_session(&self, node: u32) -> bool {
        self.sessions.contains_key(&node)
    }

    /// Returns how many bytes for a node wait for the first link.
    pub(super) fn queued(&self, node: u32) -> usize {
        self.sessions.get(&node).map_or(0, |session| session.queued)
    }

    /// Returns how many bytes wait for any link.
    pub(super) fn waiting(&self) -> usize {
        let queues = self.hops.values().flat_map(|hop| &hop.queues);
        let items = queues.flatten().map(|item| item.bytes.len());
        let packed = self.hops.values().filter_map(|hop| hop.packed.as_ref());
        items.sum::<usize>() + packed.map(Vec::len).sum::<usize>()
    }

    fn lane(&self, at: u32, to: u32) -> Lane {
        match (at == to, self.routes.are_together(at, to)) {
            (true, _) => Lane::Here,
            (_, true) => Lane::In,
            (_, false) => Lane::Out,
        }
    }

    fn queue(&mut self, next: u32, to: u32, bytes: Vec<u8>, whence: Whence) {
        let lane = self.lane(next, to);
        let hop = self.hops.entry(next).or_default();
        hop.queues[lane as usize].push_back(Queued { bytes, to, whence });
    }

    /// Queues an item from this node for a node that is not a neighbour.
    fn post(
        &mut self,
        kind: ItemKind,
        to: u32,
        (mine, yours): (u32, u32),
        header: &[u8],
        payload: &[u8],
    ) {
        let item = Item {
            kind,
            from: self.own,
            to,
            mine,
            yours,
            header,
            payload,
        };
        let bytes = item.encode();
        let next = self.routes.next(self.own, to);
        if kind != ItemKind::Data {
            // Skips the item if an equal one waits already.
            let lane = self.lane(next, to) as usize;
            let hop = self.hops.entry(next).or_default();
            if hop.queues[lane].iter().any(|queued| queued.bytes == bytes) {
                return;
            }
        } else if let Some(session) = self.sessions.get_mut(&to) {
            session.queued += bytes.len();
        }
        self.queue(next, to, bytes, Whence::Own);
    }

    /// Reports lost nodes to a neighbour.
    fn tell(&mut self, neighbour: u32, lost: &Range<u32>) {
        let item = Item {
            kind: ItemKind::Lost,
            from: self.own,
            to: neighbour,
            mine: lost.start,
            yours: lost.end,
            header: &[],
            payload: &[],
        };
        let bytes = item.encode();
        let hop = self.hops.entry(neighbour).or_default();
        let queue = &mut hop.queues[Lane::Here as usize];
        if queue.iter().all(|queued| queued.bytes != bytes) {
            self.queue(neighbour, neighbour, bytes, Whence::Own);
        }
    }

    // ---- sessions ----

    /// Accepts a fragment for a node that is not a neighbour. Returns `Ok(Some(header))` if the
    /// caller has to send the fragment directly, with this header.
    pub(super) fn send(
        &mut self,
        node: u32,
        header: &[u8],
        payload: &Payload<'_>,
    ) -> Result<Option<Vec<u8>>, Refused> {
        let Some(session) = self.sessions.get_mut(&node) else {
            let mine = self.random.u32(..);
            self.open(node, mine);
            self.post(ItemKind::Open, node, (mine, 0), &[], &[]);
            return Err(Refused::Full);
        };
        let Some(theirs) = session.theirs else {
            return Err(Refused::Full);
        };
        let mine = session.mine;
        let is_full = session.queued >= QUEUED;
        match *payload {
            // The cast is lossless: the length of a fragment fits `usize`.
            Payload::Read { length, .. } if length as usize > PASSED_ON => {
                session.is_direct = true;
                let mut long = vec![LONG];
                long.extend(mine.to_le_bytes());
                long.extend(theirs.to_le_bytes());
                long.extend(header);
                return Ok(Some(long));
            }
            _ if is_full => return Err(Refused::Full),
            Payload::Read { token, length } => {
                session.queued += length as usize;
                self.reads
                    .push((node, header.to_vec(), token, length as usize));
            }
            Payload::Copied(pieces) => {
                self.post(
                    ItemKind::Data,
                    node,
                    (mine, theirs),
                    header,
                    &pieces.concat(),
                );
            }
        }
        Ok(None)
    }

    fn open(&mut self, node: u32, mine: u32) -> &mut Session {
        self.sessions.entry(node).or_insert(Session {
            mine,
            theirs: None,
            queued: 0,
            is_direct: false,
        })
    }

    /// Reads the payloads of accepted fragments from the handler.
    pub(super) fn read(&mut self, handler: &mut impl FragmentHandler) {
        for (node, header, token, length) in std::mem::take(&mut self.reads) {
            let (Some(session), Some(rank)) =
                (self.sessions.get_mut(&node), self.ranks[node as usize])
            else {
                continue;
            };
            let Some(theirs) = session.theirs else {
                continue;
            };
            session.queued -= length;
            let mine = session.mine;
            let mut payload = vec![0; length];
            handler.read(rank, token, 0, &mut payload);
            self.post(ItemKind::Data, node, (mine, theirs), &header, &payload);
            handler.sent(rank, token);
        }
    }

    /// Returns whether a long fragment belongs to the current session.
    pub(super) fn is_current(&mut self, node: u32, header: &[u8]) -> bool {
        let Some(session) = self.sessions.get_mut(&node) else {
            return false;
        };
        let Some(theirs) = session.theirs else {
            return false;
        };
        let is_current = header.get(1..5) == Some(&theirs.to_le_bytes())
            && header.get(5..9) == Some(&session.mine.to_le_bytes());
        session.is_direct |= is_current;
        is_current
    }

    fn on_item(&mut self, item: &Item<'_>, handler: &mut impl FragmentHandler) {
        let (node, names) = (item.from, (item.yours, item.mine));
        let known = self
            .sessions
            .get(&node)
            .map(|session| (session.mine, session.theirs));
        let is_current = known == Some((item.yours, Some(item.mine)));
        match item.kind {
            ItemKind::Open => {
                if known.is_some_and(|(_, theirs)| theirs.is_some_and(|theirs| theirs != item.mine))
                {
                    self.lose_session(node, Failure::Left);
                    self.flush(handler);
                }
                let mine = self.random.u32(..);
                let session = self.open(node, mine);
                session.theirs = Some(item.mine);
                let mine = session.mine;
                self.post(ItemKind::Accept, node, (mine, item.mine), &[], &[]);
            }
            ItemKind::Accept => {
                if let Some(session) = self.sessions.get_mut(&node)
                    && session.mine == item.yours
                {
                    session.theirs.get_or_insert(item.mine);
                }
            }
            ItemKind::Data if is_current => {
                self.meet(node, handler);
                if let Some(rank) = self.ranks[node as usize] {
                    // The result is ignored, because the agent always has room.
                    handler.fragment(rank, item.header, item.payload);
                }
            }
            ItemKind::Data => self.post(ItemKind::Close, node, names, &[], &[]),
            // The session may not be accepted yet at this end: the other end may have accepted and
            // lost it before the acceptance arrived.
            ItemKind::Close if known == Some((item.yours, None)) || is_current => {
                self.lose_session(node, Failure::Left);
                self.flush(handler);
            }
            ItemKind::Close | ItemKind::Lost => {}
        }
    }

    /// Ends the session with a node that is not a neighbour, and queues the failure for the
    /// handler. Notifies the other node, because it may have opened the session after the failure.
    fn lose_session(&mut self, node: u32, failure: Failure) {
        self.close(node);
        self.failing
            .extend(self.ranks[node as usize].map(|rank| (rank, failure)));
    }

    /// Drops the state of a session with a node that is not a neighbour.
    fn end_session(&mut self, node: u32) {
        let session = self.sessions.remove(&node);
        self.reads.retain(|(to, ..)| *to != node);
        let next = self.routes.next(self.own, node);
        if let Some(hop) = self.hops.get_mut(&next) {
            for queue in &mut hop.queues {
                queue.retain(|item| item.to != node || !matches!(item.whence, Whence::Own));
            }
        }
        if session.is_some_and(|session| session.is_direct) {
            // Stops the network from reading more of the fragments that go directly to the node.
            self.ending.extend(self.ranks[node as usize]);
        }
    }

    /// Ends a session at the handler's request, and notifies the other node.
    pub(super) fn close(&mut self, node: u32) {
        let names = self
            .sessions
            .get(&node)
            .and_then(|session| Some((session.mine, session.theirs?)));
        self.end_session(node);
        if let Some(names) = names {
            self.post(ItemKind::Close, node, names, &[], &[]);
        }
    }

    /// Queues the report that a node sent a malformed frame, for the handler.
    pub(super) fn fail(&mut self, rank: Rank) {
        let failure = Failure::Broken("malformed frame");
        self.failing.push((rank, failure));
    }

    /// Reports queued failures to the handler.
    pub(super) fn flush(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let did = !self.failing.is_empty();
        for (rank, failure) in std::mem::take(&mut self.failing) {
            handler.failed(rank, failure);
        }
        did
    }

    // ---- links ----

    /// Handles the end of the network's session with a node. Returns whether the caller has to
    /// report it to the handler. [`flush`](Self::flush) reports the sessions that end as a
    /// consequence.
    pub(super) fn lose(&mut self, node: u32, failure: Failure) -> bool {
        self.landing.retain(|_, (from, _)| *from != node);
        if !self.routes.are_neighbours(self.own, node) {
            let session = self.sessions.get(&node);
            let is_lost = session.is_some_and(|session| session.is_direct);
            if is_lost {
                self.close(node);
            }
            return is_lost;
        }
        self.frames.retain(|_, (to, _)| *to != node);
        let hop = self.hops.remove(&node).unwrap_or_default();
        for item in hop.queues.into_iter().flatten() {
            if let Whence::From(Some((from, lane))) = item.whence {
                self.passed_on(from, lane, item.bytes.len());
            }
        }
        let queues = self.hops.values_mut().flat_map(|hop| &mut hop.queues);
        for item in queues.flatten() {
            if matches!(item.whence, Whence::From(Some((from, _))) if from == node) {
                item.whence = Whence::From(None);
            }
        }
        self.lose_by(node, 0..self.routes.nodes(), failure);
        // Notifies the neighbours that cannot notice the loss themselves.
        let is_together = self.routes.are_together(self.own, node);
        let lost = match is_together {
            true => node..node + 1,
            false => self.routes.members(node),
        };
        self.tell_all(!is_together, &lost);
        true
    }

    /// Ends those sessions with some nodes that are routed through a neighbour.
    fn lose_by(&mut self, neighbour: u32, nodes: Range<u32>, failure: Failure) {
        let (routes, own) = (self.routes, self.own);
        let sessions = self.sessions.range(nodes).map(|(node, _)| *node);
        let lost: Vec<u32> = sessions
            .filter(|node| routes.next(own, *node) == neighbour)
            .collect();
        for node in lost {
            self.lose_session(node, failure);
        }
    }

    /// Reports lost nodes to the neighbours in this group, or to those in other groups.
    fn tell_all(&mut self, of_this_group: bool, lost: &Range<u32>) {
        let (routes, own) = (self.routes, self.own);
        let neighbours = self.hops.keys().copied();
        let told: Vec<u32> = neighbours
            .filter(|node| routes.are_together(own, *node) == of_this_group && !lost.contains(node))
            .collect();
        for node in told {
            self.tell(node, lost);
        }
    }

    /// Releases the room in a neighbour's window that an item occupied until it was passed on.
    fn passed_on(&mut self, from: u32, lane: Lane, bytes: usize) {
        if let Some(hop) = self.hops.get_mut(&from) {
            hop.held[lane as usize] -= bytes;
            // The cast is lossless: the number of bytes is within the window.
            hop.owed[lane as usize] += bytes as u32;
        }
    }

    /// Packs a frame for a neighbour, or returns `None` if no item can be sent.
    pub(super) fn pack(&mut self, node: u32) -> Option<Vec<u8>> {
        let hop = self.hops.get_mut(&node)?;
        let mut frame = Vec::new();
        let mut passed_on = Vec::new();
        for turn in 0..3 {
            let lane = (hop.turn + turn) % 3;
            while let Some(item) = hop.queues[lane].front() {
                let length = item.bytes.len();
                let has_room = lane == 2 || hop.used[lane] + length <= WINDOW;
                if !has_room || frame.len() + length > FRAME {
                    break;
                }
                let Some(item) = hop.queues[lane].pop_front() else {
                    break;
                };
                if lane < 2 {
                    hop.used[lane] += length;
                }
                frame.extend(&item.bytes);
                match item.whence {
                    Whence::From(from) => {
                        passed_on.extend(from.map(|(from, lane)| (from, lane, length)))
                    }
                    Whence::Own => {
                        if let Some(session) = self.sessions.get_mut(&item.to) {
                            session.queued = session.queued.saturating_sub(length);
                        }
                    }
                }
            }
        }
        hop.turn = (hop.turn + 1) % 3;
        for (from, lane, length) in passed_on {
            self.passed_on(from, lane, length);
        }
        (!frame.is_empty()).then_some(frame)
    }

    /// Handles a frame. Returns `None` if it is malformed.
    pub(super) fn take(
        &mut self,
        from: u32,
        header: &[u8],
        frame: &[u8],
        handler: &mut impl FragmentHandler,
    ) -> Option<()> {
        let numbers: &[u8; 9] = header.try_into().ok()?;
        if !self.routes.are_neighbours(self.own, from) {
            return None;
        }
        let hop = self.hops.entry(from).or_default();
        for lane in [0, 1] {
            let at = 1 + 4 * lane;
            let number = [
                numbers[at],
                numbers[at + 1],
                numbers[at + 2],
                numbers[at + 3],
            ];
            // The cast is lossless: `usize` has at least 32 bits.
            let passed_on = u32::from_le_bytes(number) as usize;
            hop.used[lane] = hop.used[lane].checked_sub(passed_on)?;
        }
        let mut rest = frame;
        while !rest.is_empty() {
            let (item, bytes, after) = Item::split(rest)?;
            rest = after;
            if item.kind == ItemKind::Lost {
                self.on_lost(from, item.mine..item.yours, handler)?;
                continue;
            }
            let count = self.routes.nodes();
            if item.from >= count
                || item.to >= count
                || self.routes.are_neighbours(item.from, item.to)
            {
                return None;
            }
            // The item must have come by the route from its sender to this node.
            if self.routes.next(self.own, item.from) != from {
                return None;
            }
            if item.to == self.own {
                self.on_item(&item, handler);
                continue;
            }
            let next = self.routes.next(self.own, item.to);
            let lane = self.lane(self.own, item.to);
            let hop = self.hops.entry(from).or_default();
            hop.held[lane as usize] += bytes.len();
            if next == from || hop.held[lane as usize] > WINDOW {
                return None;
            }
            self.queue(
                next,
                item.to,
                bytes.to_vec(),
                Whence::From(Some((from, lane))),
            );
        }
        Some(())
    }

    fn on_lost(
        &mut self,
        from: u32,
        lost: Range<u32>,
        handler: &mut impl FragmentHandler,
    ) -> Option<()> {
        if lost.start >= lost.end || lost.end > self.routes.nodes() {
            return None;
        }
        // A node on the route is gone or has not started yet.
        let failure = Failure::Lost(Errno::HOSTUNREACH.raw_os_error().unsigned_abs());
        self.lose_by(from, lost.clone(), failure);
        self.flush(handler);
        if !self.routes.are_together(self.own, from) {
            self.tell_all(true, &lost);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Counts delivered fragments.
    #[derive(Default)]
    struct Handler(usize);

    impl FragmentHandler for Handler {
        fn read(&mut self, _: Rank, _: u64, _: usize, _: &mut [u8]) {}
        fn sent(&mut self, _: Rank, _: u64) {}
        fn fragment(&mut self, _: Rank, _: &[u8], _: &[u8]) -> bool {
            self.0 += 1;
            true
        }
        fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
            None
        }
        fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
        fn end(&mut self, _: u64) {}
        fn failed(&mut self, _: Rank, _: Failure) {}
        fn room(&self) -> usize {
            1
        }
    }

    fn kind() -> impl Strategy<Value = ItemKind> {
        prop_oneof![
            Just(ItemKind::Open),
            Just(ItemKind::Accept),
            Just(ItemKind::Data),
            Just(ItemKind::Close),
            Just(ItemKind::Lost)
        ]
    }

    proptest! {
        /// Of nine nodes, node 4 is a neighbour of 3 and 5, and of one node of each other group.
        #[test]
        fn neighbours_that_send_anything_are_refused_or_understood(
            frames in prop::collection::vec((0u32..9, prop::collection::vec((kind(), 0u32..10, 0u32..10, 0u32..12, 0u32..12, 0usize..2000), 0..4), 0u32..3), 1..60)
        ) {
            let ranks = (0..9).map(|node| (node != 4).then_some(node)).collect();
            let mut state = State::new(Routes::new(9), 4, ranks, 1);
            let mut handler = Handler::default();
            for (from, items, lost) in frames {
                let mut frame = Vec::new();
                for (kind, from, to, mine, yours, length) in items {
                    let payload = &vec![0; length];
                    frame.extend(Item { kind, from, to, mine, yours, header: &[], payload }.encode());
                }
                let mut header = vec![0; 9];
                header[1] = u8::from(lost == 2);
                if state.take(from, &header, &frame, &mut handler).is_none() && from != 4 {
                    state.lose(from, Failure::Left);
                }
                state.flush(&mut handler);
                if lost == 1 {
                    for node in 0..9 {
                        state.pack(node);
                    }
                }
                // At most the windows of four neighbours and this node's own answers wait.
                prop_assert!(state.waiting() <= 4 * 2 * WINDOW + 60 * 4 * 9 * super::super::item::FIXED);
            }
            // No fragment is delivered: this node opened no session, and its names are random.
            prop_assert_eq!(handler.0, 0);
        }
    }
}
