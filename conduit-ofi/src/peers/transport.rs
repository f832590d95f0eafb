//! The transport contracts, implemented by an open network over libfabric.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conduit_core::ni::Rank;
use conduit_portals::forward_transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};

use super::OpenOfi;
use super::links::{NONE, PENDING, SAME, replaced};

/// Translates the wire's callbacks from links to peers.
struct Peers<'a, H> {
    handler: &'a mut H,
    /// The owner of each link.
    owners: &'a mut [Rank],
    ended: &'a mut Vec<(u32, Failure)>,
}

impl<H: FragmentHandler> Peers<'_, H> {
    #[inline(always)]
    fn of(&mut self, link: u32) -> Option<Rank> {
        match self.owners.get(link as usize) {
            Some(&owner) if owner < SAME => Some(owner),
            _ => self.of_pending(link),
        }
    }

    /// Returns the peer of a link whose session replaces another one. This is called once something
    /// has arrived on the link, and completes the replacement.
    #[cold]
    fn of_pending(&mut self, link: u32) -> Option<Rank> {
        let owner = *self.owners.get(link as usize)?;
        if owner == NONE {
            return None;
        }
        let peer = owner & !(PENDING | SAME);
        for other in self.owners.iter_mut().filter(|other| **other == peer) {
            *other = NONE;
        }
        self.owners[link as usize] = peer;
        self.handler.failed(peer, replaced(owner & SAME != 0));
        Some(peer)
    }
}

impl<H: FragmentHandler> FragmentHandler for Peers<'_, H> {
    forward_transport!(handler in [Self { handler, .. }]: place, end, room);

    #[inline]
    fn read(&mut self, link: u32, token: u64, offset: usize, into: &mut [u8]) {
        if let Some(peer) = self.of(link) {
            self.handler.read(peer, token, offset, into);
        }
    }
    #[inline]
    fn sent(&mut self, link: u32, token: u64) {
        if let Some(peer) = self.of(link) {
            self.handler.sent(peer, token);
        }
    }
    #[inline]
    fn fragment(&mut self, link: u32, header: &[u8], payload: &[u8]) -> bool {
        let peer = self.of(link);
        peer.is_none_or(|peer| self.handler.fragment(peer, header, payload))
    }
    #[inline]
    fn begin(&mut self, link: u32, header: &[u8], length: usize) -> Option<u64> {
        let peer = self.of(link)?;
        self.handler.begin(peer, header, length)
    }
    fn failed(&mut self, link: u32, failure: Failure) {
        self.ended.push((link, failure));
        // A session that has not yet replaced another one was never reported to the handler.
        if let Some(&peer) = self.owners.get(link as usize)
            && peer < SAME
        {
            self.handler.failed(peer, failure);
        }
    }
    fn link_idle(&mut self, link: u32) {
        if let Some(peer) = self.of(link) {
            self.handler.link_idle(peer);
        }
    }
}

/// A handler that discards everything that arrives while this process leaves.
struct Nobody;

impl FragmentHandler for Nobody {
    fn read(&mut self, _: Rank, _: u64, _: usize, _: &mut [u8]) {}
    fn sent(&mut self, _: Rank, _: u64) {}
    fn fragment(&mut self, _: Rank, _: &[u8], _: &[u8]) -> bool {
        true
    }
    fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
        None
    }
    fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
    fn end(&mut self, _: u64) {}
    fn failed(&mut self, _: Rank, _: Failure) {}
    fn room(&self) -> usize {
        0
    }
}

impl OpenOfi {
    /// Returns the link of a peer's session.
    fn session(&self, peer: Rank) -> Option<u32> {
        let session = self.peers.state(peer)?.session;
        (session != NONE).then_some(session)
    }

    /// Handles the work that a call of the wire has left over.
    #[inline]
    fn after(&mut self, handler: &mut impl FragmentHandler) {
        if !self.pending.is_empty() {
            self.take_pending(handler);
        }
        if !self.ended.is_empty() {
            self.take_ended(handler);
        }
        if self.wire.has_news() {
            self.take_news(handler);
        }
        if self.next_tick != u64::MAX {
            self.tick(handler);
        }
    }
}

/// Calls the wire with a handler that translates links to peers.
macro_rules! on_wire {
    ($open:expr, $handler:expr, $wire:ident, $peers:ident => $call:expr) => {{
        let Self {
            wire: $wire,
            owners,
            ended,
            ..
        } = $open;
        let $peers = &mut Peers {
            handler: $handler,
            owners,
            ended,
        };
        $call
    }};
}

impl Transport for OpenOfi {
    const AT_ONCE: bool = true;

    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        match self.ready.get(peer as usize) {
            Some(&link) if link != NONE => {
                match self.wire.send(link, fragment) {
                    // The session has ended, which the next poll reports.
                    Err(Refused::Dead | Refused::NoSuchRank) => Err(Refused::Full),
                    answer => answer,
                }
            }
            _ => Err(self.send_without_session(peer)),
        }
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let arrived = on_wire!(self, handler, wire, peers => wire.receive(peers));
        self.after(handler);
        arrived
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        on_wire!(self, handler, wire, peers => wire.transmit(peers));
        self.after(handler);
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let session = self.session(peer);
        session.map_or(0, |link| self.wire.outstanding(link))
    }

    fn settle(&mut self, peer: Rank) {
        if let Some(&link) = self.ready.get(peer as usize)
            && link != NONE
        {
            self.wire.settle(link);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        /// The time between polls if the provider has no descriptor to wait on.
        const LOOK: Duration = Duration::from_micros(100);
        if !self.ended.is_empty() || self.wire.has_news() {
            return Some(Duration::ZERO);
        }
        let due = match self.next_tick {
            u64::MAX => None,
            next => Some(Duration::from_nanos(next.saturating_sub(self.wire.clock()))),
        };
        let blind = self.wire.objects().descriptors.is_empty();
        let look = blind.then_some(LOOK);
        [self.wire.timeout(), due, look].into_iter().flatten().min()
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.wire.waiter()
    }

    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        let links: Vec<_> = peers
            .iter()
            .filter_map(|peer| self.session(*peer))
            .collect();
        on_wire!(self, handler, wire, peers => wire.abandon(&links, peers));
        self.after(handler);
    }

    fn describe(&self, peer: Rank) -> String {
        let address = self.peers.address(peer);
        let text = address.and_then(|address| self.addressing.to_text(address));
        let text = text.unwrap_or_default();
        format!("at {text} (provider {:?})", self.wire.offer())
    }
}

impl OpenTransport for OpenOfi {
    fn address(&self) -> &[u8] {
        self.addressing.own()
    }

    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        self.addressing.to_text(address)
    }

    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        self.addressing.of_text(text)
    }

    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        self.addressing
            .raw(address)
            .map_err(ConnectError::Malformed)?;
        if address == self.addressing.own() {
            return Err(ConnectError::Own);
        }
        Ok(self.number_of(address)?.0)
    }

    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        self.peers.address(peer).map(|address| address.to_vec())
    }

    fn has_session(&self, peer: Rank) -> bool {
        let peer = self.peers.state(peer);
        peer.is_some_and(|peer| peer.session != NONE || peer.attempt != NONE)
    }

    fn end_session(&mut self, peer: Rank) {
        OpenOfi::end_session(self, peer);
    }

    fn close(&mut self, peer: Rank) {
        self.remove_peer(peer);
    }

    fn leave(&mut self) {
        /// The maximum time to wait until the network has accepted all goodbyes.
        const PATIENCE: Duration = Duration::from_millis(250);
        self.end_all();
        let begin = Instant::now();
        while !self.is_all_out() && begin.elapsed() < PATIENCE {
            let nobody = &mut Nobody;
            on_wire!(self, nobody, wire, peers => {
                wire.receive(peers);
                wire.transmit(peers);
            });
            std::thread::yield_now();
        }
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        let all = self.wire.objects().descriptors.iter();
        into.extend(all.map(|found| {
            // SAFETY: the library owns the descriptor and keeps it open as long as the endpoint.
            // The result borrows `self`, which owns the endpoint.
            unsafe { BorrowedFd::borrow_raw(found.fd) }
        }));
    }

    fn prepare_sleep(&mut self) -> bool {
        self.ended.is_empty() && !self.wire.has_news() && self.wire.objects().may_wait()
    }
}
