//! Connected sockets, which only send, for the few peers that receive most packets.
//!
//! A connected socket caches its route, which saves 0.1 µs per small packet. The peer still sends
//! to the rank's main socket, and ignores the source port of packets. Connected sockets are never
//! read. They are opened for the most frequent peers. If one fails, the main socket is used
//! instead.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The maximum number of connected sockets.
const MOST: usize = 4;
/// The number by which the sends to a peer must exceed the sends to other peers before the peer
/// gets a connected socket.
const WORTH: u32 = 64;

#[derive(Debug)]
struct Connected {
    to: SocketAddr,
    socket: OwnedFd,
}

/// The connected sockets, in order of their last use, the most recent one first.
#[derive(Debug, Default)]
pub(super) struct ConnectedSockets {
    sockets: Vec<Connected>,
    /// The candidate for the next socket. Of the sends without a connected socket, it is the peer
    /// that receives more than half, if there is one (Boyer-Moore majority vote).
    candidate: Option<SocketAddr>,
    votes: u32,
    /// Whether no more sockets are opened, because the system refused one or because none are
    /// wanted.
    exhausted: bool,
}

impl ConnectedSockets {
    /// Creates the set for a main socket that must not have connected sockets.
    pub(super) fn none() -> Self {
        Self {
            exhausted: true,
            ..Self::default()
        }
    }

    /// Returns the connected socket for a peer, if the peer has one. `open` opens a new socket if
    /// the peer has earned one with this send.
    #[inline]
    pub(super) fn of(
        &mut self,
        to: &SocketAddr,
        open: impl FnOnce(&SocketAddr) -> Option<OwnedFd>,
    ) -> Option<&OwnedFd> {
        match self.sockets.iter().position(|socket| socket.to == *to) {
            Some(0) => {}
            Some(place) => self.sockets[..=place].rotate_right(1),
            None => self.vote(to, open)?,
        }
        self.sockets.first().map(|socket| &socket.socket)
    }

    /// Counts a send to a peer without a connected socket, and opens a socket if the peer has
    /// earned it.
    #[cold]
    fn vote(
        &mut self,
        to: &SocketAddr,
        open: impl FnOnce(&SocketAddr) -> Option<OwnedFd>,
    ) -> Option<()> {
        if self.exhausted {
            return None;
        }
        if self.candidate == Some(*to) {
            self.votes += 1;
        } else if self.votes == 0 {
            self.candidate = Some(*to);
            self.votes = 1;
        } else {
            self.votes -= 1;
        }
        if self.votes < WORTH {
            return None;
        }
        self.votes = 0;
        let Some(socket) = open(to) else {
            self.exhausted = true;
            return None;
        };
        self.sockets.truncate(MOST - 1);
        self.sockets.insert(0, Connected { to: *to, socket });
        Some(())
    }

    /// Closes the most recently used socket, which has failed.
    pub(super) fn give_up(&mut self) {
        if !self.sockets.is_empty() {
            self.sockets.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    fn address(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn open(_: &SocketAddr) -> Option<OwnedFd> {
        Some(UdpSocket::bind(address(0)).expect("a socket").into())
    }

    #[test]
    fn the_most_frequent_peer_has_a_socket_until_others_are() {
        let mut connected = ConnectedSockets::default();
        for _ in 1..WORTH {
            assert!(connected.of(&address(1), open).is_none());
        }
        assert!(connected.of(&address(1), open).is_some());
        // Sends to peers in turn: none earns a socket, and the peer that has one keeps it.
        for number in 0..10 * WORTH {
            let port = 2 + (number % 3) as u16;
            assert!(connected.of(&address(port), open).is_none());
            assert!(connected.of(&address(1), open).is_some());
        }
        for port in 10..10 + MOST as u16 {
            for _ in 0..3 * WORTH {
                connected.of(&address(port), open);
            }
            assert!(connected.of(&address(port), open).is_some());
        }
        assert_eq!(connected.sockets.len(), MOST);
        assert!(connected.of(&address(1), open).is_none());
    }

    #[test]
    fn a_system_without_sockets_is_asked_once() {
        let mut connected = ConnectedSockets::default();
        let mut asked = 0;
        for _ in 0..3 * WORTH {
            let none = connected.of(&address(1), |_| {
                asked += 1;
                None
            });
            assert!(none.is_none());
        }
        assert_eq!(asked, 1);
    }
}
