//! The communication patterns of the original conduit's own credit benchmark.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A pattern of partners. Every rotation gives each sender another set of partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each rank sends to two later ranks, separated by a gap that grows with the rotation.
    Chain,
    /// Each even rank sends to one odd rank, and odd ranks only poll.
    Oddpoll,
    /// Two ranks send to each other.
    Pairs,
}

impl Pattern {
    /// Returns the ranks that `rank` sends to.
    pub fn partners(self, rank: u32, ranks: u32, rotation: u32) -> Vec<u32> {
        let mut partners = match self {
            Pattern::Chain => {
                let gap = 1 + rotation % (ranks - 1);
                vec![(rank + gap) % ranks, (rank + 2 * gap) % ranks]
            }
            Pattern::Oddpoll if rank % 2 == 1 => Vec::new(),
            Pattern::Oddpoll => vec![(rank + 1 + 2 * rotation) % ranks],
            // All ranks but the last are paired so that each pair has the same sum modulo an odd
            // number. That leaves one rank unpaired, which is paired with the last rank.
            Pattern::Pairs => {
                let odd = ranks - 1;
                let sum = rotation % odd;
                let alone = (0..odd).find(|&rank| 2 * rank % odd == sum);
                if rank == odd {
                    alone.into_iter().collect()
                } else if alone == Some(rank) {
                    vec![odd]
                } else {
                    vec![(sum + odd - rank) % odd]
                }
            }
        };
        partners.retain(|&partner| partner != rank);
        partners.dedup();
        partners
    }

    /// Returns the number of ranks that send to `rank`.
    pub fn senders(self, rank: u32, ranks: u32, rotation: u32) -> u64 {
        let aims = |from: &u32| self.partners(*from, ranks, rotation).contains(&rank);
        (0..ranks).filter(aims).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sends_to_itself_and_rotations_differ() {
        for pattern in [Pattern::Chain, Pattern::Oddpoll, Pattern::Pairs] {
            for ranks in [2, 4, 8, 16, 32] {
                for rotation in 0..5 {
                    let all: Vec<_> = (0..ranks)
                        .map(|rank| pattern.partners(rank, ranks, rotation))
                        .collect();
                    assert!((0..ranks).all(|rank| !all[rank as usize].contains(&rank)));
                    let sent: usize = all.iter().map(Vec::len).sum();
                    let received: u64 = (0..ranks)
                        .map(|rank| pattern.senders(rank, ranks, rotation))
                        .sum();
                    assert!(sent > 0 && sent as u64 == received);
                    let next: Vec<_> = (0..ranks)
                        .map(|rank| pattern.partners(rank, ranks, rotation + 1))
                        .collect();
                    assert!(ranks <= 4 || all != next, "{pattern:?} {ranks} {rotation}");
                }
            }
        }
    }

    #[test]
    fn pairs_are_mutual() {
        for rotation in 0..20 {
            for rank in 0..16 {
                let [partner] = Pattern::Pairs.partners(rank, 16, rotation)[..] else {
                    panic!("rank {rank} has no partner in rotation {rotation}");
                };
                assert_eq!(Pattern::Pairs.partners(partner, 16, rotation), [rank]);
            }
        }
    }
}
