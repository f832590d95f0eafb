//! The handshake by which two independently started processes begin a session, as a state machine
//! without I/O and without a clock. Messages may be lost, duplicated and reordered, and attackers
//! may send any messages.
//!
//! ```text
//! initiator                                       responder
//!    HELLO      number, incarnation, nonce, share, addresses    ->
//!    <-   CHALLENGE   incarnation, share, cookie                    (keeps nothing)
//!    CONFIRM    the fields of HELLO, and the cookie             ->
//!    <-   ACCEPT      number                                        (session begins)
//! (session begins)
//! ```
//!
//! - Each message ends in a MAC. The MACs of the first two messages use the secret that all
//!   processes share, or zeros if there is none. Messages without a valid MAC are not answered.
//! - The answer goes to the address named in HELLO, because libfabric does not report a message's
//!   source. The cookie is a MAC, under a key known only to this process, over the time and the
//!   whole HELLO. A replayed HELLO thus costs one answer, which is not longer than the HELLO.
//! - The responder performs a scalar multiplication (X25519) only for a CONFIRM with a fresh
//!   cookie. It creates a session only if the CONFIRM's MAC proves that the sender has performed
//!   the multiplication, too. A cookie creates at most one session.
//! - Keys depend on the whole exchange, including a nonce of each side, so no two sessions have the
//!   same keys.
//! - A process numbers its attempts. A session records which of the peer's attempts are over, so
//!   that messages of an earlier attempt create no second session.
//! - If both processes begin at once, only the attempt of the process with the smaller address is
//!   continued.
//! - A new session with the same address replaces the previous one only once the peer has been
//!   heard in the new session. A late CONFIRM of a process that no longer exists is thus harmless.

mod known;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use conduit_portals::compact::shrink_map;
use seal::{SESSION_TAG, SessionKeys, SessionSealer, SpentCookies, is_same_tag};

use crate::wire::liveness::Nanos;

pub(super) use known::{Established, Outgoing, Replaced};

use known::{Known, Live};

use super::message::{
    ACCEPT, CHALLENGE, CHALLENGE_LENGTH, CONFIRM, Cookie, HELLO, MAX_ADDRESS, Offer, Reader, TAG,
    VERSION,
};

/// The minimum lifetime of a cookie. The maximum is twice as long.
const STEP: Nanos = 10_000_000_000;
/// The maximum number of cookies accepted within one step. Once this number is reached, no further
/// session is accepted in that step.
const MOST_USED: usize = 1 << 16;

/// The number of times that a CONFIRM is sent before the attempt starts over.
const MOST_CONFIRMS: u32 = 3;

/// The effect of a received message.
#[derive(Debug)]
pub(super) enum Event {
    /// There is no effect, because the bytes are not a handshake message or the message is invalid.
    Ignored,
    /// There is no effect, because the message is a repetition.
    Known,
    /// A message to send in reply.
    Send(Outgoing),
    /// Another process has proved its identity, and begins a session once it has been
    /// [accepted](Handshake::accept).
    Proven(Proven),
    /// A session that this process began is established.
    Established(Established),
    /// The process probed with [`Handshake::start`] has not been replaced. The attempt has ended.
    Unchanged {
        /// The attempt's number.
        number: u32,
    },
}

/// An action that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Timed {
    /// Send an unanswered message again.
    Again(Outgoing),
    /// This attempt has ended without an answer.
    GaveUp {
        /// The attempt's number.
        number: u32,
        /// Whether the peer answered but did not accept the session.
        was_answered: bool,
    },
}

/// A process that has proved that it knows the secret and is at its address.
#[derive(Debug)]
pub(super) struct Proven {
    address: Box<[u8]>,
    incarnation: u64,
    attempt: u64,
    theirs: u32,
    initiator_nonce: [u8; SESSION_TAG],
    cookie_nonce: [u8; SESSION_TAG],
    keys: SessionKeys,
}

impl Proven {
    /// Returns the process's address.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }
}

/// An attempt, which is a session that this process has begun but the peer has not yet accepted.
struct Attempt {
    to: Box<[u8]>,
    count: u64,
    nonce: [u8; SESSION_TAG],
    /// If set, the attempt is only a probe: it ends if the process at the address still has this
    /// incarnation.
    unless: Option<u64>,
    /// The responder's incarnation and the session's keys, set by the CHALLENGE.
    challenged: Option<(u64, SessionKeys)>,
    /// The last message.
    message: Vec<u8>,
    /// The number of times that the message was sent.
    sent: u32,
    /// When the message is sent again.
    next: Nanos,
    delay: Nanos,
    until: Nanos,
}

/// The handshakes of one process. See the [module](self).
pub(super) struct Handshake {
    address: Box<[u8]>,
    /// This process's keys and the secret.
    own: SessionSealer,
    /// The number of attempts so far.
    count: u64,
    retry: Nanos,
    patience: Nanos,
    attempts: HashMap<u32, Attempt>,
    /// The number of the attempt in progress at each address.
    targets: HashMap<Box<[u8]>, u32>,
    live: HashMap<Box<[u8]>, Known>,
    /// The nonces of the cookies that have been used.
    spent: SpentCookies,
}

const HELLO_CODE: &[u8; 8] = b"hello   ";
const CHALLENGE_CODE: &[u8; 8] = b"challeng";
const CONFIRM_CODE: &[u8; 8] = b"confirm ";
const ACCEPT_CODE: &[u8; 8] = b"accept  ";

/// Returns a message without its MAC if the MAC is valid.
fn opened(message: &[u8], code: impl Fn(&[u8]) -> [u8; SESSION_TAG]) -> Option<&[u8]> {
    let (said, tag) = message.split_last_chunk::<TAG>()?;
    is_same_tag(&code(said), tag).then_some(said)
}

impl Handshake {
    /// Creates the handshakes of a process whose address has at most [`MAX_ADDRESS`] bytes.
    /// Unanswered messages are sent again after `retry`, with doubling delays, and an attempt ends
    /// after `patience`.
    pub(super) fn new(address: &[u8], own: SessionSealer, retry: Nanos, patience: Nanos) -> Self {
        Self {
            address: address.into(),
            own,
            count: 0,
            retry: retry.max(1),
            patience,
            attempts: HashMap::new(),
            targets: HashMap::new(),
            live: HashMap::new(),
            spent: SpentCookies::default(),
        }
    }

    // ---- as the initiator -----------------------------------------------------------------------

    /// Begins a session with the process at the address `to`, to which this process assigns
    /// `number`. If `unless` is given, begins the session only if the process there has a different
    /// incarnation. Returns `None` if an attempt at this address or with this number is in
    /// progress, or if the address is too long.
    pub(super) fn start(
        &mut self,
        now: Nanos,
        to: &[u8],
        number: u32,
        unless: Option<u64>,
    ) -> Option<Outgoing> {
        if to.len() > MAX_ADDRESS
            || self.targets.contains_key(to)
            || self.attempts.contains_key(&number)
        {
            return None;
        }
        let mut attempt = Attempt {
            to: to.into(),
            count: 0,
            nonce: [0; SESSION_TAG],
            unless,
            challenged: None,
            message: Vec::new(),
            sent: 0,
            next: now.saturating_add(self.retry),
            delay: self.retry,
            until: now.saturating_add(self.patience),
        };
        self.renew(&mut attempt, number)?;
        let out = Outgoing {
            to: to.into(),
            number: Some(number),
            bytes: attempt.message.clone(),
        };
        self.targets.insert(to.into(), number);
        self.attempts.insert(number, attempt);
        Some(out)
    }

    /// Begins an attempt, or restarts it with a new HELLO.
    fn renew(&mut self, attempt: &mut Attempt, number: u32) -> Option<()> {
        self.count += 1;
        attempt.count = self.count;
        attempt.nonce = self.own.nonce()?;
        attempt.challenged = None;
        attempt.sent = 1;
        let mut message = vec![HELLO, VERSION];
        self.offer(attempt, number).write(&mut message);
        message.resize((CHALLENGE_LENGTH - TAG).max(message.len()), 0);
        let code = self.own.tag(HELLO_CODE, &[&message]);
        message.extend(code);
        attempt.message = message;
        Some(())
    }

    /// Ends an attempt.
    pub(super) fn cancel(&mut self, number: u32) {
        if let Some(attempt) = self.attempts.remove(&number) {
            self.targets.remove(&attempt.to);
        }
    }

    fn offer<'a>(&'a self, attempt: &'a Attempt, number: u32) -> Offer<'a> {
        Offer {
            number,
            incarnation: self.own.incarnation(),
            attempt: attempt.count,
            nonce: attempt.nonce,
            share: *self.own.share(),
            from: &self.address,
            to: &attempt.to,
            bytes: &[],
        }
    }

    fn on_challenge(&mut self, now: Nanos, message: &[u8]) -> Option<Event> {
        let said = opened(message, |said| self.own.tag(CHALLENGE_CODE, &[said]))?;
        let mut reader = Reader(said.get(2..)?);
        let number = reader.u32()?;
        let nonce: [u8; SESSION_TAG] = reader.take()?;
        let incarnation = reader.u64()?;
        let share: [u8; 32] = reader.take()?;
        let cookie = Cookie::read(&mut reader)?;
        let attempt = self.attempts.get(&number)?;
        if attempt.nonce != nonce || !reader.0.is_empty() {
            return None;
        }
        if attempt.challenged.is_some() {
            return Some(Event::Known);
        }
        if attempt.unless == Some(incarnation) {
            self.cancel(number);
            return Some(Event::Unchanged { number });
        }
        let offer = self.offer(attempt, number);
        let mut bytes = vec![CONFIRM, VERSION];
        offer.write(&mut bytes);
        let keys = self.keys(true, &bytes[2..], &share, incarnation, &cookie.nonce)?;
        bytes.extend(incarnation.to_le_bytes());
        bytes.extend(share);
        cookie.write(&mut bytes);
        let code = keys.tag(CONFIRM_CODE, &[&bytes]);
        bytes.extend(code);
        let (retry, attempt) = (self.retry, self.attempts.get_mut(&number)?);
        attempt.challenged = Some((incarnation, keys));
        attempt.message.clone_from(&bytes);
        attempt.sent = 1;
        attempt.next = now.saturating_add(retry);
        attempt.delay = retry;
        Some(Event::Send(Outgoing {
            to: attempt.to.clone(),
            number: Some(number),
            bytes,
        }))
    }

    fn on_accept(&mut self, message: &[u8]) -> Option<Event> {
        let mut reader = Reader(message.get(2..)?);
        let number = reader.u32()?;
        let attempt = self.attempts.get(&number)?;
        let (_, keys) = attempt.challenged.as_ref()?;
        let said = opened(message, |said| keys.tag(ACCEPT_CODE, &[said]))?;
        let mut reader = Reader(said.get(6..)?);
        if reader.take()? != attempt.nonce {
            return None;
        }
        let (theirs, attempts) = (reader.u32()?, reader.u64()?);
        let attempt = self.attempts.remove(&number)?;
        self.targets.remove(&attempt.to);
        let (incarnation, keys) = attempt.challenged?;
        let live = Live {
            number,
            incarnation,
            attempt: attempts,
            accepted: None,
        };
        let pending = None;
        let known = Known { live, pending };
        let before = self.live.insert(attempt.to.clone(), known);
        Some(Event::Established(Established {
            address: attempt.to,
            number,
            theirs,
            replaces: before.as_ref().map(|known| known.replaced_by(incarnation)),
            cancelled: None,
            displaced: before.and_then(|known| Some(known.pending?.number)),
            keys,
        }))
    }

    // ---- as the responder -----------------------------------------------------------------------

    fn cookie(&self, step: u64, nonce: [u8; SESSION_TAG], offer: &[u8]) -> Cookie {
        let tag = self.own.cookie(&[&step.to_le_bytes(), &nonce, offer]);
        Cookie { step, nonce, tag }
    }

    fn on_hello(&mut self, now: Nanos, message: &[u8]) -> Option<Event> {
        if message.len() < CHALLENGE_LENGTH {
            return None;
        }
        let said = opened(message, |said| self.own.tag(HELLO_CODE, &[said]))?;
        let offer = Offer::read(&mut Reader(said.get(2..)?))?;
        if offer.to != &*self.address || offer.from == &*self.address {
            return None;
        }
        let nonce = self.own.nonce()?;
        let cookie = self.cookie(now / STEP, nonce, offer.bytes);
        let mut bytes = vec![CHALLENGE, VERSION];
        bytes.extend(offer.number.to_le_bytes());
        bytes.extend(offer.nonce);
        bytes.extend(self.own.incarnation().to_le_bytes());
        bytes.extend(self.own.share());
        cookie.write(&mut bytes);
        let code = self.own.tag(CHALLENGE_CODE, &[&bytes]);
        bytes.extend(code);
        Some(Event::Send(Outgoing {
            to: offer.from.into(),
            number: None,
            bytes,
        }))
    }

    fn on_confirm(&mut self, now: Nanos, message: &[u8]) -> Option<Event> {
        let rest = message.get(2..)?;
        let mut reader = Reader(rest);
        let offer = Offer::read(&mut reader)?;
        let incarnation = reader.u64()?;
        let share: [u8; 32] = reader.take()?;
        let cookie = Cookie::read(&mut reader)?;
        if incarnation != self.own.incarnation()
            || share != *self.own.share()
            || offer.to != &*self.address
            || reader.0.len() != TAG
        {
            return None;
        }
        let step = now / STEP;
        let is_fresh = cookie.step == step || cookie.step.checked_add(1) == Some(step);
        let own = self.cookie(cookie.step, cookie.nonce, offer.bytes);
        if !is_fresh || !is_same_tag(&own.tag, &cookie.tag) {
            return None;
        }
        self.spent.advance(step);
        let known = self.live.get(offer.from);
        let mut sessions = known.into_iter().flat_map(Known::each);
        if self.spent.contains(&cookie.nonce) {
            // Either the answer to an earlier CONFIRM was lost, or the message is a replay.
            let mut accepted = sessions.filter_map(|live| live.accepted.as_deref());
            let again = accepted.find(|(nonce, _)| *nonce == offer.nonce);
            return Some(again.map_or(Event::Known, |(_, out)| Event::Send(out.clone())));
        }
        let is_late = sessions
            .any(|live| live.incarnation == offer.incarnation && offer.attempt <= live.attempt);
        // If both processes have begun, only the attempt of the one with the smaller address is
        // continued.
        let is_ours = self.targets.contains_key(offer.from) && *self.address < *offer.from;
        if is_late || is_ours {
            return Some(Event::Known);
        }
        if self.spent.recent() >= MOST_USED {
            return None;
        }
        let keys = self.keys(false, offer.bytes, &offer.share, incarnation, &cookie.nonce)?;
        opened(message, |said| keys.tag(CONFIRM_CODE, &[said]))?;
        Some(Event::Proven(Proven {
            address: offer.from.into(),
            incarnation: offer.incarnation,
            attempt: offer.attempt,
            theirs: offer.number,
            initiator_nonce: offer.nonce,
            cookie_nonce: cookie.nonce,
            keys,
        }))
    }

    /// Accepts a session and assigns the peer a number. The returned message informs the peer. If
    /// the session [replaces](Established::replaces) another one, it does so only once the peer
    /// [has been heard](Self::on_heard) in the new session.
    pub(super) fn accept(&mut self, proven: Proven, number: u32) -> (Established, Outgoing) {
        self.spent.insert(&proven.cookie_nonce);
        let mut bytes = vec![ACCEPT, VERSION];
        bytes.extend(proven.theirs.to_le_bytes());
        bytes.extend(proven.initiator_nonce);
        bytes.extend(number.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        let code = proven.keys.tag(ACCEPT_CODE, &[&bytes]);
        bytes.extend(code);
        let out = Outgoing {
            to: proven.address.clone(),
            number: Some(number),
            bytes,
        };
        let live = Live {
            number,
            incarnation: proven.incarnation,
            attempt: proven.attempt,
            accepted: Some(Box::new((proven.initiator_nonce, out.clone()))),
        };
        let (mut replaces, mut displaced) = (None, None);
        match self.live.entry(proven.address.clone()) {
            Entry::Vacant(place) => {
                let pending = None;
                place.insert(Known { live, pending });
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                replaces = Some(known.replaced_by(proven.incarnation));
                displaced = known.pending.replace(live).map(|live| live.number);
            }
        }
        let cancelled = self.targets.get(&proven.address).copied();
        if let Some(number) = cancelled {
            self.cancel(number);
        }
        let established = Established {
            address: proven.address,
            number,
            theirs: proven.theirs,
            replaces,
            cancelled,
            displaced,
            keys: proven.keys,
        };
        (established, out)
    }

    // ---- as either side -------------------------------------------------------------------------

    /// Derives the keys of a session with this offer. `incarnation` and `nonce` are those of the
    /// responder, and `share` is that of the peer.
    fn keys(
        &self,
        first: bool,
        offer: &[u8],
        share: &[u8; 32],
        incarnation: u64,
        nonce: &[u8; SESSION_TAG],
    ) -> Option<SessionKeys> {
        let transcript = [&incarnation.to_le_bytes()[..], nonce, offer];
        self.own.derive(share, first, &transcript)
    }

    /// Handles a message.
    pub(super) fn receive(&mut self, now: Nanos, message: &[u8]) -> Event {
        let event = match message {
            [HELLO, VERSION, ..] => self.on_hello(now, message),
            [CHALLENGE, VERSION, ..] => self.on_challenge(now, message),
            [CONFIRM, VERSION, ..] => self.on_confirm(now, message),
            [ACCEPT, VERSION, ..] => self.on_accept(message),
            _ => None,
        };
        event.unwrap_or(Event::Ignored)
    }

    /// Records that a frame was received in a session with the process at this address.
    pub(super) fn on_heard(&mut self, address: &[u8], number: u32) {
        let Some(known) = self.live.get_mut(address) else {
            return;
        };
        if let Some(live) = known.pending.take_if(|live| live.number == number) {
            known.live = live;
        }
        if known.live.number == number {
            known.live.accepted = None;
        }
    }

    /// Records the end of a session with the process at this address. If a replacement is pending,
    /// it takes the session's place.
    pub(super) fn on_ended(&mut self, address: &[u8], number: u32) {
        let Some(known) = self.live.get_mut(address) else {
            return;
        };
        known.pending.take_if(|live| live.number == number);
        if known.live.number == number {
            match known.pending.take() {
                Some(live) => known.live = live,
                None => {
                    self.live.remove(address);
                    shrink_map(&mut self.live);
                }
            }
        }
    }

    /// Returns the number of bytes of memory used for sessions.
    pub(super) fn memory(&self) -> usize {
        self.live.capacity() * size_of::<(Box<[u8]>, Known)>()
    }

    /// Returns the incarnation of the process at this address, if there is a session with it.
    pub(super) fn incarnation_of(&self, address: &[u8]) -> Option<u64> {
        self.live.get(address).map(|known| known.live.incarnation)
    }

    /// Returns the next time at which [`poll`](Self::poll) has something to do.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let next = |attempt: &Attempt| attempt.next.min(attempt.until);
        self.attempts.values().map(next).min()
    }

    /// Returns the actions that are due at this time.
    pub(super) fn poll(&mut self, now: Nanos) -> Vec<Timed> {
        let is_due = |attempt: &Attempt| now >= attempt.next.min(attempt.until);
        let due = self.attempts.iter().filter(|(_, attempt)| is_due(attempt));
        let due: Vec<u32> = due.map(|(number, _)| *number).collect();
        let mut all = Vec::new();
        for number in due {
            let Some(mut attempt) = self.attempts.remove(&number) else {
                continue;
            };
            let was_answered = attempt.challenged.is_some();
            // The process that answered may have been replaced, or its cookie may have expired.
            let is_stale = was_answered && attempt.sent >= MOST_CONFIRMS;
            if now >= attempt.until || is_stale && self.renew(&mut attempt, number).is_none() {
                self.targets.remove(&attempt.to);
                all.push(Timed::GaveUp {
                    number,
                    was_answered,
                });
                continue;
            }
            attempt.sent += 1;
            attempt.delay = attempt.delay.saturating_mul(2);
            attempt.next = now.saturating_add(attempt.delay);
            all.push(Timed::Again(Outgoing {
                to: attempt.to.clone(),
                number: Some(number),
                bytes: attempt.message.clone(),
            }));
            self.attempts.insert(number, attempt);
        }
        all
    }
}
