//! Links, which are the state that a rank keeps for its peers.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use conduit_core::ni::Rank;
use conduit_portals::compact;
use conduit_portals::transport::fragment::{Failure, MAX_HEADER, Refused};
use libfabric_sys::{FI_ADDR_UNSPEC, fi_addr_t};

use crate::wire::frame::{Frame, FrameKind};
use crate::wire::liveness::Liveness;

/// A fragment in the user's memory that is being sent in one or more frames.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) token: u64,
    /// The length of the fragment in bytes.
    pub(crate) length: usize,
    /// The number of bytes that are already in frames.
    pub(crate) next: usize,
    /// The number of frames in flight that are sent from the user's memory.
    pub(crate) in_flight: u32,
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
            in_flight: 0,
            header: kept,
            // The cast is lossless, because a header has at most `MAX_HEADER` bytes.
            header_length: header.len() as u8,
        })
    }

    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }
}

/// A fragment of more than one frame that is arriving.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    /// The fragment handler's token for the destination.
    pub(crate) place: u64,
    /// The number of bytes received.
    pub(crate) next: usize,
    /// The number of bytes missing. It is `NonZero` to keep an `Option` of this structure small.
    pub(crate) left: NonZeroUsize,
}

/// Returns the approximate number of bytes of memory that a kept frame takes.
fn cost(frame: &[u8]) -> usize {
    frame.len() + 32
}

/// Frames that arrived before earlier ones, by number. Links store this structure boxed, because
/// such frames are rare.
#[derive(Debug, Default)]
pub(crate) struct Early {
    frames: BTreeMap<u64, Box<[u8]>>,
    bytes: usize,
}

impl Early {
    /// Keeps a frame, and returns the number of bytes of memory that the frame takes. Returns
    /// `None` if a frame with this number is already kept.
    pub(crate) fn keep(&mut self, number: u64, frame: &[u8]) -> Option<usize> {
        let std::collections::btree_map::Entry::Vacant(place) = self.frames.entry(number) else {
            return None;
        };
        place.insert(frame.into());
        self.bytes += cost(frame);
        Some(cost(frame))
    }

    /// Removes the frame with this number. Returns the frame and the number of bytes that it took.
    pub(crate) fn take(&mut self, number: u64) -> Option<(Box<[u8]>, usize)> {
        let frame = self.frames.remove(&number)?;
        let cost = cost(&frame);
        self.bytes -= cost;
        Some((frame, cost))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of bytes that the frames take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Frames of the data channel for which the fragment handler had no room, in order. The first frame
/// must begin a fragment. Such frames are rare.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frames: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The number of missing bytes of the last fragment.
    left: usize,
}

impl Held {
    /// Appends a frame with `payload` bytes of its fragment, and returns the number of bytes of
    /// memory that the frame takes. Returns `None` if the frame cannot follow the frames before it,
    /// which is a protocol error.
    pub(crate) fn keep(&mut self, frame: &Frame, payload: usize, bytes: &[u8]) -> Option<usize> {
        self.left = match frame.kind {
            FrameKind::Whole if self.left == 0 => 0,
            // The cast is lossless, because `usize` has 64 bits.
            FrameKind::First if self.left == 0 => (frame.length as usize).checked_sub(payload)?,
            FrameKind::Chunk if self.left > 0 => self.left.checked_sub(payload)?,
            _ => return None,
        };
        self.frames.push_back(bytes.into());
        self.bytes += cost(bytes);
        Some(cost(bytes))
    }

    /// Removes the first frame. Returns the frame and the number of bytes that it took.
    pub(crate) fn take(&mut self) -> Option<(Box<[u8]>, usize)> {
        let frame = self.frames.pop_front()?;
        let cost = cost(&frame);
        self.bytes -= cost;
        Some((frame, cost))
    }

    /// Puts back a frame that has just been taken, and returns the number of bytes that the frame
    /// takes.
    pub(crate) fn put_back(&mut self, frame: Box<[u8]>) -> usize {
        let cost = cost(&frame);
        self.bytes += cost;
        self.frames.push_front(frame);
        cost
    }

    /// Returns the number of bytes that the frames take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The link to a peer.
#[derive(Debug)]
pub(crate) struct OfiLink<T> {
    pub(crate) peer: Rank,
    /// The peer's session, in an open network.
    pub(crate) session: T,
    /// libfabric's handle of the peer.
    pub(crate) address: fi_addr_t,
    /// The small frames that libfabric refused for now (`-FI_EAGAIN`), in order.
    pub(crate) backlog: VecDeque<Box<[u8]>>,
    /// The number of the next frame to the peer.
    pub(crate) next_out: u64,
    pub(crate) next_in: u64,
    /// The frames whose receives completed before those of earlier frames.
    pub(crate) early: Option<Box<Early>>,
    /// The fragments that are not yet completely in frames, in order.
    pub(crate) queue: VecDeque<Sending>,
    /// The fragments that are completely in frames, of which some are still in flight.
    pub(crate) in_flight: Vec<Sending>,
    pub(crate) arriving: Option<Arriving>,
    /// The frames of the data channel for which there was no room.
    pub(crate) held: Option<Box<Held>>,
    /// The number of operations that libfabric has not completed.
    pub(crate) pending: u32,
    /// The number of pending operations that access the user's memory.
    pub(crate) direct: u32,
    /// Whether the link is in the list of links that have something to send.
    pub(crate) listed: bool,
    /// Whether to send no more frames of longer fragments to the peer.
    pub(crate) abandoned: bool,
    pub(crate) liveness: Liveness,
    /// The ping that must be answered before the peer counts as settled.
    pub(crate) unsettled: Option<u32>,
    /// The number of the last ping to answer.
    pub(crate) pong: Option<u32>,
    pub(crate) failure: Option<Failure>,
}

// `docs/ofi.md` states this size.
const _: () = assert!(size_of::<OfiLink<()>>() <= 232);

impl<T: Copy + Default> OfiLink<T> {
    pub(crate) fn new(peer: Rank, address: fi_addr_t) -> Self {
        Self {
            peer,
            session: T::default(),
            address,
            backlog: VecDeque::new(),
            next_out: 0,
            next_in: 0,
            early: None,
            queue: VecDeque::new(),
            in_flight: Vec::new(),
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

    /// Returns whether a frame is the next one expected, given the lower bits of its number.
    /// Returns `false` if early frames are kept or the link has failed.
    #[inline(always)]
    pub(crate) fn is_next(&self, number: u16) -> bool {
        // The cast keeps the lower bits, which are the ones transmitted.
        number == self.next_in as u16 && self.early.is_none() && self.failure.is_none()
    }

    /// Returns whether a message came from this peer. If `accepts_unknown_source` is set, a message
    /// whose source is unknown counts as the peer's.
    #[inline(always)]
    pub(crate) fn is_from(&self, source: fi_addr_t, accepts_unknown_source: bool) -> bool {
        source == self.address || accepts_unknown_source && source == FI_ADDR_UNSPEC
    }

    /// Returns the number of items that may not have reached the peer. These are the frames that
    /// libfabric has not accepted or completed (an estimate for longer fragments) and an unanswered
    /// ping.
    pub(crate) fn outstanding(&self, frame: usize) -> usize {
        if self.failure.is_some() {
            return 0;
        }
        let left = |sending: &Sending| (sending.length - sending.next) / frame + 1;
        let queued: usize = self.queue.iter().map(left).sum();
        self.pending as usize + self.backlog.len() + queued + usize::from(self.unsettled.is_some())
    }

    /// Stops sending frames of longer fragments. Because the peer may have received part of a
    /// fragment, no other fragment may follow.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        self.queue.clear();
        self.in_flight.clear();
    }

    /// Frees unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.backlog.shrink_to_fit();
        self.queue.shrink_to_fit();
        self.in_flight.shrink_to_fit();
    }

    /// Returns the compressed state of the link while idle (see [`IDLE`]), or `None` if the link
    /// cannot be idle now.
    fn to_idle(&self) -> Option<u32> {
        let is_quiet = self.pending == 0
            && self.direct == 0
            && !self.listed
            && !self.abandoned
            && self.backlog.is_empty()
            && self.queue.is_empty()
            && self.in_flight.is_empty()
            && self.held.is_none()
            && self.arriving.is_none()
            && self.early.is_none()
            && self.unsettled.is_none()
            && self.pong.is_none()
            && self.failure.is_none()
            && self.liveness.is_quiet();
        let handle = u32::try_from(self.address).ok()?;
        // The largest value marks the absence of a link.
        if !is_quiet || handle >= HANDLE {
            return None;
        }
        let known = if self.liveness.is_known() { KNOWN } else { 0 };
        Some(IDLE | known | handle)
    }
}

/// The links to all peers. A peer without an open link takes 4 bytes besides its address, or 20
/// bytes once a link that was used has become idle.
#[derive(Debug)]
pub(crate) struct Links<T> {
    /// For each rank, the index of its link, the compressed state of an idle link, or [`NONE`].
    places: Vec<u32>,
    /// For each rank, the numbers of the next frames to and from the rank, if its link is idle. The
    /// table is allocated when a link that was used first becomes idle.
    numbers: Box<[(u64, u64)]>,
    links: Vec<OfiLink<T>>,
}

const NONE: u32 = u32::MAX;
/// The flag of an idle link. The lower bits are libfabric's handle of the peer, which is a small
/// number (`FI_AV_TABLE`).
const IDLE: u32 = 1 << 31;
/// The flag of an idle link whose peer has sent something.
const KNOWN: u32 = 1 << 30;
const HANDLE: u32 = KNOWN - 1;
/// The number of links below which the table does not shrink.
const FEW: usize = 16;

impl<T: Copy + Default> Links<T> {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            places: vec![NONE; size as usize],
            numbers: Box::default(),
            links: Vec::new(),
        }
    }

    /// Returns whether no link is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Returns the index of a peer's open link. The index is valid until a link is added, made idle
    /// or reopened.
    #[inline]
    pub(crate) fn find(&self, peer: Rank) -> Option<usize> {
        let place = *self.places.get(peer as usize)?;
        (place < IDLE).then_some(place as usize)
    }

    /// Returns the link at an index, unless it has failed.
    #[inline]
    pub(crate) fn alive(&mut self, place: usize) -> Result<&mut OfiLink<T>, Refused> {
        let link = self.links.get_mut(place).ok_or(Refused::NoSuchRank)?;
        match link.failure {
            None => Ok(link),
            Some(_) => Err(Refused::Dead),
        }
    }

    /// Returns the link to a peer, if it is open.
    #[inline]
    pub(crate) fn get(&mut self, peer: Rank) -> Option<&mut OfiLink<T>> {
        let place = *self.places.get(peer as usize)?;
        self.links.get_mut(place as usize)
    }

    #[inline]
    pub(crate) fn peek(&self, peer: Rank) -> Option<&OfiLink<T>> {
        let place = *self.places.get(peer as usize)?;
        self.links.get(place as usize)
    }

    /// Adds the link to a rank of the job that has no link.
    pub(crate) fn add(&mut self, link: OfiLink<T>) {
        if let Some(place) = self.places.get_mut(link.peer as usize) {
            // The cast is lossless, because there are at most as many links as ranks.
            *place = self.links.len() as u32;
            compact::push(&mut self.links, link);
        }
    }

    /// Stores libfabric's handle of a peer with which there has been no traffic, as an idle link.
    pub(crate) fn note(&mut self, peer: Rank, handle: fi_addr_t) {
        self.add(OfiLink::new(peer, handle));
        // If the handle is too large for an idle link, the link is left open.
        self.make_idle(peer);
    }

    /// Returns the number of the next frame from a peer, or `None` for a rank outside the job.
    pub(crate) fn next_in(&self, peer: Rank) -> Option<u64> {
        match self.peek(peer) {
            Some(link) => Some(link.next_in),
            None if (peer as usize) < self.places.len() => Some(self.next_numbers(peer).1),
            None => None,
        }
    }

    /// Returns the numbers of the next frames to and from a peer without an open link.
    fn next_numbers(&self, peer: Rank) -> (u64, u64) {
        self.numbers.get(peer as usize).copied().unwrap_or_default()
    }

    /// Makes a link idle if nothing is in flight on it and its handle is small enough. Returns
    /// whether the link was made idle.
    pub(crate) fn make_idle(&mut self, peer: Rank) -> bool {
        let Some(place) = self.find(peer) else {
            return false;
        };
        let Some(link) = self.links.get(place) else {
            return false;
        };
        let Some(idle) = link.to_idle() else {
            return false;
        };
        let numbers = (link.next_out, link.next_in);
        if self.numbers.is_empty() && numbers != (0, 0) {
            self.numbers = vec![(0, 0); self.places.len()].into();
        }
        if let Some(kept) = self.numbers.get_mut(peer as usize) {
            *kept = numbers;
        }
        self.take_out(place);
        self.places[peer as usize] = idle;
        true
    }

    /// Removes a link from the list, and updates the place of the link that moves into its
    /// position. The caller must update the place of the removed link's peer.
    fn take_out(&mut self, place: usize) {
        self.links.swap_remove(place);
        if let Some(moved) = self.links.get(place) {
            // The cast is lossless, because `place` has been the index of a link.
            self.places[moved.peer as usize] = place as u32;
        }
        if self.links.len() >= FEW && self.links.len() < self.links.capacity() / 4 {
            self.links.shrink_to(2 * self.links.len());
        }
    }

    /// Removes the link to a peer. Must be called only in open networks.
    pub(crate) fn remove(&mut self, peer: Rank) {
        if let Some(place) = self.find(peer) {
            self.take_out(place);
            self.places[peer as usize] = NONE;
        }
    }

    /// Resizes the table for links to peers below `size`. The other peers must have no links. This
    /// must be called only in open networks.
    pub(crate) fn resize(&mut self, size: u32) {
        self.places.resize(size as usize, NONE);
        if self.places.len() >= FEW && self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(2 * self.places.len());
        }
    }

    /// Reopens an idle link. Returns `false` if the link is not idle.
    pub(crate) fn reopen(&mut self, peer: Rank) -> bool {
        let idle = match self.places.get(peer as usize) {
            Some(&place) if place != NONE && place & IDLE != 0 => place,
            _ => return false,
        };
        let mut link = OfiLink::new(peer, u64::from(idle & HANDLE));
        (link.next_out, link.next_in) = self.next_numbers(peer);
        if idle & KNOWN != 0 {
            link.liveness = Liveness::of_known();
        }
        self.add(link);
        true
    }

    /// Reopens all idle links.
    pub(crate) fn reopen_all(&mut self) {
        // The cast is lossless, because there is one place per rank.
        for peer in 0..self.places.len() as Rank {
            self.reopen(peer);
        }
    }

    /// Returns all open links.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut OfiLink<T>> {
        self.links.iter_mut()
    }

    /// Returns the number of bytes of memory that the links occupy, without operations in flight.
    pub(crate) fn memory(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
            + size_of_val(&*self.numbers)
            + self.links.capacity() * size_of::<OfiLink<T>>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whichever links become idle and are reopened, each peer's handle is preserved, and so is
        /// whether the peer is known.
        #[test]
        fn nobody_is_mixed_up(steps in prop::collection::vec((0u8..4, 0u32..20), 1..300)) {
            let mut links = Links::<()>::new(20);
            let mut reference = BTreeMap::<Rank, (u64, bool)>::new();
            let mut numbers = BTreeMap::<Rank, (u64, u64)>::new();
            for (number, (what, peer)) in (1..).zip(steps) {
                if let std::collections::btree_map::Entry::Vacant(new) = reference.entry(peer) {
                    new.insert((u64::from(peer) * 7 + 1, false));
                    links.add(OfiLink::new(peer, u64::from(peer) * 7 + 1));
                }
                match what {
                    0 => {
                        links.make_idle(peer);
                    }
                    1 => {
                        links.reopen(peer);
                    }
                    2 => links.reopen_all(),
                    _ => {
                        links.reopen(peer);
                        let link = links.get(peer).expect("awake");
                        link.liveness = Liveness::of_known();
                        (link.next_out, link.next_in) = (number, 7 * number);
                        numbers.insert(peer, (number, 7 * number));
                        reference.insert(peer, (link.address, true));
                    }
                }
            }
            for (peer, (address, is_known)) in reference {
                links.reopen(peer);
                let link = links.peek(peer).expect("awake");
                prop_assert_eq!((link.peer, link.address, link.liveness.is_known()), (peer, address, is_known));
                let next = numbers.get(&peer).copied().unwrap_or_default();
                prop_assert_eq!((link.next_out, link.next_in), next);
            }
        }
    }

    #[test]
    fn who_was_only_noted_rests_and_begins_with_the_first_frame() {
        let mut links = Links::<()>::new(3);
        links.note(1, 7);
        assert_eq!((links.next_in(1), links.next_in(3)), (Some(0), None));
        assert!(links.peek(1).is_none() && links.reopen(1));
        let link = links.get(1).expect("awake");
        assert_eq!((link.address, link.next_out, link.next_in), (7, 0, 0));
        link.next_in = 1 << 40;
        assert!(links.make_idle(1));
        assert_eq!(links.next_in(1), Some(1 << 40));
        // The handle is too large for an idle link.
        links.note(2, u64::from(HANDLE));
        assert!(links.peek(2).is_some());
    }

    proptest! {
        /// Each frame is returned once even if it arrives twice, and the byte count returns to 0.
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
        type Change = fn(&mut OfiLink<()>);
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
            // The handle is too large for an idle link.
            |link| link.address = u64::from(HANDLE) + 1,
        ];
        for change in changes {
            let mut links = Links::<()>::new(2);
            links.add(OfiLink::new(1, 5));
            change(links.get(1).expect("there"));
            assert!(!links.make_idle(1));
            assert!(links.peek(1).is_some());
        }
        let mut links = Links::<()>::new(2);
        links.add(OfiLink::new(1, 5));
        assert!(links.make_idle(1) && !links.make_idle(1) && links.peek(1).is_none());
        assert!(!links.reopen(0) && links.reopen(1) && !links.reopen(1));
    }

    /// Checks the sizes stated in `docs/ofi.md`: 20 bytes for each rank with traffic so far, and
    /// 232 bytes for each link that is not idle.
    #[test]
    fn idle_peers_cost_nothing() {
        for size in [10, 10_000, 1_000_000] {
            let mut links = Links::<()>::new(size);
            for peer in 0..size {
                let mut link = OfiLink::new(peer, peer.into());
                link.next_in = 1;
                links.add(link);
                assert!(links.make_idle(peer));
            }
            assert!(links.memory() <= 20 * size as usize + FEW * size_of::<OfiLink<()>>());
        }
        let mut links = Links::<()>::new(1000);
        for peer in 0..1000 {
            links.add(OfiLink::new(peer, peer.into()));
        }
        let each = links.memory() as f64 / 1000.0 - 4.0;
        assert!(each < 1.2 * size_of::<OfiLink<()>>() as f64, "{each} bytes");
    }
}
