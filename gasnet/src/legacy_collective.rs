//! GASNet-1's collective operations other than barriers.
//!
//! The flags `NOSYNC` and `MYSYNC` need no action, because an operation accesses a rank's memory
//! only between the rank's call and the operation's completion on that rank. Only `ALLSYNC` makes
//! ranks wait for each other.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use conduit::Rank;
use conduit_core::collectives::CollectiveKind;
use conduit_core::collectives::CollectiveSync;
use conduit_core::kernel::Completion;

use crate::collective::memory;
use crate::event::event;
use crate::fault::{fatal, sure};
use crate::team::team;

bitflags::bitflags! {
    /// `GASNET_COLL_*`.
    #[derive(Clone, Copy)]
    struct Flags: c_int {
        const IN_NOSYNC = 1 << 0;
        const IN_MYSYNC = 1 << 1;
        const IN_ALLSYNC = 1 << 2;
        const OUT_NOSYNC = 1 << 3;
        const OUT_MYSYNC = 1 << 4;
        const OUT_ALLSYNC = 1 << 5;
        const IN = 0b111;
        const OUT = 0b111 << 3;
        const _ = !0;
    }
}

fn sync(call: &str, bits: c_int) -> CollectiveSync {
    let flags = Flags::from_bits_retain(bits);
    let one = |group| flags.intersection(group).bits().count_ones() == 1;
    if !one(Flags::IN) || !one(Flags::OUT) {
        fatal(
            call,
            &format_args!(
                "flags {bits:#x} must name exactly one kind of sync for in and one for out"
            ),
        );
    }
    CollectiveSync {
        before: flags.contains(Flags::IN_ALLSYNC),
        after: flags.contains(Flags::OUT_ALLSYNC),
    }
}

/// Returns the operation that a `CONDUIT_GEX_COLL_*` constant stands for, and the name of the
/// operation's call.
fn operation(kind: c_uint, root: Rank) -> (CollectiveKind, &'static str) {
    match kind {
        0 => (CollectiveKind::Broadcast { root }, "gasnet_coll_broadcast"),
        1 => (CollectiveKind::Scatter { root }, "gasnet_coll_scatter"),
        2 => (CollectiveKind::Gather { root }, "gasnet_coll_gather"),
        3 => (CollectiveKind::GatherAll, "gasnet_coll_gather_all"),
        4 => (CollectiveKind::Exchange, "gasnet_coll_exchange"),
        _ => fatal("gasnet_coll", &"unknown kind of operation"),
    }
}

/// Starts an operation. Operations without a root ignore `root`.
///
/// # Safety
/// Until the event is complete, `source` and `result` must be valid for the operation's accesses on
/// this rank, and must not be used otherwise.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_collective(
    kind: c_uint,
    handle: *const c_void,
    result: *mut c_void,
    root: Rank,
    source: *const c_void,
    bytes: usize,
    flags: c_int,
) -> usize {
    let (kind, call) = operation(kind, root);
    let (job, team) = team(call, handle);
    let (gets, gives) = match kind {
        CollectiveKind::Broadcast { root } | CollectiveKind::Scatter { root } => {
            (true, root == team.rank())
        }
        CollectiveKind::Gather { root } => (root == team.rank(), true),
        _ => (true, true),
    };
    if gets {
        memory(call, "dst", result, bytes);
    }
    if gives {
        memory(call, "src", source, bytes);
    }
    let sync = sync(call, flags);
    let engine = job.engine();
    let (result, source) = (result.cast(), source.cast());
    let by_handle = Completion::Handle;
    // SAFETY: the caller guarantees that `source` and `result` are valid until the event is
    // complete.
    let started = unsafe {
        engine
            .collectives()
            .move_nb(team.id(), kind, result, source, bytes, sync, by_handle)
    };
    event(Some(sure(call, started)))
}

/// Ends the job, because a barrier with an id was called for a team that does not support ids.
///
/// # Safety
/// `call` must be a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_not_all(call: *const c_char, handle: *const c_void) -> ! {
    // SAFETY: the caller guarantees that `call` is a C string; the headers pass a literal.
    let call = unsafe { CStr::from_ptr(call) }.to_string_lossy();
    team(&call, handle);
    fatal(&call, &"only GASNET_TEAM_ALL has barriers with ids")
}
