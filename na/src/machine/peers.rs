//! The peers' state, by the peers' numbers.

use std::collections::VecDeque;

use conduit_core::ni::Rank;

use super::operation::OperationId;
use super::wire::{Header, MemoryKey, Request};

/// A request of a peer that has not been answered completely.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A get, whose bytes are sent from local memory in replies.
    Reply {
        operation: u64,
        memory: MemoryKey,
        offset: u64,
        /// The position of the next byte, relative to the beginning of the peer's transfer.
        position: u64,
        left: u32,
    },
    /// A request that this process copies between the peer's memory and local memory.
    Copy {
        request: Request,
        is_put: bool,
        address: u64,
        length: u32,
    },
}

/// The number of unexpected messages that a process may send before the peer grants it more. This
/// number does not depend on the windows of the two sides.
pub(crate) const INITIAL_CREDITS: u32 = 2;

/// A peer. The queues that the peer can fill are bounded: `answers` by the peer's maximum number of
/// requests ([`super::MAX_REQUESTS`]), and `control` by this number and the window of unexpected
/// messages. The other queues hold operations of this process.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The number of references: the user's addresses, the peer's unreceived messages, and the
    /// operations with this peer.
    pub(crate) references: u32,
    /// Whether this process has looked up the peer.
    pub(crate) looked_up: bool,
    /// Whether something was sent to or received from the peer since the last sweep.
    pub(crate) used: bool,
    pub(crate) control: VecDeque<Header>,
    pub(crate) expected: VecDeque<OperationId>,
    pub(crate) unexpected: VecDeque<OperationId>,
    pub(crate) transfers: VecDeque<OperationId>,
    pub(crate) answers: VecDeque<Answer>,
    /// The number of unexpected messages that may be sent to the peer before it returns credits.
    pub(crate) credits: u32,
    /// The number of the peer's unexpected messages that were consumed and whose credits have not
    /// been returned yet.
    pub(crate) owed: u32,
    /// The number of the peer's unexpected messages that have not been consumed.
    pub(crate) early: u32,
    /// The number of unanswered requests to the peer.
    pub(crate) requests: u32,
    /// Whether the rest of this process's window has been granted to the peer.
    pub(crate) granted: bool,
    /// Whether this process has announced to the peer that it can copy from and to the peer's
    /// memory.
    pub(crate) told: bool,
    /// Whether the peer has announced that it can copy from and to this process's memory.
    pub(crate) copies: bool,
    /// The number of sessions so far. Consuming a message of an earlier session returns no credit.
    pub(crate) session: u32,
    /// Whether the peer is in the list of peers with data to send.
    pub(crate) listed: bool,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self {
            references: 0,
            looked_up: false,
            used: true,
            control: VecDeque::new(),
            expected: VecDeque::new(),
            unexpected: VecDeque::new(),
            transfers: VecDeque::new(),
            answers: VecDeque::new(),
            credits: INITIAL_CREDITS,
            owed: 0,
            early: 0,
            requests: 0,
            granted: false,
            told: false,
            copies: false,
            session: 0,
            listed: false,
        }
    }

    /// Returns whether all queues are empty.
    pub(crate) fn is_quiet(&self) -> bool {
        self.control.is_empty()
            && self.answers.is_empty()
            && self.expected.is_empty()
            && self.unexpected.is_empty()
            && self.transfers.is_empty()
    }

    /// Resets the state that belongs to a session.
    pub(crate) fn end_session(&mut self) {
        *self = Self {
            references: self.references,
            looked_up: self.looked_up,
            listed: self.listed,
            session: self.session.wrapping_add(1),
            ..Self::new()
        };
    }
}

/// All peers, by number. The numbers are small, because they are reused.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: Vec<Option<Box<Peer>>>,
    /// The peers with data to send.
    pub(crate) listed: Vec<Rank>,
    /// The peers that [`tidy`](super::NaMachine::tidy) checks for having neither references nor a
    /// session.
    pub(crate) unused: Vec<Rank>,
    /// The peers that violated the protocol.
    pub(crate) broken: Vec<Rank>,
}

impl Peers {
    pub(crate) fn get(&mut self, peer: Rank) -> Option<&mut Peer> {
        self.all.get_mut(peer as usize)?.as_deref_mut()
    }

    pub(crate) fn add(&mut self, peer: Rank) -> &mut Peer {
        let index = peer as usize;
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        self.all[index].get_or_insert_with(|| Box::new(Peer::new()))
    }

    pub(crate) fn remove(&mut self, peer: Rank) {
        if let Some(place) = self.all.get_mut(peer as usize) {
            *place = None;
        }
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        if self.all.len() < self.all.capacity() / 4 {
            self.all.shrink_to(2 * self.all.len());
        }
    }

    /// Marks a peer as having data to send.
    pub(crate) fn list(&mut self, number: Rank) {
        if let Some(peer) = self.all.get_mut(number as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut peer.listed, true)
        {
            self.listed.push(number);
        }
    }

    pub(crate) fn control(&mut self, number: Rank, header: Header) {
        if let Some(peer) = self.get(number) {
            peer.control.push_back(header);
            self.list(number);
        }
    }

    pub(crate) fn hold(&mut self, number: Rank) {
        if let Some(peer) = self.get(number) {
            peer.references += 1;
        }
    }

    pub(crate) fn release(&mut self, number: Rank) {
        if let Some(peer) = self.get(number) {
            peer.references = peer.references.saturating_sub(1);
            if peer.references == 0 {
                self.unused.push(number);
            }
        }
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..)
            .zip(&self.all)
            .filter(|(_, peer)| peer.is_some())
            .map(|(number, _)| number)
    }
}
