//! The creation of a rank's objects: regions, queues, portal table indices and match entries.

use std::mem::size_of;
use std::sync::atomic::Ordering;

use conduit_core::ni::{
    Claim, EqId, MatchEntry, MeId, NiError, PtIndex, Rank, Ready, Region, RegionId, Unlink, Window,
};
use conduit_core::threads::{Lock, Mode};
use rustix::mm::Advice;

use crate::memory::Memory;
use crate::ring::{Consumer, RingControl, SLOT};
use conduit_portals::matching::{Entry, EntryId, entry_start, no_such_index};

use super::Shm;
use super::layout::{Control, HUGE_PAGE, INTERNAL_QUEUE, PAGE, REGIONS, USER_QUEUES, ring_start};
use super::message::{COMPACT, FULL, slots_for};
use super::receive::{Inbound, Inbox, Queue, mark};

/// The minimum number of slots in each ring of the internal queue.
const QUIET_SLOTS: usize = 256;
/// The maximum number of slots of a ring.
const MOST_SLOTS: usize = 1 << 30;
/// The maximum factor by which a ring has more slots than requested, to have room for floods. The
/// factor is bounded because some queues see no floods.
const MOST_TIMES: usize = 16;
/// The maximum number of rings of a queue among which the room for floods is divided. With more
/// rings, each gets as much as with this many.
const FEW_RINGS: usize = 16;
/// Room for floods is created only while at most one part in this many of the memory is reserved,
/// because ranks that start later also need memory.
const LUXURY: u64 = 4;
/// The maximum number of match entries that can be linked at once.
pub(super) const ENTRIES: u32 = 4096;

/// The parts of the mapping that have been allocated.
#[derive(Debug)]
pub(super) struct Allocated {
    queues: u8,
    queue_next: usize,
    regions: u32,
    region_next: usize,
}

impl Allocated {
    pub(super) fn new(layout: &super::layout::Layout) -> Self {
        Self {
            queues: 0,
            queue_next: layout.queue_offset,
            regions: 0,
            region_next: layout.region_offset,
        }
    }
}

/// Returns the bit of a queue in [`Ready`].
#[inline]
pub(super) fn ready_of(number: usize) -> Ready {
    match number {
        INTERNAL_QUEUE => Ready::PROGRESS,
        // The cast is lossless, because there are few queues.
        number => Ready::queue(EqId(number as u8)),
    }
}

impl<M: Mode> Shm<M> {
    /// Returns the number of rings of a queue: one for each source, or one for all sources plus the
    /// rings that this rank lends.
    pub(super) fn rings(&self) -> usize {
        match self.shared_rings {
            true => 1 + self.lanes.count(),
            false => self.size as usize,
        }
    }

    pub(super) fn create_region(&self, len: usize) -> Result<Region, NiError> {
        const OPERATION: &str = "region_create";
        let own = self.own();
        let unit = if self.config.huge_pages {
            HUGE_PAGE
        } else {
            PAGE
        };
        let mut allocated = self.allocated.lock();
        if allocated.regions as usize == REGIONS {
            return Err(exhausted(OPERATION, "regions", REGIONS as u64));
        }
        let room = own.layout().total - allocated.region_next;
        let Some(rounded) = len
            .max(1)
            .checked_next_multiple_of(unit)
            .filter(|&l| l <= room)
        else {
            return Err(NiError::OverLimit {
                operation: OPERATION,
                what: "bytes in addition to existing regions",
                value: len as u64,
                limit: room as u64,
            });
        };
        self.reserve_memory(OPERATION, rounded as u64, 1)?;
        let (id, offset) = (allocated.regions, allocated.region_next);
        let base = own.at(offset);
        // Core files should include regions, unlike the reserved addresses around them. SAFETY: the
        // range lies within the mapping, and the advice changes no contents.
        let shown = unsafe { rustix::mm::madvise(base.cast(), rounded, Advice::LinuxDoDump) };
        if let Err(error) = shown {
            tracing::debug!(%error, "cannot include the region in core files");
        }
        allocated.regions += 1;
        allocated.region_next += rounded;
        let entry = &own.control().regions[id as usize];
        entry.offset.store(offset as u64, Ordering::Relaxed);
        entry.len.store(rounded as u64, Ordering::Relaxed);
        // SYNC (region): the entry is written before the count includes it. This release pairs with
        // the load in `find_window`.
        own.control().region_count.store(id + 1, Ordering::Release);
        Ok(Region {
            id: RegionId(id),
            base,
            len: rounded,
        })
    }

    /// Adds `bytes` to the number of bytes that this rank may touch. Fails if all ranks together
    /// would then reserve more than one part in `part` of the memory.
    pub(super) fn reserve_memory(
        &self,
        operation: &'static str,
        bytes: u64,
        part: u64,
    ) -> Result<(), NiError> {
        let Memory {
            machine,
            group,
            group_id,
            ..
        } = Memory::read();
        let own = self.own().control();
        own.memory_group.store(group_id, Ordering::SeqCst);
        // The bytes are added before the sums are computed, so that if two ranks reserve at once,
        // at least one of them sees the other's bytes.
        own.promised.fetch_add(bytes, Ordering::SeqCst);
        let promised = |counts: &dyn Fn(&Control) -> bool| {
            let all = self.peers.iter().map(|peer| peer.mapping.control());
            all.filter(|control| counts(control))
                .fold(0_u64, |sum, control| {
                    sum.saturating_add(control.promised.load(Ordering::SeqCst))
                })
        };
        let in_group = |control: &Control| control.memory_group.load(Ordering::SeqCst) == group_id;
        for (pool, all, whose) in [
            (machine, promised(&|_| true), "this host's"),
            (group, promised(&in_group), "their control group's"),
        ] {
            if bytes > pool.available || all > pool.room() / part {
                own.promised.fetch_sub(bytes, Ordering::SeqCst);
                return Err(NiError::System {
                    operation,
                    rank: self.rank,
                    reason: format!(
                        "requested {bytes} bytes, {} are available; all ranks together would reserve {all} of \
                         {whose} {}",
                        pool.available,
                        pool.room()
                    ),
                });
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn find_window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        if !self.config.windows && peer != self.rank {
            return None;
        }
        let mapping = &self.peers.get(peer as usize)?.mapping;
        let control = mapping.control();
        // SYNC (region): this acquire pairs with the store in `create_region`, so the entry is
        // complete.
        if region.0 >= control.region_count.load(Ordering::Acquire) {
            return None;
        }
        let entry = control.regions.get(region.0 as usize)?;
        let len = usize::try_from(entry.len.load(Ordering::Relaxed)).ok()?;
        let base = mapping.range(entry.offset.load(Ordering::Relaxed), len)?;
        Some(Window { base, len })
    }

    pub(super) fn create_queue(&self, slots: usize) -> Result<EqId, NiError> {
        let mut allocated = self.allocated.lock();
        let number = allocated.queues;
        if usize::from(number) == USER_QUEUES {
            return Err(exhausted("eq_create", "event queues", USER_QUEUES as u64));
        }
        self.make_queue(&mut allocated, usize::from(number), slots)?;
        allocated.queues += 1;
        Ok(EqId(number))
    }

    /// Creates the queue of indices that were opened without a queue. This is part of the start.
    pub(super) fn create_quiet_queue(&self) -> Result<(), NiError> {
        self.make_queue(&mut self.allocated.lock(), INTERNAL_QUEUE, QUIET_SLOTS)
    }

    fn make_queue(
        &self,
        allocated: &mut Allocated,
        number: usize,
        slots: usize,
    ) -> Result<(), NiError> {
        let own = self.own();
        // The longest message must fit, with a skip before it and some room besides, so that it
        // doesn't have to wait for the ring to become empty.
        let longest = slots_for(COMPACT, self.config.inject_size)
            .max(slots_for(FULL, self.config.inline_size)) as usize;
        let room = own.layout().queue_end - allocated.queue_next;
        let mut rings = self.rings();
        let each_of = |rings: usize| (room / rings).saturating_sub(size_of::<RingControl>()) / SLOT;
        let mut each = each_of(rings);
        let wanted = slots.max(4 * longest).max(64);
        let mut capacity = wanted.checked_next_power_of_two();
        if self.shared_rings && capacity.is_some_and(|c| c > each) {
            // If there is not enough room for lanes, the queue has none.
            (rings, each) = (1, each_of(1));
        }
        capacity = capacity.filter(|&c| c <= each.min(MOST_SLOTS));
        let Some(capacity) = capacity else {
            return Err(NiError::OverLimit {
                operation: "eq_create",
                what: "slots per ring, rounded up to a power of two",
                value: wanted as u64,
                limit: each.min(MOST_SLOTS) as u64,
            });
        };
        // A ring's share of the room for floods (see `crate::ring`) is small enough that all
        // possible queues fit. The share does not shrink further with more than `FEW_RINGS` rings,
        // because it is only address space until a flood comes.
        let sharers = rings.min(FEW_RINGS);
        let share = (self.config.flood_bytes / sharers / SLOT)
            .min(each / (2 * USER_QUEUES))
            .min(MOST_TIMES * capacity);
        let part = capacity.trailing_zeros();
        let mut shift = share.checked_ilog2().unwrap_or(0).max(part);
        // The rings fit into the room, because each of them has at most `each` slots. The capacity
        // is at most `each`, and a ring gets more slots than the capacity only if these are a small
        // part of `each`.
        let bytes =
            |rings, shift| ring_start(rings, shift, part, self.shared_rings).unwrap_or(room);
        let mut needed = bytes(rings, shift);
        if self
            .reserve_memory("eq_create", needed as u64, LUXURY)
            .is_err()
        {
            // If memory is scarce, omit the room for floods and the lanes.
            shift = part;
            if self.shared_rings {
                rings = 1;
            }
            needed = bytes(rings, shift);
            self.reserve_memory("eq_create", needed as u64, 1)?;
        }
        let offset = allocated.queue_next;
        allocated.queue_next += needed;
        let entry = &own.control().queues[number];
        entry.shift.store(shift, Ordering::Relaxed);
        entry.part.store(part, Ordering::Relaxed);
        entry.rings.store(rings as u32, Ordering::Relaxed);
        // SYNC (queue): this release pairs with the load in `Mapping::ring`, so a rank that sees
        // the offset sees the other fields.
        entry.offset.store(offset as u64, Ordering::Release);
        let inbound = (0..rings).map(|ring| {
            let (view, extent) = own.ring(entry, ring, self.shared_rings)?;
            let source = (!self.shared_rings).then_some(ring as Rank);
            let sampler = self.lanes.sampler(self.rank, number);
            Some(Inbound::new(source, Consumer::new(view, extent), sampler))
        });
        let Some(mut inbound) = inbound.collect::<Option<Vec<_>>>() else {
            return Err(NiError::System {
                operation: "eq_create",
                rank: self.rank,
                reason: "the queue table of this rank was overwritten".to_owned(),
            });
        };
        let lanes = match self.shared_rings {
            true => inbound.split_off(1).into_iter().map(Some).collect(),
            false => Box::default(),
        };
        self.queues[number].get_or_init(|| Queue {
            inbox: M::Lock::new(Inbox::new(inbound, lanes, ready_of(number))),
            delivering: 0.into(),
        });
        // A ring may have been activated before its queue existed.
        own.control().signal();
        Ok(())
    }

    /// Returns one of this rank's user queues.
    #[inline]
    pub(super) fn queue(&self, operation: &'static str, eq: EqId) -> Result<&Queue<M>, NiError> {
        self.queues[..USER_QUEUES]
            .get(usize::from(eq.0))
            .and_then(|queue| queue.get())
            .ok_or(NiError::NoSuchObject {
                operation,
                what: "event queue",
                value: u64::from(eq.0),
            })
    }

    pub(super) fn open_index(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        const OPERATION: &str = "pt_open";
        let entry = self
            .indices
            .get(usize::from(index.0))
            .ok_or_else(|| no_such_index(OPERATION, index))?;
        let queue = match eq {
            Some(eq) => {
                self.queue(OPERATION, eq)?;
                eq.0
            }
            None => INTERNAL_QUEUE as u8,
        } + 1;
        let opened = entry
            .queue
            .compare_exchange(0, queue, Ordering::AcqRel, Ordering::Relaxed);
        if opened.is_err() {
            return Err(NiError::NoSuchObject {
                operation: OPERATION,
                what: "unopened portal table index",
                value: u64::from(index.0),
            });
        }
        // SYNC (pt): this release pairs with the load in `find_ring`.
        self.own().control().pt[usize::from(index.0)].store(u32::from(queue), Ordering::Release);
        Ok(())
    }

    pub(super) fn append_entry(
        &self,
        index: PtIndex,
        entry: MatchEntry,
        claim: Option<Claim>,
    ) -> Result<MeId, NiError> {
        const OPERATION: &str = "me_append";
        let place = self
            .indices
            .get(usize::from(index.0))
            .ok_or_else(|| no_such_index(OPERATION, index))?;
        let start = entry_start(entry.memory, |id| {
            let Window { base, len } = self.find_window(self.rank, id)?;
            Some(Region { id, base, len })
        })?;
        let own = self.own().at(0).addr();
        let entry = Entry::new(&entry, start.map_or(0, |start| start.addr() - own));
        if self.entries.fetch_add(1, Ordering::AcqRel) >= ENTRIES {
            self.entries.fetch_sub(1, Ordering::AcqRel);
            return Err(exhausted(OPERATION, "match entries", u64::from(ENTRIES)));
        }
        match place.list.lock().append_claimed(entry, claim) {
            Some(id) => Ok(id.me(index.0)),
            None => {
                self.entries.fetch_sub(1, Ordering::AcqRel);
                Err(exhausted(OPERATION, "match entries", u64::from(ENTRIES)))
            }
        }
    }

    pub(super) fn unlink_entry(&self, me: MeId) -> Result<Unlink, NiError> {
        let unknown = NiError::NoSuchObject {
            operation: "me_unlink",
            what: "match entry",
            value: u64::from(me.0),
        };
        let (number, id) = EntryId::of(me);
        let Some(index) = self.indices.get(usize::from(number)) else {
            return Err(unknown);
        };
        let mut list = index.list.lock();
        let queue = usize::from(index.queue.load(Ordering::Acquire));
        let queue = queue.checked_sub(1).and_then(|q| self.queues[q].get());
        if let Some(queue) = queue
            && queue.delivering.load(Ordering::Acquire) == mark(me.0)
        {
            return Ok(Unlink::InUse);
        }
        if !list.unlink(id) {
            return Err(unknown);
        }
        self.entries.fetch_sub(1, Ordering::AcqRel);
        Ok(Unlink::Done)
    }
}

fn exhausted(operation: &'static str, what: &'static str, limit: u64) -> NiError {
    NiError::Exhausted {
        operation,
        what,
        limit,
        setting: "none: a constant of the shared-memory network",
    }
}
