//! Job start over Portals 4: every rank opens an interface, and all exchange their physical ids.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_core::threads::Mode;
use pmi::bootstrap::Bootstrap;
use portals4_sys::{Library, SelfTestError, ptl_ni_limits_t, ptl_process_phys_t};

use super::error::Portals4Error;
use super::interface::Interface;
use super::settings::Settings;
use super::{Job, Portals4};

/// The configuration of the network over Portals 4. All fields but `library` must be the same on
/// all ranks.
#[derive(Debug, Clone)]
pub struct Portals4Config {
    /// The libportals to load, or `None` for the system's.
    pub library: Option<PathBuf>,
    /// The maximum number of operations in flight.
    pub operations: u32,
    /// Whether the library performs atomics, if all ranks' libraries can.
    pub atomics: bool,
    /// Length of the largest put to a locally managed entry, in bytes.
    pub max_managed: usize,
    /// Length of the largest inject in bytes, at most `max_managed`.
    pub inject_size: usize,
    /// Total size of a rank's regions in bytes.
    pub region_bytes: usize,
    /// How long a rank that leaves waits for its peers to receive everything that it sent.
    pub linger: Duration,
}

impl Portals4Config {
    /// Creates the configuration for these settings.
    pub fn of(settings: &Settings) -> Self {
        Self {
            library: settings.library.clone(),
            operations: settings.operations,
            atomics: settings.atomics,
            ..Self::default()
        }
    }
}

impl Default for Portals4Config {
    fn default() -> Self {
        Self {
            library: None,
            operations: Settings::default().operations,
            atomics: false,
            max_managed: 8 << 10,
            inject_size: 1 << 10,
            region_bytes: 1 << 36,
            linger: Duration::from_secs(2),
        }
    }
}

/// Loads libportals.
///
/// # Errors
/// Returns the library's path and the reason why it can't be used.
pub fn library(path: Option<&Path>) -> Result<Library, String> {
    Library::load(path).map_err(|error| error.to_string())
}

/// The limits that this network requests. The library may grant less; this network derives the
/// limits that it reports from the granted ones.
const WANTED: ptl_ni_limits_t = ptl_ni_limits_t {
    max_entries: 4096,
    max_unexpected_headers: 1024,
    max_mds: 64,
    max_cts: 64,
    max_eqs: 64,
    max_pt_index: 63,
    max_iovecs: 64,
    max_list_size: 4096,
    max_triggered_ops: 64,
    max_msg_size: 1 << 30,
    max_atomic_size: 64,
    max_fetch_atomic_size: 64,
    max_waw_ordered_size: 64,
    max_war_ordered_size: 64,
    max_volatile_size: 64,
    features: 0,
};

/// The first byte of a rank's contribution to the allgather at start. `READY` is followed by the
/// rank's physical id and by the sizes of its largest message and its largest atomic; `FAILED` is
/// followed by the text of the rank's error.
const READY: u8 = 1;
const FAILED: u8 = 0;

/// Opens an interface, which has no map yet.
fn open(rank: Rank, config: &Portals4Config) -> Result<(Interface, Vec<u8>), Portals4Error> {
    let library = library(config.library.as_deref())
        .map_err(|reason| Portals4Error::Library { rank, reason })?;
    let interface = Interface::open(library, rank, WANTED)?;
    let place = interface.place()?;
    let mut text = vec![READY];
    text.extend(place.nid.to_le_bytes());
    text.extend(place.pid.to_le_bytes());
    text.extend(interface.limits.max_msg_size.to_le_bytes());
    let largest = (interface.limits.max_atomic_size).min(interface.limits.max_fetch_atomic_size);
    text.extend(largest.to_le_bytes());
    Ok((interface, text))
}

/// Parses the contributions of all ranks.
fn parse(rank: Rank, texts: &[Vec<u8>]) -> Result<(Vec<ptl_process_phys_t>, Job), Portals4Error> {
    let mut places = Vec::with_capacity(texts.len());
    let (mut max_message, mut max_atomic) = (u64::MAX, u64::MAX);
    for (peer, text) in (0..).zip(texts) {
        let unreadable = Portals4Error::Peer { rank, peer };
        let Some((&kind, text)) = text.split_first() else {
            return Err(unreadable);
        };
        if kind == FAILED {
            let reason = String::from_utf8_lossy(text).into_owned();
            return Err(Portals4Error::PeerFailed { peer, reason });
        }
        let (words, rest) = text.as_chunks::<8>();
        let ([place, message, atomic], []) = (words, rest) else {
            return Err(unreadable);
        };
        let place = u64::from_le_bytes(*place);
        places.push(ptl_process_phys_t {
            nid: place as u32,
            pid: (place >> 32) as u32,
        });
        max_message = max_message.min(u64::from_le_bytes(*message));
        max_atomic = max_atomic.min(u64::from_le_bytes(*atomic));
    }
    let job = Job {
        rank,
        // The cast is lossless: the value is the number of ranks.
        size: places.len() as u32,
        max_message: usize::try_from(max_message).unwrap_or(usize::MAX),
        atomics: max_atomic >= 8,
    };
    Ok((places, job))
}

/// Creates the network over an interface that has its map.
fn assemble<M: Mode>(
    job: Job,
    config: &Portals4Config,
    interface: Interface,
) -> Result<Portals4<M>, Portals4Error> {
    let unfit = |error: SelfTestError| Portals4Error::Library {
        rank: job.rank,
        reason: error.to_string(),
    };
    interface.self_test().map_err(unfit)?;
    Ok(Portals4::new(interface, job, config)?)
}

/// Starts the network of a job. Collective: if one rank fails, all fail.
///
/// # Errors
/// No libportals was found, it refuses a call, or another rank failed.
pub fn start<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    config: &Portals4Config,
) -> Result<Portals4<M>, Portals4Error> {
    let rank = bootstrap.rank();
    let opened = open(rank, config);
    let text = match &opened {
        Ok((_, text)) => text.clone(),
        Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
    };
    let texts = bootstrap.allgather(&text)?;
    let started = opened.and_then(|(interface, _)| {
        let (places, job) = parse(rank, &texts)?;
        interface.set_map(&places)?;
        assemble(job, config, interface)
    });
    let verdict = started.as_ref().err().map(ToString::to_string);
    let verdicts = bootstrap.allgather(verdict.unwrap_or_default().as_bytes())?;
    let network = started?;
    for (peer, verdict) in (0..).zip(verdicts) {
        if !verdict.is_empty() {
            let reason = String::from_utf8_lossy(&verdict).into_owned();
            return Err(Portals4Error::PeerFailed { peer, reason });
        }
    }
    Ok(network)
}

/// Starts a whole job within this process, for tests: one rank for each of these libraries, which
/// have to be copies of one library in different files, because a library has only one interface.
///
/// # Errors
/// Same as [`start`].
pub fn in_process<M: Mode>(
    libraries: &[PathBuf],
    config: &Portals4Config,
) -> Result<Vec<Portals4<M>>, Portals4Error> {
    let config = |rank: usize| Portals4Config {
        library: Some(libraries[rank].clone()),
        ..config.clone()
    };
    let opened = (0..libraries.len())
        .map(|rank| open(rank as Rank, &config(rank)))
        .collect::<Result<Vec<_>, _>>()?;
    let texts: Vec<_> = opened.iter().map(|(_, text)| text.clone()).collect();
    // The calls run in parallel, because each may wait until every rank has set its map.
    let (places, job) = parse(0, &texts)?;
    let set = std::thread::scope(|scope| {
        let set = |(interface, _): &(Interface, _)| interface.set_map(&places);
        let threads: Vec<_> = opened
            .iter()
            .map(|opened| scope.spawn(move || set(opened)))
            .collect();
        (threads.into_iter())
            .map(|thread| thread.join().expect("set_map does not panic"))
            .collect::<Result<Vec<_>, _>>()
    });
    set?;
    (0..)
        .zip(opened)
        .map(|(rank, (interface, _))| {
            assemble(Job { rank, ..job }, &config(rank as usize), interface)
        })
        .collect()
}
