//! The wire of an open network, whose links are added and removed. Each link leads to one peer in
//! one session, or carries only handshake messages. The peer is informed of the link's number, and
//! names it in its frames.

use std::collections::VecDeque;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::Failure;
use libfabric_sys::fi_addr_t;
use seal::{SessionKeys, SessionSealer, TAG};

use crate::wire::frame::{FrameKind, HEADER};
use crate::wire::link::OfiLink;
use crate::wire::liveness::{CHECKS, Nanos};

use super::scope::{Quiet, Scope};
use super::send::{list, seal_frame};
use super::{OfiEndpoint, SMALL};

/// The state of a session on a link.
#[derive(Debug, Clone, Copy, Default)]
pub struct Session {
    /// The number that the peer uses for this process.
    theirs: Rank,
    /// The session's number, or 0 if there is no session.
    id: u64,
    /// The number of consecutive checks that found no traffic.
    quiet: u8,
    /// The number of consecutive retries that the library refused.
    refused: u8,
    /// The time of the next retry.
    until: Nanos,
    /// Whether this process began the session. If it did not, it sends nothing until the peer has
    /// been heard, because the peer may not know of the session yet.
    is_first: bool,
}

// `docs/ofi.md` states this size.
const _: () = assert!(size_of::<OfiLink<Session>>() <= 264);

/// The sessions of an open network.
#[derive(Debug)]
pub struct Sessions {
    /// The function that decides whether bytes that are not a frame are a message.
    is_message: fn(&[u8]) -> bool,
    /// The messages that have been received and are not frames.
    messages: VecDeque<Box<[u8]>>,
    /// The peers with overdue answers.
    late: Vec<Rank>,
}

/// The maximum number of messages that are kept until they are read. Further messages are dropped,
/// because senders repeat handshake messages.
const MESSAGES: usize = 256;

impl Sessions {
    /// Creates an empty set of sessions. `is_message` must recognise messages by their first bytes.
    pub(crate) fn new(is_message: fn(&[u8]) -> bool) -> Self {
        Self {
            is_message,
            messages: VecDeque::new(),
            late: Vec::new(),
        }
    }
}

impl Scope for Sessions {
    type Session = Session;
    type Seal = SessionSealer;
    const OPEN: bool = true;
    const PAUSE: Duration = Duration::from_millis(1);

    #[inline(always)]
    fn names(&self, session: &Session) -> (Rank, u64) {
        (session.theirs, session.id)
    }
    #[inline(always)]
    fn is_job(&self, job: u64) -> bool {
        job != 0
    }
    #[inline(always)]
    fn is_session(session: &Session, job: u64) -> bool {
        job == session.id
    }
    fn address(&self, _peer: Rank) -> Option<&[u8]> {
        None
    }
    fn size(&self) -> u32 {
        0
    }
    fn any_peer(&self) -> Option<Rank> {
        None
    }
    fn owner(&self) -> String {
        "this process's".to_owned()
    }
    fn place(&self, _peer: Rank) -> Option<String> {
        None
    }
    fn memory(&self) -> usize {
        self.messages.capacity() * size_of::<Box<[u8]>>()
    }
    fn on_quiet(session: &mut Session) -> Quiet {
        if session.id == 0 {
            return Quiet::Stay;
        }
        session.quiet += 1;
        match session.quiet {
            1 => Quiet::Free,
            quiet if u64::from(quiet) < CHECKS => Quiet::Stay,
            _ => {
                session.quiet = 0;
                Quiet::Probe
            }
        }
    }
    fn may_retry(session: &Session, now: impl FnOnce() -> Nanos) -> bool {
        session.refused == 0 || now() >= session.until
    }
    /// Over `tcp`, each attempt to send to a process that does not exist opens another connection,
    /// so the time between attempts doubles.
    fn on_retried(session: &mut Session, is_stuck: bool, now: impl FnOnce() -> Nanos) {
        const FIRST: Nanos = 10_000;
        const MOST_DOUBLED: u8 = 12;
        if is_stuck {
            session.until = now() + (FIRST << session.refused);
            session.refused = (session.refused + 1).min(MOST_DOUBLED);
        } else {
            session.refused = 0;
        }
    }
    fn may_ping(session: &Session, is_known: bool) -> bool {
        session.is_first || is_known
    }
    fn on_other(&mut self, message: &[u8]) -> bool {
        let is_kept =
            (self.is_message)(message) && message.len() <= SMALL && self.messages.len() < MESSAGES;
        if is_kept {
            self.messages.push_back(message.into());
        }
        is_kept
    }
    fn on_late(&mut self, peer: Rank) {
        self.late.push(peer);
    }
}

impl OfiEndpoint<Sessions> {
    /// Adds a link to an address. The link has no session.
    pub(crate) fn admit(&mut self, number: Rank, address: fi_addr_t) {
        let mut link = OfiLink::new(number, address);
        link.failure = self.broken;
        if let Some(failure) = self.broken {
            self.failures.push((number, failure));
        }
        self.links.add(link);
    }

    /// Resizes the tables for links with numbers below `size`.
    pub(crate) fn resize(&mut self, size: u32) {
        self.links.resize(size);
        if let Some(seal) = &mut self.seal {
            seal.set_size(size);
        }
    }

    /// Begins a session on a link. `theirs` is the number that the peer uses for this process.
    /// `is_first` says whether this process began the session. If so, it confirms the session to
    /// the peer by a ping. From now on, the peer must answer.
    pub(crate) fn begin(&mut self, number: Rank, theirs: Rank, is_first: bool, keys: &SessionKeys) {
        if let Some(link) = self.links.get(number) {
            link.session = Session {
                theirs,
                // The session's identifier serves as a random number here.
                id: u64::from_le_bytes(keys.id()).max(1),
                is_first,
                ..Session::default()
            };
            link.liveness.sent();
        }
        if let Some(seal) = &mut self.seal {
            seal.install(number, keys);
        }
        if is_first {
            self.ping(number);
        }
    }

    /// Returns whether anything has been received in the session of a link.
    pub(crate) fn is_heard(&self, number: Rank) -> bool {
        let link = self.links.peek(number);
        link.is_some_and(|link| link.liveness.is_known())
    }

    /// Sends a handshake message, or keeps it until there is room. At most one message is kept.
    /// Further messages are dropped.
    pub(crate) fn post_message(&mut self, number: Rank, message: &[u8]) {
        let Some(link) = self.links.get(number) else {
            return;
        };
        if message.len() > SMALL || link.failure.is_some() || !link.backlog.is_empty() {
            return;
        }
        let address = link.address;
        let sent = self.submit(number, |wire| wire.post_frame(number, address, message));
        if sent == Err(conduit_portals::transport::fragment::Refused::Full)
            && let Some(link) = self.links.get(number)
        {
            link.backlog.push_back(message.into());
            list(&mut self.outgoing, link);
        }
    }

    /// Ends the activity on a link. If `bye` is set, also notifies the peer. The link exists until
    /// it is [drained](Self::is_drained) and [removed](Self::remove).
    pub(crate) fn end(&mut self, number: Rank, bye: bool) {
        let Some(link) = self.links.get(number) else {
            return;
        };
        if bye && link.failure.is_none() && link.session.id != 0 {
            let (address, next, session) = (link.address, link.next_out, link.session);
            let own = self.frame(&session, next, FrameKind::Bye, &[], 0);
            let mut frame = [0; HEADER + TAG];
            own.write(&mut frame);
            if let Some(seal) = &mut self.seal {
                seal_frame(&mut **seal, number, next, &mut frame);
            }
            // If there is no room for the frame, the peer detects the end by this process's
            // silence.
            let _ = self.post_small(number, address, &frame[..HEADER + self.tag]);
        }
        if let Some(link) = self.links.get(number) {
            link.failure = Some(Failure::Left);
            self.held -= link.held.take().map_or(0, |held| held.bytes());
            self.early -= link.early.take().map_or(0, |early| early.bytes());
            link.arriving = None;
            link.unsettled = None;
            link.pong = None;
            link.abandon();
        }
        self.failures.retain(|(failed, _)| *failed != number);
    }

    /// Returns whether libfabric has no more operations of a link to report and no frames wait to
    /// be sent. If `is_late` is set, frames that wait to be sent are ignored.
    pub(crate) fn is_drained(&self, number: Rank, is_late: bool) -> bool {
        let link = self.links.peek(number);
        self.broken.is_some()
            || link.is_none_or(|link| link.pending == 0 && (is_late || link.backlog.is_empty()))
    }

    /// Removes a link.
    pub(crate) fn remove(&mut self, number: Rank) {
        self.end(number, false);
        self.links.remove(number);
        self.outgoing.retain(|other| *other != number);
        if let Some(seal) = &mut self.seal {
            seal.forget(number);
        }
    }

    /// Revives a link on which a handshake message could not be sent. Returns `false` if no peer
    /// can be reached any more.
    pub(crate) fn revive(&mut self, number: Rank) -> bool {
        if self.broken.is_none()
            && let Some(link) = self.links.get(number)
        {
            link.failure = None;
        }
        self.broken.is_none()
    }

    /// Returns the next message that is not a frame.
    pub(crate) fn take_message(&mut self) -> Option<Box<[u8]>> {
        self.scope.messages.pop_front()
    }

    /// Returns whether there are messages to take or peers with overdue answers.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.scope.messages.is_empty() || !self.scope.late.is_empty()
    }

    /// Returns the links on which answers have become overdue since the last call.
    pub(crate) fn take_late(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.scope.late)
    }

    /// Returns the time of the links' clock.
    pub(crate) fn clock(&self) -> Nanos {
        self.now()
    }

    /// Returns libfabric's objects, for their addresses and descriptors.
    pub(crate) fn objects(&self) -> &crate::wire::objects::Objects {
        &self.objects
    }
}
