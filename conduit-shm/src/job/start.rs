//! The start of a job: every rank creates its memory, publishes the address at which it hands over
//! that memory, and maps the memory of all others.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use conduit_core::fork::Standing;
use conduit_core::ni::{Capabilities, Limits, Rank, Reach};
use conduit_core::threads::{Lock, Mode};
use pmi::bootstrap::Bootstrap;

use super::bootstrap_info::{BootstrapInfo, compare};
use super::failure::{Failures, Process};
use super::handover::{PATIENCE, Server, ask};
use super::lanes::ShmLanes;
use super::layout::{
    Layout, MAGIC, QUEUES, REGIONS, STATE_OPEN, USER_QUEUES, VERSION, settings_hash,
};
use super::mapping::Mapping;
use super::ready_table::ReadyTable;
use super::reply_slots::ReplySlots;
use super::setup::{Allocated, ENTRIES};
use super::statistics::Counters;
use super::{Index, Peer, Shm, ShmConfig, ShmError};
use crate::sealed_file;
use conduit_portals::matching::{DESCRIPTORS, Descriptors, MatchList, PT_INDICES};

/// The ranks of a host that this rank has met. Holds this rank's own memory, and the memory of each
/// other rank that has handed its memory over.
///
/// A meeting is the first half of [`Shm::start`], for callers that have another network for ranks
/// that cannot share memory.
#[derive(Debug)]
pub struct Meeting {
    rank: Rank,
    config: ShmConfig,
    met: BTreeMap<Rank, Met>,
    strangers: Vec<Stranger>,
}

/// A pair of ranks, one of which cannot get the other's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// The rank that asked for the other's memory.
    pub rank: Rank,
    /// The rank whose memory was asked for.
    pub peer: Rank,
    /// The reason for the failure.
    pub reason: String,
}

/// A rank whose memory is mapped here.
#[derive(Debug)]
struct Met {
    mapping: Arc<Mapping>,
    process: Process,
}

impl Meeting {
    /// Meets the ranks that should share memory with this rank. Every rank of the job must call
    /// this function with the same settings. `ranks` must include the calling rank.
    ///
    /// # Errors
    /// The error names the rank that failed and the reason. If one rank fails, all ranks do, unless
    /// `bootstrap` itself fails. A memory handover that fails is not an error; see
    /// [`Meeting::strangers`].
    pub fn hold(
        bootstrap: &mut dyn Bootstrap,
        ranks: &[Rank],
        config: &ShmConfig,
    ) -> Result<Self, ShmError> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let prepared = prepare(rank, size, config).and_then(|(fd, own)| {
            let (server, address) = Server::start(fd)
                .map_err(|e| system(rank, "offer its memory on a Unix socket", e))?;
            Ok((own, server, BootstrapInfo::new(address, config)))
        });
        let info = match &prepared {
            Ok((_, _, info)) => info.to_text(),
            Err(error) => format!("failed={error}"),
        };
        let infos = bootstrap.allgather(info.as_bytes())?;
        // The server lives until all ranks have asked, even if this rank fails to meet the other
        // ranks, so that those ranks report the true reason.
        let (_server, met) = match prepared {
            Ok((own, server, info)) => {
                let met = meet(rank, ranks, config, own, &info, &infos);
                (Some(server), met)
            }
            Err(error) => (None, Err(error)),
        };
        let verdict = match &met {
            Ok((_, strangers)) => strangers.iter().fold(String::new(), |mut text, stranger| {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{}={}", stranger.peer, stranger.reason);
                text
            }),
            Err(error) => format!("failed={error}"),
        };
        let verdicts = bootstrap.allgather(verdict.as_bytes())?;
        let (met, _) = met?;
        let mut strangers = Vec::new();
        for (rank, verdict) in (0..).zip(verdicts) {
            for line in String::from_utf8_lossy(&verdict).lines() {
                let (who, reason) = line.split_once('=').unwrap_or((line, ""));
                let reason = reason.to_owned();
                match who.parse() {
                    Ok(peer) => strangers.push(Stranger { rank, peer, reason }),
                    Err(_) => return Err(ShmError::PeerFailed { peer: rank, reason }),
                }
            }
        }
        Ok(Self {
            rank,
            config: config.clone(),
            met,
            strangers,
        })
    }

    /// Returns the pairs of ranks that should share memory but cannot. The result is the same on
    /// every rank of the job.
    pub fn strangers(&self) -> &[Stranger] {
        &self.strangers
    }

    /// Starts the network among `ranks`, which must be in ascending order, and no two of which may
    /// be strangers. In the network, they are numbered from 0.
    ///
    /// # Errors
    /// Same as [`Shm::start`].
    pub fn start<M: Mode>(mut self, ranks: &[Rank]) -> Result<Shm<M>, ShmError> {
        let met = ranks.iter().map(|peer| {
            self.met.remove(peer).ok_or_else(|| ShmError::Peer {
                rank: self.rank,
                peer: *peer,
                reason: "the rank was not met".to_owned(),
            })
        });
        let met = met.collect::<Result<Vec<_>, _>>()?;
        let own = ranks.iter().take_while(|other| **other < self.rank);
        Shm::assemble(own.count() as Rank, &self.config, met)
    }
}

impl<M: Mode> Shm<M> {
    /// Starts the network among all ranks of a job. All of them must call this function together
    /// and with the same settings.
    ///
    /// All ranks must run on this host, in one network namespace.
    ///
    /// # Errors
    /// The error names the rank that failed and the reason. If one rank fails, all ranks do, unless
    /// `bootstrap` itself fails.
    pub fn start(bootstrap: &mut dyn Bootstrap, config: &ShmConfig) -> Result<Self, ShmError> {
        let ranks: Vec<Rank> = (0..bootstrap.size()).collect();
        let meeting = Meeting::hold(bootstrap, &ranks, config)?;
        if let [Stranger { rank, peer, reason }, ..] = meeting.strangers() {
            return Err(ShmError::Peer {
                rank: *rank,
                peer: *peer,
                reason: reason.clone(),
            });
        }
        meeting.start(&ranks)
    }

    /// Builds the network from `met`, which must be indexed by rank.
    fn assemble(rank: Rank, config: &ShmConfig, met: Vec<Met>) -> Result<Self, ShmError> {
        let size = met.len() as u32;
        let layout = met[rank as usize].mapping.layout().clone();
        let mut peers = Vec::with_capacity(met.len());
        let mut processes = Vec::with_capacity(met.len());
        for met in met {
            peers.push(Peer::new(met.mapping));
            processes.push(met.process);
        }
        let mut capabilities = Capabilities::REMOTE_COMPLETION | Capabilities::MEMORY;
        capabilities.set(Capabilities::WINDOW, config.windows);
        let index = || Index {
            queue: 0.into(),
            list: M::Lock::new(MatchList::new()),
        };
        let shared_rings = config.shared_rings(size);
        let lanes = ShmLanes::new(rank, config, shared_rings)
            .map_err(|error| system(rank, "set up lanes", error))?;
        let rings = match shared_rings {
            true => 1 + lanes.count(),
            false => size as usize,
        };
        let shm = Self {
            rank,
            size,
            standing: Standing::new(),
            config: config.clone(),
            shared_rings,
            lanes,
            limits: Limits {
                pt_indices: PT_INDICES as u8,
                event_queues: USER_QUEUES as u8,
                match_entries: ENTRIES,
                memory_descriptors: DESCRIPTORS as u32,
                regions: REGIONS as u32,
                region_bytes: layout.total - layout.region_offset,
            },
            reach: Reach {
                capabilities,
                inject_size: config.inject_size,
                max_message: config.max_message,
                max_managed: config.max_managed,
            },
            unreachable: Reach {
                capabilities: Capabilities::empty(),
                inject_size: 0,
                max_message: 0,
                max_managed: 0,
            },
            peers: peers.into(),
            queues: (0..QUEUES).map(|_| OnceLock::new()).collect(),
            indices: (0..PT_INDICES).map(|_| index()).collect(),
            entries: 0.into(),
            descriptors: Descriptors::new(),
            staging: Default::default(),
            abandoned: Lock::new(false),
            allocated: M::Lock::new(Allocated::new(&layout)),
            failures: Failures::new(),
            processes: processes.into(),
            sent: AtomicU32::new(0),
            reply_slots: ReplySlots::new(config.adaptive_delay),
            ready_table: ReadyTable::new(QUEUES * rings),
            waiting: 0.into(),
            statistics: Counters::new(),
            mode: Default::default(),
        };
        shm.ready_table
            .set_activations(&shm.own().control().activations);
        let staging = (layout.region_offset - layout.piece_states) as u64;
        shm.reserve_memory("start", staging, 1)
            .and_then(|()| shm.create_quiet_queue())
            .map_err(|error| system(rank, "create staging and the internal queue", error))?;
        Ok(shm)
    }
}

/// Creates a whole world within this process, for tests. Each rank can be moved to its own thread
/// if the mode allows that, or one thread can drive all ranks in turn.
///
/// # Errors
/// Same as [`Shm::start`].
pub fn in_process<M: Mode>(ranks: u32, config: &ShmConfig) -> Result<Vec<Shm<M>>, ShmError> {
    let mut mappings = Vec::new();
    for rank in 0..ranks {
        let (_, mapping) = prepare(rank, ranks, config)?;
        mappings.push(mapping);
    }
    let met = |mapping: &Arc<Mapping>| Met {
        mapping: mapping.clone(),
        process: Process::this(),
    };
    (0..ranks)
        .map(|rank| Shm::assemble(rank, config, mappings.iter().map(met).collect()))
        .collect()
}

fn system(rank: Rank, operation: &'static str, error: impl ToString) -> ShmError {
    ShmError::System {
        rank,
        operation,
        reason: error.to_string(),
    }
}

/// Creates this rank's own memory.
fn prepare(rank: Rank, size: u32, config: &ShmConfig) -> Result<(OwnedFd, Arc<Mapping>), ShmError> {
    config.check()?;
    let layout = Layout::new(config);
    let failed = |operation, error| {
        let reason = format!("{error}; {} bytes are needed", layout.total);
        system(rank, operation, reason)
    };
    let fd = sealed_file::create("conduit-shm", layout.total)
        .map_err(|e| failed("create shared memory (bounded by ulimit -f)", e))?;
    let own = Mapping::new(&fd, &layout, config.huge_pages)
        .map_err(|e| failed("map shared memory (bounded by ulimit -v)", e))?;
    let control = own.control();
    control.version.store(VERSION, Ordering::Relaxed);
    control.rank.store(rank, Ordering::Relaxed);
    let hash = settings_hash(config, size);
    control.settings.store(hash, Ordering::Relaxed);
    control.state.store(STATE_OPEN, Ordering::Relaxed);
    control.magic.store(MAGIC, Ordering::Release);
    Ok((fd, Arc::new(own)))
}

/// Maps the memory of `ranks`, using their bootstrap information. Also returns the ranks whose
/// memory could not be obtained.
fn meet(
    rank: Rank,
    ranks: &[Rank],
    config: &ShmConfig,
    own: Arc<Mapping>,
    info: &BootstrapInfo,
    infos: &[Vec<u8>],
) -> Result<(BTreeMap<Rank, Met>, Vec<Stranger>), ShmError> {
    let fault = |peer: Rank| move |reason: String| ShmError::Peer { rank, peer, reason };
    let mut addresses = Vec::with_capacity(ranks.len());
    for &peer in ranks.iter().filter(|peer| **peer != rank) {
        let theirs = infos.get(peer as usize).map_or(&[][..], |info| info);
        let theirs = BootstrapInfo::parse(theirs).map_err(fault(peer))?;
        compare(rank, info, peer, &theirs)?;
        addresses.push((peer, theirs.address));
    }
    // The rotation spreads the load, because otherwise every rank would ask the same rank first.
    let behind = addresses.partition_point(|(peer, _)| *peer < rank);
    addresses.rotate_left(behind);
    let this = Met {
        mapping: own,
        process: Process::this(),
    };
    let mut met = BTreeMap::from([(rank, this)]);
    let mut strangers = Vec::new();
    for (peer, address) in addresses {
        let handed = match ask(&address, PATIENCE) {
            Ok(handed) => handed,
            Err(error) => {
                let reason = error.to_string().replace('\n', " ");
                strangers.push(Stranger { rank, peer, reason });
                continue;
            }
        };
        let mapping = map(&handed.memory, config, peer, infos.len() as u32).map_err(fault(peer))?;
        let theirs = Met {
            mapping: Arc::new(mapping),
            process: handed.process,
        };
        met.insert(peer, theirs);
    }
    Ok((met, strangers))
}

/// Maps a peer's memory.
fn map(memory: &OwnedFd, config: &ShmConfig, peer: Rank, size: u32) -> Result<Mapping, String> {
    let layout = Layout::new(config);
    let refused = |error: rustix::io::Errno| format!("cannot examine its memory: {error}");
    let (bytes, is_sealed) = sealed_file::examine(memory).map_err(refused)?;
    if bytes != layout.total as u64 || !is_sealed {
        return Err(format!(
            "its memory file has {bytes} bytes (sealed: {is_sealed}), expected {} bytes, sealed against shrinking",
            layout.total
        ));
    }
    let mapping = Mapping::new(memory, &layout, config.huge_pages)
        .map_err(|e| format!("cannot map its memory (bounded by ulimit -v): {e}"))?;
    let control = mapping.control();
    let found = (
        control.magic.load(Ordering::Acquire),
        control.version.load(Ordering::Relaxed),
        control.rank.load(Ordering::Relaxed),
        control.settings.load(Ordering::Relaxed),
    );
    let expected = (MAGIC, VERSION, peer, settings_hash(config, size));
    if found != expected {
        return Err(format!(
            "its memory begins with magic, version, rank and settings {found:x?}, expected {expected:x?}"
        ));
    }
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, Mode};
    use rustix::fs::{SealFlags, fstat};

    use super::*;

    #[test]
    fn memory_that_is_none_of_the_peers_is_noticed() {
        let config = ShmConfig::default();
        let (memory, _) = prepare(1, 2, &config).unwrap();
        assert!(map(&memory, &config, 1, 2).is_ok());
        assert!(map(&memory, &config, 0, 2).is_err());
        assert!(map(&memory, &config, 1, 3).is_err());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let other = rustix::fs::memfd_create("other", flags).unwrap();
        assert!(map(&other, &config, 1, 2).is_err());
        // Without the seal, the file could still shrink while it is mapped.
        rustix::fs::ftruncate(&other, Layout::new(&config).total as u64).unwrap();
        let error = map(&other, &config, 1, 2).unwrap_err();
        assert!(error.contains("shrink"), "{error}");
    }

    #[test]
    fn nobody_changes_a_file_that_is_handed_over() {
        let (memory, own) = prepare(0, 2, &ShmConfig::default()).unwrap();
        let size = own.layout().total as u64;
        let refused = Err(rustix::io::Errno::PERM);
        for size in [size - 4096, size + 4096] {
            assert_eq!(rustix::fs::ftruncate(&memory, size), refused);
        }
        let later = SealFlags::FUTURE_WRITE;
        assert_eq!(rustix::fs::fcntl_add_seals(&memory, later), refused);
        // This is checked only if the system supports the flag.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
        if rustix::fs::memfd_create("probe", flags).is_ok() {
            let mode = Mode::from_raw_mode(fstat(&memory).unwrap().st_mode);
            assert!(!mode.intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH));
            assert_eq!(rustix::fs::fchmod(&memory, mode | Mode::XUSR), refused);
        }
    }
}
