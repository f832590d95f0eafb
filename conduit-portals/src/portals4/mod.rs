//! The Ni contract over a real Portals 4, whose calls correspond to those of the contract.
//!
//! libportals is loaded when a job starts ([`portals4_sys`]). A rank has one interface with
//! matching and logical addresses, whose ranks are those of the job ([`start`]).
//!
//! | contract | Portals 4 |
//! |---|---|
//! | index | table entry, with flow control if it has a queue (`queues`) |
//! | queue | an event queue for completions, and one for each index (`queues`) |
//! | entry | match entry; locally managed ones have their memory here (`entries`) |
//! | memory descriptor | all memory of the process, one descriptor for each queue |
//! | put, get, inject | put and get, acknowledged, repeated if refused (`operations`) |
//! | atomic | two messages, or the library's own (`atomics`) |
//!
//! `docs/portals4.md` lists the differences between Portals and the contract.

mod atomics;
mod entries;
mod error;
mod interface;
mod network;
mod operations;
mod queues;
pub mod settings;
pub mod start;

pub use error::Portals4Error;
pub use start::Portals4Config;

use std::fmt;
use std::time::{Duration, Instant};

use conduit_core::fork::Standing;
use conduit_core::ni::{
    Capabilities, Inject, Limits, MatchEntry, MeId, MeMemory, MeOptions, Ni as _, NiError, PtIndex,
    Rank, Reach, Submit,
};
use conduit_core::threads::{Lock, Mode};
use portals4_sys::ptl_handle_eq_t;

use crate::matching::{DESCRIPTORS, Descriptors, entry_start};
use crate::transport::regions::{REGIONS, Regions};
use atomics::Atomics;
use entries::Entries;
use interface::{EntryKind, Interface, Transfer};
use operations::{Operation, Operations, Tells};
use queues::{ALL_INDICES, ALL_QUEUES, ATOMICS, INDICES, INJECTS, Index, QUEUES, Queue, no_index};

/// How long operations that were given up may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of the network's internal entries: the last entry of each index, and those for atomics.
const OWN_ENTRIES: u32 = 32;

/// A rank's position in the job, and the capabilities common to all ranks.
#[derive(Debug, Clone, Copy)]
struct Job {
    rank: Rank,
    size: u32,
    max_message: usize,
    /// Whether every rank's library performs atomics.
    atomics: bool,
}

/// One rank's end of a network over Portals 4.
pub struct Portals4<M: Mode> {
    job: Job,
    limits: Limits,
    reach: Reach,
    unreachable: Reach,
    /// Declared before the memory that it accesses, because it must be dropped first.
    interface: Interface,
    state: M::Lock<NetworkState>,
    /// One lock for each queue, held while the queue is polled.
    polling: [M::Lock<()>; ALL_QUEUES],
    /// Whether the library performs atomics.
    native_atomics: bool,
    linger: Duration,
    standing: Standing,
}

/// The mutable state.
struct NetworkState {
    entries: Entries,
    operations: Operations,
    atomics: Atomics,
    descriptors: Descriptors<conduit_core::threads::ParSync>,
    regions: Regions,
    queues: [Option<Queue>; ALL_QUEUES],
    indices: [Option<Index>; ALL_INDICES as usize],
    /// Whether this rank's operations were given up.
    abandoned: bool,
    /// A peer that can't be reached, if there is one.
    failed: Option<Rank>,
    /// A peer that has violated the protocol, if there is one.
    bad: Option<Rank>,
    /// The refusal of the library, if there was one, after which every call fails.
    fault: Option<NiError>,
}

impl<M: Mode> Portals4<M> {
    fn new(interface: Interface, job: Job, config: &Portals4Config) -> Result<Self, NiError> {
        let granted = |limit: i32| u32::try_from(limit).unwrap_or(0);
        let entries = granted(interface.limits.max_entries)
            .min(granted(interface.limits.max_list_size))
            .clamp(2 * OWN_ENTRIES, 4096)
            - OWN_ENTRIES;
        let max_managed = config.max_managed.min(job.max_message);
        let native_atomics = config.atomics && job.atomics;
        let mut capabilities = Capabilities::REMOTE_COMPLETION;
        capabilities.set(Capabilities::NATIVE_ATOMICS, native_atomics);
        let this = Self {
            job,
            limits: Limits {
                pt_indices: INDICES,
                event_queues: QUEUES,
                match_entries: entries,
                memory_descriptors: DESCRIPTORS as u32,
                regions: REGIONS as u32,
                region_bytes: config.region_bytes,
            },
            reach: Reach {
                capabilities,
                inject_size: config.inject_size.min(max_managed),
                max_message: job.max_message,
                max_managed,
            },
            unreachable: Reach {
                capabilities: Capabilities::empty(),
                inject_size: 0,
                max_message: 0,
                max_managed: 0,
            },
            interface,
            state: M::Lock::new(NetworkState {
                entries: Entries::new(entries),
                // An atomic's request is sent as an inject, so the buffers must have room for it.
                operations: Operations::new(config.operations, config.inject_size.max(64)),
                atomics: Atomics::new(),
                descriptors: Descriptors::new(),
                regions: Regions::new(job.rank, config.region_bytes),
                queues: [const { None }; ALL_QUEUES],
                indices: [const { None }; ALL_INDICES as usize],
                abandoned: false,
                failed: None,
                bad: None,
                fault: None,
            }),
            polling: std::array::from_fn(|_| M::Lock::new(())),
            native_atomics,
            linger: config.linger,
            standing: Standing::new(),
        };
        {
            let mut state = this.state.lock();
            state.create_queue(&this.interface, Some(INJECTS), 0)?;
            state.create_queue(&this.interface, Some(ATOMICS), 1024)?;
        }
        this.open_atomics()?;
        Ok(this)
    }

    /// Waits until everything that this rank sent has arrived, but not longer than the configured
    /// linger time.
    pub fn leave(&self) {
        let end = Instant::now() + self.linger;
        while Instant::now() < end && self.state.lock().operations.under_way() > 0 {
            self.progress();
            let mut state = self.state.lock();
            for number in 0..usize::from(QUEUES) {
                state.reap(&self.interface, number);
            }
        }
    }

    /// Returns an error if the library can't be used any more.
    fn check_usable(&self, state: &NetworkState, operation: &'static str) -> Result<(), NiError> {
        match (&state.fault, self.interface.is_broken()) {
            (Some(fault), _) => Err(fault.clone()),
            (None, Some(reason)) => Err(self.interface.error(operation, reason.to_owned())),
            (None, None) => Ok(()),
        }
    }
}

impl NetworkState {
    fn fail(&mut self, error: NiError) {
        self.fault.get_or_insert(error);
    }

    fn append(
        &mut self,
        interface: &Interface,
        index: u8,
        entry: &MatchEntry,
    ) -> Result<MeId, NiError> {
        const OPERATION: &str = "me_append";
        let open = self.indices.get(usize::from(index));
        let open = open.ok_or_else(|| no_index(OPERATION, PtIndex(index)))?;
        let refused = match (entry.memory, open) {
            (_, None) => Some(format!("index {index} is not open")),
            (MeMemory::Process { .. }, _) => Some(
                "the network portals4 supports no entries over process memory outside of its regions: \
                 libportals would crash the process at an unmapped address"
                    .to_owned(),
            ),
            _ => None,
        };
        if let Some(reason) = refused {
            return Err(interface.error(OPERATION, reason));
        }
        let base = entry_start(entry.memory, |id| self.regions.find(id))?;
        let (me, place) = self.entries.append(interface, index, entry, base)?;
        self.join_list(place, entry, base);
        if entry.options.contains(MeOptions::OVERFLOW) {
            self.link_nobody(interface, index)?;
        }
        Ok(me)
    }

    /// Starts an inject whose arguments have been checked.
    fn inject(&mut self, interface: &Interface, inject: &Inject<'_>) -> Result<Submit, NiError> {
        let Some(queue) = &self.queues[usize::from(INJECTS)] else {
            return Ok(Submit::Again);
        };
        let transfer = Transfer {
            kind: EntryKind::Put,
            md: queue.md,
            address: 0,
            length: inject.head.len() + inject.body.len(),
            target: inject.target,
            index: inject.index.0,
            match_bits: inject.match_bits,
            remote_offset: 0,
            hdr_data: inject.hdr_data,
            user: 0,
        };
        let operation = Operation::new(transfer, Tells::Nothing, 0, None);
        // SAFETY: the bytes are copied to the ticket's buffer during the call, so the library
        // accesses no memory of the caller.
        unsafe { (self.operations).start(interface, operation, [inject.head, inject.body]) }
    }

    /// Processes the library's events for this queue's operations. The resulting events wait in the
    /// queue's `pending`.
    fn reap(&mut self, interface: &Interface, number: usize) {
        let Some(completions) = self.completions(number) else {
            return;
        };
        while let Some(event) = interface.eq_get(completions) {
            if let Some(delivery) = self.translate(number, &event)
                && let Some(queue) = &mut self.queues[number]
            {
                queue.pending.push_back(delivery.event);
            }
        }
    }

    fn completions(&self, number: usize) -> Option<ptl_handle_eq_t> {
        Some(self.queues[number].as_ref()?.completions)
    }
}

impl<M: Mode> fmt::Debug for Portals4<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Portals4")
            .field("job", &self.job)
            .field("interface", &self.interface)
            .finish_non_exhaustive()
    }
}

impl<M: Mode> Drop for Portals4<M> {
    fn drop(&mut self) {
        if self.standing.is_child() {
            return self.interface.forget();
        }
        if !std::thread::panicking() {
            self.leave();
        }
    }
}
