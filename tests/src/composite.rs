//! Jobs over several hosts within one process. Each host has an intra-host network, and the
//! reference network connects the hosts.

use std::collections::BTreeMap;

use conduit_core::ni::{Capabilities, Ni, Rank};
use conduit_core::threads::Mode;
use networks::composite::Composite;

use crate::reference::Reference;

/// How the ranks are distributed over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Neighbours in the job share a host: ranks 0 and 1, ranks 2 and 3, and so on.
    Pairs,
    /// Even ranks are on one host, and odd ranks are on another.
    Alternating,
    /// Rank 0 is on a host of its own, and all other ranks share a host.
    FirstAlone,
    /// Each rank is on a host of its own.
    Alone,
}

impl Hosts {
    /// All ways of distributing ranks.
    pub const ALL: [Self; 4] = [
        Self::Pairs,
        Self::Alternating,
        Self::FirstAlone,
        Self::Alone,
    ];

    /// Returns the number of the host on which a rank runs.
    pub fn of(self, rank: Rank) -> u32 {
        match self {
            Self::Pairs => rank / 2,
            Self::Alternating => rank % 2,
            Self::FirstAlone => rank.min(1),
            Self::Alone => rank,
        }
    }

    /// Returns the distribution's name, which is used in names of tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Alternating => "alternating",
            Self::FirstAlone => "first_alone",
            Self::Alone => "alone",
        }
    }
}

/// Starts all ranks of a job and returns their ends. `intra` starts the intra-host network of a
/// host with the given number of ranks.
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

/// Same as [`job`], but the inter-host network has these capabilities.
///
/// # Errors
/// Same as [`job`].
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
