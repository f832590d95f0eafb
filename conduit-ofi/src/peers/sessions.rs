//! Begins and ends sessions. This module carries out over links what the
//! [handshake](super::handshake) requests.

use conduit_core::ni::Rank;
use conduit_portals::compact::shrink;
use conduit_portals::transport::fragment::{Failure, FragmentHandler, Refused};

use crate::wire::failure;
use crate::wire::liveness::Nanos;

use super::OpenOfi;
use super::handshake::{Established, Event, Outgoing, Proven, Replaced, Timed};
use super::links::{LinkUse, NONE, PENDING, PeerLinks, Purpose, SAME, replaced};

/// The minimum time for which a link is kept after its end. During that time, libfabric sends data
/// that it has copied but has not reported as sent.
const LINGER: Nanos = 200_000_000;
/// The maximum time for which a link is kept after its end because data wait to be sent.
const MOST_LINGER: Nanos = 5_000_000_000;
/// The time between checks of lingering links.
const LOOK: Nanos = 50_000_000;
/// The maximum number of answers to unknown processes in flight.
const MOST_ANSWERS: u32 = 64;
/// The number of errors after which an attempt ends. The first errors may concern a connection to a
/// previous process at the address.
const MOST_ERRORS: u8 = 4;

impl OpenOfi {
    // ---- links ----------------------------------------------------------------------------------

    /// Adds a link to an address.
    fn add_link(&mut self, now: Nanos, address: &[u8], purpose: Purpose) -> Result<u32, Failure> {
        let raw = self.addressing.raw(address).map_err(Failure::Network)?;
        let handle = self.handles.take(self.wire.objects(), address, &raw);
        let handle = handle.map_err(|refusal| {
            failure::of_peer(self.wire.offer(), refusal.operation, refusal.error)
        })?;
        let number = self.links.add(LinkUse {
            address: address.into(),
            purpose,
            since: now,
            errors: 0,
        });
        self.resize();
        self.wire.admit(number, handle);
        Ok(number)
    }

    /// Resizes the per-link tables to the existing links.
    fn resize(&mut self) {
        self.owners.resize(self.links.end() as usize, NONE);
        shrink(&mut self.owners);
        self.wire.resize(self.links.end());
    }

    fn remove_link(&mut self, number: u32) {
        self.wire.remove(number);
        if let Some(owner) = self.owners.get_mut(number as usize) {
            *owner = NONE;
        }
        if let Some(link) = self.links.remove(number) {
            self.handles.give(self.wire.objects(), &link.address);
        }
        self.resize();
    }

    /// Ends the activity on a link. If `bye` is set, also notifies the peer. The link is removed
    /// once everything on it has been sent.
    fn let_go(&mut self, now: Nanos, number: u32, bye: bool) {
        self.wire.end(number, bye);
        if let Some(owner) = self.owners.get_mut(number as usize) {
            *owner = NONE;
        }
        if let Some(link) = self.links.get_mut(number) {
            link.purpose = Purpose::Ending;
            link.since = now;
            self.leaving.push(number);
            self.next_tick = 0;
        }
    }

    // ---- beginnings -----------------------------------------------------------------------------

    /// Handles a fragment that cannot be sent because this process does not yet know that the
    /// session has begun at both ends. Begins a session if necessary.
    #[cold]
    pub(super) fn send_without_session(&mut self, peer: Rank) -> Refused {
        let Some(known) = self.peers.state(peer) else {
            return Refused::NoSuchRank;
        };
        let (session, attempt) = (known.session, known.attempt);
        if session != NONE {
            self.use_if_heard(peer, session);
        } else if attempt == NONE {
            self.begin(peer, None);
        }
        Refused::Full
    }

    /// Starts to send fragments over a session if the peer has been heard in it.
    fn use_if_heard(&mut self, peer: Rank, session: u32) {
        if self.wire.is_heard(session)
            && let Some(address) = self.peers.address(peer)
        {
            self.ready[peer as usize] = session;
            self.handshake.on_heard(address, session);
        }
    }

    /// Begins a session with a peer. If `unless` is given, begins the session only if the peer has
    /// a different incarnation.
    fn begin(&mut self, peer: Rank, unless: Option<u64>) {
        let Some(address) = self.peers.address(peer).cloned() else {
            return;
        };
        let now = self.wire.clock();
        self.next_tick = 0;
        let number = match self.add_link(now, &address, Purpose::Attempt) {
            Ok(number) => number,
            Err(failure) => {
                self.failed.push((peer, failure));
                return;
            }
        };
        match self.handshake.start(now, &address, number, unless) {
            Some(out) => {
                if let Some(known) = self.peers.state_mut(peer) {
                    known.attempt = number;
                }
                self.wire.post_message(number, &out.bytes);
            }
            None => self.remove_link(number),
        }
    }

    /// Handles the handshake messages that have arrived, and probes whether peers with overdue
    /// answers have been restarted.
    #[cold]
    pub(super) fn take_news(&mut self, handler: &mut impl FragmentHandler) {
        let now = self.wire.clock();
        while let Some(message) = self.wire.take_message() {
            match self.handshake.receive(now, &message) {
                Event::Ignored => self.counters.strangers += 1,
                Event::Known => {}
                Event::Send(out) => self.post(now, &out),
                Event::Proven(proven) => self.on_proven(now, proven, handler),
                Event::Established(session) => self.on_established(now, session, handler),
                Event::Unchanged { number } => {
                    self.forget_attempt(number);
                    self.let_go(now, number, false);
                }
            }
        }
        for number in self.wire.take_late() {
            if let Some(link) = self.links.get(number)
                && let Purpose::Session(peer) = link.purpose
                && self
                    .peers
                    .state(peer)
                    .is_some_and(|peer| peer.attempt == NONE)
                && let Some(incarnation) = self.handshake.incarnation_of(&link.address)
            {
                self.begin(peer, Some(incarnation));
            }
        }
    }

    /// Sends a handshake message.
    fn post(&mut self, now: Nanos, out: &Outgoing) {
        // All answers to copies of a HELLO share one link, regardless of who sent the copies.
        // Answers beyond the link's capacity are dropped.
        let number = out.number.or_else(|| self.answering(now, &out.to));
        if let Some(number) = number {
            self.wire.post_message(number, &out.bytes);
        } else if self.answers < MOST_ANSWERS
            && let Ok(number) = self.add_link(now, &out.to, Purpose::Answer)
        {
            self.answers += 1;
            self.wire.post_message(number, &out.bytes);
            self.leaving.push(number);
            self.next_tick = 0;
        }
    }

    /// Returns the link over which answers to an address are being sent, and extends the link's
    /// lifetime.
    fn answering(&mut self, now: Nanos, address: &[u8]) -> Option<u32> {
        for &number in &self.leaving {
            if let Some(link) = self.links.get_mut(number)
                && link.purpose == Purpose::Answer
                && *link.address == *address
            {
                link.since = now;
                return Some(number);
            }
        }
        None
    }

    fn on_proven(&mut self, now: Nanos, proven: Proven, handler: &mut impl FragmentHandler) {
        let Ok((peer, is_new)) = self.number_of(proven.address()) else {
            self.counters.turned_away += 1;
            return;
        };
        let purpose = Purpose::Session(peer);
        let Ok(number) = self.add_link(now, proven.address(), purpose) else {
            if is_new {
                self.remove_peer(peer);
            }
            return;
        };
        let (session, out) = self.handshake.accept(proven, number);
        if is_new {
            handler.joined(peer);
        }
        self.establish(now, peer, session, false, handler);
        self.wire.post_message(number, &out.bytes);
    }

    fn on_established(
        &mut self,
        now: Nanos,
        session: Established,
        handler: &mut impl FragmentHandler,
    ) {
        self.forget_attempt(session.number);
        match self.peers.find(&session.address) {
            Some(peer) => self.establish(now, peer, session, true, handler),
            // Cannot happen, because an attempt ends with its peer.
            None => self.let_go(now, session.number, false),
        }
    }

    /// Installs a new session.
    fn establish(
        &mut self,
        now: Nanos,
        peer: Rank,
        session: Established,
        is_first: bool,
        handler: &mut impl FragmentHandler,
    ) {
        let number = session.number;
        if let Some(cancelled) = session.cancelled {
            self.forget_attempt(cancelled);
            self.let_go(now, cancelled, false);
        }
        if let Some(displaced) = session.displaced {
            self.let_go(now, displaced, false);
        }
        let Some(known) = self.peers.state_mut(peer) else {
            return;
        };
        let is_same = session.replaces == Some(Replaced::Same);
        let (purpose, mut owner) = match is_first || known.session == NONE {
            true => (Purpose::Session(peer), peer),
            false => (Purpose::Pending(peer), peer | PENDING),
        };
        if owner == peer {
            known.pending = NONE;
            let before = std::mem::replace(&mut known.session, number);
            self.ready[peer as usize] = if is_first { number } else { NONE };
            if before != NONE {
                self.let_go(now, before, false);
                handler.failed(peer, replaced(is_same));
            }
        } else {
            known.pending = number;
            self.pending.push(number);
            owner |= if is_same { SAME } else { 0 };
        }
        if let Some(link) = self.links.get_mut(number) {
            link.purpose = purpose;
        }
        if let Some(place) = self.owners.get_mut(number as usize) {
            *place = owner;
        }
        self.wire
            .begin(number, session.theirs, is_first, &session.keys);
        self.counters.sessions += 1;
    }

    /// Replaces the sessions of peers that have been heard in their pending sessions.
    #[cold]
    pub(super) fn take_pending(&mut self, handler: &mut impl FragmentHandler) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|&number| {
            let purpose = self.links.get(number).map(|link| link.purpose);
            let Some(Purpose::Pending(peer)) = purpose else {
                return false;
            };
            let is_heard = self.wire.is_heard(number);
            if is_heard {
                let owner = self.owners.get(number as usize).copied().unwrap_or(peer);
                if owner & PENDING != 0 {
                    handler.failed(peer, replaced(owner & SAME != 0));
                }
                self.promote(peer, number);
            }
            !is_heard
        });
        self.pending = pending;
    }

    /// Replaces a peer's session with the pending one.
    fn promote(&mut self, peer: Rank, number: u32) {
        let now = self.wire.clock();
        let Some(known) = self.peers.state_mut(peer) else {
            return;
        };
        known.pending = NONE;
        let before = std::mem::replace(&mut known.session, number);
        self.ready[peer as usize] = NONE;
        self.use_if_heard(peer, number);
        if let Some(link) = self.links.get_mut(number) {
            link.purpose = Purpose::Session(peer);
        }
        if let Some(owner) = self.owners.get_mut(number as usize) {
            *owner = peer;
        }
        if before != NONE {
            self.let_go(now, before, false);
        }
    }

    // ---- ends -----------------------------------------------------------------------------------

    /// Ends an attempt. Returns the peer of the attempt, if there was such an attempt.
    fn forget_attempt(&mut self, number: u32) -> Option<Rank> {
        let link = self.links.get(number)?;
        let peer = self.peers.find(&link.address)?;
        let known = self.peers.state_mut(peer)?;
        if known.attempt != number {
            return None;
        }
        known.attempt = NONE;
        Some(peer)
    }

    /// Ends a failed attempt. If the peer has a session, that session is not affected.
    fn give_up(
        &mut self,
        now: Nanos,
        number: u32,
        failure: Failure,
        handler: &mut impl FragmentHandler,
    ) {
        self.handshake.cancel(number);
        let peer = self.forget_attempt(number);
        self.let_go(now, number, false);
        if let Some(peer) = peer
            && self
                .peers
                .state(peer)
                .is_some_and(|peer| peer.session == NONE)
        {
            handler.failed(peer, failure);
        }
    }

    /// Handles the ended links that the wire has reported.
    #[cold]
    pub(super) fn take_ended(&mut self, handler: &mut impl FragmentHandler) {
        let now = self.wire.clock();
        while let Some((number, failure)) = self.ended.pop() {
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            match link.purpose {
                // The wire has already notified the handler.
                Purpose::Session(peer) => {
                    self.handshake.on_ended(&link.address, number);
                    self.let_go(now, number, false);
                    if let Some(known) = self.peers.state_mut(peer)
                        && known.session == number
                    {
                        known.session = NONE;
                        self.ready[peer as usize] = NONE;
                        let (pending, attempt) = (known.pending, known.attempt);
                        if pending != NONE {
                            self.promote(peer, pending);
                        } else if attempt != NONE {
                            // The attempt was a probe to find out whether the peer was replaced.
                            self.handshake.cancel(attempt);
                            self.forget_attempt(attempt);
                            self.let_go(now, attempt, false);
                        }
                    }
                }
                Purpose::Pending(peer) => {
                    self.handshake.on_ended(&link.address, number);
                    if let Some(known) = self.peers.state_mut(peer) {
                        known.pending = NONE;
                    }
                    self.let_go(now, number, false);
                }
                Purpose::Attempt => {
                    link.errors += 1;
                    if link.errors >= MOST_ERRORS || !self.wire.revive(number) {
                        self.give_up(now, number, failure, handler);
                    }
                }
                Purpose::Answer | Purpose::Ending => {}
            }
        }
    }

    /// Performs the actions that are due.
    #[cold]
    pub(super) fn tick(&mut self, handler: &mut impl FragmentHandler) {
        let now = self.wire.clock();
        if now < self.next_tick {
            return;
        }
        for (peer, failure) in std::mem::take(&mut self.failed) {
            handler.failed(peer, failure);
        }
        for timed in self.handshake.poll(now) {
            match timed {
                Timed::Again(out) => self.post(now, &out),
                Timed::GaveUp {
                    number,
                    was_answered,
                } => {
                    let failure = match was_answered {
                        true => Failure::Network(
                            "answers but accepts no session: only one of the two processes encrypts, \
                             or the other one has its maximum number of peers",
                        ),
                        false => Failure::Unreachable,
                    };
                    self.give_up(now, number, failure, handler);
                }
            }
        }
        self.remove_drained(now);
        let look = match self.leaving.is_empty() {
            true => Nanos::MAX,
            false => now.saturating_add(LOOK),
        };
        self.next_tick = self.handshake.deadline().unwrap_or(Nanos::MAX).min(look);
    }

    /// Removes the ended links on which nothing is in flight any more.
    fn remove_drained(&mut self, now: Nanos) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|&number| {
            let Some(link) = self.links.get(number) else {
                return false;
            };
            let age = now.saturating_sub(link.since);
            let is_over = self.wire.is_drained(number, age >= MOST_LINGER);
            let stays = age < LINGER || !is_over;
            if !stays {
                self.answers -= u32::from(link.purpose == Purpose::Answer);
                self.remove_link(number);
            }
            stays
        });
        shrink(&mut leaving);
        self.leaving = leaving;
    }

    /// Forgets a peer, and ends its session and its attempt.
    pub(super) fn remove_peer(&mut self, peer: Rank) {
        self.end_session(peer);
        self.peers.remove(peer);
        self.ready.truncate(self.peers.end() as usize);
        shrink(&mut self.ready);
    }

    /// Ends the session with a peer, the pending session and the attempt, as far as they exist, and
    /// notifies the peer. The peer keeps its number.
    pub(super) fn end_session(&mut self, peer: Rank) {
        let now = self.wire.clock();
        let Some(address) = self.peers.address(peer).cloned() else {
            return;
        };
        let Some(links) = self.peers.state_mut(peer) else {
            return;
        };
        let PeerLinks {
            session,
            attempt,
            pending,
        } = std::mem::replace(links, PeerLinks::NONE);
        self.ready[peer as usize] = NONE;
        self.failed.retain(|(failed, _)| *failed != peer);
        for session in [pending, session] {
            if session != NONE {
                self.handshake.on_ended(&address, session);
                self.let_go(now, session, true);
            }
        }
        if attempt != NONE {
            self.handshake.cancel(attempt);
            self.let_go(now, attempt, false);
        }
    }

    /// Ends all sessions.
    pub(super) fn end_all(&mut self) {
        let peers: Vec<Rank> = self.peers.numbers().collect();
        for peer in peers {
            self.end_session(peer);
        }
    }

    /// Returns whether everything on ending links has been sent.
    pub(super) fn is_all_out(&self) -> bool {
        let mut leaving = self.leaving.iter();
        leaving.all(|&number| self.wire.is_drained(number, false))
    }
}
