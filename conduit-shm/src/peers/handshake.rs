//! The handshake by which two processes set up a session.
//!
//! ```text
//! connects                          accepts
//! Hello (pair, front page)   →
//!                            ←      Welcome (front page), or Refused
//! ```
//!
//! Either side may send through the rings once it has the other's front page. If two processes
//! connect to each other at once, the attempt of the process with the smaller address wins,
//! provided that its Hello has been sent. Neither side accepts a fragment before this is settled.

use std::os::fd::{AsFd, OwnedFd};

use conduit_core::ni::Rank;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{self, Errno};

use crate::peer_credentials::credentials;
use conduit_portals::transport::fragment::{Failure, FragmentHandler};

use super::copy::try_copying;
use super::memory::{FrontPage, Pair, Unfit};
use super::packet::{Packet, Refusal, Terms, Unreadable};
use super::receive::{LISTENER, peer_event, stranger_event};
use super::session::{Copying, Session};
use super::socket::{self, Incoming, Received, is_hung_up, is_passing};
use super::table::{Attempt, PeerState};
use super::{Local, address};

/// The maximum number of connections that have not sent a Hello yet.
const MAX_STRANGERS: usize = 128;
/// The maximum number of connections that are accepted before peers get their turn.
const BATCH: u32 = 64;
/// The maximum number of attempts that a peer may refuse in favour of its own.
const MAX_DUPLICATES: u32 = 4;

/// A valid Hello.
struct Greeting {
    address: Vec<u8>,
    pair: Pair,
    front: FrontPage,
    number: u32,
    copying: Copying,
}

fn failure(error: Errno) -> Failure {
    Failure::Lost(error.raw_os_error().cast_unsigned())
}

fn failure_of(unfit: Unfit) -> Failure {
    match unfit {
        Unfit::Wrong(what) => Failure::Broken(what),
        Unfit::System(error) => failure(error),
    }
}

impl Local {
    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Returns the terms on which a peer with this number can use this process's memory.
    fn terms(&self, number: Rank) -> Terms {
        let probe = self.probe.as_deref();
        Terms {
            number,
            peers: self.front.peers(),
            probe: probe.map_or(0, |word| (&raw const *word).expose_provenance() as u64),
            probe_value: probe.map_or(0, |word| *word),
        }
    }

    /// Begins a handshake with an idle peer.
    #[cold]
    pub(super) fn begin(&mut self, number: Rank, duplicates: u32) {
        let generation = self.next_generation();
        let made = socket::create().and_then(|socket| {
            let (pair_file, pair) = Pair::create(self.ring)?;
            Ok(Attempt {
                socket,
                generation,
                pair,
                pair_file,
                is_connected: false,
                is_sent: false,
                duplicates,
            })
        });
        match made {
            Ok(attempt) => self.go_on(number, Box::new(attempt)),
            Err(error) => self.fail(number, failure(error)),
        }
    }

    /// Records that a session could not be opened. The next pass reports the failure.
    fn fail(&mut self, number: Rank, failure: Failure) {
        if let Some(peer) = self.peers.get_mut(number) {
            peer.state = PeerState::Failing(failure);
            self.failing.push(number);
        }
    }

    /// Continues an attempt as far as is currently possible.
    fn go_on(&mut self, number: Rank, mut attempt: Box<Attempt>) {
        match self.try_go_on(number, &mut attempt) {
            Ok(is_sent) => {
                if !is_sent && !self.retrying.contains(&number) {
                    self.retrying.push(number);
                }
                if let Some(peer) = self.peers.get_mut(number) {
                    peer.state = PeerState::Connecting(attempt);
                }
            }
            Err(failure) => self.fail(number, failure),
        }
    }

    fn try_go_on(&self, number: Rank, attempt: &mut Attempt) -> Result<bool, Failure> {
        let Some(peer) = self.peers.get(number) else {
            return Ok(true);
        };
        if !attempt.is_connected {
            match socket::connect_to(&attempt.socket, &address::socket_name(&peer.address)) {
                Ok(()) => {}
                Err(error) if is_passing(error) => return Ok(false),
                Err(Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET) => {
                    return Err(Failure::Unreachable);
                }
                Err(error) => return Err(failure(error)),
            }
            self.check_user(&attempt.socket)
                .map_err(|refusal| Failure::Network(refusal.reason()))?;
            attempt.is_connected = true;
        }
        let hello = Packet::Hello {
            terms: self.terms(number),
            shift: attempt.pair.shift(),
            address: &self.address,
        };
        let files = [attempt.pair_file.as_fd(), self.front_file.as_fd()];
        match socket::send(&attempt.socket, &hello, &files) {
            Ok(()) => {}
            Err(error) if is_passing(error) => return Ok(false),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                return Err(Failure::Unreachable);
            }
            Err(error) => return Err(failure(error)),
        }
        self.look_at_later(&attempt.socket, peer_event(number, attempt.generation))
            .map_err(failure)?;
        attempt.is_sent = true;
        Ok(true)
    }

    fn look_at_later(&self, socket: &OwnedFd, event: EventData) -> io::Result<()> {
        epoll::add(&*self.epoll, socket, event, EventFlags::IN)
    }

    /// Checks that the process at the other end belongs to this user.
    fn check_user(&self, socket: &OwnedFd) -> Result<(), Refusal> {
        match credentials(socket) {
            Ok(found) if found.uid == self.user => Ok(()),
            Ok(_) => Err(Refusal::User),
            Err(_) => Err(Refusal::System),
        }
    }

    /// Continues the handshakes that could not continue at the last attempt.
    pub(super) fn retry(&mut self) {
        for number in std::mem::take(&mut self.retrying) {
            let Some(peer) = self.peers.get_mut(number) else {
                continue;
            };
            match std::mem::replace(&mut peer.state, PeerState::Idle) {
                PeerState::Connecting(attempt) if !attempt.is_sent => self.go_on(number, attempt),
                PeerState::Open(mut session) if session.is_welcome_due => {
                    // An error is ignored here, because the socket will show if the peer is gone.
                    session.is_welcome_due = self.welcome(number, &session.socket) == Ok(false);
                    if session.is_welcome_due {
                        self.retrying.push(number);
                    }
                    self.set_state(number, PeerState::Open(session));
                }
                state => peer.state = state,
            }
        }
    }

    fn set_state(&mut self, number: Rank, state: PeerState) {
        if let Some(peer) = self.peers.get_mut(number) {
            peer.state = state;
        }
    }

    /// Sends a peer the Welcome for its session. Returns `Ok(false)` if that is not possible now.
    fn welcome(&self, number: Rank, socket: &OwnedFd) -> io::Result<bool> {
        let welcome = Packet::Welcome(self.terms(number));
        match socket::send(socket, &welcome, &[self.front_file.as_fd()]) {
            Ok(()) => Ok(true),
            Err(error) if is_passing(error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Handles a packet on the socket of an attempt.
    pub(super) fn look_at_attempt(&mut self, number: Rank, handler: &mut impl FragmentHandler) {
        let Some(peer) = self.peers.get_mut(number) else {
            return;
        };
        let PeerState::Connecting(attempt) = &peer.state else {
            return;
        };
        let received = match socket::receive(&attempt.socket) {
            Ok(Incoming::Nothing) => return,
            Ok(Incoming::Packet(received)) => received,
            Ok(Incoming::End) => return self.end(number, Failure::Unreachable, handler),
            Err(error) => return self.end(number, failure(error), handler),
        };
        match Packet::decode(received.bytes()) {
            Ok(Packet::Welcome(terms)) => {
                if let PeerState::Connecting(attempt) =
                    std::mem::replace(&mut peer.state, PeerState::Idle)
                {
                    match accepted(*attempt, terms, &received) {
                        Ok(session) => self.open(number, session),
                        Err(failure) => self.end(number, failure, handler),
                    }
                }
            }
            Ok(Packet::Refused(Refusal::Duplicate)) if attempt.duplicates < MAX_DUPLICATES => {
                let duplicates = attempt.duplicates + 1;
                self.forget(number);
                // Accepts the peer's own attempt, which arrived before the peer's refusal of this
                // process's attempt.
                self.accept(handler);
                if (self.peers.get(number))
                    .is_some_and(|peer| matches!(peer.state, PeerState::Idle))
                {
                    self.begin(number, duplicates);
                }
            }
            Ok(Packet::Refused(refusal)) => {
                self.end(number, Failure::Network(refusal.reason()), handler);
            }
            Err(Unreadable::Version) => {
                self.end(number, Failure::Network(Refusal::Version.reason()), handler);
            }
            _ => self.end(number, Failure::Broken("its reply is invalid"), handler),
        }
    }

    /// Starts using a session.
    fn open(&mut self, number: Rank, session: Session) {
        self.set_state(number, PeerState::Open(Box::new(session)));
        // The peer may already have sent something, and its bit in the front page may have been
        // taken before the session was open.
        self.mark_pending(number);
    }

    /// Accepts the waiting connections.
    pub(super) fn accept(&mut self, handler: &mut impl FragmentHandler) {
        for _ in 0..BATCH {
            let Some(listener) = &self.listener else {
                return;
            };
            match socket::accept(listener) {
                Ok(socket) => match self.check_user(&socket) {
                    Ok(()) => self.greet(socket, handler),
                    Err(refusal) => refuse(&socket, refusal),
                },
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    if !self.refuse_without_descriptors() {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept peers of the local network");
                    return self.pause_listener();
                }
            }
        }
    }

    /// Refuses the next connection, with the help of the spare descriptor. Returns `false` if that
    /// is not possible now.
    fn refuse_without_descriptors(&mut self) -> bool {
        tracing::warn!("refused a peer of the local network: too many open files");
        self.spare = None;
        if let Some(listener) = &self.listener
            && let Ok(socket) = socket::accept(listener)
        {
            refuse(&socket, Refusal::Descriptors);
        }
        self.spare = rustix::io::fcntl_dupfd_cloexec(&*self.epoll, 0).ok();
        if self.spare.is_none() {
            self.pause_listener();
        }
        self.spare.is_some()
    }

    /// Leaves further connections in the backlog, because they cannot be served and the listener
    /// would otherwise wake this process constantly.
    fn pause_listener(&mut self) {
        if let Some(listener) = &self.listener {
            self.is_listener_paused = epoll::delete(&*self.epoll, listener).is_ok();
        }
    }

    /// Watches the listener again.
    pub(super) fn resume_listener(&mut self) {
        if let Some(listener) = &self.listener {
            let added = epoll::add(&*self.epoll, listener, LISTENER, EventFlags::IN);
            self.is_listener_paused = added.is_err();
        }
        if self.spare.is_none() {
            self.spare = rustix::io::fcntl_dupfd_cloexec(&*self.epoll, 0).ok();
        }
    }

    /// Handles a new connection, which may have sent a packet already.
    pub(super) fn greet(&mut self, socket: OwnedFd, handler: &mut impl FragmentHandler) {
        match socket::receive(&socket) {
            Ok(Incoming::Nothing) => {
                let generation = self.next_generation();
                if self
                    .look_at_later(&socket, stranger_event(generation))
                    .is_err()
                {
                    return;
                }
                if self.strangers.len() >= MAX_STRANGERS {
                    self.strangers.pop_front();
                }
                self.strangers.push_back((generation, socket));
            }
            Ok(Incoming::Packet(received)) => {
                let greeting = self.examine(&socket, &received);
                let admitted = match greeting {
                    // The peer has given up this attempt.
                    Ok(_) if is_hung_up(&socket) => return,
                    Ok(greeting) => self.admit(socket, greeting, handler),
                    Err(refusal) => Err((socket, refusal)),
                };
                if let Err((socket, refusal)) = admitted {
                    refuse(&socket, refusal);
                }
            }
            Ok(Incoming::End) | Err(_) => {}
        }
    }

    /// Examines the contents of a Hello.
    fn examine(&self, socket: &OwnedFd, received: &Received) -> Result<Greeting, Refusal> {
        let (terms, shift, address) = match Packet::decode(received.bytes()) {
            Ok(Packet::Hello {
                terms,
                shift,
                address,
            }) => (terms, shift, address),
            Err(Unreadable::Version) => return Err(Refusal::Version),
            _ => return Err(Refusal::Malformed),
        };
        let [pair, front] = match &received.descriptors[..] {
            [pair, front] if !received.lacks_descriptors => [pair, front],
            // The peer sent descriptors, but this process had no room for all of them.
            [] | [_] if received.lacks_descriptors => return Err(Refusal::Descriptors),
            _ => return Err(Refusal::Malformed),
        };
        let (host, _) = address::decode(address).map_err(|_| Refusal::Malformed)?;
        if host != self.host || address == &*self.address || terms.number >= terms.peers {
            return Err(Refusal::Malformed);
        }
        let refusal = |unfit| match unfit {
            Unfit::Wrong(_) => Refusal::Malformed,
            Unfit::System(_) => Refusal::System,
        };
        Ok(Greeting {
            address: address.to_vec(),
            pair: Pair::of_peer(pair, shift).map_err(refusal)?,
            front: FrontPage::of_peer(front, terms.peers).map_err(refusal)?,
            number: terms.number,
            copying: try_copying(socket, &terms),
        })
    }

    /// Opens a session with the process that sent a valid Hello.
    fn admit(
        &mut self,
        socket: OwnedFd,
        greeting: Greeting,
        handler: &mut impl FragmentHandler,
    ) -> Result<(), (OwnedFd, Refusal)> {
        let known = self.peers.find(&greeting.address);
        let number = match known {
            Some(number) => {
                if self.is_ours_first(number, &greeting.address) {
                    return Err((socket, Refusal::Duplicate));
                }
                self.make_way(number, handler);
                number
            }
            None => match self.peers.add(&greeting.address) {
                Some(number) => number,
                None => return Err((socket, Refusal::Peers)),
            },
        };
        let generation = self.next_generation();
        let is_welcomed = self
            .look_at_later(&socket, peer_event(number, generation))
            .and_then(|()| self.welcome(number, &socket));
        let is_welcomed = match is_welcomed {
            Ok(is_welcomed) => is_welcomed,
            Err(_) => {
                if known.is_none() {
                    self.peers.remove(number);
                }
                return Err((socket, Refusal::System));
            }
        };
        let theirs = (greeting.front, greeting.number);
        let mut session = Session::new(socket, generation, greeting.pair, theirs, greeting.copying);
        if !is_welcomed {
            session.is_welcome_due = true;
            self.retrying.push(number);
        }
        self.open(number, session);
        if known.is_none() {
            handler.joined(number);
        }
        Ok(())
    }

    /// Returns whether this process's own attempt to reach a peer takes precedence over the peer's
    /// attempt.
    fn is_ours_first(&self, number: Rank, theirs: &[u8]) -> bool {
        match self.peers.get(number).map(|peer| &peer.state) {
            // This process's attempt does not count if it was addressed to an earlier process at
            // that address, which has hung up.
            Some(PeerState::Connecting(attempt)) => {
                attempt.is_sent && *self.address < *theirs && !is_hung_up(&attempt.socket)
            }
            _ => false,
        }
    }

    /// Ends the existing session or attempt with a peer that begins a new session.
    fn make_way(&mut self, number: Rank, handler: &mut impl FragmentHandler) {
        // The socket may show how the session ended.
        self.look_at_session(number, handler);
        match self.peers.get(number).map(|peer| &peer.state) {
            Some(PeerState::Open(session)) => {
                let failure = match is_hung_up(&session.socket) {
                    true => Failure::Network("the process was restarted"),
                    false => Failure::Broken("it begins a second session"),
                };
                self.end(number, failure, handler);
            }
            Some(&PeerState::Failing(failure)) => self.end(number, failure, handler),
            _ => self.forget(number),
        }
    }
}

/// Creates the session that follows from a Welcome.
fn accepted(attempt: Attempt, terms: Terms, received: &Received) -> Result<Session, Failure> {
    let front = match &received.descriptors[..] {
        _ if received.lacks_descriptors => return Err(failure(Errno::MFILE)),
        [front] if terms.number < terms.peers => front,
        _ => return Err(Failure::Broken("its reply lacks its front page")),
    };
    let front = FrontPage::of_peer(front, terms.peers).map_err(failure_of)?;
    let copying = try_copying(&attempt.socket, &terms);
    let theirs = (front, terms.number);
    let (socket, generation) = (attempt.socket, attempt.generation);
    Ok(Session::new(
        socket,
        generation,
        attempt.pair,
        theirs,
        copying,
    ))
}

/// Sends the reason for a refusal, if the peer still listens.
fn refuse(socket: &OwnedFd, refusal: Refusal) {
    if let Err(error) = socket::send(socket, &Packet::Refused(refusal), &[]) {
        tracing::debug!(%error, "cannot send a refusal to a peer");
    }
}
