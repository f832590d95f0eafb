//! The system's limits on the resources of this process.

use std::ffi::{CString, c_char, c_int};

use crate::edge::text;
use crate::environment;

/// The limits raised by `gasnett_maximize_rlimits`: those on time and on memory of every kind, but
/// none on files.
const LIMITS: [(libc::__rlimit_resource_t, &str); 6] = [
    (libc::RLIMIT_CPU, "RLIMIT_CPU"),
    (libc::RLIMIT_DATA, "RLIMIT_DATA"),
    (libc::RLIMIT_STACK, "RLIMIT_STACK"),
    (libc::RLIMIT_RSS, "RLIMIT_RSS"),
    (libc::RLIMIT_AS, "RLIMIT_AS"),
    (libc::RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"),
];

/// Raises the soft limit to the hard limit unless the environment forbids it. Returns `false` only
/// if the limit could not be raised.
fn maximize(resource: libc::__rlimit_resource_t, name: &str) -> bool {
    let Ok(setting) = CString::new(format!("GASNET_MAXIMIZE_{name}")) else {
        return false;
    };
    if !environment::yes_no(&setting, true) {
        return true;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for the two calls, which return an error for an unknown resource.
    unsafe {
        if libc::getrlimit(resource, &raw mut limit) != 0 {
            return false;
        }
        if limit.rlim_cur == limit.rlim_max {
            return true;
        }
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(resource, &raw const limit) == 0
    }
}

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn gasnett_maximize_rlimits() -> c_int {
    // Try all limits, even if one fails.
    let failed = LIMITS
        .iter()
        .filter(|(resource, name)| !maximize(*resource, name))
        .count();
    c_int::from(failed == 0)
}

/// # Safety
/// `lim_desc` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_maximize_rlimit(res: c_int, lim_desc: *const c_char) -> c_int {
    // SAFETY: the caller guarantees that `lim_desc` is null or a C string.
    let name = unsafe { text(lim_desc, "gasnett_maximize_rlimit", "lim_desc") }.to_string_lossy();
    let Ok(resource) = libc::__rlimit_resource_t::try_from(res) else {
        return 0;
    };
    c_int::from(maximize(resource, &name))
}
