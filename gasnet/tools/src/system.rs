//! Properties of the machine and the process.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::failure::fatal;

/// Returns the host's name in lower case.
pub(crate) fn hostname() -> &'static CStr {
    static NAME: OnceLock<CString> = OnceLock::new();
    NAME.get_or_init(|| {
        let mut name = rustix::system::uname().nodename().to_bytes().to_vec();
        name.make_ascii_lowercase();
        CString::new(name).unwrap_or_default()
    })
}

static GIVEN_EXECUTABLE: Mutex<Option<CString>> = Mutex::new(None);

/// Sets the program's path as the program's `main` function received it, for systems that do not
/// report the path.
pub(crate) fn set_executable(name: Option<CString>) {
    *GIVEN_EXECUTABLE
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = name;
}

/// Returns the program's path, or an empty path if the path cannot be determined.
pub(crate) fn executable() -> &'static CStr {
    static NAME: OnceLock<CString> = OnceLock::new();
    NAME.get_or_init(|| {
        let known = std::env::current_exe()
            .ok()
            .and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
        known
            .or_else(|| {
                GIVEN_EXECUTABLE
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
            })
            .unwrap_or_default()
    })
}

/// Returns the number of processors online, or 0 if that cannot be determined.
fn processors() -> c_int {
    // SAFETY: the call only queries the system.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    c_int::try_from(count).unwrap_or(0).max(0)
}

/// Returns the size of the host's memory in bytes, or 0 if that cannot be determined.
pub fn physical_memory() -> u64 {
    // SAFETY: the calls only query the system.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    match (u64::try_from(pages), u64::try_from(size)) {
        (Ok(pages), Ok(size)) => pages * size,
        _ => 0,
    }
}

/// The GASNet release whose interface this library provides, as in `gasnet_config.h`.
const RELEASE: [u64; 3] = [2025, 8, 0];
const RELEASE_TEXT: &CStr = c"2025.8.0";

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn gasnett_gethostname() -> *const c_char {
    hostname().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_exe_name() -> *const c_char {
    executable().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_cpu_count() -> c_int {
    processors()
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn gasnett_getPhysMemSz(failureIsFatal: c_int) -> u64 {
    match physical_memory() {
        0 if failureIsFatal != 0 => {
            fatal("gasnett_getPhysMemSz: cannot determine the size of the host's memory")
        }
        bytes => bytes,
    }
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_release_version() -> u64 {
    RELEASE[0] * 1_000_000 + RELEASE[1] * 10_000 + RELEASE[2]
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_release_version_str() -> *const c_char {
    RELEASE_TEXT.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_set_affinity(rank: c_int) -> c_int {
    // Count all configured processors rather than those online, because processor numbers include
    // the offline ones.
    // SAFETY: the call only queries the system.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    if count <= 0 {
        return 1;
    }
    let processor = libc::c_long::from(rank).rem_euclid(count) as usize;
    let mut set = rustix::thread::CpuSet::new();
    if processor >= rustix::thread::CpuSet::MAX_CPU {
        return 1;
    }
    set.set(processor);
    c_int::from(rustix::thread::sched_setaffinity(None, &set).is_err())
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_sched_yield() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_that_of_the_header() {
        let header = include_str!("../../include/gasnet_config.h");
        for (part, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(RELEASE) {
            let line = format!("#define GASNET_RELEASE_VERSION_{part} {number}\n");
            assert!(header.contains(&line), "{line}");
        }
        assert_eq!(
            RELEASE_TEXT.to_str().unwrap_or_default(),
            RELEASE.map(|part| part.to_string()).join(".")
        );
    }
}
