//! Teams: ordered sets of ranks that perform collective operations together.

use std::sync::Arc;

use crate::ni::Rank;

/// A team's name. It is the same at all ranks of the team, and no other team of these ranks has it.
/// It consists of the job rank of the team's first member and of a count: the number of names that
/// this member has assigned, including this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TeamId {
    /// The first member's rank in the job.
    pub first: Rank,
    /// The number of names that the first member had assigned when it assigned this one, including
    /// this one. It is 0 for the team of all ranks.
    pub count: u32,
}

impl TeamId {
    /// The team of all ranks of the job.
    pub const JOB: Self = Self { first: 0, count: 0 };
}

/// An ordered set of ranks that perform collective operations together.
#[derive(Clone, Debug)]
pub struct Team {
    /// The team's name.
    pub id: TeamId,
    /// This rank's rank in the team.
    pub rank: u32,
    /// The number of members.
    pub size: u32,
    /// The members.
    pub members: Members,
}

/// The ranks of a team. A list takes 4 bytes of memory per member, or 8 if the members are not in
/// ascending order.
#[derive(Clone, Debug)]
pub enum Members {
    /// All ranks of the job, in job order.
    All,
    /// A list of ranks.
    These(Arc<These>),
}

/// The job rank of each member.
#[derive(Debug)]
pub struct These {
    ranks: Box<[Rank]>,
    /// The indices of `ranks`, sorted by rank. Empty if `ranks` itself is sorted.
    by_rank: Box<[u32]>,
}

impl Members {
    /// Creates a list of job ranks in the given order. No rank may occur twice.
    #[must_use]
    pub fn these(ranks: Box<[Rank]>) -> Self {
        let mut by_rank = Vec::new();
        if !ranks.is_sorted() {
            by_rank.extend(0..ranks.len() as u32);
            by_rank.sort_unstable_by_key(|&place| ranks[place as usize]);
        }
        let by_rank = by_rank.into();
        Self::These(Arc::new(These { ranks, by_rank }))
    }
}

impl Team {
    /// Returns the team of all ranks of a job.
    #[must_use]
    pub fn of_job(rank: Rank, size: u32) -> Self {
        Self {
            id: TeamId::JOB,
            rank,
            size,
            members: Members::All,
        }
    }

    /// Returns the job rank of a team rank, or `None` if the team has no such rank.
    #[must_use]
    pub fn to_job(&self, rank: u32) -> Option<Rank> {
        match &self.members {
            Members::All => (rank < self.size).then_some(rank),
            Members::These(these) => these.ranks.get(rank as usize).copied(),
        }
    }

    /// Returns the team rank of a job rank, or `None` if that rank is not a member.
    #[must_use]
    pub fn from_job(&self, rank: Rank) -> Option<u32> {
        match &self.members {
            Members::All => (rank < self.size).then_some(rank),
            Members::These(these) if these.by_rank.is_empty() => {
                these.ranks.binary_search(&rank).ok().map(|at| at as u32)
            }
            Members::These(these) => {
                let at = |&place: &u32| these.ranks[place as usize];
                let found = these.by_rank.binary_search_by_key(&rank, at).ok()?;
                Some(these.by_rank[found])
            }
        }
    }

    /// Returns the job rank of a team rank, which must be below the team's size.
    pub(super) fn job_rank(&self, rank: u32) -> Rank {
        match &self.members {
            Members::All => rank,
            Members::These(these) => these.ranks[rank as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn translations_go_both_ways(
            ranks in prop::collection::hash_set(any::<Rank>(), 1..40), sorted: bool, other: Rank,
        ) {
            let mut ranks: Vec<Rank> = ranks.into_iter().collect();
            if sorted {
                ranks.sort_unstable();
            }
            let size = ranks.len() as u32;
            let members = Members::these(ranks.clone().into());
            let team = Team { id: TeamId::JOB, rank: 0, size, members };
            for (place, &rank) in (0..).zip(&ranks) {
                prop_assert_eq!(team.to_job(place), Some(rank));
                prop_assert_eq!(team.from_job(rank), Some(place));
            }
            prop_assert_eq!(team.to_job(size), None);
            let place = ranks.iter().position(|&rank| rank == other);
            prop_assert_eq!(team.from_job(other), place.map(|place| place as u32));
        }
    }
}
