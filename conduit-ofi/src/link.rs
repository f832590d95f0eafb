//! What is kept of a peer that this rank has had to do with.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use conduit_core::ni::Rank;
use conduit_portals::compact;
use conduit_portals::transport::fragment::{Failure, MAX_HEADER, Refused};
use libfabric_sys::{FI_ADDR_UNSPEC, fi_addr_t};

use crate::frame::{Frame, Kind};
use crate::liveness::Liveness;

/// A fragment whose bytes stay the user's, on its way in one frame or several.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) token: u64,
    /// Bytes of the fragment, and those that are in frames already.
    pub(crate) length: usize,
    pub(crate) next: usize,
    /// Frames under way whose bytes lie with the user.
    pub(crate) lent: u32,
    header: [u8; MAX_HEADER],
    header_length: u8,
}

impl Sending {
    pub(crate) fn new(token: u64, length: usize, header: &[u8]) -> Option<Self> {
        let mut kept = [0; MAX_HEADER];
        kept.get_mut(..header.len())?.copy_from_slice(header);
        Some(Self {
            token,
            length,
            next: 0,
            lent: 0,
            header: kept,
            // Fits: at most MAX_HEADER.
            header_length: header.len() as u8,
        })
    }

    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }
}

/// A longer fragment that is arriving.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    /// The user's name for the place of its bytes.
    pub(crate) place: u64,
    /// Bytes that have come, and those that have not: a link is small, so nothing is added where there are none.
    pub(crate) next: usize,
    pub(crate) left: NonZeroUsize,
}

/// Bytes that it takes to keep a frame, or a little less.
fn cost(frame: &[u8]) -> usize {
    frame.len() + 32
}

/// Frames that are there before others that were sent before them, by their numbers. Seldom any, and a link is small.
#[derive(Debug, Default)]
pub(crate) struct Early {
    frames: BTreeMap<u64, Box<[u8]>>,
    bytes: usize,
}

impl Early {
    /// Keeps a frame; the bytes that this takes. `None`: one with its number is there.
    pub(crate) fn keep(&mut self, number: u64, frame: &[u8]) -> Option<usize> {
        let std::collections::btree_map::Entry::Vacant(place) = self.frames.entry(number) else {
            return None;
        };
        place.insert(frame.into());
        self.bytes += cost(frame);
        Some(cost(frame))
    }

    /// The frame with this number, and the bytes that it took.
    pub(crate) fn take(&mut self, number: u64) -> Option<(Box<[u8]>, usize)> {
        let frame = self.frames.remove(&number)?;
        let cost = cost(&frame);
        self.bytes -= cost;
        Some((frame, cost))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Frames of the data channel for which there was no room, in their order. The first begins a fragment. Seldom any, either.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Bytes of the last fragment that are still to come.
    left: usize,
}

impl Held {
    /// Keeps a frame, which has so many of its fragment's bytes, behind the others; the bytes that this takes. `None`: it can't follow
    /// them.
    pub(crate) fn keep(&mut self, frame: &Frame, payload: usize, bytes: &[u8]) -> Option<usize> {
        self.left = match frame.kind {
            Kind::Whole if self.left == 0 => 0,
            // Fits: 64 bits.
            Kind::First if self.left == 0 => (frame.length as usize).checked_sub(payload)?,
            Kind::Chunk if self.left > 0 => self.left.checked_sub(payload)?,
            _ => return None,
        };
        self.frames.push_back(bytes.into());
        self.bytes += cost(bytes);
        Some(cost(bytes))
    }

    /// The first frame, and the bytes that it took.
    pub(crate) fn take(&mut self) -> Option<(Box<[u8]>, usize)> {
        let frame = self.frames.pop_front()?;
        let cost = cost(&frame);
        self.bytes -= cost;
        Some((frame, cost))
    }

    /// Gives back the one that was just taken; the bytes that this takes.
    pub(crate) fn put_back(&mut self, frame: Box<[u8]>) -> usize {
        let cost = cost(&frame);
        self.bytes += cost;
        self.frames.push_front(frame);
        cost
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Rank,
    /// libfabric's handle of it.
    pub(crate) address: fi_addr_t,
    /// Tiny frames that the library has refused for now.
    pub(crate) backlog: VecDeque<Box<[u8]>>,
    /// The numbers of the next frame to it, and of the next one from it.
    pub(crate) next_out: u64,
    pub(crate) next_in: u64,
    /// Frames from it whose receives have completed before those of earlier ones.
    pub(crate) early: Option<Box<Early>>,
    /// Not all in frames yet, in their order.
    pub(crate) queue: VecDeque<Sending>,
    /// All in frames, some of them under way.
    pub(crate) lent: Vec<Sending>,
    pub(crate) arriving: Option<Arriving>,
    /// Frames of the data channel for which there was no room.
    pub(crate) held: Option<Box<Held>>,
    /// Operations that libfabric has and has not completed.
    pub(crate) pending: u32,
    /// Of them those that reach the user's own memory without its help.
    pub(crate) direct: u32,
    /// It is in the list of links with something to go out.
    pub(crate) listed: bool,
    /// No more of longer fragments goes to it.
    pub(crate) abandoned: bool,
    pub(crate) liveness: Liveness,
    /// The ping whose answer is waited for before the peer counts as settled.
    pub(crate) unsettled: Option<u32>,
    /// Pings to be answered: the number of the last.
    pub(crate) pong: Option<u32>,
    pub(crate) failure: Option<Failure>,
}

// What `docs/ofi.md` says of memory.
const _: () = assert!(size_of::<Link>() <= 232);

impl Link {
    pub(crate) fn new(peer: Rank, address: fi_addr_t) -> Self {
        Self {
            peer,
            address,
            backlog: VecDeque::new(),
            next_out: 0,
            next_in: 0,
            early: None,
            queue: VecDeque::new(),
            lent: Vec::new(),
            arriving: None,
            held: None,
            pending: 0,
            direct: 0,
            listed: false,
            abandoned: false,
            liveness: Liveness::default(),
            unsettled: None,
            pong: None,
            failure: None,
        }
    }

    /// Whether a frame whose number ends in these bits is the next one from it, and none is there before its time.
    #[inline(always)]
    pub(crate) fn is_next(&self, number: u16) -> bool {
        // The lower bits.
        number == self.next_in as u16 && self.early.is_none() && self.failure.is_none()
    }

    /// Whether a message with this source is its. `takes_unknown`: also if nobody says where it has come from.
    #[inline(always)]
    pub(crate) fn is_from(&self, source: fi_addr_t, takes_unknown: bool) -> bool {
        source == self.address || takes_unknown && source == FI_ADDR_UNSPEC
    }

    /// What was sent to it and may not have reached it: frames that libfabric has not completed or not taken, of longer fragments an
    /// estimate; and a ping that is to be answered.
    pub(crate) fn outstanding(&self, frame: usize) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        let left = |sending: &Sending| (sending.length - sending.next) / frame + 1;
        let queued: usize = self.queue.iter().map(left).sum();
        self.pending as usize + self.backlog.len() + queued + usize::from(self.unsettled.is_some())
    }

    /// Sends no more frames of longer fragments. The peer may be in the middle of one, so others can't follow either.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        self.queue.clear();
        self.lent.clear();
    }

    /// What is to be kept of it while it rests: see [`RESTING`]. `None`: it can't.
    fn resting(&self) -> Option<u32> {
        let is_quiet = self.pending == 0
            && self.direct == 0
            && !self.listed
            && !self.abandoned
            && self.backlog.is_empty()
            && self.queue.is_empty()
            && self.lent.is_empty()
            && self.held.is_none()
            && self.arriving.is_none()
            && self.early.is_none()
            && self.unsettled.is_none()
            && self.pong.is_none()
            && self.failure.is_none()
            && self.liveness.is_quiet();
        let handle = u32::try_from(self.address).ok()?;
        // The largest would look like no link.
        if !is_quiet || handle >= HANDLE {
            return None;
        }
        let known = if self.liveness.is_known() { KNOWN } else { 0 };
        Some(RESTING | known | handle)
    }
}

/// All peers; those that this rank has had nothing to do with, or nothing of late, cost eight bytes and their address.
#[derive(Debug)]
pub(crate) struct Links {
    /// By rank: the place of its link, what is kept of one that rests, or [`NONE`].
    places: Box<[u32]>,
    /// By rank, of links that rest: the numbers of the next frames to and from it. Empty until one rests that has had any.
    numbers: Box<[(u64, u64)]>,
    links: Vec<Link>,
}

const NONE: u32 = u32::MAX;
/// A link rests: the lower bits are libfabric's handle of the peer, a small number as address vectors give them (`FI_AV_TABLE`).
const RESTING: u32 = 1 << 31;
/// Something has come of this one.
const KNOWN: u32 = 1 << 30;
const HANDLE: u32 = KNOWN - 1;
/// With fewer links no memory is given back.
const FEW: usize = 16;

impl Links {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            places: vec![NONE; size as usize].into(),
            numbers: Box::default(),
            links: Vec::new(),
        }
    }

    /// Where a peer's link is, until one is added, rests or wakes.
    #[inline]
    pub(crate) fn find(&self, peer: Rank) -> Option<usize> {
        let place = *self.places.get(peer as usize)?;
        (place < RESTING).then_some(place as usize)
    }

    /// The link there, unless it has failed.
    #[inline]
    pub(crate) fn alive(&mut self, place: usize) -> Result<&mut Link, Refused> {
        let link = self.links.get_mut(place).ok_or(Refused::NoSuchRank)?;
        match link.failure {
            None => Ok(link),
            Some(_) => Err(Refused::Dead),
        }
    }

    /// A link, unless it rests.
    #[inline]
    pub(crate) fn get(&mut self, peer: Rank) -> Option<&mut Link> {
        let place = *self.places.get(peer as usize)?;
        self.links.get_mut(place as usize)
    }

    #[inline]
    pub(crate) fn look(&self, peer: Rank) -> Option<&Link> {
        let place = *self.places.get(peer as usize)?;
        self.links.get(place as usize)
    }

    /// Adds one that is not there, of a rank of the job.
    pub(crate) fn add(&mut self, link: Link) {
        if let Some(place) = self.places.get_mut(link.peer as usize) {
            // Fits: fewer than ranks.
            *place = self.links.len() as u32;
            compact::push(&mut self.links, link);
        }
    }

    /// Notes libfabric's handle of a peer that nothing was sent to nor has come from.
    pub(crate) fn note(&mut self, peer: Rank, handle: fi_addr_t) {
        self.add(Link::new(peer, handle));
        // One with a large handle stays.
        self.rest(peer);
    }

    /// The number of the next frame from a peer. `None`: no rank of the job.
    pub(crate) fn next_in(&self, peer: Rank) -> Option<u64> {
        match self.look(peer) {
            Some(link) => Some(link.next_in),
            None if (peer as usize) < self.places.len() => Some(self.resting_numbers(peer).1),
            None => None,
        }
    }

    /// Of one that rests, or was never met.
    fn resting_numbers(&self, peer: Rank) -> (u64, u64) {
        self.numbers.get(peer as usize).copied().unwrap_or_default()
    }

    /// Keeps only what cannot be found out again of a link with which nothing is under way. False if that is more than there is
    /// room for, or something is.
    pub(crate) fn rest(&mut self, peer: Rank) -> bool {
        let Some(place) = self.find(peer) else {
            return false;
        };
        let Some(link) = self.links.get(place) else {
            return false;
        };
        let Some(resting) = link.resting() else {
            return false;
        };
        let numbers = (link.next_out, link.next_in);
        if self.numbers.is_empty() && numbers != (0, 0) {
            self.numbers = vec![(0, 0); self.places.len()].into();
        }
        if let Some(kept) = self.numbers.get_mut(peer as usize) {
            *kept = numbers;
        }
        self.links.swap_remove(place);
        if let Some(moved) = self.links.get(place) {
            // Fits: it was there before.
            self.places[moved.peer as usize] = place as u32;
        }
        if self.links.len() >= FEW && self.links.len() < self.links.capacity() / 4 {
            self.links.shrink_to(2 * self.links.len());
        }
        self.places[peer as usize] = resting;
        true
    }

    /// Makes a link of one that rests, if it does.
    pub(crate) fn wake(&mut self, peer: Rank) -> bool {
        let resting = match self.places.get(peer as usize) {
            Some(&place) if place != NONE && place & RESTING != 0 => place,
            _ => return false,
        };
        let mut link = Link::new(peer, u64::from(resting & HANDLE));
        (link.next_out, link.next_in) = self.resting_numbers(peer);
        if resting & KNOWN != 0 {
            link.liveness = Liveness::of_known();
        }
        self.add(link);
        true
    }

    /// The same of all.
    pub(crate) fn wake_all(&mut self) {
        // Fits: ranks.
        for peer in 0..self.places.len() as Rank {
            self.wake(peer);
        }
    }

    /// All that don't rest.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut()
    }

    /// Bytes of memory, but for what is under way.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.places)
            + size_of_val(&*self.numbers)
            + self.links.capacity() * size_of::<Link>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whoever rests and wakes, each peer has its own handle, and is known if it was.
        #[test]
        fn nobody_is_mixed_up(steps in prop::collection::vec((0u8..4, 0u32..20), 1..300)) {
            let mut links = Links::new(20);
            let mut reference = BTreeMap::<Rank, (u64, bool)>::new();
            let mut numbers = BTreeMap::<Rank, (u64, u64)>::new();
            for (number, (what, peer)) in (1..).zip(steps) {
                if let std::collections::btree_map::Entry::Vacant(new) = reference.entry(peer) {
                    new.insert((u64::from(peer) * 7 + 1, false));
                    links.add(Link::new(peer, u64::from(peer) * 7 + 1));
                }
                match what {
                    0 => {
                        links.rest(peer);
                    }
                    1 => {
                        links.wake(peer);
                    }
                    2 => links.wake_all(),
                    _ => {
                        links.wake(peer);
                        let link = links.get(peer).expect("awake");
                        link.liveness = Liveness::of_known();
                        (link.next_out, link.next_in) = (number, 7 * number);
                        numbers.insert(peer, (number, 7 * number));
                        reference.insert(peer, (link.address, true));
                    }
                }
            }
            for (peer, (address, is_known)) in reference {
                links.wake(peer);
                let link = links.look(peer).expect("awake");
                prop_assert_eq!((link.peer, link.address, link.liveness.is_known()), (peer, address, is_known));
                let next = numbers.get(&peer).copied().unwrap_or_default();
                prop_assert_eq!((link.next_out, link.next_in), next);
            }
        }
    }

    #[test]
    fn who_was_only_noted_rests_and_begins_with_the_first_frame() {
        let mut links = Links::new(3);
        links.note(1, 7);
        assert_eq!((links.next_in(1), links.next_in(3)), (Some(0), None));
        assert!(links.look(1).is_none() && links.wake(1));
        let link = links.get(1).expect("awake");
        assert_eq!((link.address, link.next_out, link.next_in), (7, 0, 0));
        link.next_in = 1 << 40;
        assert!(links.rest(1));
        assert_eq!(links.next_in(1), Some(1 << 40));
        // Too large to rest with.
        links.note(2, u64::from(HANDLE));
        assert!(links.look(2).is_some());
    }

    proptest! {
        /// Each frame comes out once, whatever comes twice, and nothing is left of what they took.
        #[test]
        fn early_frames_are_kept_once(frames in prop::collection::vec((0u64..50, 0usize..100), 1..200)) {
            let mut early = Early::default();
            let mut reference = BTreeMap::new();
            let mut bytes = 0;
            for (number, length) in frames {
                let frame = vec![number as u8; length];
                let kept = early.keep(number, &frame);
                prop_assert_eq!(kept.is_some(), !reference.contains_key(&number));
                reference.entry(number).or_insert(frame);
                bytes += kept.unwrap_or(0);
                prop_assert_eq!(early.bytes(), bytes);
            }
            for number in 0..50 {
                let taken = early.take(number);
                bytes -= taken.as_ref().map_or(0, |(_, cost)| *cost);
                let taken = taken.map(|(frame, _)| frame.into_vec());
                prop_assert_eq!(taken, reference.remove(&number));
            }
            prop_assert_eq!((early.bytes(), early.is_empty(), bytes), (0, true, 0));
        }
    }

    #[test]
    fn one_with_something_under_way_does_not_rest() {
        type Change = fn(&mut Link);
        let changes: [Change; 11] = [
            |link| link.pending = 1,
            |link| link.abandoned = true,
            |link| link.listed = true,
            |link| link.liveness.sent(),
            |link| link.liveness.heard(),
            |link| link.backlog.push_back(Box::default()),
            |link| link.held = Some(Box::default()),
            |link| link.early = Some(Box::default()),
            |link| link.unsettled = Some(1),
            |link| link.failure = Some(Failure::Unreachable),
            // More than there is room for.
            |link| link.address = u64::from(HANDLE) + 1,
        ];
        for change in changes {
            let mut links = Links::new(2);
            links.add(Link::new(1, 5));
            change(links.get(1).expect("there"));
            assert!(!links.rest(1));
            assert!(links.look(1).is_some());
        }
        let mut links = Links::new(2);
        links.add(Link::new(1, 5));
        assert!(links.rest(1) && !links.rest(1) && links.look(1).is_none());
        assert!(!links.wake(0) && links.wake(1) && !links.wake(1));
    }

    /// What `docs/ofi.md` says: 20 bytes for each rank that has been met, and 232 for each that does not rest.
    #[test]
    fn resting_peers_cost_nothing() {
        for size in [10, 10_000, 1_000_000] {
            let mut links = Links::new(size);
            for peer in 0..size {
                let mut link = Link::new(peer, peer.into());
                link.next_in = 1;
                links.add(link);
                assert!(links.rest(peer));
            }
            assert!(links.memory() <= 20 * size as usize + FEW * size_of::<Link>());
        }
        let mut links = Links::new(1000);
        for peer in 0..1000 {
            links.add(Link::new(peer, peer.into()));
        }
        let each = links.memory() as f64 / 1000.0 - 4.0;
        assert!(each < 1.2 * size_of::<Link>() as f64, "{each} bytes");
    }
}
