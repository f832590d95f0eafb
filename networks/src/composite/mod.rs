//! A composite of two networks: an intra-host network for the ranks of this host, and an inter-host
//! network for all others.
//!
//! The intra-host network knows only the ranks of its host, by their *local ranks*: numbers from 0
//! in the order of their ranks in the job. The inter-host network knows all ranks. [`Composite`]
//! translates ranks and the ids of queues, descriptors and entries. In a job of one host, there is
//! no inter-host network, and each call is forwarded to the intra-host one after a single
//! comparison.
//!
//! - **Regions** are created by the intra-host network and adopted by the inter-host one
//!   ([`Ni::region_adopt`]).
//! - **Entries** are linked in both networks, or only in the one that reaches the entry's source. A
//!   use-once entry is linked with a [claim](conduit_core::ni::Claim), so that only one message
//!   takes it. A locally managed entry has its full space in each network, so it holds at least as
//!   much as was requested. When one network unlinks an entry automatically, the entry is unlinked
//!   in the other one, too, and the owner gets the event once both have unlinked it.
//! - **Polling** favours the intra-host network while that network has traffic, because polling the
//!   inter-host one may be a system call (`throttle`).
//! - **Waiting** happens in the intra-host network. The inter-host network is armed first
//!   ([`Ni::arm`]), so that arrivals there end the wait. If it cannot be armed, the composite waits
//!   for each of the two networks in turn, for a short time.

mod descriptors;
mod entries;
mod ni;
mod poll;
mod queues;
mod throttle;

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use conduit_core::ni::{Capabilities, Limits, Ni, NiError, PtIndex, Rank, Reach};
use conduit_core::threads::{Lock, Mode};

use descriptors::Descriptors;
use entries::Entries;
use queues::Queues;
use throttle::PollThrottle;

/// The composite of two networks. See the [module](self).
pub struct Composite<Intra: Ni, Inter: Ni, M: Mode> {
    /// The inter-host network and its state, or `None` in a job of one host. This field precedes
    /// `intra`, so that it is dropped first: until the inter-host network is dropped, it may access
    /// the intra-host network's regions.
    multi_host: Option<Box<MultiHost<Inter, M>>>,
    intra: Intra,
}

/// The state of a job over several hosts, except for the intra-host network.
struct MultiHost<Inter: Ni, M: Mode> {
    inter: Inter,
    /// The local rank of each rank, or [`NOT_LOCAL`]. This takes 4 bytes per rank.
    local_rank: Box<[u32]>,
    /// The rank in the job of each local rank.
    neighbours: Box<[Rank]>,
    /// This rank's reach to itself, if the inter-host network performs atomics on this rank's
    /// memory. In that case, this rank's own atomics must use that network, too.
    own_reach: Option<Reach>,
    limits: Limits,
    /// The number of bytes left for regions. Locked while a region is created, so that the region
    /// gets the same number in both networks.
    regions: M::Lock<usize>,
    queues: Queues<M>,
    /// Decides when to poll the inter-host network, and records what the last poll found ready.
    throttle: PollThrottle,
    /// For each portal table index, the number of its event queue plus 1, or 0 if the index is not
    /// open.
    indices: [AtomicU8; 256],
    descriptors: Descriptors<M>,
    entries: Entries<M>,
}

/// The local rank that stands for a rank on another host.
const NOT_LOCAL: u32 = u32::MAX;

/// One of the two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    IntraHost,
    InterHost,
}

impl<Intra: Ni, Inter: Ni, M: Mode> Composite<Intra, Inter, M> {
    /// Creates the network of a job of one host.
    pub fn single_host(intra: Intra) -> Self {
        Self {
            intra,
            multi_host: None,
        }
    }

    /// Joins two networks. `neighbours` must contain the ranks of this host, by local rank.
    ///
    /// # Errors
    /// Returns [`NiError::System`] if `neighbours` contradicts the networks.
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
                        "neighbours {neighbours:?} are not distinct ranks of a job of {size}"
                    )));
                }
            }
        }
        if neighbours.len() != intra.size() as usize || local_rank[rank as usize] != intra.rank() {
            return Err(wrong(format!(
                "local rank {} of {} in the intra-host network contradicts the neighbours {neighbours:?}",
                intra.rank(),
                intra.size()
            )));
        }
        let native = inter.reach(rank).capabilities & Capabilities::NATIVE_ATOMICS;
        if !native.is_empty() && neighbours.len() > 1 {
            return Err(wrong(format!(
                "ranks {neighbours:?} share memory, but the processors' atomics are not atomic with respect to the inter-host network's"
            )));
        }
        let own_reach = (!native.is_empty()).then(|| {
            let reach = intra.reach(intra.rank());
            Reach {
                capabilities: reach.capabilities | native,
                ..*reach
            }
        });
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
            own_reach,
            limits,
            inter,
        };
        Ok(Self {
            intra,
            multi_host: Some(Box::new(multi_host)),
        })
    }

    /// Returns the network among the ranks of this host.
    #[inline]
    pub fn intra(&self) -> &Intra {
        &self.intra
    }

    /// Returns the network to all other ranks, or `None` in a job of one host.
    #[inline]
    pub fn inter(&self) -> Option<&Inter> {
        self.multi_host.as_ref().map(|multi_host| &multi_host.inter)
    }

    /// Returns the ranks of this host by local rank, or `None` in a job of one host, where all
    /// ranks are on this host.
    pub fn neighbours(&self) -> Option<&[Rank]> {
        self.multi_host
            .as_ref()
            .map(|multi_host| &*multi_host.neighbours)
    }
}

/// Returns the limits of the composite. Each is the lower of the two networks' limits, and one
/// event queue is reserved.
fn both(intra: &Limits, inter: &Limits) -> Limits {
    Limits {
        pt_indices: intra.pt_indices.min(inter.pt_indices),
        // The reserved queue serves indices that are opened without an event queue.
        event_queues: intra.event_queues.min(inter.event_queues).saturating_sub(1),
        match_entries: intra.match_entries.min(inter.match_entries),
        memory_descriptors: intra.memory_descriptors.min(inter.memory_descriptors),
        regions: intra.regions.min(inter.regions),
        region_bytes: intra.region_bytes.min(inter.region_bytes),
    }
}

impl<Inter: Ni, M: Mode> MultiHost<Inter, M> {
    /// Returns a rank's local rank, or `None` if the rank is on another host.
    #[inline]
    fn local_rank(&self, rank: Rank) -> Option<u32> {
        let number = *self.local_rank.get(rank as usize)?;
        (number != NOT_LOCAL).then_some(number)
    }

    /// Returns the rank with this local rank.
    #[inline]
    fn rank_of(&self, number: u32) -> Rank {
        // An unknown local rank maps to `Rank::MAX`, which is no rank of the job.
        self.neighbours
            .get(number as usize)
            .copied()
            .unwrap_or(Rank::MAX)
    }

    /// Checks that the target rank and the index exist.
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

    /// Replaces the local rank in an error of the intra-host network with the job's rank.
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

    /// Returns the event queue of an index.
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
