//! libfabric's own `fi_pingpong`, which is compared with a job's round trips. For the system's
//! library, the installed program is used; for the library in this program, the `fi_pingpong` that
//! is bundled with it.

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
    /// Returns the program that measures this library. Returns `None` if there are fewer than two
    /// cores or no such program. If the program is not installed, prints a message.
    ///
    /// # Errors
    /// Fails if the system does not report the cores or the path of this program.
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
            // The installed program would use a library other than this file.
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

    /// Returns the number of seconds per round trip with this provider.
    ///
    /// # Errors
    /// Fails if the program fails.
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

/// Returns the comparison of a job's round trip with one that takes `seconds` seconds.
pub(super) fn beside(ours: &Figure, seconds: f64) -> Option<Figure> {
    let subject = Subject {
        // Only a few names are leaked, because there is one for each round-trip figure.
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
        // No argument is lost, because the system's strings contain no null byte.
        let arguments = std::env::args_os().filter_map(|word| CString::new(word.into_vec()).ok());
        libfabric_vendored::pingpong(arguments.collect());
    }
}
