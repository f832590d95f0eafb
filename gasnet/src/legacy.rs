//! What only GASNet-1 has: attach with handlers, wait modes, gets of values under way.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::abi::{self, LegacyEntry};
use crate::fault::{Refusal, code, refuse};
use crate::handlers::{register_legacy, table};
use crate::job::Job;
use crate::segment::attach;

/// Registers handlers and attaches a segment. Collective.
///
/// # Safety
/// `entries` is valid for `count` entries, whose functions are handlers.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_attach(
    entries: *mut LegacyEntry,
    count: c_int,
    bytes: usize,
    _least_heap_offset: usize,
) -> c_int {
    const CALL: &str = "gasnet_attach";
    let attached = Job::or_refusal().and_then(|job| {
        let count = usize::try_from(count)
            .map_err(|_| Refusal::bad(format_args!("a table of {count} handlers")))?;
        // SAFETY: the caller's promise.
        register_legacy(job, unsafe { table(entries, count) }?)?;
        // GASNet-EX rounds no segment up to a page.
        let bytes = if bytes == 0 {
            rustix::param::page_size()
        } else {
            bytes
        };
        attach(CALL, job, bytes)
    });
    code(CALL, attached)
}

/// `GASNET_WAIT_*`; the engine spins, yields and sleeps as suits the host, whatever is asked for.
static WAIT_MODE: AtomicI32 = AtomicI32::new(0);

/// How blocking calls shall wait: a hint.
#[unsafe(no_mangle)]
extern "C" fn gasnet_set_waitmode(mode: c_int) -> c_int {
    if !(0..=2).contains(&mode) {
        let refusal = Refusal::bad(format_args!("wait mode {mode}"));
        return refuse("gasnet_set_waitmode", &refusal);
    }
    WAIT_MODE.store(mode, Relaxed);
    abi::OK
}
