//! Makes links idle, probes the idle links in turn, and reopens them.

use conduit_core::ni::Rank;

use super::queues::Queue;
use super::{Endpoint, IDLE, NONE};
use crate::protocol::contract::{FragmentHandler, Nanos};
use crate::protocol::link::UdpLink;

/// The number of entries up to which the table of open links shrinks only if all entries are free.
/// A larger table shrinks if three quarters of its entries are free.
const FEW: usize = 64;

impl Endpoint {
    /// Opens a link to a peer that has no link, or reopens an idle link.
    pub(super) fn open(&mut self, now: Nanos, peer: Rank) -> u32 {
        let at = self.peers[peer as usize];
        let (peers, config) = (&mut self.peers, &self.config);
        let idle = match at {
            NONE => None,
            at => self.idle_links.remove(at & !IDLE, |peer, place| {
                peers[peer as usize] = IDLE | place;
            }),
        };
        let (link, due) = match &idle {
            None => {
                let link = UdpLink::new(now, peer, config);
                let due = link.due_when_idle(now, config);
                (link, due)
            }
            // A link that is reopened only for a probe can soon be made idle again.
            Some(idle) => (UdpLink::reopen(now, idle, config), now + config.min_timeout),
        };
        let link = Some(Box::new(link));
        let index = match self.free.pop() {
            Some(index) => {
                self.links[index as usize] = link;
                index
            }
            None => {
                self.links.push(link);
                (self.links.len() - 1) as u32
            }
        };
        self.peers[peer as usize] = index;
        self.timers.schedule(index, due);
        if self.open_links() > config.open_links {
            self.over_limit += 2;
        }
        index
    }

    fn open_links(&self) -> usize {
        self.links.len() - self.free.len()
    }

    /// Makes a link idle if its state permits and it has been quiet since `quiet_since`. Returns
    /// whether the link was made idle.
    pub(super) fn make_idle(
        &mut self,
        now: Nanos,
        index: u32,
        quiet_since: Nanos,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        let Some(place) = self.links.get_mut(index as usize) else {
            return false;
        };
        let can = |link: &mut Box<UdpLink>| link.active_at <= quiet_since && link.can_be_idle();
        let Some(link) = place.take_if(can) else {
            return false;
        };
        self.gone += &link.counters;
        self.gone.made_idle += 1;
        let peers = &mut self.peers;
        let place = self
            .idle_links
            .push(now, link.to_idle(), &self.config, |peer, place| {
                peers[peer as usize] = IDLE | place;
            });
        peers[link.peer as usize] = IDLE | place;
        self.timers.remove(index);
        self.free.push(index);
        handler.link_idle(link.peer);
        self.compact_if_sparse();
        true
    }

    /// Releases memory of the tables if most of their entries are free.
    pub(super) fn compact_if_sparse(&mut self) {
        let (open, entries) = (self.open_links(), self.links.len());
        if open == 0 || (entries > FEW && open < entries / 4) {
            self.compact();
        }
    }

    /// Moves open links together, so that the tables take no more memory than needed.
    fn compact(&mut self) {
        let mut moved = vec![NONE; self.links.len()];
        let mut links = Vec::with_capacity(2 * self.open_links());
        for (from, link) in std::mem::take(&mut self.links).into_iter().enumerate() {
            if let Some(link) = link {
                let to = links.len() as u32;
                moved[from] = to;
                self.peers[link.peer as usize] = to;
                links.push(Some(link));
            }
        }
        self.links = links;
        self.free = Vec::new();
        self.timers.renumber(&moved);
        self.queues.renumber(&moved);
    }

    /// Handles an excess of open links. Checks some of the links in turn, and makes those idle that
    /// have been quiet for at least `min_timeout`.
    pub(super) fn make_room(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        let quiet_since = now.saturating_sub(self.config.min_timeout);
        for _ in 0..std::mem::take(&mut self.over_limit).min(self.links.len()) {
            if self.open_links() <= self.config.open_links {
                return;
            }
            self.hand += 1;
            if self.hand >= self.links.len() {
                self.hand = 0;
            }
            self.make_idle(now, self.hand as u32, quiet_since, handler);
        }
    }

    /// Performs the next step of the sweep over idle links, if it is due.
    pub(super) fn sweep_idle_links(&mut self, now: Nanos) {
        for _ in 0..self.idle_links.begin_step(now, &self.config) {
            let Some((peer, silence)) = self.idle_links.next(now) else {
                return;
            };
            if silence < self.config.keep_alive() / 2 {
                continue;
            }
            let index = self.open(now, peer);
            if let Some(link) = self.links[index as usize].as_deref_mut() {
                link.liveness.probe(now);
                self.queues.enter(Queue::Control, index, link);
            }
        }
    }
}
