//! What connects the servers of several hosts.

use std::collections::{BTreeMap, HashSet};

use super::{Departure, Error, Limits, pair_bytes};

/// Merges the pairs of all hosts in each barrier, and notices barriers that cannot complete.
#[derive(Debug)]
pub struct Root {
    hosts: BTreeMap<usize, Host>,
    /// The first rank that has finalized or ended, if any.
    departed: Option<(usize, Departure)>,
    keys: HashSet<String>,
    /// The new pairs of the hosts in the current barrier.
    pairs: Vec<(String, String)>,
    limits: Limits,
    bytes: usize,
}

#[derive(Debug, Clone, Default)]
struct Host {
    /// The first rank of the host.
    first: usize,
    /// A rank of the host that waits in the current barrier.
    waiting: Option<usize>,
    /// Whether all ranks of the host do.
    fenced: bool,
}

impl Root {
    /// Creates a root for these hosts, each given by its number and its first rank. The limits
    /// apply to the pairs of all hosts.
    pub fn new(hosts: impl IntoIterator<Item = (usize, usize)>, limits: Limits) -> Self {
        let host = |(number, first)| {
            let host = Host {
                first,
                ..Host::default()
            };
            (number, host)
        };
        Root {
            hosts: hosts.into_iter().map(host).collect(),
            departed: None,
            keys: HashSet::new(),
            pairs: Vec::new(),
            limits,
            bytes: 0,
        }
    }

    /// Records that a rank of `host` waits in a barrier.
    ///
    /// # Errors
    /// The barrier cannot complete.
    pub fn on_waiting(&mut self, host: usize, rank: usize) -> Result<(), Error> {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.waiting = Some(rank);
        }
        self.check_barrier()
    }

    /// Records that a rank has finalized or ended. Of several departures of a rank only the first
    /// counts.
    ///
    /// # Errors
    /// A rank of another host waits in a barrier that cannot complete any more.
    pub fn on_departed(&mut self, rank: usize, how: Departure) -> Result<(), Error> {
        self.departed.get_or_insert((rank, how));
        for host in self.hosts.values_mut() {
            // The host itself notices if others of its ranks wait.
            host.waiting.take_if(|waiting| *waiting == rank);
        }
        self.check_barrier()
    }

    fn check_barrier(&self) -> Result<(), Error> {
        let waiting = self.hosts.values().find_map(|host| host.waiting);
        match (waiting, self.departed) {
            (Some(waiting), Some((missing, how))) => Err(Error::BrokenBarrier {
                waiting,
                missing,
                how,
            }),
            _ => Ok(()),
        }
    }

    /// Takes new pairs of `host`, which may come in several pieces before the host's fence. If a
    /// key exists already, its first value counts.
    ///
    /// # Errors
    /// The pairs exceed the limit.
    pub fn on_pairs(&mut self, host: usize, pairs: Vec<(String, String)>) -> Result<(), Error> {
        for (key, value) in pairs {
            if self.keys.contains(&key) {
                continue;
            }
            self.bytes += pair_bytes(&key, &value);
            if self.bytes > self.limits.kvs_bytes {
                return Err(Error::Full {
                    rank: self.hosts.get(&host).map_or(0, |host| host.first),
                    limit: self.limits.kvs_bytes,
                });
            }
            self.keys.insert(key.clone());
            self.pairs.push((key, value));
        }
        Ok(())
    }

    /// Records that all ranks of `host` wait in the barrier. If the ranks of all hosts do, returns
    /// the new pairs, which every host has to [store](super::Server::release).
    pub fn on_fence(&mut self, host: usize) -> Option<Vec<(String, String)>> {
        self.hosts.get_mut(&host)?.fenced = true;
        if !self.hosts.values().all(|host| host.fenced) {
            return None;
        }
        for host in self.hosts.values_mut() {
            host.fenced = false;
            host.waiting = None;
        }
        Some(std::mem::take(&mut self.pairs))
    }
}
