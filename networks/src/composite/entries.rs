//! Match entries linked in both networks.
//!
//! Each entry has a place in this module's table, and the number of that place is the entry's tag
//! in both networks. The place holds the owner's tag and the entry's state in each network:
//!
//! ```text
//! Linked -- this side unlinks automatically --> Draining -- Free --> Gone   (locally managed)
//!    |                                     --> Gone                        (others)
//!    +-- the other side unlinks automatically --> Gone, or Unlinking as long as it is in use
//! ```
//!
//! The owner gets [`Event::Unlinked`] when neither network has the entry linked, and
//! [`Event::Free`] when it is gone from both. The networks raise events in any order, so an event
//! may still name a place whose entry is gone. Places are therefore reused as late as possible.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{
    Claim, Event, MatchEntry, MeEvents, MeId, MeMemory, MeOptions, Ni, NiError, PtIndex, Unlink,
};
use conduit_core::threads::{Lock, Mode};

use super::{MultiHost, Side};

/// The number of places for each entry that can be linked.
const PLACES: u32 = 4;
/// The maximum number of places. It is limited because a `MeId` has 16 bits for the place.
const MOST: u32 = 1 << 16;

/// The state of an entry in one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryLink {
    /// The entry is linked, or was unlinked automatically and its event has not arrived yet.
    Linked(MeId),
    /// The entry has to be unlinked because the other network has unlinked it automatically, but
    /// this network still uses it.
    Unlinking(MeId),
    /// The entry was unlinked automatically, but its space is still in use.
    Draining,
    /// The entry was never linked in this network, or is gone from it.
    Gone,
}

#[derive(Debug)]
struct Linked {
    generation: u16,
    index: u8,
    intra: EntryLink,
    inter: EntryLink,
    managed: bool,
    claim: Option<Claim>,
    /// Whether the owner asked for the unlink event.
    tells: bool,
    /// Whether one network has unlinked the entry automatically, so that it must be unlinked in the
    /// other one, too.
    ending: bool,
    delivered_unlinked: bool,
}

impl Linked {
    fn link(&mut self, side: Side) -> &mut EntryLink {
        match side {
            Side::IntraHost => &mut self.intra,
            Side::InterHost => &mut self.inter,
        }
    }

    /// Returns the event that is due to the owner, if any, and whether it is the entry's last
    /// event.
    fn due(&mut self) -> Option<(Due, bool)> {
        let unlinked = |link| matches!(link, EntryLink::Draining | EntryLink::Gone);
        if !self.ending || !unlinked(self.intra) || !unlinked(self.inter) {
            return None;
        }
        let gone = self.intra == EntryLink::Gone && self.inter == EntryLink::Gone;
        if !self.delivered_unlinked {
            self.delivered_unlinked = true;
            return Some((Due::Unlinked, gone && !self.managed));
        }
        (gone && self.managed).then_some((Due::Free, true))
    }
}

/// An event that is due to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Unlinked,
    Free,
}

impl Due {
    fn event(self, tag: u64) -> Event<'static> {
        match self {
            Self::Unlinked => Event::Unlinked { tag },
            Self::Free => Event::Free { tag },
        }
    }
}

struct Table {
    places: Vec<Option<Linked>>,
    generations: Vec<u16>,
    free: VecDeque<u16>,
    /// The places of entries whose unlinking must be retried. No network raises an event when a
    /// retry can succeed, so each poll retries.
    pending: Vec<u16>,
}

pub(super) struct Entries<M: Mode> {
    /// The owner's tag for the entry in each place. It is read with every event, so it is outside
    /// the lock.
    tags: Box<[AtomicU64]>,
    /// The length of `Table::pending`.
    pending: AtomicU32,
    table: M::Lock<Table>,
}

fn unknown(me: MeId) -> NiError {
    NiError::NoSuchObject {
        operation: "me_unlink",
        what: "match entry",
        value: u64::from(me.0),
    }
}

fn me_id(place: u16, generation: u16) -> MeId {
    MeId(u32::from(generation) << 16 | u32::from(place))
}

impl<M: Mode> Entries<M> {
    pub(super) fn new(most: u32) -> Self {
        let places = most.saturating_mul(PLACES).min(MOST);
        Self {
            tags: (0..places).map(|_| AtomicU64::new(0)).collect(),
            pending: AtomicU32::new(0),
            table: M::Lock::new(Table {
                places: (0..places).map(|_| None).collect(),
                generations: vec![0; places as usize],
                // The cast is lossless, because there are at most `MOST` places.
                free: (0..places).map(|place| place as u16).collect(),
                pending: Vec::new(),
            }),
        }
    }

    /// Translates the networks' tag to the owner's tag.
    #[inline]
    pub(super) fn tag(&self, inner: u64) -> u64 {
        let place = usize::try_from(inner).ok();
        place
            .and_then(|place| self.tags.get(place))
            .map_or(inner, |tag| tag.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn any_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    fn set_pending(&self, table: &Table) {
        self.pending
            .store(table.pending.len() as u32, Ordering::Relaxed);
    }
}

impl Table {
    fn vacate(&mut self, place: u16) {
        self.places[usize::from(place)] = None;
        let generation = &mut self.generations[usize::from(place)];
        *generation = generation.wrapping_add(1);
        self.free.push_back(place);
    }
}

impl<Inter: Ni, M: Mode> MultiHost<Inter, M> {
    fn unlink_in<Intra: Ni>(&self, intra: &Intra, side: Side, me: MeId) -> Result<Unlink, NiError> {
        match side {
            Side::IntraHost => intra.me_unlink(me),
            Side::InterHost => self.inter.me_unlink(me),
        }
    }

    pub(super) fn append<Intra: Ni>(
        &self,
        intra: &Intra,
        index: PtIndex,
        entry: MatchEntry,
    ) -> Result<MeId, NiError> {
        let managed = matches!(entry.memory, MeMemory::Managed { .. });
        let once = entry.options.contains(MeOptions::USE_ONCE);
        // Whether each network can deliver a message to the entry.
        let (in_intra, in_inter) = match entry.source {
            None => (true, true),
            Some(source) => match self.local_rank(source) {
                Some(_) => (true, false),
                None => (false, true),
            },
        };
        let mut inner = entry;
        if managed || once {
            inner.events |= MeEvents::LINK;
        }
        let claim = (once && in_intra && in_inter).then(Claim::default);
        self.check_index("me_append", index)?;
        // The lock is held until the entry is linked in both networks, so that both lists have the
        // same order and an event finds the entry in the table.
        let mut table = self.entries.table.lock();
        let Some(place) = table.free.pop_front() else {
            return Err(NiError::Exhausted {
                operation: "me_append",
                what: "match entries",
                limit: self.entries.tags.len() as u64,
                setting: "fixed",
            });
        };
        let generation = table.generations[usize::from(place)];
        self.entries.tags[usize::from(place)].store(entry.tag, Ordering::Relaxed);
        inner.tag = u64::from(place);
        let to_intra = MatchEntry {
            source: entry.source.and_then(|source| self.local_rank(source)),
            ..inner
        };
        let mut linked = Linked {
            generation,
            index: index.0,
            intra: EntryLink::Gone,
            inter: EntryLink::Gone,
            managed,
            claim: claim.clone(),
            tells: entry.events.contains(MeEvents::LINK),
            ending: false,
            delivered_unlinked: false,
        };
        let mut failed = None;
        if in_intra {
            match append_to(intra, index, to_intra, claim.as_ref()) {
                Ok(me) => linked.intra = EntryLink::Linked(me),
                Err(error) => failed = Some(self.with_job_rank(error)),
            }
        }
        if in_inter && failed.is_none() {
            match append_to(&self.inter, index, inner, claim.as_ref()) {
                Ok(me) => linked.inter = EntryLink::Linked(me),
                Err(error) => failed = Some(error),
            }
        }
        let Some(error) = failed else {
            table.places[usize::from(place)] = Some(linked);
            return Ok(me_id(place, generation));
        };
        if let EntryLink::Linked(me) = linked.intra {
            // The intra-host network may meanwhile have delivered a message to the entry in another
            // thread. The entry therefore ends as if the inter-host network had unlinked it
            // automatically.
            linked.tells = false;
            linked.ending = true;
            linked.intra = self.unlink_other(intra, Side::IntraHost, me);
        }
        match linked.intra {
            EntryLink::Gone => table.vacate(place),
            left => {
                table.places[usize::from(place)] = Some(linked);
                if matches!(left, EntryLink::Unlinking(_)) {
                    table.pending.push(place);
                    self.entries.set_pending(&table);
                }
            }
        }
        Err(error)
    }

    /// Unlinks an entry in one network because it has ended in the other.
    fn unlink_other<Intra: Ni>(&self, intra: &Intra, side: Side, me: MeId) -> EntryLink {
        match self.unlink_in(intra, side, me) {
            Ok(Unlink::Done) => EntryLink::Gone,
            Ok(Unlink::InUse) => EntryLink::Unlinking(me),
            // The entry was unlinked automatically at the same time, and the event for that is
            // still to come.
            Err(_) => EntryLink::Linked(me),
        }
    }

    pub(super) fn unlink<Intra: Ni>(&self, intra: &Intra, me: MeId) -> Result<Unlink, NiError> {
        let mut table = self.entries.table.lock();
        let place = me.0 as u16;
        let linked = match table.places.get_mut(usize::from(place)) {
            Some(Some(linked)) if me == me_id(place, linked.generation) => linked,
            _ => return Err(unknown(me)),
        };
        let claimed = linked.claim.as_ref().is_some_and(Claim::is_taken);
        if linked.ending || claimed {
            return Err(unknown(me));
        }
        // If the intra-host network still uses the entry, the entry is already unlinked in the
        // inter-host network, and the owner must call again.
        for side in [Side::InterHost, Side::IntraHost] {
            if let EntryLink::Linked(inner) = *linked.link(side) {
                match self.unlink_in(intra, side, inner) {
                    Ok(Unlink::Done) => *linked.link(side) = EntryLink::Gone,
                    Ok(Unlink::InUse) => return Ok(Unlink::InUse),
                    // The entry was unlinked automatically, and the event for that is still to
                    // come.
                    Err(_) => return Err(unknown(me)),
                }
            }
        }
        table.vacate(place);
        Ok(Unlink::Done)
    }

    /// Handles the automatic unlinking of an entry in one network. Returns the event that is then
    /// due to the owner, if any.
    #[cold]
    pub(super) fn unlinked<Intra: Ni>(
        &self,
        intra: &Intra,
        side: Side,
        inner: u64,
    ) -> Option<Event<'static>> {
        self.ended(inner, |linked| {
            linked.ending = true;
            *linked.link(side) = match linked.managed {
                true => EntryLink::Draining,
                false => EntryLink::Gone,
            };
            let other = match side {
                Side::IntraHost => Side::InterHost,
                Side::InterHost => Side::IntraHost,
            };
            if let EntryLink::Linked(me) = *linked.link(other) {
                *linked.link(other) = self.unlink_other(intra, other, me);
            }
        })
    }

    /// Handles the release of an unlinked entry's space in one network. Returns the event that is
    /// then due to the owner, if any.
    #[cold]
    pub(super) fn freed(&self, side: Side, inner: u64) -> Option<Event<'static>> {
        self.ended(inner, |linked| *linked.link(side) = EntryLink::Gone)
    }

    /// Applies `change` to an entry. Returns the event that is then due to the owner, if any.
    fn ended(&self, inner: u64, change: impl FnOnce(&mut Linked)) -> Option<Event<'static>> {
        let mut table = self.entries.table.lock();
        let place = u16::try_from(inner).ok()?;
        let linked = table.places.get_mut(usize::from(place))?.as_mut()?;
        change(linked);
        let (due, tells) = (linked.due(), linked.tells);
        if matches!(linked.intra, EntryLink::Unlinking(_))
            || matches!(linked.inter, EntryLink::Unlinking(_))
        {
            if !table.pending.contains(&place) {
                table.pending.push(place);
                self.entries.set_pending(&table);
            }
        } else if let Some((_, true)) = due {
            table.vacate(place);
        }
        let (due, _) = due?;
        tells.then(|| due.event(self.entries.tag(inner)))
    }

    /// Retries the unlinking of pending entries at portal table indices whose event queue is `eq`.
    /// Returns the first event that is then due to an owner, if any.
    #[cold]
    pub(super) fn settle<Intra: Ni>(&self, intra: &Intra, eq: u8) -> Option<Event<'static>> {
        let mut table = self.entries.table.lock();
        let mut at = 0;
        while let Some(&place) = table.pending.get(at) {
            let Some(linked) = table.places[usize::from(place)].as_mut() else {
                table.pending.remove(at);
                continue;
            };
            // An entry whose index was never opened belongs to every queue.
            if self.queue_of(linked.index).is_some_and(|queue| queue != eq) {
                at += 1;
                continue;
            }
            for side in [Side::IntraHost, Side::InterHost] {
                if let EntryLink::Unlinking(me) = *linked.link(side) {
                    *linked.link(side) = self.unlink_other(intra, side, me);
                }
            }
            let (due, tells) = (linked.due(), linked.tells);
            let unlinking = matches!(linked.intra, EntryLink::Unlinking(_))
                || matches!(linked.inter, EntryLink::Unlinking(_));
            match due {
                Some((due, last)) => {
                    // The place is left pending unless this was the entry's last event, because
                    // another event may be due.
                    if last {
                        table.pending.remove(at);
                        table.vacate(place);
                    }
                    if tells {
                        self.entries.set_pending(&table);
                        return Some(due.event(self.entries.tag(u64::from(place))));
                    }
                }
                None if unlinking => at += 1,
                None => {
                    table.pending.remove(at);
                }
            }
        }
        self.entries.set_pending(&table);
        None
    }
}

fn append_to<N: Ni>(
    net: &N,
    index: PtIndex,
    entry: MatchEntry,
    claim: Option<&Claim>,
) -> Result<MeId, NiError> {
    match claim {
        None => net.me_append(index, entry),
        Some(claim) => net.me_append_claimed(index, entry, claim.clone()),
    }
}
