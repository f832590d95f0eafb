//! The idle links of a rank, and the schedule of their checks.

use conduit_core::ni::Rank;
use conduit_portals::compact;

use crate::protocol::config::Config;
use crate::protocol::contract::Nanos;
use crate::protocol::link::IdleLink;

/// The number of steps in a sweep. Each step wakes a sleeping rank.
const SWEEP_STEPS: u64 = 16;
/// The shortest time between steps. A rank with very many idle links checks one link in this time,
/// on average.
const MIN_INTERVAL: Nanos = 1_000_000;
/// The maximum number of idle links checked in one step, even if the step makes up for missed ones.
const MAX_CHECKS: u64 = 256;

/// The idle links of a rank, in one array without gaps.
///
/// Nothing is outstanding to the peer of an idle link, but a rank may wait for that peer to send
/// something, so the peer's death has to be detected. A sweep therefore checks all idle links in a
/// quarter of the keep-alive time, and reopens a link for a probe if its peer has been silent for
/// half of the keep-alive time. One timer serves all idle links. Because links come and go, a sweep
/// may miss a link, but no link is missed by two consecutive sweeps, so every peer is probed within
/// the keep-alive time.
#[derive(Debug, Default)]
pub(super) struct IdleLinks {
    entries: Vec<IdleLink>,
    /// The index of the next entry to check. The entries before it have been checked in this sweep.
    cursor: usize,
    /// When the next check is due, if there are entries.
    next_check: Nanos,
}

/// Returns the time in which a sweep checks all idle links. A sweep over very many links takes
/// longer.
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

    /// Returns when the next check is due.
    pub(super) fn timeout(&self) -> Option<Nanos> {
        (!self.entries.is_empty()).then_some(self.next_check)
    }

    /// Begins the next step of the sweep. Returns the number of links to check, or 0 if the step is
    /// not due.
    pub(super) fn begin_step(&mut self, now: Nanos, config: &Config) -> u64 {
        let Some(due) = self.timeout().filter(|&due| due <= now) else {
            return 0;
        };
        let interval = self.interval(config);
        self.next_check = now + interval;
        let late = 1 + (now - due) / interval;
        let checks = late.saturating_mul(self.checks_per(interval, config));
        checks.min(MAX_CHECKS)
    }

    /// Returns the time between the steps of a sweep.
    fn interval(&self, config: &Config) -> Nanos {
        let checks = (self.entries.len() as u64).clamp(1, SWEEP_STEPS);
        (sweep_time(config) / checks).max(MIN_INTERVAL)
    }

    /// Returns the number of links to check in one step, given the interval between steps.
    fn checks_per(&self, interval: Nanos, config: &Config) -> u64 {
        let share = (self.entries.len() as u64 * interval).div_ceil(sweep_time(config));
        share.min(interval / MIN_INTERVAL).max(1)
    }

    /// Adds a link and returns its index. If another link moves, calls `moved` with the peer and
    /// the new index of that link.
    pub(super) fn push(
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
        // A peer that has just been heard from need not be checked in this sweep.
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

    /// Removes a link. Calls `moved` with the peer and the new index of each other link that moves.
    /// At most two links move.
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
        // Entries already checked in this sweep must precede the others.
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

    /// Returns the peer of the next link, and the time for which the peer has been silent.
    pub(super) fn next(&mut self, now: Nanos) -> Option<(Rank, Nanos)> {
        if self.cursor >= self.entries.len() {
            self.cursor = 0;
        }
        let idle = self.entries.get(self.cursor)?;
        self.cursor += 1;
        Some((idle.peer, idle.silence(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::link::UdpLink;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TIME: Nanos = 1 << 40;

    fn idle_link(peer: Rank) -> IdleLink {
        UdpLink::new(TIME, peer, &Config::default()).to_idle()
    }

    proptest! {
        /// Each link is found at the index that was returned, and none is checked twice before all
        /// others have been checked.
        #[test]
        fn each_is_checked_once_in_a_sweep(steps in prop::collection::vec((0u8..4, 0usize..100), 1..400)) {
            let config = Config::default();
            let (mut links, mut entries) = (IdleLinks::default(), BTreeMap::<Rank, u32>::new());
            // The links not checked since the sweep began.
            let (mut waiting, mut peers) = (Vec::new(), 0..);
            for (what, which) in steps {
                match what {
                    0 | 1 => {
                        let peer = peers.next().unwrap_or(0);
                        // A peer that was last heard from long ago is due in this sweep. A peer
                        // that has just been heard from is due in the next one.
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
                            prop_assert!(waiting.contains(&peer), "{} was checked again before {:?}", peer, waiting);
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
