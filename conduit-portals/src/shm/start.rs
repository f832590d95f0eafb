//! Job start: every rank makes its memory, says where it is, and maps everybody's.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use conduit_core::bootstrap::Bootstrap;
use conduit_core::matching::{DESCRIPTORS, Descriptors, MatchList, PT_INDICES};
use conduit_core::ni::{Capabilities, Limits, NiError, Rank, Reach};
use conduit_core::threads::{Lock, Mode};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::card::{Card, compare, start_time};
use super::failure::Failures;
use super::layout::{
    Layout, MAGIC, QUEUES, REGIONS, STATE_OPEN, USER_QUEUES, VERSION, settings_hash,
};
use super::mapping::{Mapping, create_file, identity};
use super::returns::Returns;
use super::setup::{Allocated, ENTRIES};
use super::statistics::Counters;
use super::watch::Watches;
use super::{Index, Peer, Shm, ShmConfig, ShmError};

impl<M: Mode> Shm<M> {
    /// Starts the network among all ranks of a job, which call this together with the same settings.
    ///
    /// All ranks must run on this host, and be allowed to open each other's memory through `/proc` (the same user, the
    /// same view of process ids).
    ///
    /// # Errors
    /// Names the rank and what is wrong with it. If one rank fails all do, unless the failure is that of `bootstrap`.
    pub fn start(bootstrap: &mut dyn Bootstrap, config: &ShmConfig) -> Result<Self, ShmError> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let prepared = prepare(rank, size, config);
        let card = match &prepared {
            Ok((_, _, card)) => card.to_text(),
            Err(error) => format!("failed={error}"),
        };
        let cards = bootstrap.allgather(card.as_bytes())?;
        // The file stays open until all have mapped it, also where this rank has failed: others then fail for the true
        // reason.
        let (file, started) = match prepared {
            Ok((fd, own, card)) => {
                let met = meet(rank, config, own, &card, &cards);
                let shm = met.and_then(|met| Self::assemble(rank, config, met));
                (Some(fd), shm)
            }
            Err(error) => (None, Err(error)),
        };
        let verdict = started.as_ref().err().map(|error| error.to_string());
        let verdicts = bootstrap.allgather(verdict.unwrap_or_default().as_bytes())?;
        drop(file);
        let shm = started?;
        for (peer, verdict) in (0..).zip(verdicts) {
            if !verdict.is_empty() {
                return Err(ShmError::PeerFailed {
                    peer,
                    reason: String::from_utf8_lossy(&verdict).into_owned(),
                });
            }
        }
        Ok(shm)
    }

    fn assemble(rank: Rank, config: &ShmConfig, met: Met) -> Result<Self, ShmError> {
        let Met {
            mappings,
            processes,
            watched,
        } = met;
        let size = mappings.len() as u32;
        let layout = mappings[rank as usize].layout().clone();
        let mut capabilities = Capabilities::REMOTE_COMPLETION | Capabilities::MEMORY;
        capabilities.set(Capabilities::WINDOW, config.windows);
        let index = || Index {
            queue: 0.into(),
            list: M::Lock::new(MatchList::new()),
        };
        let shm = Self {
            rank,
            size,
            config: config.clone(),
            shared_rings: config.shared_rings(size),
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
            peers: mappings.into_iter().map(Peer::new).collect(),
            queues: (0..QUEUES).map(|_| OnceLock::new()).collect(),
            indices: (0..PT_INDICES).map(|_| index()).collect(),
            entries: 0.into(),
            descriptors: Descriptors::new(),
            staging: Default::default(),
            allocated: M::Lock::new(Allocated::new(&layout)),
            failures: Failures::new(watched),
            processes: processes.into(),
            sent: AtomicU32::new(0),
            returns: Returns::new(),
            watches: Watches::new(
                QUEUES
                    * if config.shared_rings(size) {
                        1
                    } else {
                        size as usize
                    },
            ),
            waiting: 0.into(),
            statistics: Counters::new(),
            mode: Default::default(),
        };
        shm.watches.set_newcomers(&shm.own().control().newcomers);
        shm.create_quiet_queue()
            .map_err(|error: NiError| ShmError::System {
                rank,
                operation: "create the quiet queue",
                reason: error.to_string(),
            })?;
        Ok(shm)
    }
}

/// A whole world within this process, for tests: every end can go to a thread of its own (where the mode allows), or one
/// thread drives them all in turn.
///
/// # Errors
/// As [`Shm::start`].
pub fn in_process<M: Mode>(ranks: u32, config: &ShmConfig) -> Result<Vec<Shm<M>>, ShmError> {
    let mut mappings = Vec::new();
    for rank in 0..ranks {
        let (_, mapping, _) = prepare(rank, ranks, config)?;
        mappings.push(mapping);
    }
    let this = rustix::process::getpid().as_raw_nonzero().get();
    let met = || Met {
        mappings: mappings.clone(),
        processes: vec![this; ranks as usize],
        watched: Vec::new(),
    };
    (0..ranks)
        .map(|rank| Shm::assemble(rank, config, met()))
        .collect()
}

fn system(rank: Rank, operation: &'static str, error: impl ToString) -> ShmError {
    ShmError::System {
        rank,
        operation,
        reason: error.to_string(),
    }
}

/// Makes this rank's own memory.
fn prepare(
    rank: Rank,
    size: u32,
    config: &ShmConfig,
) -> Result<(OwnedFd, Arc<Mapping>, Card), ShmError> {
    config.check()?;
    let layout = Layout::new(config);
    let fd = create_file(&layout).map_err(|e| system(rank, "create shared memory", e))?;
    let own = Mapping::new(&fd, &layout, config.huge_pages)
        .map_err(|e| system(rank, "map shared memory (setting region_bytes)", e))?;
    let control = own.control();
    control.version.store(VERSION, Ordering::Relaxed);
    control.rank.store(rank, Ordering::Relaxed);
    let hash = settings_hash(config, size);
    control.settings.store(hash, Ordering::Relaxed);
    control.state.store(STATE_OPEN, Ordering::Relaxed);
    control.magic.store(MAGIC, Ordering::Release);
    let card =
        Card::of_this_process(&fd, config).map_err(|e| system(rank, "describe itself", e))?;
    Ok((fd, Arc::new(own), card))
}

/// All ranks as they were met.
struct Met {
    mappings: Vec<Arc<Mapping>>,
    /// Process ids.
    processes: Vec<i32>,
    /// Those to look after.
    watched: Vec<(Rank, OwnedFd)>,
}

/// Maps the memory of every rank on its card.
fn meet(
    rank: Rank,
    config: &ShmConfig,
    own: Arc<Mapping>,
    card: &Card,
    cards: &[Vec<u8>],
) -> Result<Met, ShmError> {
    let mut mappings = Vec::with_capacity(cards.len());
    let mut processes = Vec::with_capacity(cards.len());
    let mut watched = Vec::new();
    for (peer, text) in (0..).zip(cards) {
        if peer == rank {
            mappings.push(own.clone());
            processes.push(card.pid);
            continue;
        }
        let fault = |reason: String| ShmError::Peer { rank, peer, reason };
        let theirs = Card::parse(text).map_err(fault)?;
        compare(rank, card, peer, &theirs)?;
        let mapping = open(&theirs, config, peer, cards.len() as u32).map_err(fault)?;
        mappings.push(Arc::new(mapping));
        processes.push(theirs.pid);
        match watch(&theirs) {
            Ok(process) => watched.push((peer, process)),
            // The job runs without; who waits for a dead peer then waits for the launcher.
            Err(error) => tracing::warn!(peer, %error, "the peer's end will not be noticed"),
        }
    }
    Ok(Met {
        mappings,
        processes,
        watched,
    })
}

/// Maps a peer's memory through its process.
fn open(card: &Card, config: &ShmConfig, peer: Rank, size: u32) -> Result<Mapping, String> {
    let path = format!("/proc/{}/fd/{}", card.pid, card.fd);
    let refused = |error: std::io::Error| format!("{path}: {error}");
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(refused)?;
    let layout = Layout::new(config);
    let (inode, bytes) = identity(&file).map_err(|e| refused(e.into()))?;
    if inode != card.inode || bytes != layout.total as u64 {
        return Err(format!("{path} is another file now: the process has ended"));
    }
    let mapping = Mapping::new(file.as_fd(), &layout, config.huge_pages)
        .map_err(|e| format!("mapping {path} (setting region_bytes): {e}"))?;
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
            "its memory begins with magic, version, rank and settings {found:x?} instead of {expected:x?}"
        ));
    }
    Ok(mapping)
}

/// A descriptor of a peer's process, certainly of this one and no later one of the same id.
fn watch(card: &Card) -> Result<OwnedFd, String> {
    let pid = Pid::from_raw(card.pid).ok_or("no process id")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| e.to_string())?;
    match start_time(card.pid) {
        Some(time) if time == card.start_time => Ok(process),
        _ => Err("the process has ended".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        let layout = Layout::new(&ShmConfig::default());
        let fd = create_file(&layout).unwrap();
        Card::of_this_process(&fd, &ShmConfig::default()).unwrap()
    }

    #[test]
    fn a_recycled_process_is_noticed() {
        let mut theirs = card();
        theirs.inode += 1;
        let result = open(&theirs, &ShmConfig::default(), 0, 1);
        assert!(result.is_err());
        theirs.start_time += 1;
        assert!(watch(&theirs).is_err());
    }
}
