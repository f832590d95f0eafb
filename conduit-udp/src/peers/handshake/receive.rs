//! Handles received messages.

use conduit_core::ni::Rank;
use seal::is_same_tag;

use super::message::{HandshakeKind, INIT, Init, Message, Reason, Received, Tag};
use super::{
    Address, CHECK_PAUSE, COOKIE_LIFE, Crypto, ENOUGH_REFUSALS, Event, HandshakeState, Handshakes,
    Nanos, Repeated, SPENT, Session, goodbye_label,
};
use crate::protocol::Failure;

/// The failure of a session whose peer has been replaced by a different process.
const RESTARTED: Failure = Failure::Network("was restarted");

impl<C: Crypto> Handshakes<C> {
    /// Handles a datagram that is not a packet. Returns `false` if the datagram is no handshake
    /// message either.
    pub(in super::super) fn receive(
        &mut self,
        now: Nanos,
        source: &Address,
        datagram: &[u8],
    ) -> bool {
        let Some(received) = Received::read(datagram) else {
            self.counters.malformed += 1;
            return false;
        };
        if self.has_left || *source == self.own {
            return true;
        }
        match received {
            Received::Init {
                encrypts,
                attempt,
                body,
            } => self.on_init(now, source, encrypts, attempt, body),
            Received::OtherVersion { attempt, nonce } => {
                self.counters.incompatible += 1;
                if let Some(nonce) = nonce {
                    self.refuse(now, source, Reason::Version, attempt, nonce);
                }
            }
            Received::Challenge { nonce, .. } => {
                if let Some(peer) = self.peers.find(source) {
                    self.on_challenge(now, peer, nonce, received);
                }
            }
            Received::Confirm { .. } => self.on_confirm(now, source, received),
            Received::Accept { nonce, name, tag } => {
                if let Some(peer) = self.peers.find(source) {
                    self.on_accept(now, peer, nonce, name, tag);
                }
            }
            Received::Goodbye { name, tag } => self.on_goodbye(source, name, tag),
            Received::Unknown { name } => self.on_unknown(now, source, name),
            Received::Refused {
                reason,
                attempt,
                nonce,
            } => self.on_refused(source, reason, attempt, nonce),
        }
        true
    }

    /// Answers an init without keeping state for it.
    fn on_init(
        &mut self,
        now: Nanos,
        source: &Address,
        encrypts: bool,
        attempt: u8,
        body: &[u8; INIT],
    ) {
        let Some(init) = Init::read(body) else {
            return;
        };
        let flags = match encrypts {
            true => super::ENCRYPTS,
            false => 0,
        };
        let tag = self.init_tag(flags, source, &self.own, init.covered);
        if !is_same_tag(&tag, init.tag) {
            self.counters.other_secret += 1;
            if self.counters.other_secret.is_power_of_two() {
                let count = self.counters.other_secret;
                tracing::warn!(
                    "{source} requests a session over UDP with a secret other than this process's \
                     ({count} such messages so far)"
                );
            }
            return self.refuse(now, source, Reason::Secret, attempt, init.nonce);
        }
        if flags != self.flags() {
            self.counters.incompatible += 1;
            return self.refuse(now, source, Reason::Protection, attempt, init.nonce);
        }
        let known = self.peers.find(source);
        if known.is_none() && self.peers.is_full() {
            self.counters.full += 1;
            return;
        }
        let session = match known.and_then(|peer| self.peers.state(peer)) {
            Some(HandshakeState::Open(session)) => session.id,
            // The initiator may have a session that this process has not yet begun, because its
            // accept is still in flight.
            Some(HandshakeState::Opening(opening)) => {
                opening.challenged.map_or([0; 8], |(_, id)| id)
            }
            _ => [0; 8],
        };
        let issued = self.stamp(now).to_le_bytes();
        let cookie = self.cookie(source, &issued, body);
        let message = Message::new(HandshakeKind::Challenge, 0, attempt)
            .with(init.nonce)
            .with(&self.crypto.incarnation().to_le_bytes())
            .with(self.crypto.share())
            .with(&session)
            .with(&issued)
            .with(&cookie);
        let tag = self.challenge_tag(&self.own, source, message.body());
        self.counters.challenges += 1;
        self.post(*source, message.with(&tag));
    }

    fn refuse(&mut self, now: Nanos, source: &Address, reason: Reason, attempt: u8, nonce: &Tag) {
        if self.bucket.take(now) {
            let message = Message::new(HandshakeKind::Refused, reason as u8, attempt).with(nonce);
            self.post(*source, message);
        }
    }

    fn cookie(&self, source: &Address, issued: &[u8; 8], init: &[u8; INIT]) -> Tag {
        self.crypto.cookie(&[source.padded(), issued, init])
    }

    fn challenge_tag(&self, from: &Address, to: &Address, covered: &[u8]) -> Tag {
        let parts = [from.padded(), to.padded(), covered];
        self.crypto.tag(b"challeng", &parts)
    }

    /// Derives the keys of the session between the initiator `first` and the responder `second`.
    fn keys(
        &self,
        theirs: &[u8; 32],
        is_first: bool,
        [first, second]: [&Address; 2],
        responder: u64,
        cookie: &Tag,
        init: &[u8],
    ) -> Option<C::Keys> {
        let responder = responder.to_le_bytes();
        let transcript = [init, &responder, cookie, first.padded(), second.padded()];
        self.crypto.derive(theirs, is_first, &transcript)
    }

    fn on_challenge(&mut self, now: Nanos, peer: Rank, nonce: &Tag, received: Received<'_>) {
        let Received::Challenge {
            covered,
            incarnation,
            share,
            session: theirs,
            issued,
            cookie,
            tag,
            ..
        } = received
        else {
            return;
        };
        let Some(&address) = self.peers.address(peer) else {
            return;
        };
        let is_awaited = match self.peers.state(peer) {
            Some(HandshakeState::Opening(opening)) => {
                opening.nonce == *nonce && opening.challenged.is_none()
            }
            Some(HandshakeState::Open(session)) => session
                .check
                .as_deref()
                .is_some_and(|(asked, _)| asked == nonce),
            _ => false,
        };
        if !is_awaited {
            return;
        }
        if !is_same_tag(tag, &self.challenge_tag(&address, &self.own, covered)) {
            self.counters.bad_tag += 1;
            return;
        }
        match self.peers.state_mut(peer) {
            Some(HandshakeState::Open(session)) => {
                let is_restarted = session.incarnation != incarnation;
                if !is_restarted && session.id == *theirs {
                    if let Some(check) = session.check.take() {
                        self.timers.remove(&(check.1.next, peer));
                    }
                    return;
                }
                self.fail(
                    peer,
                    match is_restarted {
                        true => RESTARTED,
                        false => Failure::Left,
                    },
                );
            }
            Some(HandshakeState::Opening(opening)) => {
                let Some(init) = opening
                    .repeated
                    .message
                    .body()
                    .first_chunk::<INIT>()
                    .copied()
                else {
                    return;
                };
                let Some(fields) = Init::read(&init) else {
                    return;
                };
                let ends = [&self.own, &address];
                let Some(keys) = self.keys(share, true, ends, incarnation, cookie, fields.covered)
                else {
                    self.counters.bad_tag += 1;
                    return;
                };
                self.crypto.install(peer, &keys);
                let message = Message::new(HandshakeKind::Confirm, 0, 0)
                    .with(issued)
                    .with(cookie)
                    .with(&init)
                    .with(&C::tag_by(&keys, b"confirm ", &[]));
                if let Some(HandshakeState::Opening(opening)) = self.peers.state_mut(peer) {
                    self.timers.remove(&(opening.repeated.next, peer));
                    opening.challenged = Some((incarnation, C::id_of(&keys)));
                    opening.repeated = Repeated::new(message, now);
                    self.timers.insert((opening.repeated.next, peer));
                }
                self.post(address, message);
            }
            _ => {}
        }
    }

    fn on_confirm(&mut self, now: Nanos, source: &Address, received: Received<'_>) {
        let Received::Confirm {
            attempt,
            issued,
            cookie,
            init,
            tag,
        } = received
        else {
            return;
        };
        // A cookie is issued only for an init with a valid MAC, and it covers the whole init.
        if !is_same_tag(cookie, &self.cookie(source, issued, init)) {
            self.counters.stale += 1;
            return;
        }
        let Some(fields) = Init::read(init) else {
            return;
        };
        let issued = u64::from_le_bytes(*issued);
        let known = self.peers.find(source);
        match known.and_then(|peer| self.peers.state(peer)) {
            // The accept was lost, so it is sent again.
            Some(HandshakeState::Open(session)) if !session.first && session.cookie == *cookie => {
                if let Some(peer) = known {
                    self.accept(peer, attempt, fields.nonce);
                }
                return;
            }
            // The cookie was issued before the session began, so the session prevails.
            Some(HandshakeState::Open(session)) if issued <= session.began => {
                self.counters.stale += 1;
                return;
            }
            Some(HandshakeState::Opening(_)) if self.crypto.share() < fields.share => return,
            _ => {}
        }
        self.spent.advance(now / COOKIE_LIFE);
        let is_old = now.saturating_sub(issued) > COOKIE_LIFE;
        let most = SPENT + 2 * self.peers.limit() as usize;
        if is_old || self.spent.contains(cookie) || self.spent.remembered() >= most {
            self.counters.stale += 1;
            return;
        }
        if known.is_none() && self.peers.is_full() {
            self.counters.full += 1;
            return;
        }
        // An eavesdropper can replay a confirm with altered MACs any number of times.
        if !self.trials.take(now) {
            self.counters.limited += 1;
            return;
        }
        let ends = [source, &self.own];
        let own = self.crypto.incarnation();
        let keys = self.keys(fields.share, false, ends, own, cookie, fields.covered);
        let Some(keys) = keys.filter(|keys| is_same_tag(tag, &C::tag_by(keys, b"confirm ", &[])))
        else {
            self.counters.bad_tag += 1;
            return;
        };
        self.trials.give();
        self.spent.insert(cookie);
        let Some(peer) = self.connect(*source) else {
            return;
        };
        if known.is_none() {
            self.events.push_back(Event::Joined(peer));
        }
        if let Some(HandshakeState::Open(session)) = self.peers.state(peer) {
            let failure = match session.incarnation != fields.incarnation {
                true => RESTARTED,
                false => Failure::Left,
            };
            self.fail(peer, failure);
        }
        self.crypto.install(peer, &keys);
        let session = Session {
            id: C::id_of(&keys),
            incarnation: fields.incarnation,
            began: 0,
            name: fields.name,
            first: false,
            cookie: *cookie,
            checked: now,
            check: None,
        };
        self.open(now, peer, session);
        self.accept(peer, attempt, fields.nonce);
    }

    /// Opens a session whose keys are installed.
    fn open(&mut self, now: Nanos, peer: Rank, session: Session) {
        self.crypto.set_name(peer, session.name);
        let began = self.stamp(now);
        self.set_state(
            peer,
            HandshakeState::Open(Box::new(Session { began, ..session })),
        );
        self.counters.sessions += 1;
        self.events.push_back(Event::Began(peer));
    }

    /// Notifies the initiator that the session has begun.
    fn accept(&mut self, peer: Rank, attempt: u8, nonce: &Tag) {
        let name = peer.to_le_bytes();
        if let Some(tag) = self.crypto.session_tag(peer, b"accept  ", &[&name]) {
            let message = Message::new(HandshakeKind::Accept, 0, attempt)
                .with(nonce)
                .with(&name)
                .with(&tag);
            self.post_to(peer, message);
        }
    }

    fn on_accept(&mut self, now: Nanos, peer: Rank, nonce: &Tag, name: &[u8; 4], tag: &Tag) {
        let Some(HandshakeState::Opening(opening)) = self.peers.state(peer) else {
            return;
        };
        let Some((incarnation, id)) = opening.challenged.filter(|_| opening.nonce == *nonce) else {
            return;
        };
        let expected = self.crypto.session_tag(peer, b"accept  ", &[name]);
        if !expected.is_some_and(|expected| is_same_tag(tag, &expected)) {
            self.counters.bad_tag += 1;
            return;
        }
        let session = Session {
            id,
            incarnation,
            began: 0,
            name: Rank::from_le_bytes(*name),
            first: true,
            cookie: Tag::default(),
            checked: now,
            check: None,
        };
        self.open(now, peer, session);
    }

    fn on_goodbye(&mut self, source: &Address, name: Rank, tag: &Tag) {
        if self.peers.address(name) != Some(source) {
            return;
        }
        let Some(HandshakeState::Open(session)) = self.peers.state(name) else {
            return;
        };
        let label = goodbye_label(!session.first);
        let expected = self.crypto.session_tag(name, label, &[]);
        if expected.is_some_and(|expected| is_same_tag(tag, &expected)) {
            self.fail(name, Failure::Left);
        } else {
            self.counters.bad_tag += 1;
        }
    }

    /// Handles a claim that the peer has no session with this process by querying the peer.
    fn on_unknown(&mut self, now: Nanos, source: &Address, name: Rank) {
        let Some(peer) = self.peers.find(source) else {
            return;
        };
        let Some(HandshakeState::Open(session)) = self.peers.state(peer) else {
            return;
        };
        let is_early = now.saturating_sub(session.checked) < CHECK_PAUSE;
        if session.name != name || session.check.is_some() || is_early {
            return;
        }
        let Some((nonce, repeated)) = self.init(now, peer) else {
            return;
        };
        self.counters.checks += 1;
        self.timers.insert((repeated.next, peer));
        if let Some(HandshakeState::Open(session)) = self.peers.state_mut(peer) {
            session.checked = now;
            session.check = Some(Box::new((nonce, repeated)));
        }
    }

    fn on_refused(&mut self, source: &Address, reason: Reason, attempt: u8, nonce: &Tag) {
        let Some(peer) = self.peers.find(source) else {
            return;
        };
        let Some(HandshakeState::Opening(opening)) = self.peers.state_mut(peer) else {
            return;
        };
        // If a challenge has arrived, the refusal answers an attempt that was corrupted on the
        // path.
        if opening.nonce != *nonce || opening.challenged.is_some() {
            return;
        }
        // The network may duplicate refusals, so only distinct attempts are counted.
        opening.refused |= 1 << (attempt % 64);
        if opening.refused.count_ones() >= ENOUGH_REFUSALS {
            self.fail(peer, Failure::Network(reason.words()));
        }
    }
}
