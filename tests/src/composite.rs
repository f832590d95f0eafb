//! Jobs over several hosts within one process. Each host has an intra-host network, and the
//! reference network connects the hosts.

use std::collections::BTreeMap;

use conduit_core::ni::{Capabilities, Ni, Rank};
use conduit_core::threads::Mode;
use networks::composite::Composite;

use crate::reference::Reference;

/// The distribution of ranks over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Neighbours in the job share a host: 0 and 1, 2 and 3 …
    Pairs,
    /// Even ranks on one host, odd ranks on another.
    Alternating,
    /// Rank 0 on a host of its own, all others on one.
    FirstAlone,
    /// Each rank on a host of its own.
    Alone,
}

impl Hosts {
    /// All distributions.
    pub const ALL: [Self; 4] = [
        Self::Pairs,
        Self::Alternating,
        Self::FirstAlone,
        Self::Alone,
    ];

    /// Returns the host of a rank.
    pub fn of(self, rank: Rank) -> u32 {
        match self {
            Self::Pairs => rank / 2,
            Self::Alternating => rank % 2,
            Self::FirstAlone => rank.min(1),
            Self::Alone => rank,
        }
    }

    /// Returns the distribution's name, for names of tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Alternating => "alternating",
            Self::FirstAlone => "first_alone",
            Self::Alone => "alone",
        }
    }
}

/// Starts all ranks of a job and returns their ends. `intra` starts the network of a host with the
/// given number of ranks.
///
/// # Errors
/// Returns the errors of `intra` and of the composite network.
pub fn job<Intra: Ni, M: Mode>(
    ranks: u32,
    hosts: Hosts,
    intra: impl Fn(u32) -> Result<Vec<Intra>, String>,
) -> Result<Vec<Composite<Intra, Reference, M>>, String> {
    job_over(ranks, hosts, Capabilities::REMOTE_COMPLETION, intra)
}

/// Like [`job`], with an inter-host network of these capabilities.
///
/// # Errors
/// Those of [`job`].
pub fn job_over<Intra: Ni, M: Mode>(
    ranks: u32,
    hosts: Hosts,
    capabilities: Capabilities,
    intra: impl Fn(u32) -> Result<Vec<Intra>, String>,
) -> Result<Vec<Composite<Intra, Reference, M>>, String> {
    let mut members: BTreeMap<u32, Vec<Rank>> = BTreeMap::new();
    for rank in 0..ranks {
        members.entry(hosts.of(rank)).or_default().push(rank);
    }
    let mut intra_ends = BTreeMap::new();
    for ranks in members.values() {
        let ends = intra(ranks.len() as u32)?;
        intra_ends.extend(ranks.iter().copied().zip(ends));
    }
    intra_ends
        .into_iter()
        .zip(Reference::job_of(ranks, capabilities))
        .map(|((rank, intra), inter)| {
            let neighbours = members[&hosts.of(rank)].clone();
            Composite::new(intra, inter, neighbours).map_err(|error| error.to_string())
        })
        .collect()
}
