//! The hosts of a job, and the ranks that share memory on each.

use std::collections::{HashMap, HashSet};

use conduit_core::ni::Rank;
use conduit_shm::job::Stranger;

/// The hosts of a job, which are numbered in the order of their first ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// The number of each rank's host. This takes 4 bytes per rank.
    of: Box<[u32]>,
    /// The name of each host.
    names: Box<[String]>,
    rank: Rank,
}

impl Hosts {
    /// Creates the hosts of a job from the host name of each rank. `rank` is the calling rank.
    pub fn new<'a>(rank: Rank, hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let number = |host| {
            *numbers.entry(host).or_insert_with(|| {
                names.push(host.to_owned());
                (names.len() - 1) as u32
            })
        };
        let of: Box<[u32]> = hosts.into_iter().map(number).collect();
        assert!((rank as usize) < of.len(), "rank {rank} of {}", of.len());
        Self {
            of,
            names: names.into(),
            rank,
        }
    }

    /// Returns the number of hosts of the job.
    pub fn count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Returns the number of a rank's host, which is less than [`count`](Self::count).
    pub fn host_of(&self, rank: Rank) -> Option<u32> {
        self.of.get(rank as usize).copied()
    }

    /// Returns a host's name.
    pub fn name(&self, host: u32) -> &str {
        self.names.get(host as usize).map_or("", String::as_str)
    }

    /// Splits hosts on which some ranks cannot share memory with each other. Each rank, in order,
    /// joins the first part whose ranks can all share memory with it. From then on, the parts count
    /// as hosts. All ranks compute the same result.
    pub(crate) fn split(&mut self, strangers: &[Stranger]) {
        let apart: HashSet<_> = strangers
            .iter()
            .flat_map(|s| [(s.rank, s.peer), (s.peer, s.rank)])
            .collect();
        let mut parts: Vec<(u32, Vec<Rank>)> = Vec::new();
        let mut of = Vec::with_capacity(self.of.len());
        for (rank, host) in (0..).zip(&self.of) {
            let fits = |(of, ranks): &(u32, Vec<Rank>)| {
                of == host && !ranks.iter().any(|peer| apart.contains(&(rank, *peer)))
            };
            let part = parts.iter().position(fits).unwrap_or(parts.len());
            if part == parts.len() {
                parts.push((*host, Vec::new()));
            }
            parts[part].1.push(rank);
            of.push(part as u32);
        }
        let name = |(number, (host, _)): (usize, &(u32, Vec<Rank>))| {
            let before = parts[..number].iter().filter(|(of, _)| of == host).count();
            match before {
                0 => self.name(*host).to_owned(),
                before => format!("{} (part {})", self.name(*host), before + 1),
            }
        };
        self.names = parts.iter().enumerate().map(name).collect();
        self.of = of.into();
    }

    /// Returns the ranks of this rank's host in ascending order.
    pub fn members(&self) -> impl Iterator<Item = Rank> + '_ {
        let own = self.of[self.rank as usize];
        (0..)
            .zip(&self.of)
            .filter(move |(_, host)| **host == own)
            .map(|(rank, _)| rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_first_ranks() {
        let seen = |rank| {
            let hosts = Hosts::new(rank, ["b", "a", "b", "b"]);
            assert_eq!((hosts.count(), &*hosts.of), (2, &[0, 1, 0, 0][..]));
            assert_eq!((hosts.name(0), hosts.name(1)), ("b", "a"));
            hosts.members().collect::<Vec<_>>()
        };
        assert_eq!(seen(1), [1]);
        assert_eq!(seen(3), [0, 2, 3]);
    }

    #[test]
    fn who_can_not_share_memory_is_on_a_host_of_its_own() {
        let strangers = [(2, 0), (3, 2), (2, 4)].map(|(rank, peer)| Stranger {
            rank,
            peer,
            reason: String::new(),
        });
        let seen = |rank| {
            let mut hosts = Hosts::new(rank, ["a", "b", "a", "a", "a"]);
            hosts.split(&strangers);
            assert_eq!(&*hosts.of, &[0, 1, 2, 0, 0]);
            assert_eq!(&*hosts.names, &["a", "b", "a (part 2)"]);
            hosts.members().collect::<Vec<_>>()
        };
        assert_eq!(seen(1), [1]);
        assert_eq!(seen(2), [2]);
        assert_eq!(seen(4), [0, 3, 4]);
    }
}
