//! The implementation of [`OpenTransport`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use conduit_core::ni::Rank;
use conduit_core::process_memory;

use conduit_portals::transport::open::{ConnectError, OpenTransport};

use super::packet::Packet;
use super::session::Copying;
use super::table::PeerState;
use super::{Local, address, socket};

/// Announces to the peer, if the session is open, that the session ends normally.
fn say_goodbye(state: &PeerState) {
    if let PeerState::Open(session) = state
        && let Err(error) = socket::send(&session.socket, &Packet::Goodbye, &[])
    {
        tracing::debug!(%error, "cannot say goodbye to a peer");
    }
}

impl OpenTransport for Local {
    fn address(&self) -> &[u8] {
        &self.address
    }

    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        address::to_text(address)
    }

    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        address::of_text(text)
    }

    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        let (host, _) = address::decode(address)?;
        if host != self.host {
            return Err(ConnectError::Malformed("it belongs to another host"));
        }
        if address == &*self.address {
            return Err(ConnectError::Own);
        }
        if let Some(number) = self.peers.find(address) {
            return Ok(number);
        }
        self.peers.add(address).ok_or(ConnectError::Exhausted {
            limit: self.peers.limit(),
            setting: "CONDUIT_NA_MAX_PEERS",
        })
    }

    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        self.peers.get(peer).map(|peer| peer.address.to_vec())
    }

    fn has_session(&self, peer: Rank) -> bool {
        let state = self.peers.get(peer).map(|peer| &peer.state);
        state.is_some_and(|state| !matches!(state, PeerState::Idle))
    }

    fn end_session(&mut self, peer: Rank) {
        if self.standing.stands()
            && let Some(entry) = self.peers.get(peer)
        {
            say_goodbye(&entry.state);
        }
        self.forget(peer);
    }

    fn close(&mut self, peer: Rank) {
        self.end_session(peer);
        self.peers.remove(peer);
    }

    fn leave(&mut self) {
        if !self.standing.stands() {
            return;
        }
        self.standing.fall();
        self.listener = None;
        self.strangers.clear();
        for peer in self.peers.all_mut() {
            say_goodbye(&peer.state);
            peer.state = PeerState::Idle;
        }
        self.watched.clear();
        for list in [
            &mut self.pending,
            &mut self.sending,
            &mut self.wanting,
            &mut self.retrying,
            &mut self.failing,
        ] {
            list.clear();
        }
    }

    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.push(self.epoll.as_fd());
    }

    fn prepare_sleep(&mut self) -> bool {
        self.try_sleep()
    }

    fn can_copy(&self, peer: Rank) -> bool {
        let session = self.peers.session(peer);
        session.is_some_and(|session| session.copying != Copying::No)
    }

    unsafe fn copy_from(
        &mut self,
        peer: Rank,
        remote: u64,
        local: *mut u8,
        length: usize,
    ) -> io::Result<()> {
        let process = self.process_of(peer)?;
        // SAFETY: the caller guarantees that `local` is valid for writes of `length` bytes.
        unsafe { process_memory::read(local, process, remote, length) }
    }

    unsafe fn copy_to(
        &mut self,
        peer: Rank,
        remote: u64,
        local: *const u8,
        length: usize,
    ) -> io::Result<()> {
        let process = self.process_of(peer)?;
        // SAFETY: the caller guarantees that `local` is valid for reads of `length` bytes and that
        // the peer has offered the remote memory.
        unsafe { process_memory::write(process, remote, local, length) }
    }
}
