//! Fatal signals. The process reports a fatal signal on standard error and, if the environment asks
//! for it, prints a backtrace or pauses for a debugger. Then it raises `SIGQUIT` for the client,
//! and lets the fatal signal end it.
//!
//! The launcher notices that a signal has ended the rank, and ends the other ranks. A client that
//! catches `SIGQUIT` may end the job itself, with a code of its own.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::fault::Refusal;
use crate::tools::{self, setting, signal};

/// The signals that end a process, and whether each is reported. `SIGTERM` is not reported, because
/// the launcher sends it to the remaining ranks after it has reported that a rank has failed.
const FATAL: [(c_int, bool); 9] = [
    (libc::SIGABRT, true),
    (libc::SIGILL, true),
    (libc::SIGSEGV, true),
    (libc::SIGBUS, true),
    (libc::SIGFPE, true),
    (libc::SIGINT, true),
    (libc::SIGHUP, true),
    (libc::SIGPIPE, true),
    (libc::SIGTERM, false),
];

/// The fatal signals raised by faults of the process itself.
const FAULTS: [c_int; 5] = [
    libc::SIGABRT,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
];

/// Whether the environment asks for a backtrace or a debugger on faults. This is read in advance,
/// because a signal handler cannot query the environment.
static LOOKED_AT: AtomicBool = AtomicBool::new(false);

/// The end of the message about a fatal signal, which names the rank. It is formatted in advance,
/// because a signal handler cannot allocate.
static PLACE: OnceLock<String> = OnceLock::new();

/// Makes messages about fatal signals name this rank from now on.
pub(crate) fn name_rank(rank: conduit::Rank) {
    PLACE.get_or_init(|| format!(" on rank {rank}"));
}

/// Returns the process's current action for a signal.
fn action(signal: c_int) -> Option<usize> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the signal is valid, and `action` is valid for a write.
    let found = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 };
    // SAFETY: `sigaction` has written the structure; it consisted of zeros before, which are valid
    // too.
    found.then(|| unsafe { action.assume_init() }.sa_sigaction)
}

/// Raises `SIGQUIT` if the client catches it. Returns once the client's handler has returned.
pub(crate) fn tell_client() {
    if action(libc::SIGQUIT).is_some_and(|at| at != libc::SIG_DFL && at != libc::SIG_IGN) {
        // SAFETY: `SIGQUIT` is a valid signal, and the client catches it.
        unsafe { libc::raise(libc::SIGQUIT) };
    }
}

/// Handles a fatal signal. Calls only functions that a signal handler may call (writev, sigaction,
/// signal, raise), unless faults are to be examined. The client's `SIGQUIT` handler may call any
/// function.
extern "C" fn caught(signal: c_int) {
    if FATAL.contains(&(signal, true)) {
        let name = signal::name_of(signal).unwrap_or_default();
        let rank = PLACE.get().map_or("", String::as_str);
        let parts = ["*** Caught a fatal signal: ", name, rank, "\n"].map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // Write once, so that the lines of several ranks are not mixed.
        // SAFETY: the parts are valid buffers, which are only read. An error is ignored, because
        // nothing can be done about it.
        let _ = unsafe { libc::writev(2, parts.as_ptr(), parts.len() as c_int) };
    }
    // Reset the action first, so that a fault in the following code ends the process at once.
    // SAFETY: the signal is valid, and the default action may be set for it.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if LOOKED_AT.load(Relaxed) && FAULTS.contains(&signal) {
        tools::look_at_fault();
    }
    tell_client();
    // SAFETY: the signal is valid. Its default action ends the process, at the latest when this
    // handler returns.
    unsafe { libc::raise(signal) };
}

/// Returns the signals listed in `GASNET_NO_CATCH_SIGNAL`, or `None` if it names all signals (`*`).
/// The list contains names or numbers, separated by commas or spaces.
fn left_alone() -> Result<Option<Vec<c_int>>, Refusal> {
    let Some(text) = setting(c"GASNET_NO_CATCH_SIGNAL") else {
        return Ok(Some(Vec::new()));
    };
    if text.trim() == "*" {
        return Ok(None);
    }
    let named = |name: &str| {
        signal::by_name(name).ok_or_else(|| {
            Refusal::bad(format_args!(
                "GASNET_NO_CATCH_SIGNAL='{text}': '{name}' is not the name of a signal such as SIGUSR1"
            ))
        })
    };
    let names = text.split([',', ' ']).filter(|name| !name.is_empty());
    names.map(named).collect::<Result<_, _>>().map(Some)
}

/// Catches fatal signals that still have their default action, except those listed in
/// `GASNET_NO_CATCH_SIGNAL`.
pub(crate) fn catch() -> Result<(), Refusal> {
    let Some(left_alone) = left_alone()? else {
        return Ok(());
    };
    LOOKED_AT.store(tools::looks_at_errors(), Relaxed);
    for (signal, _) in FATAL {
        if left_alone.contains(&signal) || action(signal) != Some(libc::SIG_DFL) {
            continue;
        }
        let mut new = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeros are a valid `sigaction`, and `sigemptyset` sets the mask. The handler has
        // the signature required of actions without SA_SIGINFO, and lives as long as the process.
        unsafe {
            let new = new.assume_init_mut();
            new.sa_sigaction = caught as *const () as usize;
            new.sa_flags = libc::SA_NODEFER;
            libc::sigemptyset(&raw mut new.sa_mask);
            libc::sigaction(signal, new, std::ptr::null_mut());
        }
    }
    Ok(())
}
