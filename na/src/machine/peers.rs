//! What is kept of each peer, by its number.

use std::collections::VecDeque;

use conduit_core::ni::Rank;

use super::operation::OperationId;
use super::wire::{Header, MemoryKey, Request};

/// What a peer has requested and is still to be given.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Bytes of a memory here, in replies.
    Reply {
        operation: u64,
        memory: MemoryKey,
        offset: u64,
        /// Where the next byte belongs, counted from the beginning of the peer's transfer.
        position: u64,
        left: u32,
    },
    /// A copy between the peer's memory and one here.
    Copy {
        request: Request,
        is_put: bool,
        address: u64,
        length: u32,
    },
}

/// Unexpected messages that a process may send before the peer grants it more. Both begin with the
/// same number, whatever their windows are.
pub(crate) const INITIAL_CREDITS: u32 = 2;

/// A peer. Everything that is queued here is bounded: answers by what the peer may request at once
/// ([`super::MAX_REQUESTS`]), control by that and by the window of unexpected messages; the rest are
/// operations of this process.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Addresses of the user, messages that were not received yet, and operations.
    pub(crate) references: u32,
    /// This process has reached it, not it this process.
    pub(crate) looked_up: bool,
    /// Something was sent or received since the last sweep.
    pub(crate) used: bool,
    pub(crate) control: VecDeque<Header>,
    pub(crate) expected: VecDeque<OperationId>,
    pub(crate) unexpected: VecDeque<OperationId>,
    pub(crate) transfers: VecDeque<OperationId>,
    pub(crate) answers: VecDeque<Answer>,
    /// Unexpected messages that may be sent to it before it returns credits.
    pub(crate) credits: u32,
    /// Unexpected messages of it that were consumed and not told yet; those that were not consumed.
    pub(crate) owed: u32,
    pub(crate) early: u32,
    /// Requests to it without an answer.
    pub(crate) requests: u32,
    /// It was granted the rest of this process's window.
    pub(crate) granted: bool,
    /// It was told that this process can copy from and to its memory; it has told the same.
    pub(crate) told: bool,
    pub(crate) copies: bool,
    /// Counts sessions: what is left of an earlier one returns no credit.
    pub(crate) session: u32,
    /// It is in the list of peers with something to go out.
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

    /// Nothing is queued for it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.control.is_empty()
            && self.answers.is_empty()
            && self.expected.is_empty()
            && self.unexpected.is_empty()
            && self.transfers.is_empty()
    }

    /// Forgets all of a session.
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

/// All peers. Numbers are small, and are used again.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: Vec<Option<Box<Peer>>>,
    /// With something to go out.
    pub(crate) listed: Vec<Rank>,
    /// Perhaps without references or session.
    pub(crate) unused: Vec<Rank>,
    /// They have broken the protocol.
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

    /// Something is to go out to this peer.
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
