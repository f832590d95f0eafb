//! The tables of all ranks, which hold regions, queues, lists and descriptors.

use std::collections::{BTreeMap, VecDeque};

use conduit_core::ni::{
    Atomic, Claim, EqId, Limits, MatchEntry, MdId, MeId, MeMemory, MeOptions, NiError, Outcome,
    PtIndex, Rank, Region, RegionId, Unlink, Window,
};

use super::memory::{PAGE, Pages};
use crate::held::Held;

/// A message's operation at its target. The pointers are to pieces of the initiator's descriptor
/// that have been checked.
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

/// How a message's operation ended.
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) length: usize,
    pub(super) value: u64,
}

/// An event in a queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) held: Held,
    pub(super) from_peer: bool,
    /// The managed entry that holds the event's data.
    pub(super) shows: Option<MeId>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) slots: usize,
    pub(super) events: VecDeque<Queued>,
    /// The number of undelivered events that peers caused.
    pub(super) from_peers: usize,
    /// The number of undelivered events that end this rank's own operations.
    pub(super) own: usize,
    pub(super) polling: bool,
}

#[derive(Debug)]
pub(super) struct Linked {
    pub(super) id: MeId,
    pub(super) entry: MatchEntry,
    /// The number of bytes of a managed entry that are in use.
    pub(super) used: usize,
    /// The claim of an entry that is shared with other networks. The entry takes a message only
    /// with it.
    pub(super) claim: Option<Claim>,
}

#[derive(Debug)]
pub(super) struct Index {
    pub(super) eq: Option<EqId>,
    pub(super) list: Vec<Linked>,
}

/// The number of a managed entry's messages that are still in a queue, and the destination of the
/// Free event that follows the last of them.
#[derive(Debug, Default)]
pub(super) struct Undelivered {
    pub(super) messages: usize,
    pub(super) free: Option<(EqId, u64)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Md {
    base: *mut u8,
    len: usize,
    eq: EqId,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) regions: Vec<Pages>,
    pub(super) queues: Vec<Queue>,
    pub(super) indices: BTreeMap<u8, Index>,
    pub(super) undelivered: BTreeMap<u32, Undelivered>,
    pub(super) mds: BTreeMap<u32, Md>,
    pub(super) names: u32,
}

#[derive(Debug)]
pub(super) struct Fabric {
    limits: Limits,
    pub(super) nodes: Vec<Node>,
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
        setting: "nothing, because the limits of the reference network are fixed",
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

    pub(super) fn node(&mut self, rank: Rank) -> &mut Node {
        &mut self.nodes[rank as usize]
    }

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

    pub(super) fn region_adopt(
        &mut self,
        rank: Rank,
        base: *mut u8,
        len: usize,
    ) -> Result<Region, NiError> {
        let count = self.limits.regions;
        let regions = &mut self.node(rank).regions;
        if regions.len() as u32 == count {
            return Err(exhausted("region_adopt", "regions", count));
        }
        let id = RegionId(regions.len() as u32);
        regions.push(Pages::of_others(base, len));
        Ok(Region { id, base, len })
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

    /// Returns an error if the queue doesn't exist.
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
        claim: Option<Claim>,
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
        let linked = Linked {
            id,
            entry,
            used: 0,
            claim,
        };
        let is_overflow = |entry: &MatchEntry| entry.options.contains(MeOptions::OVERFLOW);
        let at = match is_overflow(&entry) {
            true => None,
            false => open
                .list
                .iter()
                .position(|linked| is_overflow(&linked.entry)),
        };
        open.list.insert(at.unwrap_or(open.list.len()), linked);
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
            // Nothing is ever in flight, because operations complete as soon as they are submitted.
            Some(_) => Ok(Unlink::Done),
            None => Err(no_such("md_release", "memory descriptor", md.0)),
        }
    }

    /// Returns a piece of a descriptor that has been checked, and the descriptor's queue.
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
}
