//! The implementation of [`Transport`].

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use rustix::event::{PollFd, PollFlags, poll};

use conduit_portals::transport::fragment::{
    Fragment, FragmentHandler, MAX_HEADER, Payload, Refused,
};
use conduit_portals::transport::{Transport, Wait, timespec};

use super::table::PeerState;
use super::{Local, address};

/// The time after which stalled work is tried again.
const RETRY: Duration = Duration::from_millis(10);

impl Transport for Local {
    const AT_ONCE: bool = true;

    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        if !self.standing.stands() {
            return Err(Refused::Dead);
        }
        let Some(entry) = self.peers.get_mut(peer) else {
            return Err(Refused::NoSuchRank);
        };
        let PeerState::Open(session) = &mut entry.state else {
            if fragment.header.len() > MAX_HEADER {
                return Err(Refused::TooLong);
            }
            if let PeerState::Idle = entry.state {
                self.begin(peer, 0);
            }
            return Err(Refused::Full);
        };
        match fragment.payload {
            Payload::Copied(pieces) => {
                let sent = session.send(fragment.header, pieces);
                if sent == Err(Refused::Full) && !session.is_wanting {
                    session.is_wanting = true;
                    self.wanting.push(peer);
                }
                sent
            }
            Payload::Read { token, length } => {
                session.queue(fragment.header, token, length)?;
                if !session.is_sending {
                    session.is_sending = true;
                    self.sending.push(peer);
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        self.pass(handler)
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        if self.sending.is_empty() || !self.standing.stands() {
            return;
        }
        let (peers, wanting) = (&mut self.peers, &mut self.wanting);
        self.sending.retain(|&peer| {
            let Some(session) = peers.session_mut(peer) else {
                return false;
            };
            session.is_sending = !session.stream(peer, handler);
            if session.is_sending && !session.is_wanting {
                session.is_wanting = true;
                wanting.push(peer);
            }
            session.is_sending
        });
    }

    fn outstanding(&self, peer: Rank) -> usize {
        let session = self.peers.session(peer);
        session.map_or(0, |session| session.outstanding())
    }

    fn timeout(&self) -> Option<Duration> {
        match (self.failing.is_empty(), self.retrying.is_empty()) {
            (false, _) => Some(Duration::ZERO),
            (true, false) => Some(RETRY),
            (true, true) => self.is_listener_paused.then_some(RETRY),
        }
    }

    /// Returns a waiter that sleeps until the epoll descriptor is readable. The caller must call
    /// `OpenTransport::prepare_sleep` before it sleeps.
    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Waiter(self.epoll.clone()))
    }

    fn abandon(&mut self, peers: &[Rank], _handler: &mut impl FragmentHandler) {
        for &peer in peers {
            if let Some(session) = self.peers.session_mut(peer) {
                session.abandon();
            }
        }
    }

    fn describe(&self, peer: Rank) -> String {
        let address = (self.peers.get(peer)).and_then(|peer| address::to_text(&peer.address));
        address.map_or_else(
            || "an unknown peer".to_owned(),
            |address| format!("the process at {address}"),
        )
    }
}

#[derive(Debug)]
struct Waiter(Arc<OwnedFd>);

impl Wait for Waiter {
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        let mut asked = vec![PollFd::new(&*self.0, PollFlags::IN)];
        asked.extend(also.map(|also| PollFd::new(also, PollFlags::IN)));
        // A failed call, for example an interrupted one, counts as an arrival.
        poll(&mut asked, limit.map(timespec).as_ref()).is_err() || !asked[0].revents().is_empty()
    }
}
