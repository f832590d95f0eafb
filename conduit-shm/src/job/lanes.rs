//! Lanes, which are exclusive rings that a rank lends to the sources that send the most. They exist
//! only in jobs with more ranks than the limit up to which each source has an exclusive ring.
//!
//! The crate `lanes` decides which source gets a lane and when that changes (`docs/lanes.md`); this
//! module carries these decisions out. A rank *lends* rings (`::lanes::LaneKind::Owner`) and
//! *holds* rings of others (`LaneKind::Holder`). A lane is one ring of each of a rank's queues, all
//! with the same number.
//!
//! * **Counting**: messages in shared rings are sampled ([`Shm::note_traffic`]). Traffic in lanes
//!   is read from the rings' positions when a round begins and when it ends. Traffic in lanes alone
//!   also makes up rounds.
//! * **Messages about lanes** ([`LANE`]) go through the shared ring of the internal queue. If there
//!   is no room for such a message, it waits in this module, where it blocks nothing.
//! * **Into the lane** ([`LanesState::way`]): the source switches to the lane in each queue
//!   separately, with the first message after the offer. An announcement ([`LANE_OPENED`]) is the
//!   last message in the shared ring; the owner polls the lane once it has received it.
//! * **Back to the shared ring**: sends return `Again` until the owner has freed everything in the
//!   queue's lane. Then the source uses the shared ring again. The lane is given back when the
//!   source has left it in all queues, so its next holder [continues](Producer::resume) at the
//!   owner's position.
//!
//! Everything else is done in [`Shm::tend_lanes`], which a poll calls when this rank's activations
//! word asks for it. As long as nothing changes, lanes cost a poll nothing.
//!
//! No rank lends lanes if several threads use the network at once. If a thread had chosen its ring
//! but not yet reserved a slot there, later messages of the same rank through another ring could
//! overtake its message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use ::lanes::{
    Action, Carrier, Driver, LaneKind, Message, Outlet, ROWS, Route, Sampler, Settings,
    SettingsError, State as Stands, Statistics,
};
use conduit_core::ni::{PtIndex, Rank};
use conduit_core::threads::{Lock, Mode};

use crate::ring::{Frame, Producer, RingView};

use super::layout::{INTERNAL_QUEUE, QUEUES};
use super::message::{Header, LANE, LANE_OPENED};
use super::receive::{Inbox, Taken};
use super::{Peer, Shm, ShmConfig};

/// The maximum number of missed rounds that are made up for. After this many rounds without
/// traffic, even the largest possible weight has decayed to nothing.
const MISSED: u64 = 128;

/// A replaceable pointer to the ring to send through. If the pointer is null, the ring has to be
/// looked up.
#[derive(Debug, Default)]
pub(super) struct Way(AtomicPtr<Producer<RingView>>);

impl Way {
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&Producer<RingView>> {
        // SYNC (way): this acquire pairs with the release in `set`.
        let producer = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or the caller of `set` guarantees that the producer lives as
        // long as `self`. Only shared references to a producer exist.
        unsafe { producer.as_ref() }
    }

    /// # Safety
    /// The producer must live as long as `self`.
    pub(super) unsafe fn set(&self, producer: &Producer<RingView>) {
        // SYNC (way): a thread that reads the pointer sees the producer and its position.
        let producer = std::ptr::from_ref(producer).cast_mut();
        self.0.store(producer, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The lanes of a rank, both lent and held.
pub(super) struct ShmLanes<M: Mode> {
    /// The number of lanes that this rank lends.
    count: u16,
    /// The lanes' state, or `None` unless each queue is one ring for all sources.
    state: Option<M::Lock<LanesState>>,
    /// The rank of a dead peer, plus 1, or 0 if no peer is dead. This field is stored before the
    /// state is locked.
    dead: AtomicU32,
}

/// A lane that this rank lends.
#[derive(Debug, Clone, Default)]
struct Lent {
    holder: Option<Rank>,
    /// The queues in which the holder has announced the lane, as a bit set. Only these queues poll
    /// the lane.
    announced: u32,
    /// The number of slots that were received through the lane and are not yet part of any weight.
    fresh: u64,
}

/// A lane that this rank holds.
#[derive(Debug)]
struct Held {
    peer: Rank,
    /// The lane's number at the peer.
    place: u16,
    /// The lane's outlet in each queue. The outlets don't count messages in flight, because the
    /// rings do.
    outlets: [Outlet; QUEUES],
    /// The lane's ring in each queue in which the lane was announced.
    rings: [Option<Arc<Producer<RingView>>>; QUEUES],
}

#[derive(Debug)]
struct LanesState {
    driver: Driver,
    /// The lanes that this rank lends, by number.
    lent: Box<[Lent]>,
    /// The lanes that this rank holds, by slot.
    held: Box<[Option<Held>]>,
    /// This rank's ends of all lanes that it has ever used, indexed by peer, number and queue.
    ends: BTreeMap<(Rank, u16, u8), Arc<Producer<RingView>>>,
    /// Whether the traffic in lanes has to be read, because a round begins or ends.
    is_due: bool,
    /// Whether a peer has died. Messages of a dead peer may stay in a ring forever, so rings are
    /// not lent again.
    is_over: bool,
}

impl<M: Mode> ShmLanes<M> {
    /// # Errors
    /// Fails if there are more lanes than the crate `lanes` allows.
    pub(super) fn new(
        rank: Rank,
        config: &ShmConfig,
        shared_rings: bool,
    ) -> Result<Self, SettingsError> {
        let lends = shared_rings && !M::PARALLEL;
        // The cast is lossless, because the setting was checked.
        let count = if lends { config.lane_rings as u16 } else { 0 };
        let state = shared_rings
            .then(|| LanesState::new(rank, count, config.lane_force_switch, lends))
            .transpose()?;
        Ok(Self {
            count,
            state: state.map(M::Lock::new),
            dead: AtomicU32::new(0),
        })
    }

    /// Runs `act` while the state is locked, as it would be by another call.
    #[cfg(test)]
    pub(super) fn while_locked(&self, act: impl FnOnce()) {
        let _state = self.state.as_ref().map(|state| state.lock());
        act();
    }

    pub(super) fn count(&self) -> usize {
        self.count.into()
    }

    /// Creates a sampler for the messages of a shared ring. If this rank lends no lanes, it samples
    /// no messages.
    pub(super) fn sampler(&self, rank: Rank, queue: usize) -> Sampler {
        let interval = self.state.as_ref().filter(|_| self.count > 0);
        let interval = interval.map_or(u32::MAX, |state| state.lock().driver.settings.interval);
        Sampler::new(interval, rank * QUEUES as u32 + queue as u32)
    }

    pub(super) fn statistics(&self) -> Statistics {
        let state = self.state.as_ref().and_then(|state| state.try_lock());
        state.map_or_else(Statistics::default, |state| state.driver.statistics)
    }

    /// Returns whether messages to a peer go through a lane, and whether messages from that peer
    /// come through a lane.
    pub(super) fn with(&self, peer: Rank) -> (bool, bool) {
        let Some(state) = self.state.as_ref().and_then(|state| state.try_lock()) else {
            return (false, false);
        };
        let mut held = state.driver.held();
        let mut lent = state.lent.iter();
        (
            held.any(|lane| lane.peer == peer && lane.state == Stands::Open),
            lent.any(|lent| lent.holder == Some(peer) && lent.announced != 0),
        )
    }
}

impl LanesState {
    fn new(rank: Rank, count: u16, force: u32, holds: bool) -> Result<Self, SettingsError> {
        let settings = Settings {
            slots: count,
            ..Settings::default()
        };
        let holds = if holds { ROWS } else { 0 };
        Ok(Self {
            driver: Driver::new(rank, settings, Some(holds as u16), force)?,
            held: (0..holds).map(|_| None).collect(),
            lent: vec![Lent::default(); count.into()].into(),
            ends: BTreeMap::new(),
            is_due: false,
            is_over: false,
        })
    }

    /// Splits the state into the driver, which decides about lanes, and the rings, which the driver
    /// changes.
    fn rings<'a, M: Mode>(&'a mut self, shm: &'a Shm<M>) -> (&'a mut Driver, Rings<'a, M>) {
        let (lent, held) = (&mut self.lent, &mut self.held);
        (&mut self.driver, Rings { shm, lent, held })
    }

    /// Returns the ring for the next message to a peer's queue: the lane or `base`, the shared
    /// ring. Returns `None` if the message has to wait. When the source switches to a lane, this
    /// call writes the announcement.
    fn way(
        &mut self,
        own: Rank,
        (to, peer): (Rank, &Peer),
        queue: usize,
        base: &Arc<Producer<RingView>>,
    ) -> Option<Arc<Producer<RingView>>> {
        let mut held = self.held.iter_mut().flatten();
        let Some(held) = held.find(|held| held.peer == to) else {
            return Some(Arc::clone(base));
        };
        let outlet = &mut held.outlets[queue];
        if held.rings[queue]
            .as_ref()
            .is_some_and(|ring| ring.is_drained())
        {
            outlet.has_left();
        }
        let mut next = outlet.clone();
        let way = match next.route(true) {
            Route::Base => Arc::clone(base),
            Route::Wait => return None,
            Route::Lane => Arc::clone(held.rings[queue].as_ref()?),
            Route::Announce { generation } => {
                let key = (to, held.place, queue as u8);
                let known = self.ends.get(&key).map(Arc::clone);
                let Some(lane) = known.or_else(|| peer.lane(queue, held.place)) else {
                    // The peer's queue has no lanes.
                    return Some(Arc::clone(base));
                };
                let reserved = base.reserve(1)?;
                let header = Header {
                    source: own,
                    hdr_data: generation.into(),
                    ..Header::default()
                };
                // SAFETY: the slot is the one that this call has reserved.
                unsafe { header.write(base.slots().address(base.slot(reserved))) };
                base.commit(reserved, Frame::new(1, LANE_OPENED, 0));
                lane.resume();
                held.rings[queue] = Some(Arc::clone(&lane));
                self.ends.entry(key).or_insert(lane).clone()
            }
        };
        // The outlet's own count of free slots is not needed, because the ring itself knows how
        // full the lane is.
        next.taken(u32::MAX);
        *outlet = next;
        Some(way)
    }

    /// Reads the traffic in lanes if a reading is due, and ends the round if it is over.
    fn end_rounds<M: Mode>(&mut self, shm: &Shm<M>) {
        if !std::mem::take(&mut self.is_due) || self.is_over {
            return;
        }
        let is_round_over = self.driver.is_round_over();
        self.catch_up(shm);
        if is_round_over {
            let (driver, mut rings) = self.rings(shm);
            driver.end_round(&mut rings);
        }
    }

    /// Makes up for the rounds that would have passed if traffic in lanes ended rounds. Only
    /// messages in shared rings do so, and without this correction old traffic in lanes would count
    /// as recent.
    fn catch_up<M: Mode>(&mut self, shm: &Shm<M>) {
        let interval = u64::from(self.driver.settings.interval);
        let samples = |lent: &Lent| lent.fresh / interval;
        let all: u64 = self.lent.iter().map(samples).sum();
        let in_round = u64::from(self.driver.settings.samples);
        let rounds = (all / in_round).min(MISSED);
        if rounds == 0 {
            return;
        }
        for _ in 0..rounds {
            for lent in &self.lent {
                if let Some(holder) = lent.holder {
                    let part = (samples(lent) * in_round).div_ceil(all);
                    self.driver.tracker.touch(holder, part as u32);
                }
            }
            let (driver, mut rings) = self.rings(shm);
            driver.end_round(&mut rings);
        }
        self.lent.iter_mut().for_each(|lent| lent.fresh = 0);
    }
}

/// The rings that the driver's decisions change.
struct Rings<'a, M: Mode> {
    shm: &'a Shm<M>,
    lent: &'a mut [Lent],
    held: &'a mut [Option<Held>],
}

impl<M: Mode> Carrier for Rings<'_, M> {
    const COUNTS_LENT: bool = true;

    fn send(&mut self, to: Rank, message: Message) -> bool {
        self.shm.post_lane_message(to, message)
    }

    fn act(&mut self, kind: LaneKind, action: Action) {
        let (slot, peer) = match action {
            // These actions require nothing here, because the driver sends messages itself and the
            // rings exist already.
            Action::Send { .. } | Action::Connect { .. } => return,
            Action::Open { slot, peer, .. }
            | Action::Drain { slot, peer }
            | Action::Close { slot, peer } => (usize::from(slot), peer),
        };
        if kind == LaneKind::Owner {
            match action {
                Action::Open { .. } => self.lent[slot].holder = Some(peer),
                Action::Close { .. } => self.lent[slot] = Lent::default(),
                _ => {}
            }
            return;
        }
        let held = &mut self.held[slot];
        match action {
            Action::Open {
                generation, place, ..
            } => {
                let mut outlets: [Outlet; QUEUES] = Default::default();
                outlets
                    .iter_mut()
                    .for_each(|outlet| outlet.open(generation));
                *held = Some(Held {
                    peer,
                    place,
                    outlets,
                    rings: [const { None }; QUEUES],
                });
            }
            Action::Drain { .. } => {
                let outlets = held.iter_mut().flat_map(|held| &mut held.outlets);
                outlets.for_each(Outlet::drain);
            }
            _ => *held = None,
        }
        // The next message to each queue looks up its ring again.
        self.shm.peers[peer as usize].forget_ways();
    }

    fn has_left(&mut self, slot: u16, _: Rank) -> bool {
        let held = self.held[usize::from(slot)].iter();
        let mut rings = held.flat_map(|held| held.rings.iter().flatten());
        rings.all(|ring| ring.is_drained())
    }
}

impl Peer {
    /// Returns this rank's end of a lane of a queue, if the queue has that lane.
    fn lane(&self, queue: usize, place: u16) -> Option<Arc<Producer<RingView>>> {
        let entry = self.mapping.control().queues.get(queue)?;
        let (view, extent) = self.mapping.ring(entry, 1 + usize::from(place), true)?;
        let discipline = crate::ring::Discipline::Thread;
        Some(Arc::new(Producer::new(view, extent, discipline)))
    }

    fn forget_ways(&self) {
        self.ways.iter().chain(&self.rings).for_each(Way::clear);
    }
}

impl<M: Mode> Shm<M> {
    /// Counts samples of a source's traffic in a shared ring.
    #[cold]
    pub(super) fn note_traffic(&self, source: Rank, samples: u32) {
        let Some(state) = self.lanes.state.as_ref().filter(|_| self.lanes.count > 0) else {
            return;
        };
        let mut state = state.lock();
        if source == self.rank || source >= self.size {
            return;
        }
        let is_first = state.driver.tracker.samples() == 0;
        state.driver.tracker.touch(source, samples);
        if is_first || state.driver.is_round_over() {
            state.is_due = true;
            self.own().control().signal();
        }
    }

    /// Returns the ring for the next message to a peer's queue, or `None` if the peer has no such
    /// queue or the message has to wait.
    pub(super) fn choose_way(&self, to: Rank, queue: usize) -> Option<Arc<Producer<RingView>>> {
        let base = self.base(to, queue)?;
        match &self.lanes.state {
            Some(state) => {
                let peer = (to, self.peers.get(to as usize)?);
                state.lock().way(self.rank, peer, queue, base)
            }
            None => Some(Arc::clone(base)),
        }
    }

    /// Handles a message about lanes. Returns `None` if it is malformed.
    #[cold]
    pub(super) fn take_lane_message(&self, source: Rank, header: &Header) -> Option<Taken> {
        let mut bytes = [0; ::lanes::MAX_LENGTH];
        bytes[..8].copy_from_slice(&header.hdr_data.to_le_bytes());
        bytes[8..].copy_from_slice(&(header.remote_offset as u32).to_le_bytes());
        let message = Message::decode(bytes.get(..header.length as usize)?).ok()?;
        let mut state = self.lanes.state.as_ref()?.lock();
        // A peer that follows the protocol has at most two unanswered messages.
        if state.is_over || state.driver.waiting().len() > 4 * self.size as usize {
            return state.is_over.then_some(Taken::Done);
        }
        let (driver, mut rings) = state.rings(self);
        let verdict = driver.on_message(source, message, &mut rings);
        self.own().control().signal();
        verdict.ok().map(|()| Taken::Done)
    }

    /// Handles an announcement, which says that the source's next message to this queue comes
    /// through its lane. If no message follows the announcement, the end of the lane may overtake
    /// it, and the announcement is then ignored. Returns `None` if the announcement is malformed.
    #[cold]
    pub(super) fn take_lane_opened(
        &self,
        number: usize,
        source: Rank,
        header: &Header,
    ) -> Option<Taken> {
        let generation = u32::try_from(header.hdr_data).ok()?;
        let mut state = self.lanes.state.as_ref()?.lock();
        let (driver, mut rings) = state.rings(self);
        let slot = driver.on_announced(source, generation, &mut rings);
        if let Some(lent) = slot.and_then(|slot| state.lent.get_mut(usize::from(slot))) {
            lent.announced |= 1 << number;
            self.own().control().signal();
        }
        Some(Taken::Done)
    }

    /// Does the pending work on lanes in the queue `number`, which the caller has locked, and in
    /// all other queues.
    pub(super) fn tend_lanes(&self, number: usize, inbox: &mut Inbox) {
        let Some(state) = &self.lanes.state else {
            return;
        };
        let mut state = state.lock();
        self.end_lanes_of_dead(&mut state);
        let mut is_done = self.watch_lanes(&mut state, number, inbox);
        for (other, queue) in self.queues.iter().enumerate() {
            if let Some(queue) = queue.get().filter(|_| other != number) {
                is_done &= match queue.inbox.try_lock() {
                    Some(mut inbox) => self.watch_lanes(&mut state, other, &mut inbox),
                    None => false,
                };
            }
        }
        // The round is ended only if no queue still polls a lane for its last holder. Thus a lane
        // is lent again only once its last holder has left it everywhere.
        if is_done {
            state.end_rounds(self);
        }
        let (driver, mut rings) = state.rings(self);
        is_done &= driver.advance(&mut rings);
        driver.flush(&mut rings);
        if !is_done || state.is_due || state.driver.waiting().len() > 0 {
            self.own().control().signal();
        }
    }

    /// Makes a queue poll exactly the lanes that were announced in it. Returns `false` if the call
    /// has to be repeated.
    fn watch_lanes(&self, state: &mut LanesState, number: usize, inbox: &mut Inbox) -> bool {
        let mut is_done = true;
        for (slot, lent) in state.lent.iter_mut().enumerate() {
            let holder = lent.holder.filter(|_| lent.announced >> number & 1 == 1);
            let slots = inbox.lend(slot, holder, &self.ready_table);
            is_done &= slots.is_some();
            let slots = slots.filter(|_| holder.is_some()).unwrap_or(0);
            lent.fresh += slots;
            // Only tests use this count, and an approximate one is enough for them.
            state.driver.used(slot, slots as u32);
        }
        is_done
    }

    /// Sends a message about lanes. Returns `false` if there is no room.
    fn post_lane_message(&self, to: Rank, message: Message) -> bool {
        let encoded = message.encode();
        let mut bytes = [0; 16];
        bytes[..encoded.as_ref().len()].copy_from_slice(encoded.as_ref());
        let bytes = u128::from_le_bytes(bytes);
        let header = Header {
            frame: Frame::new(1, LANE, PtIndex(0).0),
            length: encoded.as_ref().len() as u32,
            source: self.rank,
            hdr_data: bytes as u64,
            remote_offset: (bytes >> 64) as u64,
            ..Header::default()
        };
        let base = self.base(to, INTERNAL_QUEUE);
        base.is_some_and(|base| self.post_by(to, base, &header))
    }

    /// Recalls all lanes.
    #[cfg(test)]
    pub(super) fn recall_lanes(&self) {
        if let Some(state) = &self.lanes.state {
            let mut state = state.lock();
            for slot in 0..state.lent.len() {
                let (driver, mut rings) = state.rings(self);
                driver.recall_now(slot as u16, &mut rings);
            }
            self.own().control().signal();
        }
    }

    /// Records a peer's death. From then on, nothing waits for that peer, and lanes no longer
    /// change hands.
    pub(super) fn end_lanes(&self, dead: Rank) {
        let Some(state) = &self.lanes.state else {
            return;
        };
        self.lanes.dead.store(dead + 1, Ordering::Relaxed);
        match state.try_lock() {
            Some(mut state) => self.end_lanes_of_dead(&mut state),
            // The signal makes the lock's holder check for a dead peer again.
            None => self.own().control().signal(),
        }
    }

    fn end_lanes_of_dead(&self, state: &mut LanesState) {
        let Some(dead) = self.lanes.dead.load(Ordering::Relaxed).checked_sub(1) else {
            return;
        };
        if !std::mem::replace(&mut state.is_over, true) {
            let (driver, mut rings) = state.rings(self);
            driver.on_death(dead, &mut rings);
        }
    }
}
