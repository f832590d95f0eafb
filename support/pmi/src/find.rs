//! Which way to the job the environment of this process offers.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::ancestors::{is_pmi1_taken, is_pmi2_taken, is_pmix_taken, is_torch_taken, mark};
use crate::bootstrap::Bootstrap;
use crate::files::Folder;
use crate::{client, pmi2, pmix, store};

/// A way by which a rank reaches its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// PMI-1 over the socket of `PMI_FD` or `PMI_PORT`.
    Pmi1,
    /// PMI-2 through the launcher's library.
    Pmi2,
    /// PMIx.
    Pmix,
    /// The store whose address torchrun states in `MASTER_ADDR` and `MASTER_PORT`.
    Torch,
    /// A store at this host and port, which rank 0 provides.
    Address(String),
    /// A folder that all ranks see.
    Folder(PathBuf),
}

impl Way {
    /// The forms that [`Way::parse`] accepts.
    pub const FORMS: &str = "pmi1, pmi2, pmix, torch, tcp:HOST:PORT or file:FOLDER";

    /// Returns the way for a word, an address or a folder; `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pmi1" => Self::Pmi1,
            "pmi2" => Self::Pmi2,
            "pmix" => Self::Pmix,
            "torch" => Self::Torch,
            _ => match text.split_once(':')? {
                ("tcp", address) if address.contains(':') => Self::Address(address.to_owned()),
                ("file", folder) if !folder.is_empty() => Self::Folder(folder.into()),
                _ => return None,
            },
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pmi1 => f.write_str("PMI-1"),
            Self::Pmi2 => f.write_str("PMI-2"),
            Self::Pmix => f.write_str("PMIx"),
            Self::Torch => f.write_str("torchrun's store"),
            Self::Address(address) => write!(f, "the store at {address}"),
            Self::Folder(folder) => write!(f, "the folder {}", folder.display()),
        }
    }
}

/// The user's wishes about the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The only way to try (`CONDUIT_BOOTSTRAP`); `None` tries those that the environment offers.
    pub way: Option<Way>,
    /// This rank, for a store or a folder (`CONDUIT_RANK`).
    pub rank: Option<u32>,
    /// The number of ranks, for a store or a folder (`CONDUIT_SIZE`).
    pub size: Option<u32>,
    /// The maximum time to wait for the other ranks at a store or a folder
    /// (`CONDUIT_BOOTSTRAP_TIMEOUT`).
    pub timeout: Duration,
    /// The library of PMIx (`CONDUIT_PMIX_LIBRARY`).
    pub pmix_library: Option<PathBuf>,
    /// The library of PMI-2 (`CONDUIT_PMI2_LIBRARY`).
    pub pmi2_library: Option<PathBuf>,
}

/// A way that was tried, and why it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The way.
    pub way: Way,
    /// The reason.
    pub reason: String,
}

/// The reason why a process cannot join its job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The way that the user or a launcher with PMI-1 has named does not work.
    #[error("{}: {}", .0.way, .0.reason)]
    Failed(Attempt),
    /// A launcher has started this process as one of several, but no way leads to the others.
    #[error(
        "{found} in the environment: a launcher has started this process as one of several, but \
         no way to the others works ({}). Start it with `conduit-run -n N PROGRAM`, \
         `mpiexec -n N PROGRAM` of MPICH or Open MPI, `srun --mpi=pmi2` or `--mpi=pmix`, or \
         `flux run -o pmi=simple`; set CONDUIT_ALONE=1 if each process is meant to be a job of its \
         own",
        tried(attempts)
    )]
    Several {
        /// The variables, with their values, that say so.
        found: String,
        /// The ways that were tried.
        attempts: Vec<Attempt>,
    },
}

fn tried(attempts: &[Attempt]) -> String {
    let tried = attempts
        .iter()
        .map(|Attempt { way, reason }| format!("{way}: {reason}"));
    match attempts {
        [] => "none of PMI-1, PMI-2, PMIx and torchrun's store is offered".to_owned(),
        _ => tried.collect::<Vec<_>>().join("; "),
    }
}

/// Connects to the job in which a launcher has started this process. Returns `None` if there is no
/// launcher, and in programs that a rank has started, because such programs are jobs of their
/// own. Call this only once in a process.
///
/// # Errors
/// The way that the user has named does not work, or a launcher has started this process as one of
/// several and no way to the others works.
pub fn find(options: &Options) -> Result<Option<Box<dyn Bootstrap + Send>>, Error> {
    let environment = Environment::of_process();
    if let Some(way) = &options.way {
        let way = way.clone();
        return match environment.connect(&way, options) {
            Ok(bootstrap) => Ok(Some(bootstrap)),
            Err(reason) => Err(Error::Failed(Attempt { way, reason })),
        };
    }
    let offers = environment.offers();
    let Some(free) = free(&offers) else {
        return Ok(None);
    };
    let mut attempts = Vec::new();
    for way in free {
        match environment.connect(&way, options) {
            Ok(bootstrap) => return Ok(Some(bootstrap)),
            Err(reason) => attempts.push(Attempt { way, reason }),
        }
    }
    match environment.one_of_several() {
        Some(found) if attempts.len() != 1 || attempts[0].way != Way::Pmi1 => {
            Err(Error::Several { found, attempts })
        }
        // A process that is the only one of its launcher needs no connection, unless the launcher
        // has opened one.
        _ => match attempts
            .into_iter()
            .find(|attempt| attempt.way == Way::Pmi1)
        {
            Some(attempt) => Err(Error::Failed(attempt)),
            None => Ok(None),
        },
    }
}

/// Returns whether a launcher has started this process as a rank that [`find`] could connect. The
/// children of a rank are not ranks.
pub fn has_launcher() -> bool {
    let environment = Environment::of_process();
    free(&environment.offers()).is_some_and(|ways| !ways.is_empty())
}

/// Returns whether a launcher with PMI-1 has started this process as a rank.
pub fn has_pmi1() -> bool {
    let offers = Environment::of_process().offers();
    free(&offers).is_some_and(|ways| ways.contains(&Way::Pmi1))
}

/// Returns the variables, with their values, by which a launcher shows that this process is one of
/// several; `None` if there are none, or in programs that a rank has started, where the variables
/// describe that rank.
pub fn one_of_several() -> Option<String> {
    let environment = Environment::of_process();
    free(&environment.offers())?;
    environment.one_of_several()
}

/// Returns the ways whose variables do not describe an ancestor of this process that has joined its
/// job; `None` if all do, because a rank has started this program. Ranks of an inner launcher
/// inherit the variables of an outer one.
fn free(offers: &[Way]) -> Option<Vec<Way>> {
    let is_free = |way: &&Way| match way {
        Way::Pmi1 => !is_pmi1_taken(),
        Way::Pmi2 => !is_pmi2_taken(),
        Way::Pmix => !is_pmix_taken(),
        _ => !is_torch_taken(),
    };
    let free: Vec<Way> = offers.iter().filter(is_free).cloned().collect();
    (offers.is_empty() || !free.is_empty()).then_some(free)
}

/// Returns this process's rank as far as its environment tells, for messages about a failure to
/// join.
pub fn told_rank() -> Option<u32> {
    let names = [
        "PMI_RANK",
        "PMIX_RANK",
        "CONDUIT_RANK",
        "PALS_RANKID",
        "RANK",
    ];
    let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
    values.find_map(|value| value.parse().ok())
}

/// For each launcher, the variable that states how many processes it has started, and the variable
/// that states the number of this process among them.
///
/// Slurm also sets `SLURM_NTASKS` and `SLURM_PROCID` in batch scripts, where they describe what the
/// script may start; only `srun` sets the variables of a step. PALS states the number in
/// `PMI_SIZE`.
const SIZES: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    ("WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
];

/// Variables of a launcher that do not state how many processes it has started.
struct Unsized {
    /// The variable that states the number of this process.
    rank: &'static str,
    /// The variable that states the job's name.
    job: &'static str,
    /// Pairs of a prefix of the job's name, and the variable in which the resource manager above
    /// the launcher states the number of processes of such a job.
    sizes: &'static [(&'static str, &'static str)],
}

const UNSIZED: [Unsized; 2] = [
    Unsized {
        rank: "PMIX_RANK",
        job: "PMIX_NAMESPACE",
        sizes: &[
            ("slurm.pmix.", "SLURM_STEP_NUM_TASKS"),
            ("", "OMPI_COMM_WORLD_SIZE"),
        ],
    },
    Unsized {
        rank: "PALS_RANKID",
        job: "PALS_APID",
        sizes: &[("", "PMI_SIZE")],
    },
];

/// The variables of torchrun, without which its store cannot be found.
const TORCH: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// The variables of an environment.
struct Environment(HashMap<String, String>);

impl Environment {
    fn of_process() -> Self {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        Self(
            std::env::vars_os()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn is_set(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }

    /// Returns the ways that the environment offers. The first is that of the innermost launcher:
    /// a descriptor that is open here can only come from the launcher that has started this
    /// process, but the variables of other launchers may be inherited from outer ones.
    fn offers(&self) -> Vec<Way> {
        let has_pmi1 = self.is_set("PMI_FD") || self.is_set("PMI_PORT");
        let has_pmi2 = self.is_set("PALS_RANKID")
            || !has_pmi1 && self.is_set("PMI_RANK") && self.is_set("PMI_SIZE");
        let has_torch = TORCH.iter().all(|name| self.is_set(name))
            && self.number("WORLD_SIZE").is_none_or(|size| size > 1);
        let offers = [
            (has_pmi1, Way::Pmi1),
            (
                self.is_set("PMIX_NAMESPACE") && self.is_set("PMIX_RANK"),
                Way::Pmix,
            ),
            (has_pmi2, Way::Pmi2),
            (has_torch, Way::Torch),
        ];
        let offered = offers.into_iter().filter(|(is_offered, _)| *is_offered);
        offered.map(|(_, way)| way).collect()
    }

    /// Connects this process. An error is the reason as a text.
    fn connect(&self, way: &Way, options: &Options) -> Result<Box<dyn Bootstrap + Send>, String> {
        let bootstrap: Box<dyn Bootstrap + Send> = match way {
            Way::Pmi1 => match client::Connection::from_env().map_err(text)? {
                Some(connection) => Box::new(connection),
                None => return Err("neither PMI_FD nor PMI_PORT is set".to_owned()),
            },
            Way::Pmi2 => {
                let library = options.pmi2_library.as_deref();
                Box::new(pmi2::Connection::from_env(library).map_err(text)?)
            }
            Way::Pmix => {
                let library = options.pmix_library.as_deref();
                Box::new(pmix::Connection::from_env(library).map_err(text)?)
            }
            Way::Torch => Box::new(self.torch(options)?),
            Way::Address(address) => {
                let (rank, size) = by_hand(options)?;
                let config = store::Config {
                    rank,
                    size,
                    address: address.clone(),
                    job: "conduit".to_owned(),
                    serve: true,
                    timeout: options.timeout,
                };
                Box::new(store::Connection::new(&config).map_err(text)?)
            }
            Way::Folder(folder) => {
                let (rank, size) = by_hand(options)?;
                let folder = Folder::new(rank, size, folder.clone(), options.timeout);
                Box::new(folder.map_err(text)?)
            }
        };
        // The library of PMI-2 gives a process without a server a job of its own.
        match self.stated_size() {
            Some(found) if bootstrap.size() == 1 => {
                Err(format!("a job of one rank, in spite of {found}"))
            }
            _ => {
                mark();
                Ok(bootstrap)
            }
        }
    }

    fn torch(&self, options: &Options) -> Result<store::Connection, String> {
        let get = |name: &str| self.get(name).ok_or_else(|| format!("{name} is not set"));
        let number = |name: &str| {
            let value = get(name)?;
            let parsed = value.trim().parse::<u32>();
            parsed.map_err(|_| format!("{name}={value:?} is not a number"))
        };
        let (rank, size) = (number("RANK")?, number("WORLD_SIZE")?);
        if rank >= size {
            return Err(format!("RANK={rank} is not below WORLD_SIZE={size}"));
        }
        let run = self.get("TORCHELASTIC_RUN_ID").unwrap_or_default();
        let restart = self.get("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
        let config = store::Config {
            rank,
            size,
            address: format!("{}:{}", get("MASTER_ADDR")?, get("MASTER_PORT")?),
            job: format!("conduit/{run}/{restart}"),
            // Where torchrun provides the store, it says so.
            serve: self.get("TORCHELASTIC_USE_AGENT_STORE") != Some("True"),
            timeout: options.timeout,
        };
        let connected = store::Connection::new(&config);
        connected.map_err(|error| format!("{}: {error}", config.address))
    }

    /// Returns the variables with their values, as a text.
    fn tell(&self, names: [&str; 2]) -> String {
        let told = names
            .into_iter()
            .filter_map(|name| Some(format!("{name}={}", self.get(name)?)));
        told.collect::<Vec<_>>().join(" and ")
    }

    /// Returns the variables, with their values, that state a number of processes above 1.
    fn stated_size(&self) -> Option<String> {
        let is_several = |(size, rank): &(&str, &str)| {
            self.is_set(rank) && self.number(size).is_some_and(|size| size > 1)
        };
        let (size, rank) = SIZES.into_iter().find(is_several)?;
        Some(self.tell([size, rank]))
    }

    /// Returns the variables, with their values, that show that this process is one of several.
    fn one_of_several(&self) -> Option<String> {
        if let Some(found) = self.stated_size() {
            return Some(found);
        }
        for Unsized { rank, job, sizes } in UNSIZED {
            if !self.is_set(rank) {
                continue;
            }
            let name = self.get(job).unwrap_or_default();
            let known = sizes.iter().find_map(|(begin, size)| {
                if name.starts_with(begin) {
                    self.number(size)
                } else {
                    None
                }
            });
            if known.is_none() {
                return Some(self.tell([rank, job]));
            }
        }
        None
    }
}

/// Returns the rank and the size that the user has stated.
fn by_hand(options: &Options) -> Result<(u32, u32), String> {
    match (options.rank, options.size) {
        (Some(rank), Some(size)) if rank < size => Ok((rank, size)),
        (Some(rank), Some(size)) => Err(format!(
            "CONDUIT_RANK={rank} is not below CONDUIT_SIZE={size}"
        )),
        (None, _) => Err("CONDUIT_RANK is not set".to_owned()),
        (_, None) => Err("CONDUIT_SIZE is not set".to_owned()),
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
