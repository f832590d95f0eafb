//! The shared-memory network between the ranks of a job on one host. Each rank is a process (or, in
//! tests, a part of one).
//!
//! `Shm::start` starts the network; [`in_process`] creates a whole world inside one process. All
//! other operations are those of [`Ni`](conduit_core::ni::Ni).
//!
//! Every rank has one anonymous file, mapped by all ranks, which holds its event queues, staging
//! pieces and regions (`layout`). To send a message, a rank reserves slots in a ring of the
//! target's queue and writes to them (`crate::ring`, `send`). The message is matched when the
//! target polls that queue (`receive`, [`conduit_portals::matching`]). Completions come back in the
//! same way.
//!
//! **Guarantees.** No process ever waits for another's lock. Nothing has a name in a file system,
//! so a rank leaves nothing behind, no matter how it ends. A sender that finds no room gets
//! [`Submit::Again`](conduit_core::ni::Submit::Again). A target that finds no room for a completion
//! keeps the completion, and takes no more messages from the same ring until the completion has
//! been posted.
//!
//! **Costs.** A short message and its reply move one cache line each, or share a single one
//! (`reply_slots`). Up to `CONDUIT_LANE_ABOVE` ranks, the rings' memory grows with the square of
//! the number of ranks. With more ranks, all sources share one ring for each queue, and each rank
//! lends a few additional rings (`lanes`).

mod adaptive_delay;
mod bootstrap_info;
mod coalescing;
mod completion;
mod config;
mod deliver;
mod deliver_one;
mod error;
mod failure;
mod get_atomic;
mod handover;
mod lanes;
mod layout;
mod mapping;
mod message;
mod network;
mod process_memory;
mod ready_table;
mod receive;
mod reply_slots;
mod send;
pub mod settings;
mod setup;
mod staging;
mod start;
mod statistics;
#[cfg(test)]
mod tests;
mod wait;

pub use config::ShmConfig;
pub use error::ShmError;
pub use start::{Meeting, Stranger, in_process};
pub use statistics::Statistics;

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use conduit_core::fork::Standing;
use conduit_core::ni::{Limits, PtIndex, Rank, Reach};
use conduit_core::threads::Mode;

use crate::ring::{Discipline, Producer, RingView};
use conduit_portals::matching::{Descriptors, MatchList, PT_INDICES};

use failure::{Failures, Process};
use lanes::{ShmLanes, Way};
use layout::QUEUES;
use mapping::Mapping;
use ready_table::ReadyTable;
use receive::Queue;
use reply_slots::ReplySlots;
use setup::Allocated;
use staging::Staging;
use statistics::Counters;

/// The shared-memory network of one rank.
///
/// `Shm` is `Send` in [`ParSync`](conduit_core::threads::ParSync) and
/// [`Par`](conduit_core::threads::Par), and `Sync` in `Par`.
pub struct Shm<M: Mode> {
    rank: Rank,
    size: u32,
    /// Shows whether this process is a forked child, which must not use the network.
    standing: Standing,
    config: ShmConfig,
    /// Whether each queue is one ring for all sources.
    shared_rings: bool,
    lanes: ShmLanes<M>,
    limits: Limits,
    reach: Reach,
    unreachable: Reach,
    /// All ranks as this rank sees them, including this rank itself, indexed by rank.
    peers: Box<[Peer]>,
    queues: Box<[OnceLock<Queue<M>>]>,
    /// The portal table.
    indices: Box<[Index<M>]>,
    /// The number of linked match entries of all indices together.
    entries: AtomicU32,
    descriptors: Descriptors<M>,
    staging: Staging,
    /// Whether all gets are abandoned ([`conduit_core::ni::Ni::abandon`]).
    abandoned: M::Lock<bool>,
    allocated: M::Lock<Allocated>,
    failures: Failures,
    /// The ranks' processes, indexed by rank.
    processes: Box<[Process]>,
    ready_table: ReadyTable,
    reply_slots: ReplySlots,
    /// The number of messages sent by this rank; see [`Shm::sent`].
    sent: AtomicU32,
    /// The number of threads in [`wait`](conduit_core::ni::Ni::wait).
    waiting: AtomicU32,
    statistics: Counters,
    mode: PhantomData<M>,
}

/// A rank as this rank sees it.
struct Peer {
    mapping: Arc<Mapping>,
    /// This rank's end of the ring to each of the peer's queues, except lanes. Each end is created
    /// when it is first used.
    producers: Box<[OnceLock<Arc<Producer<RingView>>>]>,
    /// The ring for the next message to each of the peer's queues.
    ways: [Way; QUEUES],
    /// The ring for the next message to each of the peer's portal table indices.
    rings: [Way; PT_INDICES],
}

impl Peer {
    fn new(mapping: Arc<Mapping>) -> Self {
        Self {
            mapping,
            producers: (0..QUEUES).map(|_| OnceLock::new()).collect(),
            ways: Default::default(),
            rings: Default::default(),
        }
    }

    /// Returns the ring for an index of the peer, if this rank has already sent something to that
    /// index.
    #[inline(always)]
    fn known_ring(&self, index: PtIndex) -> Option<&Producer<RingView>> {
        self.rings.get(usize::from(index.0))?.get()
    }
}

/// A portal table index.
struct Index<M: Mode> {
    /// The number of the queue that receives the index's messages, plus 1, or 0 while the index is
    /// not open.
    queue: AtomicU8,
    /// The lock is held while the list is read or changed, but never while events are delivered.
    list: M::Lock<MatchList>,
}

impl<M: Mode> Shm<M> {
    /// Returns the current values of the counters.
    pub fn statistics(&self) -> Statistics {
        self.statistics.read(self.lanes.statistics())
    }

    /// Returns whether messages to a peer go through a ring that only this rank fills, and whether
    /// messages from that peer come through a ring that only the peer fills.
    pub fn own_rings(&self, peer: Rank) -> (bool, bool) {
        match self.shared_rings {
            true => self.lanes.with(peer),
            false => (true, true),
        }
    }

    /// Returns this rank's own memory.
    #[inline]
    fn own(&self) -> &Mapping {
        &self.peers[self.rank as usize].mapping
    }

    /// Returns the number of messages sent so far. Messages are not counted if several threads may
    /// send at once, because all these threads would write to one cache line.
    #[inline(always)]
    fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn note_sent(&self) {
        if !M::PARALLEL {
            let sent = self.sent().wrapping_add(1);
            self.sent.store(sent, Ordering::Relaxed);
        }
    }

    fn discipline(&self) -> Discipline {
        match (self.shared_rings, M::PARALLEL) {
            (true, _) => Discipline::Shared,
            (false, true) => Discipline::Process,
            (false, false) => Discipline::Thread,
        }
    }
}

impl<M: Mode> fmt::Debug for Shm<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shm")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("mode", &M::NAME)
            .finish_non_exhaustive()
    }
}
