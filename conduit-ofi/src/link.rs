//! What is kept of a peer that this rank has had to do with.

use std::collections::VecDeque;

use conduit_core::ni::Rank;
use libfabric_sys::fi_addr_t;
use soft_portals::fragment::{Failure, MAX_HEADER};

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
    pub(crate) length: usize,
    /// Bytes that have come.
    pub(crate) next: usize,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Rank,
    /// libfabric's handle of it.
    pub(crate) address: fi_addr_t,
    /// Tiny frames that the library has refused for now.
    pub(crate) backlog: VecDeque<Box<[u8]>>,
    /// Not all in frames yet, in their order.
    pub(crate) queue: VecDeque<Sending>,
    /// All in frames, some of them under way.
    pub(crate) lent: Vec<Sending>,
    pub(crate) arriving: Option<Arriving>,
    /// Frames of the data channel for which there was no room.
    pub(crate) held: VecDeque<Box<[u8]>>,
    /// Operations that libfabric has and has not completed.
    pub(crate) pending: u32,
    /// Of them those that reach the user's own memory without its help.
    pub(crate) direct: u32,
    /// It is in the list of links with something to go out.
    pub(crate) listed: bool,
    pub(crate) liveness: Liveness,
    /// The last ping, and whether its answer is waited for before the peer counts as settled.
    pub(crate) pings: u32,
    pub(crate) unsettled: Option<u32>,
    /// Pings to be answered: the number of the last.
    pub(crate) pong: Option<u32>,
    pub(crate) failure: Option<Failure>,
}

// What `docs/ofi.md` says of memory.
const _: () = assert!(size_of::<Link>() <= 256);

impl Link {
    pub(crate) fn new(peer: Rank, address: fi_addr_t) -> Self {
        Self {
            peer,
            address,
            backlog: VecDeque::new(),
            queue: VecDeque::new(),
            lent: Vec::new(),
            arriving: None,
            held: VecDeque::new(),
            pending: 0,
            direct: 0,
            listed: false,
            liveness: Liveness::default(),
            pings: 0,
            unsettled: None,
            pong: None,
            failure: None,
        }
    }
}

/// All peers; those that this rank has had nothing to do with cost four bytes and their address.
#[derive(Debug)]
pub(crate) struct Links {
    /// By rank: the place of its link, or [`NONE`].
    places: Box<[u32]>,
    links: Vec<Link>,
}

const NONE: u32 = u32::MAX;

impl Links {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            places: vec![NONE; size as usize].into(),
            links: Vec::new(),
        }
    }

    /// The place of a peer's link, which stays the same.
    #[inline]
    pub(crate) fn find(&self, peer: Rank) -> Option<usize> {
        let place = *self.places.get(peer as usize)?;
        (place != NONE).then_some(place as usize)
    }

    /// The link at a place.
    #[inline]
    pub(crate) fn at(&mut self, place: usize) -> Option<&mut Link> {
        self.links.get_mut(place)
    }

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
            self.links.push(link);
        }
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut()
    }

    /// Bytes of memory, but for what is under way.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.places) + self.links.capacity() * size_of::<Link>()
    }
}
