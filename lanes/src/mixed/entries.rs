//! Match entries that are linked in both networks.
//!
//! An entry has a place here, whose number is its name in the networks' events. The place tells the owner's name for it, and
//! what has become of it on either side:
//!
//! ```text
//! Linked -- it unlinks itself: Unlinked --> Draining (managed) -- Free --> Gone
//!    |                                          or Gone at once (not managed)
//!    +-- the other has unlinked itself --> Gone, or Doomed until the network lets go of it
//! ```
//!
//! The owner is told [`Event::Unlinked`] when no side is linked any more, and [`Event::Free`] when both are gone. Networks raise
//! events in any order, so an event may still name a place whose entry is gone: places are used again as late as possible.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use conduit_core::ni::{
    Claim, Event, MatchEntry, MeEvents, MeId, MeMemory, MeOptions, Ni, NiError, PtIndex, Unlink,
};
use conduit_core::threads::{Lock, Mode};

use super::{Beyond, Side};

/// Places for each entry that can be linked.
const PLACES: u32 = 4;
/// Places at most: a name has 16 bits for one.
const MOST: u32 = 1 << 16;

/// What has become of an entry in one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// Linked; or it has unlinked itself, and says so in an event that is yet to come.
    Linked(MeId),
    /// To be unlinked, as the other side has unlinked itself; the network said that it is in use.
    Doomed(MeId),
    /// It has unlinked itself, and its space is not free yet.
    Draining,
    /// Never linked there, or over.
    Gone,
}

#[derive(Debug)]
struct Linked {
    generation: u16,
    index: u8,
    near: Link,
    far: Link,
    managed: bool,
    claim: Option<Claim>,
    /// The owner wants to hear of unlinking.
    tells: bool,
    /// One side has unlinked itself: from here on the entry ends by itself.
    ending: bool,
    told_unlinked: bool,
}

impl Linked {
    fn link(&mut self, side: Side) -> &mut Link {
        match side {
            Side::Near => &mut self.near,
            Side::Far => &mut self.far,
        }
    }

    /// What the owner is to be told next; the second is that this was all.
    fn due(&mut self) -> Option<(Due, bool)> {
        let unlinked = |link| matches!(link, Link::Draining | Link::Gone);
        if !self.ending || !unlinked(self.near) || !unlinked(self.far) {
            return None;
        }
        let gone = self.near == Link::Gone && self.far == Link::Gone;
        if !self.told_unlinked {
            self.told_unlinked = true;
            return Some((Due::Unlinked, gone && !self.managed));
        }
        (gone && self.managed).then_some((Due::Free, true))
    }
}

/// What the owner of an entry is told.
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

struct Book {
    places: Vec<Option<Linked>>,
    generations: Vec<u16>,
    free: VecDeque<u16>,
    /// Entries that have something to be done or told without an event of the networks.
    pending: Vec<u16>,
}

pub(super) struct Entries<M: Mode> {
    /// By place: the owner's name for the entry, read with every event.
    tags: Box<[AtomicU64]>,
    /// As many as `Book::pending` has.
    pending: AtomicU32,
    book: M::Lock<Book>,
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
            book: M::Lock::new(Book {
                places: (0..places).map(|_| None).collect(),
                generations: vec![0; places as usize],
                // Fits: at most `MOST`.
                free: (0..places).map(|place| place as u16).collect(),
                pending: Vec::new(),
            }),
        }
    }

    /// The owner's name for the entry of this name in the networks.
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

    fn set_pending(&self, book: &Book) {
        self.pending
            .store(book.pending.len() as u32, Ordering::Relaxed);
    }
}

impl Book {
    fn vacate(&mut self, place: u16) {
        self.places[usize::from(place)] = None;
        let generation = &mut self.generations[usize::from(place)];
        *generation = generation.wrapping_add(1);
        self.free.push_back(place);
    }
}

impl<Far: Ni, M: Mode> Beyond<Far, M> {
    fn unlink_in<Near: Ni>(&self, near: &Near, side: Side, me: MeId) -> Result<Unlink, NiError> {
        match side {
            Side::Near => near.me_unlink(me),
            Side::Far => self.far.me_unlink(me),
        }
    }

    pub(super) fn append<Near: Ni>(
        &self,
        near: &Near,
        index: PtIndex,
        entry: MatchEntry,
    ) -> Result<MeId, NiError> {
        let managed = matches!(entry.memory, MeMemory::Managed { .. });
        let once = entry.options.contains(MeOptions::USE_ONCE);
        // Which of the networks can bring a message for it.
        let (in_near, in_far) = match entry.source {
            None => (true, true),
            Some(source) => match self.near_rank(source) {
                Some(_) => (true, false),
                None => (false, true),
            },
        };
        let mut inner = entry;
        if managed || once {
            inner.events |= MeEvents::LINK;
        }
        let claim = (once && in_near && in_far).then(Claim::default);
        self.check_index("me_append", index)?;
        // Held until both have it: both lists have the same order, and an event of it finds it here.
        let mut book = self.entries.book.lock();
        let Some(place) = book.free.pop_front() else {
            return Err(NiError::Exhausted {
                operation: "me_append",
                what: "match entries",
                limit: self.entries.tags.len() as u64,
                setting: "fixed",
            });
        };
        let generation = book.generations[usize::from(place)];
        self.entries.tags[usize::from(place)].store(entry.tag, Ordering::Relaxed);
        inner.tag = u64::from(place);
        let to_near = MatchEntry {
            source: entry.source.and_then(|source| self.near_rank(source)),
            ..inner
        };
        let mut linked = Linked {
            generation,
            index: index.0,
            near: Link::Gone,
            far: Link::Gone,
            managed,
            claim: claim.clone(),
            tells: entry.events.contains(MeEvents::LINK),
            ending: false,
            told_unlinked: false,
        };
        let mut failed = None;
        if in_near {
            match append_to(near, index, to_near, claim.as_ref()) {
                Ok(me) => linked.near = Link::Linked(me),
                Err(error) => failed = Some(self.of_near(error)),
            }
        }
        if in_far && failed.is_none() {
            match append_to(&self.far, index, inner, claim.as_ref()) {
                Ok(me) => linked.far = Link::Linked(me),
                Err(error) => failed = Some(error),
            }
        }
        let Some(error) = failed else {
            book.places[usize::from(place)] = Some(linked);
            return Ok(me_id(place, generation));
        };
        if let Link::Linked(me) = linked.near {
            // It may have taken a message in between, in another thread: then it ends as if the other side had.
            linked.tells = false;
            linked.ending = true;
            linked.near = self.let_go(near, Side::Near, me);
        }
        match linked.near {
            Link::Gone => book.vacate(place),
            left => {
                book.places[usize::from(place)] = Some(linked);
                if matches!(left, Link::Doomed(_)) {
                    book.pending.push(place);
                    self.entries.set_pending(&book);
                }
            }
        }
        Err(error)
    }

    /// Unlinks one side because the other has ended.
    fn let_go<Near: Ni>(&self, near: &Near, side: Side, me: MeId) -> Link {
        match self.unlink_in(near, side, me) {
            Ok(Unlink::Done) => Link::Gone,
            Ok(Unlink::InUse) => Link::Doomed(me),
            // It has unlinked itself at the same time; its event tells.
            Err(_) => Link::Linked(me),
        }
    }

    pub(super) fn unlink<Near: Ni>(&self, near: &Near, me: MeId) -> Result<Unlink, NiError> {
        let mut book = self.entries.book.lock();
        let place = me.0 as u16;
        let linked = match book.places.get_mut(usize::from(place)) {
            Some(Some(linked)) if me == me_id(place, linked.generation) => linked,
            _ => return Err(unknown(me)),
        };
        let claimed = linked.claim.as_ref().is_some_and(Claim::is_taken);
        if linked.ending || claimed {
            return Err(unknown(me));
        }
        // What is done on one side stays done if the other is in use: the owner asks again.
        for side in [Side::Far, Side::Near] {
            if let Link::Linked(inner) = *linked.link(side) {
                match self.unlink_in(near, side, inner) {
                    Ok(Unlink::Done) => *linked.link(side) = Link::Gone,
                    Ok(Unlink::InUse) => return Ok(Unlink::InUse),
                    // It has unlinked itself, and its event is to come.
                    Err(_) => return Err(unknown(me)),
                }
            }
        }
        book.vacate(place);
        Ok(Unlink::Done)
    }

    /// A network says that an entry has unlinked itself: what its owner is told.
    #[cold]
    pub(super) fn unlinked<Near: Ni>(
        &self,
        near: &Near,
        side: Side,
        inner: u64,
    ) -> Option<Event<'static>> {
        self.ended(inner, |linked| {
            linked.ending = true;
            *linked.link(side) = match linked.managed {
                true => Link::Draining,
                false => Link::Gone,
            };
            let other = match side {
                Side::Near => Side::Far,
                Side::Far => Side::Near,
            };
            if let Link::Linked(me) = *linked.link(other) {
                *linked.link(other) = self.let_go(near, other, me);
            }
        })
    }

    /// A network says that an unlinked entry's space is free: what its owner is told.
    #[cold]
    pub(super) fn freed(&self, side: Side, inner: u64) -> Option<Event<'static>> {
        self.ended(inner, |linked| *linked.link(side) = Link::Gone)
    }

    /// Does `change` to an entry, and gives what its owner is told.
    fn ended(&self, inner: u64, change: impl FnOnce(&mut Linked)) -> Option<Event<'static>> {
        let mut book = self.entries.book.lock();
        let place = u16::try_from(inner).ok()?;
        let linked = book.places.get_mut(usize::from(place))?.as_mut()?;
        change(linked);
        let (due, tells) = (linked.due(), linked.tells);
        if matches!(linked.near, Link::Doomed(_)) || matches!(linked.far, Link::Doomed(_)) {
            if !book.pending.contains(&place) {
                book.pending.push(place);
                self.entries.set_pending(&book);
            }
        } else if let Some((_, true)) = due {
            book.vacate(place);
        }
        let (due, _) = due?;
        tells.then(|| due.event(self.entries.tag(inner)))
    }

    /// Goes on with an entry of an index with this queue that waits for something else than an event: asks again, and gives
    /// what its owner is told. `None`: nothing more for now.
    #[cold]
    pub(super) fn settle<Near: Ni>(&self, near: &Near, eq: u8) -> Option<Event<'static>> {
        let mut book = self.entries.book.lock();
        let mut at = 0;
        while let Some(&place) = book.pending.get(at) {
            let Some(linked) = book.places[usize::from(place)].as_mut() else {
                book.pending.remove(at);
                continue;
            };
            // One whose index was never opened is anybody's.
            if self.queue_of(linked.index).is_some_and(|queue| queue != eq) {
                at += 1;
                continue;
            }
            for side in [Side::Near, Side::Far] {
                if let Link::Doomed(me) = *linked.link(side) {
                    *linked.link(side) = self.let_go(near, side, me);
                }
            }
            let (due, tells) = (linked.due(), linked.tells);
            let doomed =
                matches!(linked.near, Link::Doomed(_)) || matches!(linked.far, Link::Doomed(_));
            match due {
                Some((due, last)) => {
                    // The place stays among those that wait: there may be more to tell.
                    if last {
                        book.pending.remove(at);
                        book.vacate(place);
                    }
                    if tells {
                        self.entries.set_pending(&book);
                        return Some(due.event(self.entries.tag(u64::from(place))));
                    }
                }
                None if doomed => at += 1,
                None => {
                    book.pending.remove(at);
                }
            }
        }
        self.entries.set_pending(&book);
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
