//! What the portals know of a peer that they have had to do with.

use std::collections::VecDeque;

use conduit_core::ni::{Outcome, Rank};

use crate::protocol::Failure;

use super::buffers::Buffer;
use super::target::Reading;
use super::window::{Arrived, Sent, Size};
use super::wire::Told;

/// What a peer is owed.
#[derive(Debug)]
pub(super) enum Owed {
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
    LongReply(Reading),
    /// That this rank leaves.
    Leave,
}

/// A peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Rank,
    pub(super) sent: Sent,
    pub(super) arrived: Arrived,
    /// In the order in which it became due. No more than two windows: the peer is told of no more taken operations while there
    /// is a window's worth.
    pub(super) owed: VecDeque<Owed>,
    /// It is in the list of links with something to go out.
    pub(super) listed: bool,
    /// It has said that it leaves.
    pub(super) left: bool,
    pub(super) failure: Option<Failure>,
}

// What `docs/udp.md` says of memory.
const _: () = assert!(size_of::<Link>() <= 144);

impl Link {
    /// What to tell the peer in a tiny fragment; when that has gone, [`Arrived::told`] wants to know.
    #[inline]
    pub(super) fn news(&self, size: Size) -> Told {
        match self.owed.len() < usize::from(size.operations) {
            true => self.arrived.news(),
            false => self.arrived.old(),
        }
    }

    /// Whether something is to be sent to the peer unasked.
    #[inline]
    pub(super) fn is_due(&self, size: Size) -> bool {
        !self.owed.is_empty() || self.arrived.is_due(size)
    }
}

/// All peers; those that this rank has had nothing to do with cost four bytes.
#[derive(Debug)]
pub(super) struct Links {
    places: Box<[u32]>,
    links: Vec<Link>,
}

const NONE: u32 = u32::MAX;

impl Links {
    pub(super) fn new(size: u32) -> Self {
        Self {
            places: vec![NONE; size as usize].into(),
            links: Vec::new(),
        }
    }

    /// A peer, which is a rank of the job.
    #[inline]
    pub(super) fn get(&mut self, peer: Rank) -> Option<&mut Link> {
        let place = *self.places.get(peer as usize)?;
        if place == NONE {
            return self.open(peer);
        }
        self.links.get_mut(place as usize)
    }

    #[cold]
    fn open(&mut self, peer: Rank) -> Option<&mut Link> {
        *self.places.get_mut(peer as usize)? = self.links.len() as u32;
        self.links.push(Link {
            peer,
            sent: Sent::default(),
            arrived: Arrived::default(),
            owed: VecDeque::new(),
            listed: false,
            left: false,
            failure: None,
        });
        self.links.last_mut()
    }

    /// Those that this rank has had to do with.
    pub(super) fn open_ones(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut()
    }
}
