//! libfabric's own `fi_pingpong` beside the round trips of a job: the installed one over the system's library, over the copy in
//! this program the one that comes with it.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use conduit_ofi::library::Which;

use crate::figure::{Figure, Subject, Unit};
use crate::peers::tools::{fi_pingpong, on_path};
use crate::placement::{Cores, Placement};

use super::rows::{MESSAGE, ROUND_TRIP};

/// The environment variable that makes a process `fi_pingpong`.
const PROGRAM: &str = "FI_PINGPONG_OF_CONDUIT_PERF";

/// Messages there and back in a reading.
const ROUND_TRIPS: u32 = 20_000;

/// The program, and the cores of its two processes.
pub(super) struct Program {
    path: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
    cores: [usize; 2],
}

impl Program {
    /// The one that measures this library. `None` if there are not two cores, or, with a word, if it isn't installed.
    ///
    /// # Errors
    /// The system does not tell of cores or of this program.
    pub(super) fn find(library: &Which) -> anyhow::Result<Option<Self>> {
        let allowed = Cores::allowed()?;
        if allowed.count() < 2 {
            return Ok(None);
        }
        let mut environment = vec![("FI_TCP_IFACE", "lo")];
        let path = match library {
            Which::Vendored => {
                environment.push((PROGRAM, "1"));
                std::env::current_exe()?
            }
            Which::Any | Which::System => match on_path("fi_pingpong") {
                Some(path) => path,
                None => {
                    eprintln!("fi_pingpong: not installed (Debian's package: libfabric-bin)");
                    return Ok(None);
                }
            },
            // The installed one uses another.
            Which::File(_) => return Ok(None),
        };
        let core = |rank| allowed.core(Placement::Apart, rank, 2);
        let cores = [core(0)?, core(1)?];
        Ok(Some(Self {
            path,
            environment,
            cores,
        }))
    }

    /// Seconds of a round trip with this provider.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn seconds(&self, provider: &str) -> anyhow::Result<f64> {
        let kind = [provider, "rdm"];
        let environment = &self.environment;
        let one_way = fi_pingpong(
            &self.path,
            self.cores,
            kind,
            environment,
            MESSAGE,
            ROUND_TRIPS,
        )?;
        Ok(2e-6 * one_way)
    }
}

/// A job's round trip beside a round trip of so many seconds.
pub(super) fn beside(ours: &Figure, seconds: f64) -> Option<Figure> {
    let subject = Subject {
        // As many names as rows.
        name: ours.name.clone().leak(),
        size: ours.size,
        limit_name: "fi_pingpong",
        unit: Unit::Nanoseconds,
        target: Some(ROUND_TRIP),
    };
    Figure::of_rounds(&subject, ours.ranks, [(ours.value * 1e-9, seconds)])
}

/// Becomes `fi_pingpong` if this process is to be that.
pub fn main_if_asked() {
    if std::env::var_os(PROGRAM).is_some() {
        // The system's strings have no null byte.
        let arguments = std::env::args_os().filter_map(|word| CString::new(word.into_vec()).ok());
        libfabric_vendored::pingpong(arguments.collect());
    }
}
