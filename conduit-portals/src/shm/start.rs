//! Job start: every rank makes its memory, says where it is, and maps everybody's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use conduit_core::bootstrap::Bootstrap;
use conduit_core::ni::{Capabilities, Limits, NiError, Rank, Reach};
use conduit_core::threads::{Lock, Mode};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::descriptors::{DESCRIPTORS, Descriptors};
use super::failure::Failures;
use super::layout::{
    Layout, MAGIC, PT_INDICES, QUEUES, REGIONS, STATE_OPEN, USER_QUEUES, VERSION, settings_hash,
};
use super::mapping::{Mapping, create_file, identity};
use super::match_list::MatchList;
use super::setup::{Allocated, ENTRIES};
use super::statistics::Counters;
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
        let started = prepared.and_then(|(fd, own, card)| {
            let (peers, processes) = meet(rank, config, own, &card, &cards)?;
            let shm = Self::assemble(rank, config, peers, processes)?;
            Ok((fd, shm))
        });
        // Nobody goes on, or closes its file, before all have mapped it; and if one could not, all hear of it.
        let verdict = started.as_ref().err().map(|error| error.to_string());
        let verdicts = bootstrap.allgather(verdict.unwrap_or_default().as_bytes())?;
        let (fd, shm) = started?;
        drop(fd);
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

    fn assemble(
        rank: Rank,
        config: &ShmConfig,
        mappings: Vec<Arc<Mapping>>,
        processes: Vec<(Rank, OwnedFd)>,
    ) -> Result<Self, ShmError> {
        let size = mappings.len() as u32;
        let layout = mappings[rank as usize].layout().clone();
        let mut capabilities = Capabilities::REMOTE_COMPLETION;
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
            failures: Failures::new(processes),
            waiting: 0.into(),
            statistics: Counters::new(),
            mode: Default::default(),
        };
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
    (0..ranks)
        .map(|rank| Shm::assemble(rank, config, mappings.clone(), Vec::new()))
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

/// What a rank tells the others: `name=value` lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Card {
    host: String,
    pid: i32,
    /// When the process started, in the kernel's clock ticks: a process that got the same id later differs.
    start_time: u64,
    fd: i32,
    inode: u64,
    settings: BTreeMap<String, String>,
}

impl Card {
    fn of_this_process(fd: &OwnedFd, config: &ShmConfig) -> std::io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let name = rustix::system::uname();
        let settings = config.entries().into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_string()));
        let version = ("version".to_owned(), VERSION.to_string());
        Ok(Self {
            host: format!("{}/{}", name.nodename().to_string_lossy(), boot.trim()),
            pid,
            start_time: start_time(pid).unwrap_or_default(),
            fd: fd.as_raw_fd(),
            inode: rustix::fs::fstat(fd)?.st_ino,
            settings: settings.chain([version]).collect(),
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "host={}\npid={}\nstart={}\nfd={}\ninode={}\n",
            self.host, self.pid, self.start_time, self.fd, self.inode
        );
        for (name, value) in &self.settings {
            // Writing to a string can't fail.
            let _ = writeln!(text, "set.{name}={value}");
        }
        text
    }

    /// The inverse, or what is wrong with it.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(text).map_err(|e| e.to_string())?;
        let mut lines = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once('=').ok_or("a line without '='")?;
            lines.insert(name, value);
        }
        if let Some(error) = lines.get("failed") {
            return Err(format!("it could not start: {error}"));
        }
        let take = |name: &str| lines.get(name).copied().ok_or(format!("no {name}"));
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{text} is no number"))
        }
        let settings = lines.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("set.")?;
            Some((name.to_owned(), (*value).to_owned()))
        });
        Ok(Self {
            host: take("host")?.to_owned(),
            pid: number(take("pid")?)?,
            start_time: number(take("start")?)?,
            fd: number(take("fd")?)?,
            inode: number(take("inode")?)?,
            settings: settings.collect(),
        })
    }
}

/// Field 22 of a process's status line; the command's name before it may hold anything.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// All ranks' memory, and the processes to look after.
type Met = (Vec<Arc<Mapping>>, Vec<(Rank, OwnedFd)>);

/// Maps the memory of every rank on its card.
fn meet(
    rank: Rank,
    config: &ShmConfig,
    own: Arc<Mapping>,
    card: &Card,
    cards: &[Vec<u8>],
) -> Result<Met, ShmError> {
    let mut mappings = Vec::with_capacity(cards.len());
    let mut processes = Vec::new();
    for (peer, text) in (0..).zip(cards) {
        if peer == rank {
            mappings.push(own.clone());
            continue;
        }
        let fault = |reason: String| ShmError::Peer { rank, peer, reason };
        let theirs = Card::parse(text).map_err(fault)?;
        compare(rank, card, peer, &theirs)?;
        let mapping = open(&theirs, config, peer, cards.len() as u32).map_err(fault)?;
        mappings.push(Arc::new(mapping));
        match watch(&theirs) {
            Ok(process) => processes.push((peer, process)),
            // The job runs without; who waits for a dead peer then waits for the launcher.
            Err(error) => tracing::warn!(peer, %error, "the peer's end will not be noticed"),
        }
    }
    Ok((mappings, processes))
}

fn compare(rank: Rank, ours: &Card, peer: Rank, theirs: &Card) -> Result<(), ShmError> {
    if ours.host != theirs.host {
        return Err(ShmError::OtherHost {
            rank,
            ours: ours.host.clone(),
            peer,
            theirs: theirs.host.clone(),
        });
    }
    let names = ours.settings.keys().chain(theirs.settings.keys());
    for name in names {
        let of = |card: &Card| card.settings.get(name).cloned();
        if of(ours) != of(theirs) {
            let shown = |card| of(card).unwrap_or_else(|| "missing".to_owned());
            return Err(ShmError::SettingDiffers {
                setting: name.clone(),
                rank,
                ours: shown(ours),
                peer,
                theirs: shown(theirs),
            });
        }
    }
    Ok(())
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
    fn a_card_survives_the_exchange() {
        let card = card();
        assert_eq!(Card::parse(card.to_text().as_bytes()), Ok(card));
    }

    #[test]
    fn a_bad_card_is_an_error() {
        for text in [
            "",
            "host",
            "host=a\npid=x\nstart=1\nfd=1\ninode=1",
            "failed=why",
        ] {
            assert!(Card::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Card::parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn hosts_and_settings_are_compared() {
        let ours = card();
        assert!(compare(0, &ours, 1, &ours).is_ok());
        let mut theirs = ours.clone();
        theirs.host = "elsewhere/1".to_owned();
        let error = compare(0, &ours, 1, &theirs).unwrap_err().to_string();
        assert!(
            error.contains("rank 0") && error.contains("rank 1 on elsewhere"),
            "{error}"
        );
        let mut theirs = ours.clone();
        theirs
            .settings
            .insert("max_message".to_owned(), "1".to_owned());
        let error = compare(0, &ours, 1, &theirs).unwrap_err().to_string();
        assert_eq!(
            error,
            "shm start: max_message is 65536 on rank 0 and 1 on rank 1"
        );
        theirs.settings.remove("max_message");
        let error = compare(0, &ours, 1, &theirs).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
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
