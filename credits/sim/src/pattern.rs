//! Communication patterns, which say which ranks send how much to which other ranks.

use clap::ValueEnum;
use serde::Serialize;
use sim::random::Rng;

use crate::{Config, ConfigError};

/// A communication pattern. Within a *rotation*, every step repeats the same pattern; the next
/// rotation has different partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// A 3-D torus in which each rank sends to its six face neighbours; a rotation renumbers the
    /// ranks
    Ghost,
    /// Binomial trees, with a reduction to the root and a broadcast from it; a rotation renumbers
    /// the ranks
    Tree,
    /// Each rank sends to the next FAN ranks, one message to each in turn; a rotation moves the
    /// partners on by FAN
    Alltoall,
    /// All ranks send to HOT ranks; a rotation makes the next ranks the hot ones
    Hotspot,
    /// Each rank sends to the next FAN ranks at distances of GAP; a rotation moves the partners on
    Chain,
    /// Even ranks send to the next FAN odd ranks at distances of 2 GAP, and odd ranks only poll; a
    /// rotation moves the partners on
    Oddpoll,
    /// Pairs of ranks send to each other; a rotation renumbers the ranks
    Pairs,
}

impl Pattern {
    /// Returns the pattern's name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The amount of traffic. Values that a pattern does not use are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// The number of requests that a rank sends to each partner in a step (with trees, in each
    /// collective).
    pub messages: u32,
    /// The size of a request, in credits of 256 bytes.
    pub cost: u8,
    /// The number of partners of a rank.
    pub fan: u32,
    /// The distance between the numbers of successive partners.
    pub gap: u32,
    /// The number of ranks to which all others send.
    pub hot: u32,
    /// The number of collectives in a step.
    pub repeat: u32,
    /// Whether a rank sends one request to each partner in turn, rather than all requests to the
    /// first partner, then all to the second, and so on.
    pub interleave: bool,
}

impl Load {
    /// Returns the default load of a pattern. That of the ghost zones is the load in the scheme's
    /// example.
    #[must_use]
    pub fn default_for(pattern: Pattern, ranks: u32) -> Load {
        let load = Load {
            messages: 100,
            cost: 4,
            fan: 4,
            gap: 1,
            hot: (ranks / 1000).max(1),
            repeat: 8,
            interleave: false,
        };
        match pattern {
            Pattern::Ghost => Load {
                messages: 160,
                ..load
            },
            Pattern::Tree => Load {
                messages: 16,
                ..load
            },
            Pattern::Alltoall => Load {
                messages: 4,
                fan: ranks.saturating_sub(1).clamp(1, 64),
                interleave: true,
                ..load
            },
            Pattern::Hotspot => Load {
                messages: 16,
                ..load
            },
            Pattern::Chain | Pattern::Oddpoll | Pattern::Pairs => load,
        }
    }

    pub(crate) fn check(&self, ranks: u32) -> Result<(), ConfigError> {
        let bad = |setting, value: f64, must| {
            Err(ConfigError::OutOfRange {
                setting,
                value,
                must,
            })
        };
        if self.messages == 0 || self.messages > 1_000_000 {
            return bad("messages per partner", self.messages.into(), "1 to 1000000");
        }
        if self.cost == 0 || self.cost > 8 {
            return bad("credits per request", self.cost.into(), "1 to 8");
        }
        if self.fan == 0 || self.fan > 100_000 {
            return bad("partners (fan)", self.fan.into(), "1 to 100000");
        }
        if self.gap == 0 {
            return bad("the gap", 0.0, "at least 1");
        }
        if self.hot == 0 || self.hot > ranks {
            return bad(
                "hot ranks",
                self.hot.into(),
                "at least 1 and at most the ranks",
            );
        }
        if self.repeat == 0 || self.repeat > 10_000 {
            return bad("collectives per step", self.repeat.into(), "1 to 10000");
        }
        // The number of requests that a rank sends in a step must fit into 32 bits. With trees, so
        // must the number that it serves, from up to 20 children.
        let times = u64::from(self.fan).max(20 * u64::from(self.repeat));
        if u64::from(self.messages) * times > u32::MAX.into() {
            return bad(
                "messages per partner",
                self.messages.into(),
                "at most 2^32 - 1 in a step, to all partners or in all collectives",
            );
        }
        Ok(())
    }
}

/// One action of a rank in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Sends one request to each of `partners`, `rounds` times.
    Send { partners: Span, rounds: u32 },
    /// Waits until this many requests have been served since the start of the step.
    Await(u32),
}

/// A range of a list's indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn of<T>(self, list: &[T]) -> &[T] {
        &list[self.start as usize..self.end as usize]
    }
}

/// The actions of all ranks in each step of a rotation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    pub(crate) ops: Vec<Op>,
    /// The partners, to which [`Op::Send`] refers.
    pub(crate) targets: Vec<u32>,
    /// Each rank's operations.
    pub(crate) ranks: Vec<Span>,
}

impl Programs {
    pub(crate) fn new(config: &Config, rotation: u32) -> Programs {
        let mut programs = Programs {
            ranks: vec![Span::default(); config.ranks as usize],
            ..Programs::default()
        };
        match config.pattern {
            Pattern::Ghost => programs.ghost(config, rotation),
            Pattern::Tree => programs.trees(config, rotation),
            Pattern::Pairs => {
                let ranks = renumbering(config, rotation);
                programs.each(config, |position, out| {
                    out.extend(ranks.get((position ^ 1) as usize));
                    ranks[position as usize]
                });
            }
            Pattern::Alltoall => {
                let (n, fan) = (u64::from(config.ranks), u64::from(config.load.fan));
                let fan = fan.min(n - 1);
                programs.each(config, |rank, out| {
                    out.extend((0..fan).map(|i| {
                        let distance = 1 + (i + u64::from(rotation) * fan) % (n - 1);
                        ((u64::from(rank) + distance) % n) as u32
                    }));
                    rank
                });
            }
            Pattern::Hotspot => {
                let (n, hot) = (config.ranks, config.load.hot);
                // Hot ranks are as far from each other as possible.
                let hot_rank = |number: u32| (number * (n / hot) + rotation) % n;
                let mut is_hot = vec![false; n as usize];
                (0..hot).for_each(|number| is_hot[hot_rank(number) as usize] = true);
                programs.each(config, |rank, out| {
                    if !is_hot[rank as usize] {
                        out.push(hot_rank(rank % hot));
                    }
                    rank
                });
            }
            Pattern::Chain => {
                let n = u64::from(config.ranks);
                let (fan, gap) = (u64::from(config.load.fan), u64::from(config.load.gap));
                programs.each(config, |rank, out| {
                    let first = u64::from(rotation) * fan;
                    let all = (0..fan).map(|i| (u64::from(rank) + gap * (1 + first + i)) % n);
                    out.extend(all.map(|target| target as u32).filter(|&to| to != rank));
                    rank
                });
            }
            Pattern::Oddpoll => {
                let odd = u64::from(config.ranks / 2);
                let (fan, gap) = (u64::from(config.load.fan), u64::from(config.load.gap));
                programs.each(config, |rank, out| {
                    if rank % 2 == 0 && odd > 0 {
                        let first = u64::from(rotation) * fan;
                        let all = (0..fan).map(|i| (u64::from(rank / 2) + gap * (first + i)) % odd);
                        out.extend(all.map(|number| 2 * number as u32 + 1));
                    }
                    rank
                });
            }
        }
        programs
    }

    /// Returns the number of requests that all ranks send in a step.
    pub(crate) fn requests(&self) -> u64 {
        let sends = self.ops.iter().map(|op| match op {
            Op::Send { partners, rounds } => {
                u64::from(partners.end - partners.start) * u64::from(*rounds)
            }
            Op::Await(_) => 0,
        });
        sends.sum()
    }

    /// Returns the partners to which a rank sends.
    pub(crate) fn partners(&self, rank: u32) -> impl Iterator<Item = u32> {
        let ops = self.ranks[rank as usize].of(&self.ops).iter();
        ops.flat_map(|op| match op {
            Op::Send { partners, .. } => partners.of(&self.targets),
            Op::Await(_) => &[],
        })
        .copied()
    }

    /// Gives every rank a program that sends to its partners. For a position, `of` writes the
    /// partners to the list and returns the rank at that position.
    fn each(&mut self, config: &Config, of: impl Fn(u32, &mut Vec<u32>) -> u32) {
        let mut partners = Vec::new();
        for position in 0..config.ranks {
            partners.clear();
            let rank = of(position, &mut partners);
            let first = self.ops.len();
            self.send_to_each(&partners, config);
            self.end(rank, first);
        }
    }

    fn send_to_each(&mut self, partners: &[u32], config: &Config) {
        if config.load.interleave {
            self.send(partners, config.load.messages);
        } else {
            for one in partners.chunks(1) {
                self.send(one, config.load.messages);
            }
        }
    }

    fn send(&mut self, partners: &[u32], rounds: u32) {
        if !partners.is_empty() {
            let start = self.targets.len() as u32;
            self.targets.extend(partners);
            let end = self.targets.len() as u32;
            let partners = Span { start, end };
            self.ops.push(Op::Send { partners, rounds });
        }
    }

    /// Makes the actions from index `first` on the program of `rank`.
    fn end(&mut self, rank: u32, first: usize) {
        self.ranks[rank as usize] = Span {
            start: first as u32,
            end: self.ops.len() as u32,
        };
    }

    fn ghost(&mut self, config: &Config, rotation: u32) {
        let ranks = renumbering(config, rotation);
        let [nx, ny, nz] = torus(config.ranks);
        let at = |x: u32, y: u32, z: u32| ranks[(((z % nz) * ny + y % ny) * nx + x % nx) as usize];
        self.each(config, |position, out| {
            let (x, y, z) = (position % nx, position / nx % ny, position / nx / ny);
            let own = at(x, y, z);
            let faces = [
                at(x + nx - 1, y, z),
                at(x + 1, y, z),
                at(x, y + ny - 1, z),
                at(x, y + 1, z),
                at(x, y, z + nz - 1),
                at(x, y, z + 1),
            ];
            // In a direction in which the torus is one rank wide, a rank is its own neighbour and
            // needs no message.
            out.extend(faces.into_iter().filter(|&rank| rank != own));
            own
        });
    }

    fn trees(&mut self, config: &Config, rotation: u32) {
        let ranks = renumbering(config, rotation);
        let (n, messages) = (config.ranks, config.load.messages);
        for position in 0..n {
            // The children's positions are the sums of `position` and each power of two below its
            // lowest set bit.
            let below = |bit: &u32| position == 0 || *bit < 1 << position.trailing_zeros();
            let bits = (0..32).map(|power| 1u32 << power).take_while(below);
            let children: Vec<u32> = bits
                .map_while(|bit| position.checked_add(bit).filter(|&child| child < n))
                .map(|child| ranks[child as usize])
                .collect();
            let parent = (position != 0).then(|| ranks[(position & (position - 1)) as usize]);
            let from_children = children.len() as u32 * messages;
            let from_parent = if parent.is_some() { messages } else { 0 };

            let first = self.ops.len();
            let mut received = 0;
            for _ in 0..config.load.repeat {
                received += from_children;
                self.ops.push(Op::Await(received));
                if let Some(parent) = parent {
                    self.send(&[parent], messages);
                    received += from_parent;
                    self.ops.push(Op::Await(received));
                }
                // The child with the largest subtree is sent to first.
                for child in children.iter().rev() {
                    self.send(&[*child], messages);
                }
            }
            self.end(ranks[position as usize], first);
        }
    }
}

/// Returns the rank at each position. In the first rotation, this is the identity; in each later
/// one, it is a random permutation.
fn renumbering(config: &Config, rotation: u32) -> Vec<u32> {
    let mut ranks: Vec<u32> = (0..config.ranks).collect();
    if rotation > 0 {
        Rng::with_seed(config.seed ^ u64::from(rotation) << 32).shuffle(&mut ranks);
    }
    ranks
}

/// Returns the sides of a torus of `ranks` ranks in ascending order. The torus is as near to a cube
/// as the factors of `ranks` allow.
fn torus(ranks: u32) -> [u32; 3] {
    let divisors = |n: u32| (1..=n.isqrt()).filter(move |side| n.is_multiple_of(*side));
    let mut best = [1, 1, ranks];
    for x in divisors(ranks).filter(|&x| x <= ranks / x / x) {
        let rest = ranks / x;
        if let Some(y) = divisors(rest).rfind(|&y| y >= x) {
            let sides = [x, y, rest / y];
            if sides[2] - sides[0] < best[2] - best[0] {
                best = sides;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn config(pattern: Pattern, ranks: u32) -> Config {
        Config::new(ranks, pattern)
    }

    #[test]
    fn tori_are_near_cubes() {
        assert_eq!(torus(27), [3, 3, 3]);
        assert_eq!(torus(1024), [8, 8, 16]);
        assert_eq!(torus(10_000), [20, 20, 25]);
        assert_eq!(torus(100_000), [40, 50, 50]);
        assert_eq!(torus(7), [1, 1, 7]);
        assert_eq!(torus(1), [1, 1, 1]);
    }

    #[test]
    fn ghost_neighbours_are_mutual() {
        for rotation in 0..3 {
            let config = config(Pattern::Ghost, 60);
            let programs = Programs::new(&config, rotation);
            let pairs: BTreeSet<(u32, u32)> = (0..60)
                .flat_map(|rank| {
                    let partners: Vec<u32> = programs.partners(rank).collect();
                    assert_eq!(partners.len(), 6);
                    partners.into_iter().map(move |partner| (rank, partner))
                })
                .collect();
            assert!(
                pairs
                    .iter()
                    .all(|&(x, y)| pairs.contains(&(y, x)) && x != y)
            );
            assert_eq!(programs.requests(), 60 * 6 * 160);
        }
    }

    #[test]
    fn a_tree_has_an_edge_less_than_ranks_both_ways() {
        for ranks in [1, 2, 3, 8, 100, 1000] {
            let config = config(Pattern::Tree, ranks);
            for rotation in 0..2 {
                let programs = Programs::new(&config, rotation);
                let once = 2 * u64::from(ranks - 1) * u64::from(config.load.messages);
                assert_eq!(programs.requests(), once * u64::from(config.load.repeat));
            }
        }
    }

    #[test]
    fn what_a_tree_waits_for_is_sent() {
        let config = config(Pattern::Tree, 100);
        let programs = Programs::new(&config, 1);
        let mut sent = vec![0; 100];
        for op in &programs.ops {
            if let Op::Send { partners, rounds } = op {
                for &to in partners.of(&programs.targets) {
                    sent[to as usize] += *rounds;
                }
            }
        }
        for (rank, span) in programs.ranks.iter().enumerate() {
            let last = span.of(&programs.ops).iter().rev().find_map(|op| match op {
                Op::Await(received) => Some(*received),
                Op::Send { .. } => None,
            });
            assert_eq!(last, Some(sent[rank]));
        }
    }

    #[test]
    fn odd_ranks_only_poll() {
        let programs = Programs::new(&config(Pattern::Oddpoll, 11), 2);
        for rank in 0..11 {
            let partners: Vec<u32> = programs.partners(rank).collect();
            assert_eq!(partners.len(), if rank % 2 == 0 { 4 } else { 0 });
            assert!(partners.iter().all(|to| to % 2 == 1 && *to < 11));
        }
    }

    #[test]
    fn pairs_send_to_one_another() {
        for rotation in 0..3 {
            let programs = Programs::new(&config(Pattern::Pairs, 9), rotation);
            let partner = |rank: u32| programs.partners(rank).next();
            let alone = (0..9).filter(|&rank| partner(rank).is_none()).count();
            assert_eq!(alone, 1);
            for rank in 0..9 {
                assert!(partner(rank).is_none_or(|other| partner(other) == Some(rank)));
            }
        }
    }

    proptest! {
        #[test]
        fn partners_are_other_ranks_of_the_job(
            pattern in prop::sample::select(Pattern::value_variants().to_vec()),
            ranks in 1u32..200, rotation in 0u32..5, fan in 1u32..80, gap in 1u32..9, interleave: bool,
        ) {
            let mut config = config(pattern, ranks);
            config.load = Load { fan, gap, interleave, ..config.load };
            let programs = Programs::new(&config, rotation);
            for rank in 0..ranks {
                prop_assert!(programs.partners(rank).all(|to| to < ranks && to != rank));
            }
        }

        #[test]
        fn rotations_change_the_partners(
            pattern in prop::sample::select(Pattern::value_variants().to_vec()), ranks in 50u32..200,
        ) {
            let mut config = config(pattern, ranks);
            config.load.fan = 4;
            let partners = |rotation| {
                let programs = Programs::new(&config, rotation);
                (0..ranks).map(|rank| programs.partners(rank).collect()).collect::<Vec<BTreeSet<u32>>>()
            };
            prop_assert_ne!(partners(0), partners(1));
            prop_assert_ne!(partners(1), partners(2));
        }
    }
}
