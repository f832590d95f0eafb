//! The passes, in which this process takes the records and packets that its peers have sent.

use std::mem::MaybeUninit;
use std::time::Duration;

use conduit_core::ni::Rank;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData};
use rustix::time::{ClockId, clock_gettime};

use conduit_portals::transport::fragment::{Failure, FragmentHandler};

use super::packet::Packet;
use super::socket::{self, Incoming};
use super::table::PeerState;
use super::{Local, address};

/// The maximum number of peers whose rings are polled.
const MAX_WATCHED: usize = 8;
/// After this many passes without a record, a watched peer may make way for another peer.
const IDLE_PASSES: u32 = 64;
/// The sockets are checked in every pass whose number is a multiple of this.
const LOOK_INTERVAL: u32 = 256;
/// If the system's coarse clock has ticked, the sockets are also checked in every pass whose number
/// is a multiple of this, so that infrequent passes don't keep peers waiting.
const CLOCK_INTERVAL: u32 = 8;
/// The maximum number of events taken at once.
const EVENTS: usize = 64;
/// The maximum number of packets taken from a session's socket at once.
const PACKETS: u32 = 16;

/// The event data of the listener.
pub(super) const LISTENER: EventData = EventData::new_u64(u64::MAX);
/// A number that stands for connections that have not sent a Hello yet. No peer has this number.
const STRANGER: u32 = u32::MAX - 1;

/// Returns the event data of a peer's socket.
pub(super) fn peer_event(number: Rank, generation: u32) -> EventData {
    EventData::new_u64(u64::from(number) << 32 | u64::from(generation))
}

/// Returns the event data of a connection that has not sent a Hello yet.
pub(super) fn stranger_event(generation: u32) -> EventData {
    peer_event(STRANGER, generation)
}

/// A peer whose rings are polled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    number: Rank,
    /// The pass in which the peer last had a record.
    last: u32,
}

/// The shortest interval between checks of the front page. Users of this network sleep for a few
/// seconds at most, so even a process that mostly sleeps makes these checks.
const CHECK: Duration = Duration::from_millis(250);

/// The state of the passes: buffers, and the times of the last checks.
#[derive(Debug, Default)]
pub(super) struct Found {
    pass: u32,
    /// The time of the last check of the sockets, by the coarse clock.
    looked: Duration,
    numbers: Vec<Rank>,
    /// The time of the last check for overlooked records, by the coarse clock.
    checked: Duration,
    /// The peers for which the last check found records that were not announced.
    overlooked: Vec<Rank>,
    /// The number of times that records were found although the front page did not show them.
    healed: u64,
}

fn coarse_time() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

impl Local {
    /// Hands over everything that has arrived. Returns whether anything had arrived.
    pub(super) fn pass(&mut self, handler: &mut impl FragmentHandler) -> bool {
        if !self.standing.stands() {
            return false;
        }
        let mut any = false;
        let mut looks = self.is_asleep;
        if self.is_asleep {
            self.is_asleep = false;
            self.front.ready_set().retire();
        }
        self.found.pass = self.found.pass.wrapping_add(1);
        let pass = self.found.pass;
        let mut at = 0;
        while let Some(&Watched { number, .. }) = self.watched.get(at) {
            if self.drain(number, handler) {
                any = true;
                // The peer is no longer in the list if it has broken the protocol.
                if let Some(watched) = self.watched.get_mut(at) {
                    watched.last = pass;
                }
            }
            at += 1;
        }
        if !self.front.ready_set().is_empty() {
            let mut numbers = std::mem::take(&mut self.found.numbers);
            self.front.ready_set().take(|number| numbers.push(number));
            for number in numbers.drain(..) {
                any |= self.attend(number, handler);
            }
            self.found.numbers = numbers;
        }
        if !self.pending.is_empty() {
            any |= self.attend_pending(handler);
        }
        if !self.failing.is_empty() {
            self.tell_failures(handler);
            any = true;
        }
        looks |= pass.is_multiple_of(LOOK_INTERVAL)
            || (pass.is_multiple_of(CLOCK_INTERVAL) && coarse_time() != self.found.looked);
        if looks {
            any |= self.look(handler);
            if self.found.looked.saturating_sub(self.found.checked) >= CHECK {
                any |= self.check_front(handler);
            }
        }
        any
    }

    /// Finds records whose announcement was lost because another peer has overwritten the front
    /// page. A record counts as overlooked only if two consecutive checks find it, because a peer
    /// may have published a record without having announced it yet.
    fn check_front(&mut self, handler: &mut impl FragmentHandler) -> bool {
        self.found.checked = self.found.looked;
        let sessions = self.peers.sessions();
        let overlooked = sessions.filter(|(_, session)| session.is_overlooked());
        let overlooked: Vec<Rank> = overlooked.map(|(number, _)| number).collect();
        let before = std::mem::replace(&mut self.found.overlooked, overlooked.clone());
        let mut any = false;
        for number in overlooked {
            if before.contains(&number) {
                self.front.ready_set().clear(number);
                any |= self.attend(number, handler);
                self.found.healed += 1;
                if self.found.healed.is_power_of_two() {
                    tracing::warn!(
                        "a process of this user corrupts the shared front page of {}: messages \
                         were found late {} times",
                        address::to_text(&self.address).unwrap_or_default(),
                        self.found.healed
                    );
                }
            }
        }
        any
    }

    /// Hands over the records in a peer's rings. Returns whether there were any.
    #[inline]
    fn drain(&mut self, number: Rank, handler: &mut impl FragmentHandler) -> bool {
        let Some(session) = self.peers.session_mut(number) else {
            return false;
        };
        match session.drain(number, handler) {
            Ok(any) => any,
            Err(what) => {
                self.end(number, Failure::Broken(what), handler);
                true
            }
        }
    }

    /// Handles a peer's bit, which says that the rings from the peer have records or that the rings
    /// to the peer have room again.
    fn attend(&mut self, number: Rank, handler: &mut impl FragmentHandler) -> bool {
        let Some(session) = self.peers.session_mut(number) else {
            return false;
        };
        let had_no_room = session.forget_full();
        if !session.is_watched {
            self.watch(number);
        }
        let any = self.drain(number, handler);
        self.mark_pending_if(number, |session| session.has_records());
        any || had_no_room
    }

    /// Starts polling the rings of a peer, if there is a place for that peer.
    fn watch(&mut self, number: Rank) {
        let pass = self.found.pass;
        let watched = Watched { number, last: pass };
        if self.watched.len() < MAX_WATCHED {
            self.watched.push(watched);
        } else {
            let age = |watched: &Watched| pass.wrapping_sub(watched.last);
            let oldest = self.watched.iter_mut().max_by_key(|watched| age(watched));
            let Some(oldest) = oldest.filter(|watched| age(watched) >= IDLE_PASSES) else {
                return;
            };
            let before = std::mem::replace(oldest, watched).number;
            if let Some(session) = self.peers.session_mut(before) {
                session.unwatch();
                session.publish_room();
            }
            self.mark_pending_if(before, |session| session.has_records());
        }
        if let Some(session) = self.peers.session_mut(number) {
            session.watch();
        }
    }

    /// Makes the next pass drain a peer's rings.
    pub(super) fn mark_pending(&mut self, number: Rank) {
        self.mark_pending_if(number, |_| true);
    }

    fn mark_pending_if(&mut self, number: Rank, is: impl FnOnce(&super::session::Session) -> bool) {
        if let Some(session) = self.peers.session_mut(number)
            && !session.is_pending
            && !session.is_watched
            && is(session)
        {
            session.is_pending = true;
            self.pending.push(number);
        }
    }

    fn attend_pending(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut any = false;
        // Peers that are added to the list meanwhile wait for the next pass.
        let numbers = std::mem::take(&mut self.pending);
        for &number in &numbers {
            if let Some(session) = self.peers.session_mut(number) {
                session.is_pending = false;
            }
        }
        for number in numbers {
            any |= self.attend(number, handler);
        }
        any
    }

    fn tell_failures(&mut self, handler: &mut impl FragmentHandler) {
        for number in std::mem::take(&mut self.failing) {
            if let Some(peer) = self.peers.get(number)
                && let PeerState::Failing(failure) = peer.state
            {
                self.end(number, failure, handler);
            }
        }
    }

    /// Checks the sockets.
    fn look(&mut self, handler: &mut impl FragmentHandler) -> bool {
        self.found.looked = coarse_time();
        let mut space = [MaybeUninit::uninit(); EVENTS];
        let found = match epoll::wait(&*self.epoll, &mut space, Some(&Timespec::default())) {
            Ok((found, _)) => &*found,
            Err(error) => {
                tracing::debug!(%error, "cannot check the sockets of the local network");
                &[]
            }
        };
        for event in found {
            self.look_at(event.data.u64(), handler);
        }
        let any = !found.is_empty();
        if !self.retrying.is_empty() {
            self.retry();
        }
        if self.is_listener_paused {
            self.resume_listener();
        }
        any
    }

    fn look_at(&mut self, event: u64, handler: &mut impl FragmentHandler) {
        if event == LISTENER.u64() {
            return self.accept(handler);
        }
        let (number, generation) = ((event >> 32) as u32, event as u32);
        if number == STRANGER {
            let mut strangers = self.strangers.iter();
            if let Some(at) = strangers.position(|(stranger, _)| *stranger == generation)
                && let Some((_, socket)) = self.strangers.remove(at)
            {
                // If nothing has arrived on the socket yet, `greet` watches it again.
                let _ = epoll::delete(&*self.epoll, &socket);
                self.greet(socket, handler);
            }
            return;
        }
        match self.peers.get(number).map(|peer| &peer.state) {
            Some(PeerState::Connecting(attempt)) if attempt.generation == generation => {
                self.look_at_attempt(number, handler);
            }
            Some(PeerState::Open(session)) if session.generation == generation => {
                self.look_at_session(number, handler);
            }
            // In all other cases, the socket was closed in the meantime.
            _ => {}
        }
    }

    /// Handles the packets on the socket of a session, if there is one.
    pub(super) fn look_at_session(&mut self, number: Rank, handler: &mut impl FragmentHandler) {
        for _ in 0..PACKETS {
            let Some(session) = self.peers.session(number) else {
                return;
            };
            let failure = match socket::receive(&session.socket) {
                Ok(Incoming::Nothing) => return,
                Ok(Incoming::End) => Failure::Network("has ended"),
                Err(error) => Failure::Lost(error.raw_os_error().cast_unsigned()),
                Ok(Incoming::Packet(received)) => match Packet::decode(received.bytes()) {
                    Ok(Packet::Wake) if received.descriptors.is_empty() => continue,
                    Ok(Packet::Goodbye) => Failure::Left,
                    _ => Failure::Broken("its socket delivers an invalid packet"),
                },
            };
            return self.end(number, failure, handler);
        }
    }

    /// Ends the session or attempt with a peer, and tells the handler.
    pub(super) fn end(
        &mut self,
        number: Rank,
        failure: Failure,
        handler: &mut impl FragmentHandler,
    ) {
        if !matches!(failure, Failure::Broken(_))
            && let Some(session) = self.peers.session_mut(number)
        {
            session.drain_last(number, handler);
        }
        self.forget(number);
        handler.failed(number, failure);
    }

    /// Ends the session or attempt with a peer.
    pub(super) fn forget(&mut self, number: Rank) {
        let Some(peer) = self.peers.get_mut(number) else {
            return;
        };
        let state = std::mem::replace(&mut peer.state, PeerState::Idle);
        let socket = match &state {
            PeerState::Open(session) => Some(&session.socket),
            PeerState::Connecting(attempt) if attempt.is_sent => Some(&attempt.socket),
            _ => None,
        };
        if let Some(socket) = socket {
            // The socket is removed explicitly, because a forked child may also hold it, in which
            // case closing it here would not end its events.
            let _ = epoll::delete(&*self.epoll, socket);
        }
        self.watched.retain(|watched| watched.number != number);
        for list in [
            &mut self.pending,
            &mut self.sending,
            &mut self.wanting,
            &mut self.retrying,
            &mut self.failing,
        ] {
            list.retain(|listed| *listed != number);
        }
    }

    /// Implements
    /// [`prepare_sleep`](conduit_portals::transport::open::OpenTransport::prepare_sleep).
    pub(super) fn try_sleep(&mut self) -> bool {
        if !self.standing.stands() {
            return true;
        }
        let mut is_busy = !self.failing.is_empty();
        for &number in &self.sending {
            let session = self.peers.session(number);
            is_busy |= session.is_some_and(|session| session.could_stream());
        }
        if is_busy {
            return false;
        }
        for number in std::mem::take(&mut self.watched).iter().map(|w| w.number) {
            if let Some(session) = self.peers.session_mut(number) {
                session.unwatch();
                session.publish_room();
            }
            self.mark_pending_if(number, |session| session.has_records());
        }
        for &number in &self.wanting {
            if let Some(session) = self.peers.session(number) {
                session.ask_for_room();
            }
        }
        let set = self.front.ready_set();
        set.announce();
        is_busy = !set.is_empty();
        for &number in &self.pending {
            let session = self.peers.session(number);
            is_busy |= session.is_some_and(|session| session.has_new_records());
        }
        let peers = &mut self.peers;
        self.wanting.retain(|&number| {
            let Some(session) = peers.session_mut(number) else {
                return false;
            };
            let has_room = session.has_room_again();
            if has_room {
                session.forget_full();
                is_busy = true;
            }
            session.is_wanting = session.is_full();
            session.is_wanting
        });
        if is_busy {
            self.front.ready_set().retire();
        }
        self.is_asleep = !is_busy;
        !is_busy
    }
}
