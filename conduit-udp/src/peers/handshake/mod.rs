//! The beginning and end of sessions, as a state machine without I/O and without a clock.
//!
//! ```text
//! initiator                                    responder
//!     init: share, nonce, MAC     ------->     keeps nothing
//!                  <-------    challenge: share, cookie, MAC
//!     confirm: cookie, the init, MAC ---->     checks cookie and MAC; the session begins
//!                  <-------    accept: MAC
//!     the session begins
//! ```
//!
//! The cookie is a MAC over the init, its source address, and the time. The responder checks the
//! cookie instead of keeping state. The cookie makes the responder's part of the session unique,
//! because each cookie is accepted once, within ten seconds. The responder computes no scalar
//! multiplication and keeps no state for an initiator until the initiator has returned a cookie,
//! which shows that it receives at its address, and has proved that it has the secret. No answer to
//! an init is longer than the init.
//!
//! **Simultaneous handshakes.** A process that has begun a handshake itself ignores the peer's
//! confirm if its own share is smaller than the peer's. Thus one of the two handshakes prevails,
//! and its completion ends the other.
//!
//! **One-sided sessions.** A packet that belongs to no session of its receiver is answered by a
//! short message that anybody could forge ([`HandshakeKind::Unknown`]). If the receiver of such a
//! message has a session with the message's sender, it queries the sender by an init. Each
//! challenge names the responder's incarnation and its session with the initiator. If the responder
//! has a different session or none, the initiator's session has ended. A confirm also replaces a
//! session if its cookie was issued after the session began, because the peer sends such a confirm
//! only after losing the session.

mod crypto;
mod limits;
mod message;
mod receive;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use conduit_core::ni::Rank;
use conduit_portals::peers::Peers;
use seal::SpentCookies;

use super::address::Address;
use crate::protocol::{Failure, Nanos};

pub(super) use crypto::Crypto;
pub(super) use message::Message;

use limits::Bucket;
use message::{ENCRYPTS, HandshakeKind, Tag};

const MILLISECOND: Nanos = 1_000_000;
/// The time until an init or confirm is sent again. It doubles with each transmission, up to
/// `MOST_PAUSE`.
const FIRST_PAUSE: Nanos = 20 * MILLISECOND;
const MOST_PAUSE: Nanos = 1_000 * MILLISECOND;
/// The lifetime of a cookie.
const COOKIE_LIFE: Nanos = 10_000 * MILLISECOND;
/// The time for which a confirm is resent before the handshake restarts with another cookie.
const CONFIRM_TIME: Nanos = COOKIE_LIFE / 2;
/// The minimum interval between checks that the peer still has a session.
const CHECK_PAUSE: Nanos = 250 * MILLISECOND;
/// The time for which such a check waits for its answer.
const CHECK_TIME: Nanos = 2_000 * MILLISECOND;
/// The number of reports that the peer's port is closed after which a handshake has failed.
const ENOUGH_REPORTS: u8 = 2;
/// The number of refused attempts after which a handshake has failed. One refusal is not enough,
/// because an init that was corrupted on the path is refused as well.
const ENOUGH_REFUSALS: u32 = 4;
/// The number of cookies that are remembered, in addition to two for each possible peer.
const SPENT: usize = 1024;
/// The maximum number of messages that wait to be sent. Further messages are lost.
const MOST_WAITING: usize = 4096;

/// An event of a session. Events are reported in the order in which they occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A stranger has been assigned this number.
    Joined(Rank),
    /// A session has begun.
    Began(Rank),
    /// The peer's session or handshake has ended with this failure.
    Ended(Rank, Failure),
}

/// A message that is sent again until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Repeated {
    message: Message,
    began: Nanos,
    next: Nanos,
    pause: Nanos,
    attempt: u8,
}

/// A handshake begun by this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Opening {
    began: Nanos,
    nonce: Tag,
    repeated: Repeated,
    /// The responder's incarnation and the id of the future session, once the challenge has
    /// arrived.
    challenged: Option<(u64, [u8; 8])>,
    closed_reports: u8,
    /// A bitmap of the refused attempts of the init, modulo 64.
    refused: u64,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Session {
    id: [u8; 8],
    /// The incarnation of the peer's process.
    incarnation: u64,
    /// When the session began, as a time from [`Handshakes::stamp`].
    began: Nanos,
    /// The peer's number for this process.
    name: Rank,
    /// Whether this process began the handshake.
    first: bool,
    /// On the responder's side, the cookie with which the session began.
    cookie: Tag,
    checked: Nanos,
    /// The pending check that the peer still has the session, if there is one: its nonce and its
    /// message.
    check: Option<Box<(Tag, Repeated)>>,
}

/// The state of the relation with a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum HandshakeState {
    #[default]
    Closed,
    Opening(Box<Opening>),
    Open(Box<Session>),
}

/// The counters of handshakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandshakeCounters {
    /// The number of handshakes begun.
    pub begun: u64,
    /// The number of sessions begun.
    pub sessions: u64,
    /// The number of inits answered by a challenge.
    pub challenges: u64,
    /// The number of inits from processes with another secret or without a secret.
    pub other_secret: u64,
    /// The number of inits from processes with another version or with different encryption.
    pub incompatible: u64,
    /// The number of inits and confirms from strangers that were ignored because there were too
    /// many peers.
    pub full: u64,
    /// The number of confirms without a valid cookie, or with a cookie that is too old or already
    /// used.
    pub stale: u64,
    /// The number of messages with an invalid MAC.
    pub bad_tag: u64,
    /// The number of confirms dropped unchecked because too many earlier ones had invalid MACs.
    pub limited: u64,
    /// The number of datagrams that are neither packets nor handshake messages.
    pub malformed: u64,
    /// The number of packets that belong to no session.
    pub unknown: u64,
    /// The number of answers to packets that belong to no session.
    pub hints: u64,
    /// The number of checks whether a peer still has a session.
    pub checks: u64,
    /// The number of messages dropped because too many were waiting.
    pub overflowed: u64,
}

/// The peers of a process, and their sessions and handshakes.
#[derive(Debug, Clone)]
pub(super) struct Handshakes<C> {
    pub(super) crypto: C,
    own: Address,
    /// The time without an answer after which a peer is unreachable.
    dead_time: Nanos,
    peers: Peers<Address, HandshakeState>,
    /// The times at which a message to a peer is due.
    timers: BTreeSet<(Nanos, Rank)>,
    spent: SpentCookies,
    bucket: Bucket,
    /// Limits the futile scalar multiplications, for confirms whose MAC is invalid.
    trials: Bucket,
    /// The last time used for a cookie or session. It increases with every use, so no two cookies
    /// or sessions have the same time.
    stamp: Nanos,
    has_left: bool,
    outbox: VecDeque<(Address, Message)>,
    events: VecDeque<Event>,
    pub(super) counters: HandshakeCounters,
}

impl<C: Crypto> Handshakes<C> {
    pub(super) fn new(crypto: C, own: Address, max_peers: u32, dead_time: Nanos) -> Self {
        Self {
            crypto,
            own,
            dead_time,
            peers: Peers::new(max_peers),
            timers: BTreeSet::new(),
            spent: SpentCookies::default(),
            bucket: Bucket::new(),
            trials: Bucket::new(),
            stamp: 0,
            has_left: false,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            counters: HandshakeCounters::default(),
        }
    }

    pub(super) fn own(&self) -> &Address {
        &self.own
    }

    /// Returns the maximum number of peers that can have numbers.
    pub(super) fn max_peers(&self) -> u32 {
        self.peers.limit()
    }

    /// Returns a number that is greater than the numbers of all peers.
    pub(super) fn size(&self) -> u32 {
        self.peers.end()
    }

    #[inline]
    pub(super) fn address(&self, peer: Rank) -> Option<&Address> {
        self.peers.address(peer)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Rank> {
        self.peers.numbers()
    }

    /// Returns whether a packet that names this peer as its sender may belong to a session. The
    /// peer must have a session, and the packet must come from the peer's address.
    #[inline]
    pub(super) fn is_session(&self, peer: Rank, source: &Address) -> bool {
        self.peers.address(peer) == Some(source) && self.is_open(peer)
    }

    #[inline]
    pub(super) fn is_open(&self, peer: Rank) -> bool {
        matches!(self.peers.state(peer), Some(HandshakeState::Open(_)))
    }

    /// Returns whether the peer has a session or a handshake.
    pub(super) fn is_used(&self, peer: Rank) -> bool {
        !matches!(self.peers.state(peer), None | Some(HandshakeState::Closed))
    }

    /// Returns the id of the session with the process at this address.
    #[cfg(test)]
    pub(super) fn session_with(&self, address: &Address) -> Option<[u8; 8]> {
        match self.peers.state(self.peers.find(address)?) {
            Some(HandshakeState::Open(session)) => Some(session.id),
            _ => None,
        }
    }

    /// Returns the memory used, in bytes.
    pub(super) fn memory(&self) -> usize {
        let states: usize = self
            .peers
            .numbers()
            .map(|peer| match self.peers.state(peer) {
                Some(HandshakeState::Opening(_)) => size_of::<Opening>(),
                Some(HandshakeState::Open(session)) => {
                    let check = session.check.as_ref();
                    size_of::<Session>() + check.map_or(0, |check| size_of_val(&**check))
                }
                _ => 0,
            })
            .sum();
        self.peers.memory()
            + states
            + (self.timers.len() + self.spent.remembered()) * 2 * size_of::<(Nanos, Rank)>()
            + self.outbox.capacity() * size_of::<(Address, Message)>()
            + self.events.capacity() * size_of::<Event>()
    }

    /// Returns the number of the peer with this address, and assigns a number if the peer has none.
    /// Returns `None` if there are too many peers.
    pub(super) fn connect(&mut self, address: Address) -> Option<Rank> {
        if let Some(peer) = self.peers.find(&address) {
            return Some(peer);
        }
        let peer = self.peers.add(address, HandshakeState::Closed)?;
        self.crypto.set_size(self.peers.end());
        Some(peer)
    }

    /// Begins a handshake with a peer, unless a handshake or session exists.
    pub(super) fn begin(&mut self, now: Nanos, peer: Rank) {
        if self.has_left || !matches!(self.peers.state(peer), Some(HandshakeState::Closed)) {
            return;
        }
        let Some((nonce, repeated)) = self.init(now, peer) else {
            return;
        };
        self.counters.begun += 1;
        self.set_state(
            peer,
            HandshakeState::Opening(Box::new(Opening {
                began: now,
                nonce,
                repeated,
                challenged: None,
                closed_reports: 0,
                refused: 0,
            })),
        );
    }

    /// Ends the session or handshake with a peer, and notifies the peer. The peer keeps its number.
    pub(super) fn end(&mut self, peer: Rank) {
        if let (Some(HandshakeState::Open(session)), Some(&address)) =
            (self.peers.state(peer), self.peers.address(peer))
        {
            let label = goodbye_label(session.first);
            if let Some(tag) = self.crypto.session_tag(peer, label, &[]) {
                let message = Message::new(HandshakeKind::Goodbye, 0, 0)
                    .with(&session.name.to_le_bytes())
                    .with(&tag);
                self.post(address, message);
                // The attempt number differs from that of the first message, so that the two
                // messages are not lost for the same reason.
                let mut again = Message::new(HandshakeKind::Goodbye, 0, 1);
                again = again.with(message.body());
                self.post(address, again);
            }
        }
        self.forget(peer);
    }

    /// Ends the session or handshake with a peer, and frees its number.
    pub(super) fn close(&mut self, peer: Rank) {
        self.end(peer);
        self.peers.remove(peer);
        self.crypto.set_size(self.peers.end());
    }

    /// Ends all sessions and handshakes permanently.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
        let peers: Vec<Rank> = self.peers.numbers().collect();
        for peer in peers {
            self.end(peer);
        }
    }

    /// Returns the next message to send, and its destination.
    pub(super) fn next_message(&mut self) -> Option<(Address, Message)> {
        let next = self.outbox.pop_front();
        if next.is_none() && self.outbox.capacity() > 64 {
            self.outbox.shrink_to(0);
        }
        next
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) has to be called.
    pub(super) fn timeout(&self) -> Option<Nanos> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let spent = self.spent.due().map(|step| step * COOKIE_LIFE);
        timer.into_iter().chain(spent).min()
    }

    pub(super) fn on_timeout(&mut self, now: Nanos) {
        self.spent.advance(now / COOKIE_LIFE);
        while let Some(&(at, peer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            self.on_peer_due(now, peer);
        }
    }

    /// Handles an error that the network reports for a message to this address. Because anybody can
    /// forge such a report, reports end only handshakes, not sessions.
    pub(super) fn on_report(&mut self, to: &Address, errno: i32) {
        let Some(peer) = self.peers.find(to) else {
            return;
        };
        let Some(HandshakeState::Opening(opening)) = self.peers.state_mut(peer) else {
            return;
        };
        opening.closed_reports += 1;
        if opening.closed_reports >= ENOUGH_REPORTS {
            self.fail(
                peer,
                match errno {
                    libc::ECONNREFUSED => Failure::Unreachable,
                    errno => Failure::Lost(errno.unsigned_abs()),
                },
            );
        }
    }

    /// Handles a packet that belongs to no session of this process.
    pub(super) fn on_unknown_packet(&mut self, now: Nanos, source: &Address, name: Rank) {
        self.counters.unknown += 1;
        let is_opening = self
            .peers
            .find(source)
            .is_some_and(|peer| matches!(self.peers.state(peer), Some(HandshakeState::Opening(_))));
        // If a handshake is in progress, the peer may already have a session, to which the packet
        // belongs.
        if is_opening || self.has_left || *source == self.own || !self.bucket.take(now) {
            return;
        }
        self.counters.hints += 1;
        // The low bits of the counter serve as the attempt number, which makes the copies differ,
        // so that fault injection treats them differently.
        let attempt = self.counters.hints as u8;
        let hint = Message::new(HandshakeKind::Unknown, 0, attempt).with(&name.to_le_bytes());
        self.post(*source, hint);
    }

    fn on_peer_due(&mut self, now: Nanos, peer: Rank) {
        match self.peers.state_mut(peer) {
            Some(HandshakeState::Opening(opening)) => {
                if now.saturating_sub(opening.began) >= self.dead_time {
                    return self.fail(peer, Failure::Unreachable);
                }
                let since = now.saturating_sub(opening.repeated.began);
                if opening.challenged.is_some() && since >= CONFIRM_TIME {
                    self.crypto.forget(peer);
                    let Some((nonce, repeated)) = self.init(now, peer) else {
                        return self.fail(peer, Failure::Unreachable);
                    };
                    if let Some(HandshakeState::Opening(opening)) = self.peers.state_mut(peer) {
                        opening.nonce = nonce;
                        opening.challenged = None;
                        self.timers.insert((repeated.next, peer));
                        opening.repeated = repeated;
                    }
                    return;
                }
                let message = opening.repeated.again(now);
                self.timers.insert((opening.repeated.next, peer));
                self.post_to(peer, message);
            }
            Some(HandshakeState::Open(session)) => {
                let Some((_, repeated)) = session.check.as_deref_mut() else {
                    return;
                };
                if now.saturating_sub(repeated.began) >= CHECK_TIME {
                    session.check = None;
                    return;
                }
                let message = repeated.again(now);
                self.timers.insert((repeated.next, peer));
                self.post_to(peer, message);
            }
            _ => {}
        }
    }

    /// Creates an init for a peer, and sends it.
    fn init(&mut self, now: Nanos, peer: Rank) -> Option<(Tag, Repeated)> {
        let address = *self.peers.address(peer)?;
        let nonce = self.crypto.nonce()?;
        let flags = self.flags();
        let message = Message::new(HandshakeKind::Init, flags, 0)
            .with(&peer.to_le_bytes())
            .with(&self.crypto.incarnation().to_le_bytes())
            .with(&nonce)
            .with(self.crypto.share());
        let tag = self.init_tag(flags, &self.own, &address, message.body());
        let message = message.with(&tag).padded();
        let repeated = Repeated::new(message, now);
        self.post(address, message);
        Some((nonce, repeated))
    }

    fn init_tag(&self, flags: u8, from: &Address, to: &Address, covered: &[u8]) -> Tag {
        let parts = [&[flags][..], from.padded(), to.padded(), covered];
        self.crypto.tag(b"init    ", &parts)
    }

    fn flags(&self) -> u8 {
        match self.crypto.encrypts() {
            true => ENCRYPTS,
            false => 0,
        }
    }

    /// Returns a time that is later than all times returned before.
    fn stamp(&mut self, now: Nanos) -> Nanos {
        self.stamp = now.max(self.stamp + 1);
        self.stamp
    }

    /// Replaces the state of a peer, and its timer.
    fn set_state(&mut self, peer: Rank, new: HandshakeState) {
        let Some(state) = self.peers.state_mut(peer) else {
            return;
        };
        if let Some(at) = state.due() {
            self.timers.remove(&(at, peer));
        }
        if let Some(at) = new.due() {
            self.timers.insert((at, peer));
        }
        *state = new;
    }

    /// Ends any session or handshake with a peer.
    fn forget(&mut self, peer: Rank) {
        self.set_state(peer, HandshakeState::Closed);
        self.crypto.forget(peer);
    }

    fn fail(&mut self, peer: Rank, failure: Failure) {
        self.forget(peer);
        self.events.push_back(Event::Ended(peer, failure));
    }

    fn post_to(&mut self, peer: Rank, message: Message) {
        if let Some(&address) = self.peers.address(peer) {
            self.post(address, message);
        }
    }

    fn post(&mut self, to: Address, message: Message) {
        if self.outbox.len() < MOST_WAITING {
            self.outbox.push_back((to, message));
        } else {
            self.counters.overflowed += 1;
        }
    }
}

impl HandshakeState {
    /// Returns the time at which a message to the peer is due.
    fn due(&self) -> Option<Nanos> {
        match self {
            Self::Closed => None,
            Self::Opening(opening) => Some(opening.repeated.next),
            Self::Open(session) => session.check.as_deref().map(|(_, check)| check.next),
        }
    }
}

impl Repeated {
    /// Creates the state of a message that has just been sent for the first time.
    fn new(message: Message, now: Nanos) -> Self {
        Self {
            message,
            began: now,
            next: now + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            attempt: 0,
        }
    }

    /// Returns the message for its next transmission, which must be due.
    fn again(&mut self, now: Nanos) -> Message {
        self.attempt = self.attempt.wrapping_add(1);
        self.pause = (2 * self.pause).min(MOST_PAUSE);
        self.next = now + self.pause;
        self.message.set_attempt(self.attempt);
        self.message
    }
}

/// Returns the label of a goodbye. `first` says whether its sender began the session.
fn goodbye_label(first: bool) -> &'static [u8; 8] {
    match first {
        true => b"bye 1st ",
        false => b"bye 2nd ",
    }
}
