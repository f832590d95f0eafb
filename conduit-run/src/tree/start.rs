//! The environment that the ranks of other hosts take over from the launcher, and the start of
//! these ranks by a daemon.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::environment;
use super::message::Start;
use crate::error::Error;
use crate::host::Host;
use crate::host::plan::{Limits, Plan};
use crate::output::Output;

/// The resources whose soft limits the ranks of other hosts take over.
const RESOURCES: [i32; 8] = [
    libc::RLIMIT_AS as i32,
    libc::RLIMIT_CORE as i32,
    libc::RLIMIT_CPU as i32,
    libc::RLIMIT_DATA as i32,
    libc::RLIMIT_FSIZE as i32,
    libc::RLIMIT_MEMLOCK as i32,
    libc::RLIMIT_NOFILE as i32,
    libc::RLIMIT_STACK as i32,
];

/// Returns the working directory, by the name under which the user has entered it.
pub(crate) fn folder() -> Result<PathBuf, Error> {
    let same = |path: &Path| {
        let (named, here) = (path.metadata().ok()?, Path::new(".").metadata().ok()?);
        Some((named.dev(), named.ino()) == (here.dev(), here.ino()))
    };
    if let Some(path) = std::env::var_os("PWD").map(PathBuf::from)
        && path.is_absolute()
        && same(&path) == Some(true)
    {
        return Ok(path);
    }
    std::env::current_dir().map_err(Error::system("finding the working directory"))
}

/// Returns the limits of this process.
pub(crate) fn limits() -> Limits {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    let soft = |resource: i32| {
        let mut limit = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
        // SAFETY: getrlimit only writes to `limit`, for which all zeroes are valid.
        let (result, limit) = unsafe {
            #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            let result = libc::getrlimit(resource as _, limit.as_mut_ptr());
            (result, limit.assume_init())
        };
        let soft = (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur);
        (result == 0).then_some((resource, soft))
    };
    Limits {
        umask,
        soft: RESOURCES.into_iter().filter_map(soft).collect(),
    }
}

/// Returns the variables of this process for the ranks of other hosts: all that do not belong to
/// this host or session, or only settings.
pub(crate) fn variables(all: bool) -> Vec<(OsString, OsString)> {
    environment::to_send(std::env::vars_os(), all)
}

/// Starts the ranks of a daemon's host.
pub(crate) fn start(start: Start, output: &Output) -> Result<Host, Error> {
    let Start { plan, folder, .. } = start;
    std::env::set_current_dir(&folder).map_err(|source| Error::Folder { folder, source })?;
    let own = std::env::vars_os().map(|(name, _)| name);
    let plan = Plan {
        unset: own.filter(|name| environment::is_of_rank(name)).collect(),
        own_process: true,
        ..plan
    };
    let mut host = Host::prepare(plan, output.piped().len())?;
    host.start(output.piped(), false)?;
    Ok(host)
}
