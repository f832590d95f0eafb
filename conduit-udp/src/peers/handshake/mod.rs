//! How sessions begin and end: a state machine without I/O and clock.
//!
//! ```text
//! initiator                                    responder
//!     init: share, nonce, code    ------->     keeps nothing
//!                  <-------    challenge: share, cookie, code
//!     confirm: cookie, the init, code ---->    checks cookie and code; the session begins
//!                  <-------    accept: code
//!     the session begins
//! ```
//!
//! The cookie is a code over the init, the address that it came from, and the time, which the
//! responder checks instead of keeping state. It is what makes the responder's part of the session
//! unique: each is accepted once, and not after ten seconds. Nothing is multiplied and nothing kept
//! for an initiator that has not shown, by returning a cookie, that it is where it says, and that it
//! has the secret. An init is no shorter than the answer.
//!
//! **Both at once.** A process that has begun a handshake itself ignores the other's confirm if its
//! own share is the smaller one. So one of both handshakes prevails, and the other ends when it
//! does.
//!
//! **A session that only one side has.** A packet of no session here is answered by a short message
//! that anybody could have made ([`HandshakeKind::Unknown`]). Whoever has a session with the sender
//! of such a message then asks by an init. Each challenge says which session the responder has with
//! the initiator, and its incarnation. If the session is another one or none, the initiator's has
//! ended. A session is also replaced by a confirm, if its cookie was issued after the session
//! began: it shows that the peer, who made it, has no session any more.

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
/// Time until an init or confirm is sent again; it doubles up to `MOST_PAUSE`.
const FIRST_PAUSE: Nanos = 20 * MILLISECOND;
const MOST_PAUSE: Nanos = 1_000 * MILLISECOND;
/// How long a cookie is accepted.
const COOKIE_LIFE: Nanos = 10_000 * MILLISECOND;
/// How long a confirm is sent again, before the handshake begins anew with another cookie.
const CONFIRM_TIME: Nanos = COOKIE_LIFE / 2;
/// How often it is checked at most that the peer still has a session.
const CHECK_PAUSE: Nanos = 250 * MILLISECOND;
/// How long such a check waits for its answer.
const CHECK_TIME: Nanos = 2_000 * MILLISECOND;
/// Reports that a port is closed, after which a handshake has failed.
const ENOUGH_REPORTS: u8 = 2;
/// Attempts that were refused, after which a handshake has failed. An init that was corrupted on
/// its way is refused as well, so one is not enough.
const ENOUGH_REFUSALS: u32 = 4;
/// Cookies, besides two for each peer there can be, that are remembered.
const SPENT: usize = 1024;
/// Messages that wait to be sent; more are lost.
const MOST_WAITING: usize = 4096;

/// What happens to sessions, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A stranger has this number from now on.
    Joined(Rank),
    /// A session has begun.
    Began(Rank),
    /// The session, or a handshake, has ended so.
    Ended(Rank, Failure),
}

/// A message that is sent until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Repeated {
    message: Message,
    began: Nanos,
    next: Nanos,
    pause: Nanos,
    attempt: u8,
}

/// A handshake that this process has begun.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Opening {
    began: Nanos,
    nonce: Tag,
    repeated: Repeated,
    /// After the challenge: the responder's incarnation, and the session that would be.
    challenged: Option<(u64, [u8; 8])>,
    closed_reports: u8,
    /// A bit for each attempt of the init that was refused, modulo 64.
    refused: u64,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Session {
    id: [u8; 8],
    /// Of the peer's process.
    incarnation: u64,
    /// When it began, by [`Handshakes::stamp`].
    began: Nanos,
    /// The peer's number for this process.
    name: Rank,
    /// This process began the handshake.
    first: bool,
    /// The cookie by which the session began, on the responder's side.
    cookie: Tag,
    checked: Nanos,
    /// Whether the peer still has it is being asked.
    check: Option<Box<(Tag, Repeated)>>,
}

/// What there is with a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum HandshakeState {
    #[default]
    Closed,
    Opening(Box<Opening>),
    Open(Box<Session>),
}

/// Counts of handshakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandshakeCounters {
    /// Handshakes begun.
    pub begun: u64,
    /// Sessions begun.
    pub sessions: u64,
    /// Inits answered.
    pub challenges: u64,
    /// Inits of processes with another secret, or none.
    pub other_secret: u64,
    /// Inits of processes that differ otherwise: by version, or in whether they encrypt.
    pub incompatible: u64,
    /// Inits and confirms of strangers that were ignored because there were too many peers.
    pub full: u64,
    /// Confirms without a valid cookie, or with a cookie that is too old or was used before.
    pub stale: u64,
    /// Messages whose code is not valid.
    pub bad_tag: u64,
    /// Confirms that were not looked at because too many before had codes that are not valid.
    pub limited: u64,
    /// Datagrams that are neither packets nor messages.
    pub malformed: u64,
    /// Packets of no session.
    pub unknown: u64,
    /// Answers to these.
    pub hints: u64,
    /// Times that a peer was asked whether it has a session.
    pub checks: u64,
    /// Messages that were not sent because too many waited.
    pub overflowed: u64,
}

/// The peers of a process, and their sessions and handshakes.
#[derive(Debug, Clone)]
pub(super) struct Handshakes<C> {
    pub(super) crypto: C,
    own: Address,
    /// After so long without an answer a peer is unreachable.
    dead_time: Nanos,
    peers: Peers<Address, HandshakeState>,
    /// When something is due with a peer.
    timers: BTreeSet<(Nanos, Rank)>,
    spent: SpentCookies,
    bucket: Bucket,
    /// For products that come to nothing, because a confirm's code is not valid.
    trials: Bucket,
    /// The last time that was used for cookies and sessions. Rises with every use, so that no two
    /// are at the same time.
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

    /// The most peers that can have numbers.
    pub(super) fn max_peers(&self) -> u32 {
        self.peers.limit()
    }

    /// All numbers of peers are below it.
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

    /// Whether a packet that names this peer as its sender may be of a session: the peer has one,
    /// and is where the packet came from.
    #[inline]
    pub(super) fn is_session(&self, peer: Rank, source: &Address) -> bool {
        self.peers.address(peer) == Some(source) && self.is_open(peer)
    }

    #[inline]
    pub(super) fn is_open(&self, peer: Rank) -> bool {
        matches!(self.peers.state(peer), Some(HandshakeState::Open(_)))
    }

    /// Whether there is a session or a handshake.
    pub(super) fn is_used(&self, peer: Rank) -> bool {
        !matches!(self.peers.state(peer), None | Some(HandshakeState::Closed))
    }

    /// What tells the session with the process at this address from others.
    #[cfg(test)]
    pub(super) fn session_with(&self, address: &Address) -> Option<[u8; 8]> {
        match self.peers.state(self.peers.find(address)?) {
            Some(HandshakeState::Open(session)) => Some(session.id),
            _ => None,
        }
    }

    /// Bytes of memory.
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

    /// The number of the peer with this address, which gets one. `None`: there are too many.
    pub(super) fn connect(&mut self, address: Address) -> Option<Rank> {
        if let Some(peer) = self.peers.find(&address) {
            return Some(peer);
        }
        let peer = self.peers.add(address, HandshakeState::Closed)?;
        self.crypto.set_size(self.peers.end());
        Some(peer)
    }

    /// Begins a handshake with a peer, unless there is one or a session.
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

    /// Ends the session with a peer, or the handshake, and tells the peer of it. The number stays.
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
                // With another attempt, so that both are not lost for the same reason.
                let mut again = Message::new(HandshakeKind::Goodbye, 0, 1);
                again = again.with(message.body());
                self.post(address, again);
            }
        }
        self.forget(peer);
    }

    /// Ends the session with a peer, or the handshake, and gives up the number.
    pub(super) fn close(&mut self, peer: Rank) {
        self.end(peer);
        self.peers.remove(peer);
        self.crypto.set_size(self.peers.end());
    }

    /// Ends all sessions and handshakes, for good.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
        let peers: Vec<Rank> = self.peers.numbers().collect();
        for peer in peers {
            self.end(peer);
        }
    }

    /// The next message to be sent, and where to.
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

    /// When [`on_timeout`](Self::on_timeout) has to be called.
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

    /// The network reports an error of something sent to this address. Anybody can forge that, so
    /// it ends only handshakes.
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

    /// A packet came that is of no session here.
    pub(super) fn on_unknown_packet(&mut self, now: Nanos, source: &Address, name: Rank) {
        self.counters.unknown += 1;
        let is_opening = self
            .peers
            .find(source)
            .is_some_and(|peer| matches!(self.peers.state(peer), Some(HandshakeState::Opening(_))));
        // If a handshake is under way, the peer may have accepted it already.
        if is_opening || self.has_left || *source == self.own || !self.bucket.take(now) {
            return;
        }
        self.counters.hints += 1;
        // The lower bits of the count make copies that faults treat differently.
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

    /// Makes an init for a peer, and sends it.
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

    /// A time that is later than all that were returned before.
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

    /// Ends whatever there is with a peer.
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
    /// The time of its timer.
    fn due(&self) -> Option<Nanos> {
        match self {
            Self::Closed => None,
            Self::Opening(opening) => Some(opening.repeated.next),
            Self::Open(session) => session.check.as_deref().map(|(_, check)| check.next),
        }
    }
}

impl Repeated {
    /// What was sent just now.
    fn new(message: Message, now: Nanos) -> Self {
        Self {
            message,
            began: now,
            next: now + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            attempt: 0,
        }
    }

    /// It is due: returns it to be sent again.
    fn again(&mut self, now: Nanos) -> Message {
        self.attempt = self.attempt.wrapping_add(1);
        self.pause = (2 * self.pause).min(MOST_PAUSE);
        self.next = now + self.pause;
        self.message.set_attempt(self.attempt);
        self.message
    }
}

/// The label of the goodbye of the side that has begun the session, or of the other one.
fn goodbye_label(first: bool) -> &'static [u8; 8] {
    match first {
        true => b"bye 1st ",
        false => b"bye 2nd ",
    }
}
