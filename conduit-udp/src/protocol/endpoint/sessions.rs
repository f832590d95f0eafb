//! Peers that come and go: in an open network a peer has a link only during a session with it.

use conduit_core::ni::Rank;

use super::{Endpoint, FAILED, IDLE, NONE};
use crate::protocol::contract::Nanos;

impl Endpoint {
    /// Sets the number of peers. New peers have no [session](Self::begin); removed peers must not
    /// have one.
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

    /// Begins a session with a peer, on a new link. The peer has just answered. Before that,
    /// nothing can be sent to the peer, and its packets are dropped.
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

    /// Ends the session with a peer: releases its link, if there is one, with everything that it
    /// holds. The fragment handler's bytes are not read any more.
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

    /// Returns the next failed peer that was not returned yet.
    pub fn take_failed(&mut self) -> Option<Rank> {
        self.failed.pop()
    }
}
