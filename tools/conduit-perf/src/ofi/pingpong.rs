//! libfabric's own `fi_pingpong` for comparison with a job's round trips: the installed program for
//! the system's library, the bundled one for the copy in this program.

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

/// The number of round trips in a reading.
const ROUND_TRIPS: u32 = 20_000;

/// The program, and the cores of its two processes.
pub(super) struct Program {
    path: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
    cores: [usize; 2],
}

impl Program {
    /// Returns the program that measures this library. Returns `None` if there are not two cores,
    /// or, after a message, if the program is not installed.
    ///
    /// # Errors
    /// The system does not report the cores or the path of this program.
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
            // The installed program uses another library.
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

    /// Returns the seconds of a round trip with this provider.
    ///
    /// # Errors
    /// The program fails.
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

/// Compares a job's round trip with one of `seconds` seconds.
pub(super) fn beside(ours: &Figure, seconds: f64) -> Option<Figure> {
    let subject = Subject {
        // Leaks only as many names as there are rows.
        name: ours.name.clone().leak(),
        size: ours.size,
        limit_name: "fi_pingpong",
        unit: Unit::Nanoseconds,
        target: Some(ROUND_TRIP),
    };
    Figure::of_rounds(&subject, ours.ranks, [(ours.value * 1e-9, seconds)])
}

/// Becomes `fi_pingpong` if the environment requests it.
pub fn main_if_asked() {
    if std::env::var_os(PROGRAM).is_some() {
        // The system's strings contain no null byte.
        let arguments = std::env::args_os().filter_map(|word| CString::new(word.into_vec()).ok());
        libfabric_vendored::pingpong(arguments.collect());
    }
}
