//! Two networks as one: the ranks of this host by the near network, all others by the far one.
//!
//! The near network knows only the ranks of its host, numbered from 0 in the order of their ranks in the job; the far one
//! knows all. [`Mixed`] translates between the two: ranks, names of queues, descriptors and entries. A job of one host has
//! no far network; then every call goes straight to the near one, behind one comparison.
//!
//! - **Regions** are made by the near network and adopted by the far one ([`Ni::region_adopt`]).
//! - **Entries** are linked in both networks, or in the one that the entry's source uses. One that may be used once is
//!   linked with a [claim](conduit_core::ni::Claim), so that one message takes it. Of a managed one each network has
//!   all of its space, so it holds at least what was asked for. When a network unlinks an entry by itself the
//!   other's is unlinked too, and its owner hears of it when both have.
//! - **Polling** is mostly the near network's while that has traffic: a look at the far one may be a system call (`pace`).
//! - **Waiting** is the near network's; what the far one brings ends it ([`Ni::arm`]). A far network that can't do that is waited
//!   for in turn with the near one, for a moment each.

mod descriptors;
mod entries;
mod ni;
mod pace;
mod poll;
mod queues;

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use conduit_core::ni::{Limits, Ni, NiError, PtIndex, Rank};
use conduit_core::threads::{Lock, Mode};

use descriptors::Descriptors;
use entries::Entries;
use pace::Pace;
use queues::Queues;

/// Two networks as one. See the [module](self).
pub struct Mixed<Near: Ni, Far: Ni, M: Mode> {
    /// Absent in a job of one host. Before the near network, whose regions the far one may touch until it is dropped.
    beyond: Option<Box<Beyond<Far, M>>>,
    near: Near,
}

/// What a job over several hosts needs besides the near network.
struct Beyond<Far: Ni, M: Mode> {
    far: Far,
    /// By rank: its number in the near network, or [`FAR`]. 4 bytes a rank.
    near_rank: Box<[u32]>,
    /// By number in the near network: its rank.
    neighbours: Box<[Rank]>,
    limits: Limits,
    /// Bytes left for regions. Held while one is made, so that the networks count alike.
    regions: M::Lock<usize>,
    queues: Queues<M>,
    /// When the far network is looked at, and what it had when it last was.
    pace: Pace,
    /// By index: the queue that it was opened with, plus 1.
    indices: [AtomicU8; 256],
    descriptors: Descriptors<M>,
    entries: Entries<M>,
}

/// Not in the near network.
const FAR: u32 = u32::MAX;

/// One of the two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Near,
    Far,
}

impl<Near: Ni, Far: Ni, M: Mode> Mixed<Near, Far, M> {
    /// The near network alone: a job of one host.
    pub fn near_only(near: Near) -> Self {
        Self { near, beyond: None }
    }

    /// Both. `neighbours` are the ranks in the job of the near network's ranks, in the near network's order.
    ///
    /// # Errors
    /// The list of neighbours does not agree with the networks.
    pub fn new(near: Near, far: Far, neighbours: Vec<Rank>) -> Result<Self, NiError> {
        let (rank, size) = (far.rank(), far.size());
        let wrong = |reason: String| NiError::System {
            operation: "start",
            rank,
            reason,
        };
        let mut near_rank = vec![FAR; size as usize];
        for (number, &neighbour) in (0..).zip(&neighbours) {
            match near_rank.get_mut(neighbour as usize) {
                Some(place) if *place == FAR => *place = number,
                _ => {
                    return Err(wrong(format!(
                        "the neighbours {neighbours:?} are no distinct ranks of a job of {size}"
                    )));
                }
            }
        }
        if neighbours.len() != near.size() as usize || near_rank[rank as usize] != near.rank() {
            return Err(wrong(format!(
                "is number {} of {} in the near network, which is not so in {neighbours:?}",
                near.rank(),
                near.size()
            )));
        }
        let limits = both(near.limits(), far.limits());
        let beyond = Beyond {
            near_rank: near_rank.into(),
            neighbours: neighbours.into(),
            regions: M::Lock::new(limits.region_bytes),
            queues: Queues::new(near.limits().event_queues, limits.event_queues),
            pace: Pace::default(),
            indices: [const { AtomicU8::new(0) }; 256],
            descriptors: Descriptors::new(limits.memory_descriptors),
            entries: Entries::new(limits.match_entries),
            limits,
            far,
        };
        Ok(Self {
            near,
            beyond: Some(Box::new(beyond)),
        })
    }

    /// The near network.
    #[inline]
    pub fn near(&self) -> &Near {
        &self.near
    }

    /// The far network, where there is one.
    #[inline]
    pub fn far(&self) -> Option<&Far> {
        self.beyond.as_ref().map(|beyond| &beyond.far)
    }

    /// The ranks that the near network reaches, ascending where it numbers them so; `None`: all of the job.
    pub fn neighbours(&self) -> Option<&[Rank]> {
        self.beyond.as_ref().map(|beyond| &*beyond.neighbours)
    }
}

/// What there is of everything in both networks.
fn both(near: &Limits, far: &Limits) -> Limits {
    Limits {
        pt_indices: near.pt_indices.min(far.pt_indices),
        // One is kept for indices that are opened without.
        event_queues: near.event_queues.min(far.event_queues).saturating_sub(1),
        match_entries: near.match_entries.min(far.match_entries),
        memory_descriptors: near.memory_descriptors.min(far.memory_descriptors),
        regions: near.regions.min(far.regions),
        region_bytes: near.region_bytes.min(far.region_bytes),
    }
}

impl<Far: Ni, M: Mode> Beyond<Far, M> {
    /// A rank's number in the near network.
    #[inline]
    fn near_rank(&self, rank: Rank) -> Option<u32> {
        let number = *self.near_rank.get(rank as usize)?;
        (number != FAR).then_some(number)
    }

    /// The rank that has this number in the near network.
    #[inline]
    fn rank_of(&self, number: u32) -> Rank {
        // A number that the near network should not have given stays one that is no rank.
        self.neighbours
            .get(number as usize)
            .copied()
            .unwrap_or(Rank::MAX)
    }

    /// Refuses a target that is not there.
    fn check(&self, operation: &'static str, rank: Rank, index: PtIndex) -> Result<(), NiError> {
        match (rank as usize) < self.near_rank.len() {
            true => self.check_index(operation, index),
            false => Err(NiError::NoSuchRank {
                operation,
                rank,
                size: self.near_rank.len() as u32,
            }),
        }
    }

    fn check_index(&self, operation: &'static str, index: PtIndex) -> Result<(), NiError> {
        match index.0 < self.limits.pt_indices {
            true => Ok(()),
            false => Err(NiError::NoSuchObject {
                operation,
                what: "portal table index",
                value: u64::from(index.0),
            }),
        }
    }

    /// An error of the near network, by the job's ranks.
    #[cold]
    fn of_near(&self, mut error: NiError) -> NiError {
        if let NiError::System { rank, .. }
        | NiError::PeerFailed { rank, .. }
        | NiError::BadPeer { rank, .. } = &mut error
        {
            *rank = self.rank_of(*rank);
        }
        error
    }

    /// The queue that an index was opened with.
    fn queue_of(&self, index: u8) -> Option<u8> {
        self.indices[usize::from(index)]
            .load(Ordering::Acquire)
            .checked_sub(1)
    }
}

impl<Near: Ni, Far: Ni, M: Mode> fmt::Debug for Mixed<Near, Far, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixed")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("neighbours", &self.neighbours())
            .finish_non_exhaustive()
    }
}
