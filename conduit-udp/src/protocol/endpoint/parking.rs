//! Links that nothing happens on: parked, looked after, opened again.

use conduit_core::ni::Rank;
use conduit_portals::compact;

use super::queues::Turn;
use super::{Endpoint, NONE, PARKED};
use crate::protocol::config::Config;
use crate::protocol::contract::{FragmentHandler, Nanos};
use crate::protocol::link::{Link, Parked};

/// The table of open links is made smaller when it has more places and three of four are free, or all are.
const FEW: usize = 64;
/// Times at which a rank looks at parked links while it looks at all of them once: a rank that sleeps is woken for each.
const LOOKS: u64 = 16;
/// Of a rank with very many of them one is looked at in this time, on average.
const LEAST_TIME: Nanos = 1_000_000;
/// Parked links that are looked at in one go, when time has passed without any being looked at.
const MOST_AT_ONCE: u64 = 256;

/// The parked links of a rank, one behind the other without gaps.
///
/// Nobody waits for anything of a parked peer, but a rank may wait for it to say something, and wants to hear that it cannot any
/// more. So parked links are looked at in turn, all of them in a quarter of the keep-alive time, and one whose peer has not been
/// heard for half of it is opened for a probe. There is no timer for each, but one for all. As others come and go two looks
/// at the same one may be two turns apart, but no more: each is probed within the keep-alive time.
#[derive(Debug, Default)]
pub(super) struct Lot {
    places: Vec<Parked>,
    /// Those before have been looked at in this turn.
    cursor: usize,
    /// When the next is to be looked at, if there is one.
    next_look: Nanos,
}

/// In this time all parked links are looked at, unless there are very many.
fn turn(config: &Config) -> Nanos {
    config.keep_alive() / 4
}

impl Lot {
    pub(super) fn get(&self, place: u32) -> Option<&Parked> {
        self.places.get(place as usize)
    }

    pub(super) fn memory(&self) -> usize {
        self.places.capacity() * size_of::<Parked>()
    }

    /// When something is due.
    pub(super) fn timeout(&self) -> Option<Nanos> {
        (!self.places.is_empty()).then_some(self.next_look)
    }

    /// Between looks.
    fn pause(&self, config: &Config) -> Nanos {
        let looks = (self.places.len() as u64).clamp(1, LOOKS);
        (turn(config) / looks).max(LEAST_TIME)
    }

    /// Links to be looked at after such a pause.
    fn at_once(&self, pause: Nanos, config: &Config) -> u64 {
        let share = (self.places.len() as u64 * pause).div_ceil(turn(config));
        share.min(pause / LEAST_TIME).max(1)
    }

    /// Adds one: its place. Another one may have moved: `moved` hears whose, and where to.
    fn push(
        &mut self,
        now: Nanos,
        parked: Parked,
        config: &Config,
        mut moved: impl FnMut(Rank, u32),
    ) -> u32 {
        let mut place = self.places.len();
        compact::push(&mut self.places, parked);
        let next_look = now + self.pause(config);
        if place == 0 || next_look < self.next_look {
            self.next_look = next_look;
        }
        // One that was heard just now has had its look.
        if parked.silence(now) < turn(config) {
            self.places.swap(self.cursor, place);
            if self.cursor < place {
                moved(self.places[place].peer, place as u32);
            }
            place = self.cursor;
            self.cursor += 1;
        }
        place as u32
    }

    /// Takes one out. Another one, or two, may have moved: `moved` hears whose, and where to.
    fn remove(&mut self, place: u32, mut moved: impl FnMut(Rank, u32)) -> Option<Parked> {
        let mut hole = place as usize;
        let parked = *self.places.get(hole)?;
        let mut fill = |places: &mut [Parked], from: usize, hole: usize| {
            if from != hole {
                places[hole] = places[from];
                moved(places[hole].peer, hole as u32);
            }
            from
        };
        // What was looked at in this turn stays before what was not.
        if hole < self.cursor {
            self.cursor -= 1;
            hole = fill(&mut self.places, self.cursor, hole);
        }
        let last = self.places.len() - 1;
        fill(&mut self.places, last, hole);
        self.places.pop();
        if self.places.len() < self.places.capacity() / 2 {
            self.places
                .shrink_to(self.places.len() + self.places.len() / 16);
        }
        Some(parked)
    }

    /// The next one's peer, with how long it has been silent.
    fn look(&mut self, now: Nanos) -> Option<(Rank, Nanos)> {
        if self.cursor >= self.places.len() {
            self.cursor = 0;
        }
        let parked = self.places.get(self.cursor)?;
        self.cursor += 1;
        Some((parked.peer, parked.silence(now)))
    }
}

impl Endpoint {
    /// A link to a peer that has none, or whose link is parked.
    pub(super) fn open(&mut self, now: Nanos, peer: Rank) -> u32 {
        let at = self.peers[peer as usize];
        let (peers, config) = (&mut self.peers, &self.config);
        let parked = match at {
            NONE => None,
            at => self.lot.remove(at & !PARKED, |peer, place| {
                peers[peer as usize] = PARKED | place;
            }),
        };
        let (link, due) = match &parked {
            None => {
                let link = Link::new(now, peer, config);
                let due = link.due_when_idle(now, config);
                (link, due)
            }
            // Should it have been opened for a probe only, that is soon over.
            Some(parked) => (Link::reopen(now, parked, config), now + config.min_timeout),
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
            self.crowded += 2;
        }
        index
    }

    fn open_links(&self) -> usize {
        self.links.len() - self.free.len()
    }

    /// Parks a link if it can be and has been quiet since `quiet_since`. Whether it was.
    pub(super) fn park(
        &mut self,
        now: Nanos,
        index: u32,
        quiet_since: Nanos,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        let Some(place) = self.links.get_mut(index as usize) else {
            return false;
        };
        let can = |link: &mut Box<Link>| link.active_at <= quiet_since && link.is_parkable();
        let Some(link) = place.take_if(can) else {
            return false;
        };
        self.gone += &link.counters;
        self.gone.parked += 1;
        let peers = &mut self.peers;
        let place = self
            .lot
            .push(now, link.park(), &self.config, |peer, place| {
                peers[peer as usize] = PARKED | place;
            });
        peers[link.peer as usize] = PARKED | place;
        self.timers.remove(index);
        self.free.push(index);
        handler.link_idle(link.peer);
        let (open, places) = (self.open_links(), self.links.len());
        if open == 0 || (places > FEW && open < places / 4) {
            self.compact();
        }
        true
    }

    /// Gives open links new places, without gaps, so that the tables take no more memory than they need.
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

    /// There are more open links than there should be: looks at some in turn, and parks those that are idle just now.
    pub(super) fn make_room(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        let quiet_since = now.saturating_sub(self.config.min_timeout);
        for _ in 0..std::mem::take(&mut self.crowded).min(self.links.len()) {
            if self.open_links() <= self.config.open_links {
                return;
            }
            self.hand += 1;
            if self.hand >= self.links.len() {
                self.hand = 0;
            }
            self.park(now, self.hand as u32, quiet_since, handler);
        }
    }

    /// Looks at parked links, if it is time to.
    pub(super) fn look_at_parked(&mut self, now: Nanos) {
        let Some(due) = self.lot.timeout().filter(|&due| due <= now) else {
            return;
        };
        let pause = self.lot.pause(&self.config);
        self.lot.next_look = now + pause;
        let late = 1 + (now - due) / pause;
        let looks = late.saturating_mul(self.lot.at_once(pause, &self.config));
        for _ in 0..looks.min(MOST_AT_ONCE) {
            let Some((peer, silence)) = self.lot.look(now) else {
                return;
            };
            if silence < self.config.keep_alive() / 2 {
                continue;
            }
            let index = self.open(now, peer);
            if let Some(link) = self.links[index as usize].as_deref_mut() {
                link.liveness.ask(now);
                self.queues.enter(Turn::Control, index, link);
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

    fn parked(peer: Rank) -> Parked {
        Link::new(TIME, peer, &Config::default()).park()
    }

    proptest! {
        /// Each is found where it was said to be, and none is looked at twice before all others that were there were looked at.
        #[test]
        fn each_is_looked_at_in_its_turn(steps in prop::collection::vec((0u8..4, 0usize..100), 1..400)) {
            let config = Config::default();
            let (mut lot, mut places) = (Lot::default(), BTreeMap::<Rank, u32>::new());
            // Those that were there and have not been looked at since the turn began.
            let (mut waiting, mut peers) = (Vec::new(), 0..);
            for (what, which) in steps {
                match what {
                    0 | 1 => {
                        let peer = peers.next().unwrap_or(0);
                        // Heard long ago, it is to be looked at in this turn; heard just now, in the next one.
                        let now = if which % 2 == 0 { TIME } else { TIME + config.dead_time };
                        let place = lot.push(now, parked(peer), &config, |peer, place| {
                            places.insert(peer, place);
                        });
                        places.insert(peer, place);
                        if now > TIME {
                            waiting.push(peer);
                        }
                    }
                    2 => {
                        let Some((&peer, &place)) = places.iter().nth(which % places.len().max(1)) else { continue };
                        places.remove(&peer);
                        waiting.retain(|&other| other != peer);
                        let removed = lot.remove(place, |peer, place| {
                            places.insert(peer, place);
                        });
                        prop_assert_eq!(removed.map(|parked| parked.peer), Some(peer));
                    }
                    _ => {
                        if waiting.is_empty() {
                            waiting = places.keys().copied().collect();
                        }
                        let looked = lot.look(TIME + (5 << 20));
                        prop_assert_eq!(looked.is_none(), places.is_empty());
                        if let Some((peer, silence)) = looked {
                            prop_assert_eq!(silence, 5 << 20);
                            prop_assert!(waiting.contains(&peer), "{} is looked at again, {:?} wait", peer, waiting);
                            waiting.retain(|&other| other != peer);
                        }
                    }
                }
                prop_assert_eq!(lot.places.len(), places.len());
                prop_assert!(lot.places.capacity() <= 2 * places.len() + 2);
                for (&peer, &place) in &places {
                    prop_assert_eq!(lot.get(place).map(|parked| parked.peer), Some(peer));
                }
            }
        }
    }
}
