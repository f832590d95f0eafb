//! Peers that come and go. In an open network, a rank has a link to a peer only during a session
//! with it.

use conduit_core::ni::Rank;

use super::{Endpoint, FAILED, IDLE, NONE};
use crate::protocol::contract::Nanos;

impl Endpoint {
    /// Sets the number of peers. New peers have no [session](Self::begin), and peers that are
    /// removed must not have one.
    pub fn set_size(&mut self, size: u32) {
        debug_assert!(
            self.peers
                .iter()
                .skip(size as usize)
                .all(|&at| at == FAILED)
        );
        self.config.size = size;
        let size = size as usize;
        if size > self.peers.capacity() || self.peers.capacity() > 2 * size + 64 {
            self.peers.truncate(size);
            self.peers.shrink_to(size + size / 2);
            self.peers
                .reserve_exact((size + size / 2).saturating_sub(self.peers.len()));
        }
        self.peers.resize(size, FAILED);
    }

    /// Begins a session with a peer, which must just have answered, on a new link. Before this
    /// call, nothing can be sent to the peer, and its packets are dropped.
    pub fn begin(&mut self, now: Nanos, peer: Rank) {
        if self.peers.get(peer as usize).is_none() {
            return;
        }
        self.end(peer);
        self.advance(now);
        self.peers[peer as usize] = NONE;
        let index = self.open(now, peer);
        if let Some(link) = self.links[index as usize].as_deref_mut() {
            link.liveness.restore(false, true);
        }
    }

    /// Ends the session with a peer. Releases the peer's link, if there is one, with everything
    /// that the link holds. The fragment handler's bytes are not read any more.
    pub fn end(&mut self, peer: Rank) {
        let Some(&at) = self.peers.get(peer as usize) else {
            return;
        };
        self.peers[peer as usize] = FAILED;
        if at < IDLE {
            if let Some(link) = self.links[at as usize].take() {
                link.release(&mut self.budget);
                self.gone += &link.counters;
                self.timers.remove(at);
                self.free.push(at);
            }
        } else if at < FAILED {
            let peers = &mut self.peers;
            self.idle_links.remove(at & !IDLE, |peer, place| {
                peers[peer as usize] = IDLE | place;
            });
        }
        self.compact_if_sparse();
    }

    /// Returns a failed peer that this method has not returned yet.
    pub fn take_failed(&mut self) -> Option<Rank> {
        self.failed.pop()
    }
}
