//! Two networks as one: the ranks of this host by the intra-host network, all others by the inter-host one.
//!
//! The intra-host network knows only the ranks of its host, numbered from 0 in the order of their ranks in the job; the inter-host one
//! knows all. [`Composite`] translates between the two: ranks, names of queues, descriptors and entries. A job of one host has
//! no inter-host network; then every call goes straight to the intra-host one, behind one comparison.
//!
//! - **Regions** are made by the intra-host network and adopted by the inter-host one ([`Ni::region_adopt`]).
//! - **Entries** are linked in both networks, or in the one that the entry's source uses. One that may be used once is
//!   linked with a [claim](conduit_core::ni::Claim), so that one message takes it. Of a managed one each network has
//!   all of its space, so it holds at least what was asked for. When a network unlinks an entry by itself the
//!   other's is unlinked too, and its owner hears of it when both have.
//! - **Polling** is mostly the intra-host network's while that has traffic: a look at the inter-host one may be a system call (`throttle`).
//! - **Waiting** is the intra-host network's; what the inter-host one brings ends it ([`Ni::arm`]). A inter-host network that can't do that is waited
//!   for in turn with the intra-host one, for a moment each.

mod descriptors;
mod entries;
mod ni;
mod poll;
mod queues;
mod throttle;

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use conduit_core::ni::{Limits, Ni, NiError, PtIndex, Rank};
use conduit_core::threads::{Lock, Mode};

use descriptors::Descriptors;
use entries::Entries;
use queues::Queues;
use throttle::PollThrottle;

/// Two networks as one. See the [module](self).
pub struct Composite<Intra: Ni, Inter: Ni, M: Mode> {
    /// Absent in a job of one host. Before the intra-host network, whose regions the inter-host one may touch until it is dropped.
    multi_host: Option<Box<MultiHost<Inter, M>>>,
    intra: Intra,
}

/// What a job over several hosts needs besides the intra-host network.
struct MultiHost<Inter: Ni, M: Mode> {
    inter: Inter,
    /// By rank: its number in the intra-host network, or [`NOT_LOCAL`]. 4 bytes a rank.
    local_rank: Box<[u32]>,
    /// By number in the intra-host network: its rank.
    neighbours: Box<[Rank]>,
    limits: Limits,
    /// Bytes left for regions. Held while one is made, so that the networks count alike.
    regions: M::Lock<usize>,
    queues: Queues<M>,
    /// When the inter-host network is looked at, and what it had when it last was.
    throttle: PollThrottle,
    /// By index: the queue that it was opened with, plus 1.
    indices: [AtomicU8; 256],
    descriptors: Descriptors<M>,
    entries: Entries<M>,
}

/// Not in the intra-host network.
const NOT_LOCAL: u32 = u32::MAX;

/// One of the two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    IntraHost,
    InterHost,
}

impl<Intra: Ni, Inter: Ni, M: Mode> Composite<Intra, Inter, M> {
    /// The intra-host network alone: a job of one host.
    pub fn single_host(intra: Intra) -> Self {
        Self {
            intra,
            multi_host: None,
        }
    }

    /// Both. `neighbours` are the ranks in the job of the intra-host network's ranks, in the intra-host network's order.
    ///
    /// # Errors
    /// The list of neighbours does not agree with the networks.
    pub fn new(intra: Intra, inter: Inter, neighbours: Vec<Rank>) -> Result<Self, NiError> {
        let (rank, size) = (inter.rank(), inter.size());
        let wrong = |reason: String| NiError::System {
            operation: "start",
            rank,
            reason,
        };
        let mut local_rank = vec![NOT_LOCAL; size as usize];
        for (number, &neighbour) in (0..).zip(&neighbours) {
            match local_rank.get_mut(neighbour as usize) {
                Some(place) if *place == NOT_LOCAL => *place = number,
                _ => {
                    return Err(wrong(format!(
                        "the neighbours {neighbours:?} are no distinct ranks of a job of {size}"
                    )));
                }
            }
        }
        if neighbours.len() != intra.size() as usize || local_rank[rank as usize] != intra.rank() {
            return Err(wrong(format!(
                "is number {} of {} in the intra-host network, which is not so in {neighbours:?}",
                intra.rank(),
                intra.size()
            )));
        }
        let limits = both(intra.limits(), inter.limits());
        let multi_host = MultiHost {
            local_rank: local_rank.into(),
            neighbours: neighbours.into(),
            regions: M::Lock::new(limits.region_bytes),
            queues: Queues::new(intra.limits().event_queues, limits.event_queues),
            throttle: PollThrottle::default(),
            indices: [const { AtomicU8::new(0) }; 256],
            descriptors: Descriptors::new(limits.memory_descriptors),
            entries: Entries::new(limits.match_entries),
            limits,
            inter,
        };
        Ok(Self {
            intra,
            multi_host: Some(Box::new(multi_host)),
        })
    }

    /// The intra-host network.
    #[inline]
    pub fn intra(&self) -> &Intra {
        &self.intra
    }

    /// The inter-host network, where there is one.
    #[inline]
    pub fn inter(&self) -> Option<&Inter> {
        self.multi_host.as_ref().map(|multi_host| &multi_host.inter)
    }

    /// The ranks that the intra-host network reaches, ascending where it numbers them so; `None`: all of the job.
    pub fn neighbours(&self) -> Option<&[Rank]> {
        self.multi_host
            .as_ref()
            .map(|multi_host| &*multi_host.neighbours)
    }
}

/// What there is of everything in both networks.
fn both(intra: &Limits, inter: &Limits) -> Limits {
    Limits {
        pt_indices: intra.pt_indices.min(inter.pt_indices),
        // One is kept for indices that are opened without.
        event_queues: intra.event_queues.min(inter.event_queues).saturating_sub(1),
        match_entries: intra.match_entries.min(inter.match_entries),
        memory_descriptors: intra.memory_descriptors.min(inter.memory_descriptors),
        regions: intra.regions.min(inter.regions),
        region_bytes: intra.region_bytes.min(inter.region_bytes),
    }
}

impl<Inter: Ni, M: Mode> MultiHost<Inter, M> {
    /// A rank's number in the intra-host network.
    #[inline]
    fn local_rank(&self, rank: Rank) -> Option<u32> {
        let number = *self.local_rank.get(rank as usize)?;
        (number != NOT_LOCAL).then_some(number)
    }

    /// The rank that has this number in the intra-host network.
    #[inline]
    fn rank_of(&self, number: u32) -> Rank {
        // A number that the intra-host network should not have given stays one that is no rank.
        self.neighbours
            .get(number as usize)
            .copied()
            .unwrap_or(Rank::MAX)
    }

    /// Refuses a target that is not there.
    fn check(&self, operation: &'static str, rank: Rank, index: PtIndex) -> Result<(), NiError> {
        match (rank as usize) < self.local_rank.len() {
            true => self.check_index(operation, index),
            false => Err(NiError::NoSuchRank {
                operation,
                rank,
                size: self.local_rank.len() as u32,
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

    /// An error of the intra-host network, by the job's ranks.
    #[cold]
    fn with_job_rank(&self, mut error: NiError) -> NiError {
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

impl<Intra: Ni, Inter: Ni, M: Mode> fmt::Debug for Composite<Intra, Inter, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Composite")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("neighbours", &self.neighbours())
            .finish_non_exhaustive()
    }
}
