//! What the portals know of a peer that they have had to do with.

use std::collections::VecDeque;

use conduit_core::ni::{MeId, Outcome, Rank};

use crate::compact;
use crate::transport::fragment::Failure;

use super::buffers::Buffer;
use super::inbound::LongReply;
use super::window::{IdleWindows, ReceiveWindows, SendWindows, WindowSize};
use super::wire::WindowUpdate;

/// What a peer is control.
#[derive(Debug)]
pub(crate) enum Control {
    /// How a put or an atomic has ended.
    Response {
        operation: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    },
    /// A short get's data, or what became of a get that brings none.
    Reply {
        operation: u32,
        outcome: Outcome,
        data: Buffer,
    },
    /// A longer one's, read where they are.
    LongReply(LongReply),
    /// That this rank leaves.
    Leave,
    /// That it may reach an entry directly.
    Advertise(MeId),
    /// That it may do so no longer.
    Withdraw(MeId),
    /// That this rank reaches an entry of the peer's directly no longer.
    Withdrawn(MeId),
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Rank,
    pub(crate) send: SendWindows,
    pub(crate) receive: ReceiveWindows,
    /// In the order in which it became due. No more than two windows: the peer is told of no more taken operations while there
    /// is a window's worth; besides, a few for each index.
    pub(crate) control: VecDeque<Control>,
    /// It is in the list of links with something to go out.
    pub(crate) scheduled: bool,
    /// It has said that it leaves.
    pub(crate) left: bool,
    pub(crate) failure: Option<Failure>,
}

// What `docs/udp.md` says of memory.
const _: () = assert!(size_of::<Link>() <= 144);

impl Link {
    fn new(peer: Rank) -> Self {
        Self {
            peer,
            send: SendWindows::default(),
            receive: ReceiveWindows::default(),
            control: VecDeque::new(),
            scheduled: false,
            left: false,
            failure: None,
        }
    }

    /// The window update for the next tiny fragment; once that is sent, call
    /// [`ReceiveWindows::update_sent`].
    #[inline(always)]
    pub(crate) fn window_update(&self, size: WindowSize) -> WindowUpdate {
        match self.control.len() < usize::from(size.operations) {
            true => self.receive.update(),
            false => self.receive.last_update(),
        }
    }

    /// Whether that reports anything new.
    #[inline(always)]
    pub(crate) fn has_window_update(&self, size: WindowSize) -> bool {
        self.receive.has_update() && self.control.len() < usize::from(size.operations)
    }

    /// Whether something is to be sent to the peer unasked.
    #[inline]
    pub(crate) fn is_due(&self, size: WindowSize) -> bool {
        !self.control.is_empty() || self.receive.is_due(size)
    }
}

/// A peer whose [`Link`] does not change for a while: what has to be kept of it. The counters of the windows go on from there.
#[derive(Debug, Clone, Copy)]
struct Resting {
    /// Its rank, in a form that needs no alignment of four bytes.
    peer: [u16; 2],
    send: SendWindows,
    receive: IdleWindows,
    /// The window of the last update.
    last: u8,
    left: bool,
}

// What `docs/udp.md` says of memory.
const _: () = assert!(size_of::<Resting>() == 70);

impl Resting {
    fn of(link: &Link) -> Option<Self> {
        if !link.control.is_empty() || link.scheduled || link.failure.is_some() {
            return None;
        }
        Some(Self {
            peer: [link.peer as u16, (link.peer >> 16) as u16],
            send: link.send,
            receive: link.receive.idle()?,
            last: link.receive.last_updated(),
            left: link.left,
        })
    }

    fn peer(&self) -> Rank {
        let [low, high] = self.peer;
        Rank::from(high) << 16 | Rank::from(low)
    }

    fn resume(&self, window: WindowSize) -> Link {
        Link {
            send: self.send,
            receive: ReceiveWindows::resume(&self.receive, self.last, window),
            left: self.left,
            ..Link::new(self.peer())
        }
    }
}

/// All peers; those that this rank has had nothing to do with cost four bytes, those that it has had nothing to do with of
/// late 74.
#[derive(Debug)]
pub(crate) struct Links {
    /// By rank: the place of a link, with [`RESTING`] added of one that rests, or [`NONE`].
    places: Box<[u32]>,
    links: Vec<Link>,
    resting: Vec<Resting>,
    /// The size of each window.
    window: WindowSize,
}

const NONE: u32 = u32::MAX;
const RESTING: u32 = 1 << 31;
/// With fewer links no memory is given back.
const FEW: usize = 16;

impl Links {
    pub(crate) fn new(size: u32, window: WindowSize) -> Self {
        Self {
            places: vec![NONE; size as usize].into(),
            links: Vec::new(),
            resting: Vec::new(),
            window,
        }
    }

    /// A peer, which is a rank of the job.
    #[inline]
    pub(crate) fn get(&mut self, peer: Rank) -> Option<&mut Link> {
        let place = *self.places.get(peer as usize)?;
        if place >= RESTING {
            return self.open(peer, place);
        }
        self.links.get_mut(place as usize)
    }

    #[cold]
    fn open(&mut self, peer: Rank, place: u32) -> Option<&mut Link> {
        let link = if place == NONE {
            Link::new(peer)
        } else {
            let place = place ^ RESTING;
            let resting = self.resting.get(place as usize)?.resume(self.window);
            self.resting.swap_remove(place as usize);
            if let Some(moved) = self.resting.get(place as usize) {
                self.places[moved.peer() as usize] = RESTING | place;
            }
            if self.resting.len() < self.resting.capacity() / 2 {
                self.resting.shrink_to(self.resting.len());
            }
            resting
        };
        *self.places.get_mut(peer as usize)? = self.links.len() as u32;
        self.links.push(link);
        self.links.last_mut()
    }

    /// Nothing has gone to a peer or come from it for a while: keeps less of it, if that will do.
    pub(crate) fn rest(&mut self, peer: Rank) {
        let Some(&place) = self.places.get(peer as usize) else {
            return;
        };
        let Some(resting) = self.links.get(place as usize).and_then(Resting::of) else {
            return;
        };
        self.links.swap_remove(place as usize);
        if let Some(moved) = self.links.get(place as usize) {
            self.places[moved.peer as usize] = place;
        }
        if self.links.len() >= FEW && self.links.len() < self.links.capacity() / 4 {
            self.links.shrink_to(2 * self.links.len());
        }
        self.places[peer as usize] = RESTING | self.resting.len() as u32;
        compact::push(&mut self.resting, resting);
    }

    /// Those that this rank has had to do with.
    pub(crate) fn open_ones(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut()
    }

    /// The same, and none of them rests any more.
    pub(crate) fn known_ones(&mut self) -> impl Iterator<Item = &mut Link> {
        for resting in std::mem::take(&mut self.resting) {
            self.places[resting.peer() as usize] = self.links.len() as u32;
            self.links.push(resting.resume(self.window));
        }
        self.links.iter_mut()
    }

    /// Bytes of memory, but for what is control.
    #[cfg(test)]
    fn memory(&self) -> usize {
        size_of_val(&*self.places)
            + self.links.capacity() * size_of::<Link>()
            + self.resting.capacity() * size_of::<Resting>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Cost;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SIZE: WindowSize = WindowSize {
        operations: 40,
        units: 1000,
    };

    proptest! {
        /// Whatever rests at whatever time, the windows go on as if nothing had.
        #[test]
        fn nobody_notices_who_rests(steps in prop::collection::vec((0u8..8, 0u32..20, 0u8..4), 1..400)) {
            let (mut links, mut reference) = (Links::new(20, SIZE), BTreeMap::<Rank, (SendWindows, ReceiveWindows, bool)>::new());
            for (what, peer, index) in steps {
                let cost = Cost::of_put(index, 100, 1000);
                if what == 0 {
                    links.rest(peer);
                    continue;
                }
                let other = reference.entry(peer).or_default();
                let link = links.get(peer).expect("a rank of the job");
                prop_assert_eq!(link.peer, peer);
                match what {
                    1 => prop_assert_eq!(link.send.reserve(cost, SIZE), other.0.reserve(cost, SIZE)),
                    2 | 3 => {
                        link.receive.arrive(cost, SIZE);
                        other.1.arrive(cost, SIZE);
                        // Taken at once, mostly.
                        if what == 2 || peer > 10 {
                            link.receive.consume(cost, SIZE);
                            other.1.consume(cost, SIZE);
                        }
                    }
                    4 => {
                        let update = link.receive.update();
                        prop_assert_eq!(update, other.1.update());
                        link.receive.update_sent(update);
                        other.1.update_sent(update);
                    }
                    5 if index == 0 => {
                        link.left = true;
                        other.2 = true;
                    }
                    6 => prop_assert_eq!(links.known_ones().count(), reference.len()),
                    _ => {}
                }
            }
            for (peer, (sent, arrived, left)) in reference {
                let link = links.get(peer).expect("a rank of the job");
                prop_assert_eq!((link.send, link.receive, link.left), (sent, arrived, left));
            }
        }
    }

    #[test]
    fn one_that_is_owed_something_does_not_rest() {
        let mut links = Links::new(3, SIZE);
        for peer in 0..3 {
            links.get(peer).expect("a rank of the job");
        }
        links
            .get(0)
            .expect("a rank")
            .control
            .push_back(Control::Leave);
        links.get(1).expect("a rank").scheduled = true;
        assert!(
            links
                .get(2)
                .expect("a rank")
                .receive
                .arrive(Cost::of_header(1), SIZE)
        );
        for peer in 0..3 {
            links.rest(peer);
        }
        assert_eq!((links.links.len(), links.resting.len()), (3, 0));
    }

    /// What `docs/udp.md` says: 75 bytes and four for each.
    #[test]
    fn resting_peers_cost_little() {
        for size in [10, 10_000, 1_000_000] {
            let mut links = Links::new(size, SIZE);
            for peer in 0..size {
                links.get(peer).expect("a rank of the job");
                links.rest(peer);
            }
            let each = links.memory() as f64 / f64::from(size);
            assert!(
                each < 4.0 + 75.0 + 144.0 * 4.0 / f64::from(size),
                "{each} of {size}"
            );
        }
    }
}
