//! Idle links: made idle, probed in turn, and reopened.

use conduit_core::ni::Rank;
use conduit_portals::compact;

use super::queues::Queue;
use super::{Endpoint, IDLE, NONE};
use crate::protocol::config::Config;
use crate::protocol::contract::{FragmentHandler, Nanos};
use crate::protocol::link::{IdleLink, Link};

/// The table of open links shrinks when it has more entries than this and three of four are free,
/// and when all are free.
const FEW: usize = 64;
/// Steps of a sweep. A sleeping rank is woken for each step.
const SWEEP_STEPS: u64 = 16;
/// A rank with very many idle links checks one in this time, on average.
const MIN_INTERVAL: Nanos = 1_000_000;
/// Idle links checked in one call, after a time without checks.
const MAX_CHECKS: u64 = 256;

/// The idle links of a rank, in one array without gaps.
///
/// Nothing is outstanding to the peer of an idle link, but a rank may wait for that peer to send
/// something, so its death has to be detected. A sweep therefore checks all idle links in a quarter
/// of the keep-alive time, and reopens a link for a probe if its peer has been silent for half of
/// the keep-alive time. One timer serves all idle links. Since links come and go, each is checked
/// at least in every second sweep, and so is probed within the keep-alive time.
#[derive(Debug, Default)]
pub(super) struct IdleLinks {
    entries: Vec<IdleLink>,
    /// Entries before it have been checked in this sweep.
    cursor: usize,
    /// When the next check is due, if there is an entry.
    next_check: Nanos,
}

/// Time of a sweep over all idle links, unless there are very many.
fn sweep_time(config: &Config) -> Nanos {
    config.keep_alive() / 4
}

impl IdleLinks {
    pub(super) fn get(&self, place: u32) -> Option<&IdleLink> {
        self.entries.get(place as usize)
    }

    pub(super) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<IdleLink>()
    }

    /// When the next check is due.
    pub(super) fn timeout(&self) -> Option<Nanos> {
        (!self.entries.is_empty()).then_some(self.next_check)
    }

    /// Time between the steps of a sweep.
    fn interval(&self, config: &Config) -> Nanos {
        let checks = (self.entries.len() as u64).clamp(1, SWEEP_STEPS);
        (sweep_time(config) / checks).max(MIN_INTERVAL)
    }

    /// Links to check after such an interval.
    fn checks_per(&self, interval: Nanos, config: &Config) -> u64 {
        let share = (self.entries.len() as u64 * interval).div_ceil(sweep_time(config));
        share.min(interval / MIN_INTERVAL).max(1)
    }

    /// Adds a link and returns its index. If another link moves, `moved` is called with its peer
    /// and new index.
    fn push(
        &mut self,
        now: Nanos,
        idle: IdleLink,
        config: &Config,
        mut moved: impl FnMut(Rank, u32),
    ) -> u32 {
        let mut place = self.entries.len();
        compact::push(&mut self.entries, idle);
        let next_check = now + self.interval(config);
        if place == 0 || next_check < self.next_check {
            self.next_check = next_check;
        }
        // A peer that was heard just now need not be checked in this sweep.
        if idle.silence(now) < sweep_time(config) {
            self.entries.swap(self.cursor, place);
            if self.cursor < place {
                moved(self.entries[place].peer, place as u32);
            }
            place = self.cursor;
            self.cursor += 1;
        }
        place as u32
    }

    /// Removes a link. For each other link that moves (at most two), `moved` is called with its
    /// peer and new index.
    pub(super) fn remove(
        &mut self,
        place: u32,
        mut moved: impl FnMut(Rank, u32),
    ) -> Option<IdleLink> {
        let mut hole = place as usize;
        let idle = *self.entries.get(hole)?;
        let mut fill = |entries: &mut [IdleLink], from: usize, hole: usize| {
            if from != hole {
                entries[hole] = entries[from];
                moved(entries[hole].peer, hole as u32);
            }
            from
        };
        // Entries that were checked in this sweep stay before the others.
        if hole < self.cursor {
            self.cursor -= 1;
            hole = fill(&mut self.entries, self.cursor, hole);
        }
        let last = self.entries.len() - 1;
        fill(&mut self.entries, last, hole);
        self.entries.pop();
        if self.entries.len() < self.entries.capacity() / 2 {
            self.entries
                .shrink_to(self.entries.len() + self.entries.len() / 16);
        }
        Some(idle)
    }

    /// The peer of the next link, and how long it has been silent.
    fn next(&mut self, now: Nanos) -> Option<(Rank, Nanos)> {
        if self.cursor >= self.entries.len() {
            self.cursor = 0;
        }
        let idle = self.entries.get(self.cursor)?;
        self.cursor += 1;
        Some((idle.peer, idle.silence(now)))
    }
}

impl Endpoint {
    /// Opens a link to a peer that has none, or reopens an idle one.
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
                let link = Link::new(now, peer, config);
                let due = link.due_when_idle(now, config);
                (link, due)
            }
            // If it was reopened only for a probe, it can be idle again soon.
            Some(idle) => (Link::reopen(now, idle, config), now + config.min_timeout),
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

    /// Makes a link idle if it can be and has been quiet since `quiet_since`. Returns whether it
    /// did.
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
        let can = |link: &mut Box<Link>| link.active_at <= quiet_since && link.can_be_idle();
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

    /// Moves open links together, so that the tables take no more memory than they need.
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

    /// More links are open than should be: checks some of them in turn, and makes idle those that
    /// have been quiet for a moment.
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

    /// Does the next step of the sweep over idle links, if it is due.
    pub(super) fn sweep_idle_links(&mut self, now: Nanos) {
        let Some(due) = self.idle_links.timeout().filter(|&due| due <= now) else {
            return;
        };
        let interval = self.idle_links.interval(&self.config);
        self.idle_links.next_check = now + interval;
        let late = 1 + (now - due) / interval;
        let checks = late.saturating_mul(self.idle_links.checks_per(interval, &self.config));
        for _ in 0..checks.min(MAX_CHECKS) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TIME: Nanos = 1 << 40;

    fn idle_link(peer: Rank) -> IdleLink {
        Link::new(TIME, peer, &Config::default()).to_idle()
    }

    proptest! {
        /// Each is found at the index that was returned, and none is checked twice before all
        /// others have been checked.
        #[test]
        fn each_is_checked_once_in_a_sweep(steps in prop::collection::vec((0u8..4, 0usize..100), 1..400)) {
            let config = Config::default();
            let (mut links, mut entries) = (IdleLinks::default(), BTreeMap::<Rank, u32>::new());
            // Those that have not been checked since the sweep began.
            let (mut waiting, mut peers) = (Vec::new(), 0..);
            for (what, which) in steps {
                match what {
                    0 | 1 => {
                        let peer = peers.next().unwrap_or(0);
                        // If it was heard long ago it is due in this sweep, if just now in the next
                        // one.
                        let now = if which % 2 == 0 { TIME } else { TIME + config.dead_time };
                        let place = links.push(now, idle_link(peer), &config, |peer, place| {
                            entries.insert(peer, place);
                        });
                        entries.insert(peer, place);
                        if now > TIME {
                            waiting.push(peer);
                        }
                    }
                    2 => {
                        let Some((&peer, &place)) = entries.iter().nth(which % entries.len().max(1)) else { continue };
                        entries.remove(&peer);
                        waiting.retain(|&other| other != peer);
                        let removed = links.remove(place, |peer, place| {
                            entries.insert(peer, place);
                        });
                        prop_assert_eq!(removed.map(|idle| idle.peer), Some(peer));
                    }
                    _ => {
                        if waiting.is_empty() {
                            waiting = entries.keys().copied().collect();
                        }
                        let checked = links.next(TIME + (5 << 20));
                        prop_assert_eq!(checked.is_none(), entries.is_empty());
                        if let Some((peer, silence)) = checked {
                            prop_assert_eq!(silence, 5 << 20);
                            prop_assert!(waiting.contains(&peer), "{} is checked again, {:?} wait", peer, waiting);
                            waiting.retain(|&other| other != peer);
                        }
                    }
                }
                prop_assert_eq!(links.entries.len(), entries.len());
                prop_assert!(links.entries.capacity() <= 2 * entries.len() + 2);
                for (&peer, &place) in &entries {
                    prop_assert_eq!(links.get(place).map(|idle| idle.peer), Some(peer));
                }
            }
        }
    }
}
