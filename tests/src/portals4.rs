//! Jobs over Portals 4 whose ranks are all in this process. Each rank loads its own copy of the
//! library, because a library has only one interface.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use conduit_core::threads::Mode;
use conduit_portals::portals4::start::in_process;
use conduit_portals::portals4::{Portals4, Portals4Config, Portals4Error};
use tempfile::TempDir;
use xtask::{Library, library};

/// The maximum number of ranks of a job in this module.
const MOST: usize = 9;

/// The combinations of faults that tests give the library: none first, and all of them last.
pub const FAULTS: [&str; 9] = [
    "",
    "unordered",
    "silent",
    "in_use",
    "stale",
    "dropped",
    "no_space",
    "early,unordered",
    "unordered,silent,in_use,stale,dropped,no_space,early",
];

struct Copies {
    faults: &'static str,
    files: Vec<PathBuf>,
    _folder: TempDir,
}

/// The copies of the library that no running job uses. A library is never unloaded, so its copies
/// are reused once their job has ended.
static COPIES: Mutex<Vec<Copies>> = Mutex::new(Vec::new());

/// Returns the path of the real libportals in `CONDUIT_TEST_PORTALS4`, if it is set. Tests then use
/// that library instead of the double. Jobs over it can't run at the same time (`--test-threads
/// 1`).
pub fn real() -> Option<PathBuf> {
    std::env::var_os("CONDUIT_TEST_PORTALS4").map(PathBuf::from)
}

/// Returns all combinations of faults, or only the one without faults for a real library.
pub fn faults() -> &'static [&'static str] {
    match real() {
        Some(_) => &FAULTS[..1],
        None => &FAULTS,
    }
}

/// Returns the combination without faults and then the one with all faults. For a real library,
/// returns only the former.
pub fn ends_of_faults() -> impl Iterator<Item = &'static str> {
    faults().iter().copied().step_by(FAULTS.len() - 1)
}

/// Returns the settings for a job whose ranks are all in this process.
pub fn config() -> Portals4Config {
    Portals4Config {
        region_bytes: 64 << 20,
        // All ranks run on this thread, so a rank that lingers on leaving would wait in vain for
        // its messages to be accepted.
        linger: Duration::ZERO,
        ..Portals4Config::default()
    }
}

/// Starts a job over a library with these faults.
///
/// # Errors
/// Same as [`in_process`].
///
/// # Panics
/// If the library can't be copied.
pub fn job<M: Mode>(
    ranks: u32,
    faults: &'static str,
    config: &Portals4Config,
) -> Result<Vec<Portals4<M>>, Portals4Error> {
    assert!(ranks as usize <= MOST, "{ranks} ranks, {MOST} copies");
    let mut all = COPIES.lock().expect("nobody panics with it");
    if real().is_some() {
        // The reference library can't be opened repeatedly, so every job gets fresh copies. The
        // files are needed only until they have been loaded.
        let fresh = copies(faults);
        return in_process(&fresh.files[..ranks as usize], config);
    }
    for copies in all.iter().filter(|copies| copies.faults == faults) {
        match in_process(&copies.files[..ranks as usize], config) {
            // Another job uses these copies, so the next ones are tried.
            Err(error) if error.to_string().contains("PTL_PID_IN_USE") => {}
            other => return other,
        }
    }
    all.push(copies(faults));
    let files = &all.last().expect("just pushed").files;
    in_process(&files[..ranks as usize], config)
}

/// Builds the test double of libportals.
fn double() -> PathBuf {
    library("portals4-double", Library::Shared).expect("cargo builds it")
}

fn copies(faults: &'static str) -> Copies {
    let folder = tempfile::tempdir().expect("a folder for copies");
    let original = real().unwrap_or_else(double);
    let files = portals4_double::copies(&original, folder.path(), faults, MOST);
    Copies {
        faults,
        files: files.expect("copies of the library"),
        _folder: folder,
    }
}

/// Returns the path of a copy of the library in `folder`, with these faults, for jobs of several
/// processes.
///
/// # Panics
/// If the library can't be copied.
pub fn file(folder: &Path, faults: &str) -> PathBuf {
    let original = real().unwrap_or_else(double);
    let mut files = portals4_double::copies(&original, folder, faults, 1).expect("a copy");
    files.remove(0)
}
