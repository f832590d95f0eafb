//! A transport over a network that can have [connections](Connect) to a few peers. The peers with
//! the most traffic get connections; [`lanes`] decides which peers these are.
//!
//! A connection has two channels, like a link, and each channel switches independently. When a
//! channel switches to the connection, its last fragment on the base path is an announcement; the
//! receiver takes nothing from that channel of the connection before the announcement. When a
//! channel switches back, fragments are refused as if the link were full until the peer has taken
//! everything from the channel, and then use the base path. Once both channels have switched, a
//! message about lanes reports the switch. Thus a fragment is assigned a path only when it is sent,
//! in-flight fragments finish on the path they started on, and nothing is buffered here.
//!
//! The end that offers a connection expects the connection before it sends the offer, so every
//! connection attempt finds an end that expects it. The other end makes the connection, which may
//! take a while, and accepts the offer once the connection is established. If the attempt fails, it
//! denies the offer, and the pair stays on the base path.
//!
//! Messages about lanes, and announcements, are fragments of the base path. The layer above must
//! not use the first bytes of their headers (0x80 and above), nor tokens from 2^63 on.

use std::collections::VecDeque;
use std::time::Duration;

use ::lanes::{
    Action, Carrier, Driver, Lane, LaneKind, Message, Outlet, Route, Settings, SettingsError,
    Statistics,
};
use conduit_core::ni::Rank;

use crate::forward_transport;

use super::connect::{CHANNELS, Connect};
use super::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use super::interface::Transport;

/// First bytes of this layer's headers: `LANE` for messages about lanes, and `ANNOUNCED` for
/// announcements, with one value for each channel.
const LANE: u8 = 0x80;
const ANNOUNCED: [u8; CHANNELS] = [0x81, 0x82];
/// Marks a token as that of an announcement on the data channel. The token's other bits hold the
/// generation.
const TOKEN: u64 = 1 << 63;
/// The maximum number of messages from and to a peer that wait here. Above this number, no more
/// messages are taken from the peer. A peer that keeps to the protocol rarely has more than one
/// unanswered question.
const MOST_WAITING: usize = 8;
/// The longest sleep while something waits for room in this layer or the network.
const RETRY: Duration = Duration::from_millis(1);

/// A transport over a network with connections; see the [module](self).
#[derive(Debug)]
pub struct Connections<N> {
    network: N,
    /// `None` if there are no connections; this type then only forwards calls.
    state: Option<Box<ConnectionsState>>,
}

// The size of the state must not depend on the size of the job. On the heap, the state has a
// constant number of lanes and ends, and a few messages.
const _: () = assert!(size_of::<ConnectionsState>() < 2048);

#[derive(Debug)]
struct ConnectionsState {
    driver: Driver,
    /// This rank's ends, indexed by the lane's slot.
    ends: Box<[Option<End>]>,
    /// Arrivals that the network has delivered and that are not handled yet.
    arrived: VecDeque<(Rank, Arrival)>,
    /// Whether a fragment was refused because its peer has too many unanswered questions.
    has_refused: bool,
}

/// This rank's end of a connection.
#[derive(Debug)]
struct End {
    peer: Rank,
    outlets: [Outlet; CHANNELS],
    /// For each channel, whether the announcement has arrived.
    is_watched: [bool; CHANNELS],
}

#[derive(Debug)]
enum Arrival {
    Message(Message),
    Announced { channel: usize, generation: u32 },
    Broken(&'static str),
    Failed,
}

impl Arrival {
    /// Decodes a fragment with a header of this layer.
    fn decode(header: &[u8], payload: &[u8]) -> Self {
        let &[kind] = header else {
            return Self::Broken("a message about lanes with a long header");
        };
        if kind == LANE {
            return match Message::decode(payload) {
                Ok(message) => Self::Message(message),
                Err(_) => Self::Broken("a malformed message about lanes"),
            };
        }
        let channel = ANNOUNCED.iter().position(|announced| *announced == kind);
        match (channel, payload.try_into()) {
            (Some(channel), Ok(generation)) => Self::Announced {
                channel,
                generation: u32::from_le_bytes(generation),
            },
            _ => Self::Broken("a malformed announcement of a lane"),
        }
    }
}

fn is_own(header: &[u8]) -> bool {
    header.first().is_some_and(|first| *first >= LANE)
}

impl<N: Connect> Connections<N> {
    /// Creates the state for a rank's connections, at most as many as `settings` and the network
    /// allow. If none are allowed, or the settings are invalid, all calls are forwarded unchanged
    /// to the network. The settings must be equal on all ranks. `force` is for tests: if nonzero,
    /// it is the number of fragments that a connection carries before a rank leaves it, and the
    /// lanes' driver assumes that connections cost almost nothing.
    pub fn new(network: N, rank: Rank, mut settings: Settings, force: u32) -> Self {
        settings.slots = settings.slots.min(network.connections());
        let state = (settings.slots > 0).then(|| ConnectionsState::new(rank, settings, force));
        Self {
            network,
            state: state.and_then(Result::ok).map(Box::new),
        }
    }

    /// Returns the underlying network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// Returns the lanes that are not free.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> {
        self.state.iter().flat_map(|state| state.driver.lent())
    }

    /// Returns the statistics of the lanes.
    pub fn statistics(&self) -> Statistics {
        let state = self.state.as_deref();
        state.map_or_else(Statistics::default, |state| state.driver.statistics)
    }

    /// Handles the arrivals that the network has delivered.
    fn sort(&mut self, handler: &mut impl FragmentHandler) {
        let (network, Some(state)) = (&mut self.network, self.state.as_deref_mut()) else {
            return;
        };
        while let Some((peer, arrival)) = state.arrived.pop_front() {
            let (driver, mut ends) = state.ends(network);
            match arrival {
                Arrival::Message(message) => {
                    if driver.on_message(peer, message, &mut ends).is_err() {
                        let broken = Arrival::Broken("a message that no lane's state allows");
                        state.arrived.push_front((peer, broken));
                    }
                }
                Arrival::Announced {
                    channel,
                    generation,
                } => {
                    let slot = driver.on_announced(peer, generation, &mut ends);
                    if let Some(end) = slot.and_then(|slot| ends.ends[usize::from(slot)].as_mut()) {
                        end.is_watched[channel] = true;
                    }
                }
                Arrival::Broken(what) => {
                    let failure = Failure::Broken(what);
                    network.give_up(peer, failure, &mut Between { state, handler });
                }
                Arrival::Failed => driver.on_death(peer, &mut ends),
            }
        }
    }

    /// Ends rounds, leaves the connections that have drained, and sends waiting messages.
    fn progress(&mut self) {
        let (network, Some(state)) = (&mut self.network, self.state.as_deref_mut()) else {
            return;
        };
        let (driver, mut ends) = state.ends(network);
        if driver.is_round_over() {
            driver.end_round(&mut ends);
        }
        for end in ends.ends.iter_mut().flatten() {
            let taken = ends.network.taken(end.peer);
            for (outlet, taken) in end.outlets.iter_mut().zip(taken) {
                outlet.taken(taken);
            }
        }
        driver.advance(&mut ends);
        driver.flush(&mut ends);
    }
}

impl ConnectionsState {
    fn new(rank: Rank, settings: Settings, force: u32) -> Result<Self, SettingsError> {
        Ok(Self {
            ends: (0..settings.slots).map(|_| None).collect(),
            driver: Driver::new(rank, settings, None, force)?,
            arrived: VecDeque::new(),
            has_refused: false,
        })
    }

    fn ends<'a, N>(&'a mut self, network: &'a mut N) -> (&'a mut Driver, Ends<'a, N>) {
        let ends = &mut self.ends;
        (&mut self.driver, Ends { network, ends })
    }

    /// Counts a fragment sent to a peer or received from it.
    #[inline]
    fn note(&mut self, peer: Rank) {
        let samples = self.driver.sampler.pass(1);
        if samples > 0 {
            self.driver.tracker.touch(peer, samples);
        }
    }

    fn waiting(&self, peer: Rank) -> usize {
        let arrived = self.arrived.iter().filter(|(from, _)| *from == peer);
        let outgoing = self.driver.waiting().filter(|to| *to == peer);
        arrived.count() + outgoing.count()
    }
}

/// The part of the state that the lanes' driver changes.
struct Ends<'a, N> {
    network: &'a mut N,
    ends: &'a mut [Option<End>],
}

impl<N> Ends<'_, N> {
    fn outlets(&mut self, slot: u16) -> impl Iterator<Item = &mut Outlet> {
        let end = self.ends[usize::from(slot)].iter_mut();
        end.flat_map(|end| &mut end.outlets)
    }
}

impl<N: Connect> Carrier for Ends<'_, N> {
    const COUNTS_LENT: bool = true;

    fn send(&mut self, to: Rank, message: Message) -> bool {
        let bytes = message.encode();
        let fragment = Fragment {
            header: &[LANE],
            payload: Payload::Copied(&[bytes.as_ref()]),
        };
        self.network.send(to, &fragment) != Err(Refused::Full)
    }

    fn act(&mut self, _: LaneKind, action: Action) {
        match action {
            Action::Send { to, message } => {
                if let Message::Offer {
                    slot, generation, ..
                } = message
                {
                    self.network.expect(to, generation);
                    self.ends[usize::from(slot)] = Some(End::new(to));
                }
            }
            Action::Connect {
                slot,
                peer,
                generation,
            } => {
                self.network.connect(peer, generation);
                self.ends[usize::from(slot)] = Some(End::new(peer));
            }
            Action::Open {
                slot, generation, ..
            } => {
                self.outlets(slot)
                    .for_each(|outlet| outlet.open(generation));
            }
            Action::Drain { slot, peer } => {
                self.outlets(slot).for_each(Outlet::drain);
                self.network.leave(peer);
            }
            Action::Close { slot, peer } => {
                if self.ends[usize::from(slot)].take().is_some() {
                    self.network.disconnect(peer);
                }
            }
        }
    }

    fn made(&mut self, peer: Rank) -> Option<bool> {
        self.network.made(peer)
    }

    fn has_left(&mut self, slot: u16, _: Rank) -> bool {
        // Each channel leaves independently, so all outlets are queried.
        let mut has_left = true;
        self.outlets(slot)
            .for_each(|outlet| has_left &= outlet.has_left());
        has_left
    }
}

impl End {
    fn new(peer: Rank) -> Self {
        Self {
            peer,
            outlets: <[Outlet; CHANNELS]>::default(),
            is_watched: [false; CHANNELS],
        }
    }

    /// Sends a fragment. Returns whether the connection carried it.
    fn send(
        &mut self,
        network: &mut impl Connect,
        fragment: &Fragment<'_>,
    ) -> Result<bool, Refused> {
        let channel = usize::from(matches!(fragment.payload, Payload::Read { .. }));
        loop {
            // The outlet advances only if the send succeeds.
            let mut next = self.outlets[channel].clone();
            let route = next.route(true);
            match route {
                Route::Base => network.send(self.peer, fragment)?,
                Route::Lane => network.send_connected(self.peer, fragment)?,
                Route::Announce { generation } => {
                    announce(network, self.peer, channel, generation)?;
                }
                Route::Wait => return Err(Refused::Full),
            }
            self.outlets[channel] = next;
            if !matches!(route, Route::Announce { .. }) {
                return Ok(route == Route::Lane);
            }
        }
    }
}

fn announce(
    network: &mut impl Connect,
    peer: Rank,
    channel: usize,
    generation: u32,
) -> Result<(), Refused> {
    let bytes = generation.to_le_bytes();
    let payload = match channel {
        0 => Payload::Copied(&[&bytes]),
        _ => Payload::Read {
            token: TOKEN | u64::from(generation),
            length: bytes.len() as u32,
        },
    };
    let header = &[ANNOUNCED[channel]];
    network.send(peer, &Fragment { header, payload })
}

/// The handler between the network and the layer above.
struct Between<'a, H> {
    state: &'a mut ConnectionsState,
    handler: &'a mut H,
}

impl<H: FragmentHandler> FragmentHandler for Between<'_, H> {
    forward_transport!(handler in [Self { handler, .. }]: place, end, done, joined, link_idle, room);

    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        match token & TOKEN {
            0 => self.handler.read(peer, token, offset, into),
            _ => into.copy_from_slice(&token.to_le_bytes()[offset..][..into.len()]),
        }
    }

    fn source(&self, peer: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        match token & TOKEN {
            0 => self.handler.source(peer, token, offset, length),
            _ => None,
        }
    }

    fn sent(&mut self, peer: Rank, token: u64) {
        if token & TOKEN == 0 {
            self.handler.sent(peer, token);
        }
    }

    fn is_awaited(&self, peer: Rank, token: u64) -> bool {
        token & TOKEN == 0 && self.handler.is_awaited(peer, token)
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        if !is_own(header) {
            let is_taken = self.handler.fragment(peer, header, payload);
            if is_taken {
                self.state.note(peer);
            }
            return is_taken;
        }
        let has_room = self.state.waiting(peer) < MOST_WAITING;
        if has_room {
            let arrival = Arrival::decode(header, payload);
            self.state.arrived.push_back((peer, arrival));
        }
        self.state.has_refused |= !has_room;
        has_room
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        if is_own(header) {
            let broken = Arrival::Broken("a message about lanes that is too long");
            self.state.arrived.push_back((peer, broken));
            return None;
        }
        let id = self.handler.begin(peer, header, length)?;
        self.state.note(peer);
        Some(id)
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        // Messages already received from the peer don't count any more.
        self.state.arrived.retain(|(from, _)| *from != peer);
        self.state.arrived.push_front((peer, Arrival::Failed));
        self.handler.failed(peer, failure);
    }
}

impl<N: Connect> Transport for Connections<N> {
    const AT_ONCE: bool = N::AT_ONCE;

    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        let (network, Some(state)) = (&mut self.network, self.state.as_deref_mut()) else {
            return self.network.send(peer, fragment);
        };
        let mut ends = (0..).zip(&mut state.ends);
        match ends
            .find_map(|(place, end)| Some((place, end.as_mut().filter(|end| end.peer == peer)?)))
        {
            Some((place, end)) => {
                let by_lane = end.send(network, fragment)?;
                state.driver.used(place, by_lane.into());
            }
            None => network.send(peer, fragment)?,
        }
        state.note(peer);
        Ok(())
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let Some(state) = self.state.as_deref_mut() else {
            return self.network.receive(handler);
        };
        state.has_refused = false;
        let mut any = self.network.receive(&mut Between { state, handler });
        self.sort(handler);
        let Some(state) = self.state.as_deref_mut() else {
            return any;
        };
        for slot in 0..state.ends.len() {
            for channel in 0..CHANNELS {
                if let Some(end) = &state.ends[slot]
                    && end.is_watched[channel]
                {
                    let (peer, between) = (end.peer, &mut Between { state, handler });
                    any |= self.network.receive_connected(peer, channel, between);
                }
            }
        }
        self.sort(handler);
        self.progress();
        any
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        let Some(state) = self.state.as_deref_mut() else {
            return self.network.transmit(handler);
        };
        self.network.transmit(&mut Between { state, handler });
        self.sort(handler);
    }

    forward_transport!(network in [Self { network, .. }]:
        is_idle, outstanding, settle, waiter, describe, has_direct, expose, write, read, has_atomic,
        atomic);

    fn timeout(&self) -> Option<Duration> {
        let timeout = self.network.timeout();
        let state = self.state.as_deref();
        match state.is_some_and(|state| state.has_refused || state.driver.waiting().len() > 0) {
            true => Some(timeout.map_or(RETRY, |timeout| timeout.min(RETRY))),
            false => timeout,
        }
    }

    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        let Some(state) = self.state.as_deref_mut() else {
            return self.network.abandon(peers, handler);
        };
        self.network.abandon(peers, &mut Between { state, handler });
        self.sort(handler);
    }
}
