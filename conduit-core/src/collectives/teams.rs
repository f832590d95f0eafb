//! The creation of teams from the ranks of a parent team, and the destruction of teams.
//!
//! In a gather to all, each rank of the parent states how it takes part. From these statements each
//! rank determines the members of its own new team without further messages. Finally, a barrier of
//! the parent ensures that all members of a new team have entered it before any of them uses it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::collectives::CollectiveSync;
use crate::collectives::{CollectiveKind, Members, Team, TeamId};
use crate::engine::{Calls, subject};
use crate::kernel::error::Result;
use crate::kernel::{Completion, Handle};
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

const OPERATION: &str = "team_create";

/// The way in which a rank takes part in the creation of teams.
#[derive(Clone, Copy, Debug)]
pub enum Join<'a> {
    /// The rank becomes a member of no new team.
    None,
    /// The rank joins the team of all ranks that pass the same color. The members are ordered by
    /// key, and by their rank in the parent if their keys are equal.
    Color {
        /// The team's color.
        color: u32,
        /// The rank's sort key.
        key: i32,
    },
    /// The rank joins the team of these job ranks, in this order. The caller must be one of them,
    /// and all of them must pass the same list.
    Members(&'a [Rank]),
}

/// A rank's contribution to the gather among the ranks of the parent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Told {
    how: u32,
    /// The color, or the checksum of the member list.
    which: u32,
    key: i32,
    /// The count for the [`TeamId`] of the new team. It is used if this rank is the first member of
    /// that team.
    count: u32,
}

impl Told {
    const NONE: u32 = 0;
    const COLOR: u32 = 1;
    const MEMBERS: u32 = 2;

    fn new(join: Join<'_>, count: u32) -> Self {
        let (how, which, key) = match join {
            Join::None => (Self::NONE, 0, 0),
            Join::Color { color, key } => (Self::COLOR, color, key),
            Join::Members(members) => (Self::MEMBERS, checksum(members), members.len() as i32),
        };
        Self {
            how,
            which,
            key,
            count,
        }
    }
}

/// Returns the FNV-1a checksum of a list. Different lists are unlikely to have the same checksum.
fn checksum(members: &[Rank]) -> u32 {
    let bytes = members.as_bytes().iter();
    bytes.fold(0x811c_9dc5, |sum, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Collectives> {
    /// Creates teams from the ranks of `parent`. Returns the new team that contains this rank, or
    /// `None` if this rank joined no team. Waits until all ranks of the parent have made this call.
    /// The new team may be used as soon as the call returns.
    ///
    /// Collective over the parent. A team takes 4 bytes of memory per member (8 if the members are
    /// not in ascending order), plus about 700 bytes.
    ///
    /// # Errors
    /// If the parent does not exist; if the list contains a rank twice, contains a rank outside the
    /// parent, or lacks this rank; or if ranks passed different lists. The other ranks are not
    /// informed of the error.
    pub fn team_create(self, parent: TeamId, join: Join<'_>) -> Result<Option<Team>> {
        let from = self
            .engine
            .collectives
            .team(self.kernel(), OPERATION, parent)?;
        if let Join::Members(members) = join {
            self.check_members(&from, members)?;
        }
        let own = Told::new(join, self.engine.collectives.name());
        let mut told = vec![own; from.size as usize];
        let (to, bytes) = (told.as_mut_bytes().as_mut_ptr(), size_of::<Told>());
        let source = own.as_bytes().as_ptr();
        // SAFETY: both buffers live until the wait below has completed the operation, or has failed
        // and thereby ended all access to them.
        let gathered = unsafe {
            self.move_nb(
                parent,
                CollectiveKind::GatherAll,
                to,
                source,
                bytes,
                CollectiveSync::default(),
                Completion::Handle,
            )?
        };
        self.engine.rma().wait_in(OPERATION, gathered)?;
        let team = self.team_of(&from, join, &told)?;
        if let Some(team) = &team {
            self.engine.collectives.enter(team.clone());
        }
        self.team_meet(OPERATION, parent)?;
        Ok(team)
    }

    /// Determines this rank's team from the entries of the parent's ranks.
    fn team_of(self, parent: &Team, join: Join<'_>, told: &[Told]) -> Result<Option<Team>> {
        let ranks: Box<[Rank]> = match join {
            Join::None => return Ok(None),
            Join::Color { color, .. } => {
                let alike = |told: &&Told| told.how == Told::COLOR && told.which == color;
                let with = (0..).zip(told).filter(|(_, told)| alike(told));
                let mut with: Vec<(u32, &Told)> = with.collect();
                with.sort_by_key(|(_, told)| told.key);
                let ranks = with.iter().filter_map(|&(rank, _)| parent.to_job(rank));
                ranks.collect()
            }
            Join::Members(members) => {
                let own = Told::new(join, 0);
                for &member in members {
                    let told = self.told_by(parent, told, member)?;
                    if (told.how, told.which, told.key) != (own.how, own.which, own.key) {
                        let reason = format!("rank {member} passed different members");
                        return Err(self.refused(OPERATION, reason));
                    }
                }
                members.into()
            }
        };
        let place = ranks.iter().position(|&rank| rank == self.job().rank);
        let (Some(place), Some(&first)) = (place, ranks.first()) else {
            return Err(self.refused(OPERATION, "this rank is not one of the members".to_owned()));
        };
        let count = self.told_by(parent, told, first)?.count;
        Ok(Some(Team {
            id: TeamId { first, count },
            rank: place as u32,
            size: ranks.len() as u32,
            members: Members::these(ranks),
        }))
    }

    fn told_by<'a>(self, parent: &Team, told: &'a [Told], rank: Rank) -> Result<&'a Told> {
        let place = parent.from_job(rank);
        place
            .and_then(|place| told.get(place as usize))
            .ok_or_else(|| {
                self.refused(OPERATION, format!("rank {rank} is not in the parent team"))
            })
    }

    fn check_members(self, parent: &Team, members: &[Rank]) -> Result<()> {
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = format!("rank {} occurs twice in the list of members", twice[0]);
            return Err(self.refused(OPERATION, reason));
        }
        if let Some(rank) = members
            .iter()
            .find(|rank| parent.from_job(**rank).is_none())
        {
            let reason = format!("rank {rank} is not in the parent team");
            return Err(self.refused(OPERATION, reason));
        }
        match members.contains(&self.job().rank) {
            true => Ok(()),
            false => Err(self.refused(OPERATION, "this rank is not one of the members".to_owned())),
        }
    }

    /// Returns a team of which this rank is a member.
    ///
    /// # Errors
    /// If this rank is not a member of the team.
    pub fn team(self, team: TeamId) -> Result<Team> {
        self.engine.collectives.team(self.kernel(), "team", team)
    }

    /// Leaves a team that has no operations in flight at this rank. The call does not wait for the
    /// other ranks of the team, which may leave at any time.
    ///
    /// # Errors
    /// If the team does not exist, the team is that of all ranks, or operations are in flight.
    pub fn team_destroy(self, team: TeamId) -> Result<()> {
        self.job().check_process()?;
        self.engine
            .collectives
            .leave(self.kernel(), "team_destroy", team)
    }

    /// Performs a barrier of a team as a part of another call. Errors name that call, `operation`,
    /// unless the team is that of all ranks.
    pub fn team_meet(self, operation: &'static str, team: TeamId) -> Result<()> {
        if team == TeamId::JOB {
            return self.engine.barriers().team_barrier();
        }
        let started: Handle = self.barrier_nb(team)?;
        self.engine.rma().wait_in(operation, started)
    }
}
