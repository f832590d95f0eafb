//! All ranks' tables, and what happens when a message arrives.

use std::collections::{BTreeMap, VecDeque};

use conduit_core::ni::{
    Ack, Atomic, EqId, Event, Limits, MatchEntry, MdId, MeEvents, MeId, MeMemory, MeOptions,
    NiError, Outcome, PtIndex, PutEvent, Rank, Region, RegionId, Unlink, Window,
};

use super::memory::{PAGE, Pages, apply, copy, read};
use crate::held::Held;

/// What a message does at its target; the pointers are checked pieces of the initiator's descriptor.
pub(super) enum Kind {
    Put(*const u8),
    Get(*mut u8),
    Atomic(Atomic),
}

pub(super) struct Message {
    pub(super) source: Rank,
    pub(super) match_bits: u64,
    pub(super) hdr_data: u64,
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) kind: Kind,
}

/// How it ended.
pub(super) struct End {
    outcome: Outcome,
    length: usize,
    value: u64,
}

/// An event in a queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) held: Held,
    from_peer: bool,
    /// The managed entry whose data it shows.
    shows: Option<MeId>,
}

#[derive(Debug)]
struct Queue {
    slots: usize,
    events: VecDeque<Queued>,
    /// How many of the undelivered events came from peers, and how many end this rank's own operations.
    from_peers: usize,
    own: usize,
    polling: bool,
}

#[derive(Debug)]
struct Linked {
    id: MeId,
    entry: MatchEntry,
    /// Bytes of a managed entry that are taken.
    used: usize,
}

#[derive(Debug)]
struct Index {
    eq: Option<EqId>,
    list: Vec<Linked>,
}

/// Messages of a managed entry that are still in a queue, and who is told when there are none left.
#[derive(Debug, Default)]
struct Undelivered {
    messages: usize,
    free: Option<(EqId, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Md {
    base: *mut u8,
    len: usize,
    eq: EqId,
}

#[derive(Debug, Default)]
struct Node {
    regions: Vec<Pages>,
    queues: Vec<Queue>,
    indices: BTreeMap<u8, Index>,
    undelivered: BTreeMap<u32, Undelivered>,
    mds: BTreeMap<u32, Md>,
    names: u32,
}

#[derive(Debug)]
pub(super) struct Fabric {
    limits: Limits,
    nodes: Vec<Node>,
}

fn no_such(operation: &'static str, what: &'static str, value: impl Into<u64>) -> NiError {
    NiError::NoSuchObject {
        operation,
        what,
        value: value.into(),
    }
}

fn over(operation: &'static str, what: &'static str, value: usize, limit: usize) -> NiError {
    NiError::OverLimit {
        operation,
        what,
        value: value as u64,
        limit: limit as u64,
    }
}

fn exhausted(operation: &'static str, what: &'static str, limit: impl Into<u64>) -> NiError {
    NiError::Exhausted {
        operation,
        what,
        limit: limit.into(),
        setting: "none: the reference network's limits are fixed",
    }
}

impl Fabric {
    pub(super) fn new(ranks: u32, limits: Limits) -> Self {
        let nodes = (0..ranks).map(|_| Node::default()).collect();
        Self { limits, nodes }
    }

    pub(super) fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn node(&mut self, rank: Rank) -> &mut Node {
        &mut self.nodes[rank as usize]
    }

    // ---- objects ---------------------------------------------------------------------------------------------------

    pub(super) fn region_create(&mut self, rank: Rank, len: usize) -> Result<Region, NiError> {
        let (count, most) = (self.limits.regions, self.limits.region_bytes);
        let regions = &mut self.node(rank).regions;
        let left = most - regions.iter().map(|pages| pages.len).sum::<usize>();
        if regions.len() as u32 == count {
            return Err(exhausted("region_create", "regions", count));
        }
        match len.max(1).checked_next_multiple_of(PAGE) {
            Some(len) if len <= left => {
                let (id, pages) = (RegionId(regions.len() as u32), Pages::new(len));
                let base = pages.base;
                regions.push(pages);
                Ok(Region { id, base, len })
            }
            _ => Err(over("region_create", "length", len, left)),
        }
    }

    pub(super) fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        let pages = self
            .nodes
            .get(peer as usize)?
            .regions
            .get(region.0 as usize)?;
        Some(Window {
            base: pages.base,
            len: pages.len,
        })
    }

    pub(super) fn eq_create(&mut self, rank: Rank, slots: usize) -> Result<EqId, NiError> {
        let limit = self.limits.event_queues;
        let queues = &mut self.node(rank).queues;
        if queues.len() == usize::from(limit) {
            return Err(exhausted("eq_create", "event queues", limit));
        }
        queues.push(Queue {
            slots,
            events: VecDeque::new(),
            from_peers: 0,
            own: 0,
            polling: false,
        });
        Ok(EqId(queues.len() as u8 - 1))
    }

    /// Refuses a queue that doesn't exist.
    pub(super) fn queue(
        &self,
        operation: &'static str,
        rank: Rank,
        eq: EqId,
    ) -> Result<(), NiError> {
        let queues = &self.nodes[rank as usize].queues;
        match queues.get(usize::from(eq.0)) {
            Some(_) => Ok(()),
            None => Err(no_such(operation, "event queue", eq.0)),
        }
    }

    fn index_exists(&self, operation: &'static str, index: PtIndex) -> Result<(), NiError> {
        if index.0 < self.limits.pt_indices {
            Ok(())
        } else {
            Err(no_such(operation, "index", index.0))
        }
    }

    pub(super) fn pt_open(
        &mut self,
        rank: Rank,
        index: PtIndex,
        eq: Option<EqId>,
    ) -> Result<(), NiError> {
        self.index_exists("pt_open", index)?;
        if let Some(eq) = eq {
            self.queue("pt_open", rank, eq)?;
        }
        let list = Vec::new();
        self.node(rank).indices.insert(index.0, Index { eq, list });
        Ok(())
    }

    pub(super) fn me_append(
        &mut self,
        rank: Rank,
        index: PtIndex,
        entry: MatchEntry,
    ) -> Result<MeId, NiError> {
        const ASKED: &str = "me_append";
        self.index_exists(ASKED, index)?;
        let limit = self.limits.match_entries;
        let node = self.node(rank);
        if let MeMemory::Region {
            region,
            offset,
            len,
        } = entry.memory
        {
            let pages = node.regions.get(region.0 as usize);
            let pages = pages.ok_or(no_such(ASKED, "region", region.0))?;
            if offset.checked_add(len).is_none_or(|end| end > pages.len) {
                return Err(over(ASKED, "end", offset.saturating_add(len), pages.len));
            }
        }
        let linked: usize = node.indices.values().map(|index| index.list.len()).sum();
        if linked as u32 == limit {
            return Err(exhausted(ASKED, "match entries", limit));
        }
        let open = node.indices.get_mut(&index.0);
        let open = open.ok_or(no_such(ASKED, "open index", index.0))?;
        let id = MeId(node.names);
        node.names += 1;
        open.list.push(Linked { id, entry, used: 0 });
        Ok(id)
    }

    pub(super) fn me_unlink(&mut self, rank: Rank, me: MeId) -> Result<Unlink, NiError> {
        let node = self.node(rank);
        let found = node.indices.values_mut().find_map(|index| {
            let at = index.list.iter().position(|linked| linked.id == me)?;
            Some((index, at))
        });
        let (index, at) = found.ok_or(no_such("me_unlink", "match entry", me.0))?;
        if node.undelivered.contains_key(&me.0) {
            return Ok(Unlink::InUse);
        }
        index.list.remove(at);
        Ok(Unlink::Done)
    }

    pub(super) fn md_bind(
        &mut self,
        rank: Rank,
        base: *mut u8,
        len: usize,
        eq: EqId,
    ) -> Result<MdId, NiError> {
        self.queue("md_bind", rank, eq)?;
        let limit = self.limits.memory_descriptors;
        let node = self.node(rank);
        if node.mds.len() as u32 == limit {
            return Err(exhausted("md_bind", "memory descriptors", limit));
        }
        let id = node.names;
        node.names += 1;
        node.mds.insert(id, Md { base, len, eq });
        Ok(MdId(id))
    }

    pub(super) fn md_release(&mut self, rank: Rank, md: MdId) -> Result<Unlink, NiError> {
        match self.node(rank).mds.remove(&md.0) {
            // Nothing is ever under way: operations are done when they are submitted.
            Some(_) => Ok(Unlink::Done),
            None => Err(no_such("md_release", "memory descriptor", md.0)),
        }
    }

    /// A checked piece of a descriptor, and its queue.
    pub(super) fn md_piece(
        &self,
        operation: &'static str,
        rank: Rank,
        md: MdId,
        offset: usize,
        len: usize,
    ) -> Result<(*mut u8, EqId), NiError> {
        let md = (self.nodes[rank as usize].mds.get(&md.0)).ok_or(no_such(
            operation,
            "memory descriptor",
            md.0,
        ))?;
        if offset.checked_add(len).is_none_or(|end| end > md.len) {
            return Err(over(operation, "end", offset.saturating_add(len), md.len));
        }
        Ok((md.base.wrapping_add(offset), md.eq))
    }

    // ---- messages --------------------------------------------------------------------------------------------------

    /// Does a message at its target. `None`: its index is not open or its queue is full, nothing has happened.
    pub(super) fn arrive(
        &mut self,
        target: Rank,
        index: PtIndex,
        message: &Message,
    ) -> Option<End> {
        let node = &mut self.nodes[target as usize];
        let open = node.indices.get_mut(&index.0)?;
        if let Some(eq) = open.eq {
            let queue = &node.queues[usize::from(eq.0)];
            if queue.from_peers >= queue.slots {
                return None;
            }
        }
        let found = open.list.iter().position(|linked| takes(linked, message));
        let Some(at) = found else {
            return Some(ended(Outcome::NoMatch, 0, 0));
        };
        let linked = &mut open.list[at];
        let (id, entry) = (linked.id, linked.entry);
        let (room, offset) = room(linked, message.offset);
        let Some(room) = room else {
            return Some(ended(Outcome::OutOfRange, 0, 0));
        };
        let length = message.length.min(room);
        let place = match entry.memory {
            MeMemory::Region { region, offset, .. } => {
                let base = node.regions[region.0 as usize].base;
                base.wrapping_add(offset + message.offset as usize)
            }
            MeMemory::Managed { .. } | MeMemory::Nothing => std::ptr::null_mut(),
        };
        let (mut value, mut data) = (0, Vec::new());
        match &message.kind {
            Kind::Put(from) => match entry.memory {
                MeMemory::Managed { .. } => data = read(*from, length),
                MeMemory::Region { .. } => copy(*from, place, length),
                MeMemory::Nothing => (),
            },
            Kind::Get(to) => copy(place, *to, length),
            Kind::Atomic(atomic) => {
                let size = atomic.ty.size();
                if length < size || !place.addr().is_multiple_of(size) {
                    return Some(ended(Outcome::OutOfRange, 0, 0));
                }
                value = apply(place, atomic);
            }
        }
        let mut full = entry.options.contains(MeOptions::USE_ONCE);
        let mut is_managed = false;
        if let MeMemory::Managed { bytes, min_free } = entry.memory {
            is_managed = true;
            linked.used += length.next_multiple_of(64);
            full |= bytes.saturating_sub(linked.used) < min_free;
        }
        if full {
            open.list.remove(at);
        }
        let Some(eq) = open.eq else {
            return Some(ended(Outcome::Done, length, value));
        };
        let told = entry.events.contains(MeEvents::OPERATION);
        if told {
            let event = told_of(message, index, entry.tag, offset, length, &data);
            node.from_peer(eq, event, is_managed.then_some(id));
        }
        if full && entry.events.contains(MeEvents::LINK) {
            node.from_peer(eq, Event::Unlinked { tag: entry.tag }, None);
            if is_managed {
                match node.undelivered.get_mut(&id.0) {
                    Some(left) => left.free = Some((eq, entry.tag)),
                    None => node.from_peer(eq, Event::Free { tag: entry.tag }, None),
                }
            }
        }
        Some(ended(Outcome::Done, length, value))
    }

    // ---- events ----------------------------------------------------------------------------------------------------

    pub(super) fn put_ended(&mut self, rank: Rank, eq: EqId, ack: Ack, token: u64, end: &End) {
        let event = match ack {
            Ack::Local => Event::Send { token },
            Ack::Remote => Event::Ack {
                token,
                outcome: end.outcome,
                length: end.length,
            },
        };
        self.own_event(rank, eq, event);
    }

    pub(super) fn reply(&mut self, rank: Rank, eq: EqId, token: u64, end: &End) {
        let event = Event::Reply {
            token,
            outcome: end.outcome,
            length: end.length,
            value: end.value,
        };
        self.own_event(rank, eq, event);
    }

    fn own_event(&mut self, rank: Rank, eq: EqId, event: Event<'_>) {
        let queue = &mut self.node(rank).queues[usize::from(eq.0)];
        // The contract makes this room the caller's duty; the oracle holds the suite to it.
        assert!(
            queue.own < queue.slots,
            "rank {rank} submitted more operations than its queue {} has room for",
            eq.0
        );
        queue.own += 1;
        queue.events.push_back(Queued {
            held: Held::of(event),
            from_peer: false,
            shows: None,
        });
    }

    /// Marks a queue as being polled; false where it doesn't exist or is being polled already.
    pub(super) fn begin_poll(&mut self, rank: Rank, eq: EqId) -> bool {
        let queue = self.node(rank).queues.get_mut(usize::from(eq.0));
        queue.is_some_and(|queue| !std::mem::replace(&mut queue.polling, true))
    }

    pub(super) fn end_poll(&mut self, rank: Rank, eq: EqId) {
        self.node(rank).queues[usize::from(eq.0)].polling = false;
    }

    pub(super) fn next_event(&mut self, rank: Rank, eq: EqId) -> Option<Queued> {
        let queue = &mut self.node(rank).queues[usize::from(eq.0)];
        queue.events.pop_front()
    }

    /// After an event's delivery: its room is free, and perhaps its entry.
    pub(super) fn delivered(&mut self, rank: Rank, eq: EqId, queued: Queued) {
        let node = self.node(rank);
        let queue = &mut node.queues[usize::from(eq.0)];
        if queued.from_peer {
            queue.from_peers -= 1;
        } else {
            queue.own -= 1;
        }
        let Some(id) = queued.shows else { return };
        if let Some(left) = node.undelivered.get_mut(&id.0) {
            left.messages -= 1;
            if left.messages == 0 {
                let free = left.free;
                node.undelivered.remove(&id.0);
                if let Some((eq, tag)) = free {
                    node.from_peer(eq, Event::Free { tag }, None);
                }
            }
        }
    }
}

impl Node {
    fn from_peer(&mut self, eq: EqId, event: Event<'_>, shows: Option<MeId>) {
        if let Some(id) = shows {
            self.undelivered.entry(id.0).or_default().messages += 1;
        }
        let queue = &mut self.queues[usize::from(eq.0)];
        queue.from_peers += 1;
        queue.events.push_back(Queued {
            held: Held::of(event),
            from_peer: true,
            shows,
        });
    }
}

fn ended(outcome: Outcome, length: usize, value: u64) -> End {
    End {
        outcome,
        length,
        value,
    }
}

/// The event of a message that an entry has taken.
fn told_of<'a>(
    message: &Message,
    index: PtIndex,
    tag: u64,
    offset: u64,
    length: usize,
    data: &'a [u8],
) -> Event<'a> {
    let (source, match_bits) = (message.source, message.match_bits);
    match message.kind {
        Kind::Put(_) => Event::Put(PutEvent {
            index,
            tag,
            source,
            match_bits,
            hdr_data: message.hdr_data,
            offset,
            length,
            requested: message.length,
            data,
        }),
        Kind::Get(_) => Event::Get {
            tag,
            source,
            match_bits,
            offset,
            length,
        },
        Kind::Atomic(_) => Event::Atomic {
            tag,
            source,
            match_bits,
            offset,
        },
    }
}

/// Bytes that an entry has from where a message goes, and that place. `None`: the place lies outside.
fn room(linked: &Linked, offset: u64) -> (Option<usize>, u64) {
    match linked.entry.memory {
        MeMemory::Managed { bytes, .. } => {
            (Some(bytes.saturating_sub(linked.used)), linked.used as u64)
        }
        MeMemory::Region { len, .. } => {
            let left = usize::try_from(offset)
                .ok()
                .and_then(|o| len.checked_sub(o));
            (left, offset)
        }
        MeMemory::Nothing => (Some(0), offset),
    }
}

/// The contract's matching rule.
fn takes(linked: &Linked, message: &Message) -> bool {
    let entry = &linked.entry;
    let kind = match message.kind {
        Kind::Put(_) => MeOptions::PUT,
        Kind::Get(_) => MeOptions::GET,
        Kind::Atomic(_) => MeOptions::ATOMIC,
    };
    let fits = room(linked, message.offset)
        .0
        .is_some_and(|room| message.length <= room);
    (message.match_bits ^ entry.match_bits) & !entry.ignore_bits == 0
        && entry.source.is_none_or(|source| source == message.source)
        && entry.options.contains(kind)
        && (fits || entry.options.contains(MeOptions::TRUNCATE))
}
