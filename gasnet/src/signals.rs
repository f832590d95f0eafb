//! Fatal signals: told on standard error, given to the client as `SIGQUIT`, and then fatal as ever.
//!
//! The launcher notices a rank that dies by a signal and ends the others. A client that catches `SIGQUIT` may end the job
//! itself, with a code of its own.

use std::ffi::{CStr, c_int};

/// Signals that end a process, with their names and whether they are told. The launcher ends ranks by `SIGTERM` when
/// another has failed, and has said so.
const FATAL: [(c_int, &CStr, bool); 9] = [
    (libc::SIGABRT, c"SIGABRT", true),
    (libc::SIGILL, c"SIGILL", true),
    (libc::SIGSEGV, c"SIGSEGV", true),
    (libc::SIGBUS, c"SIGBUS", true),
    (libc::SIGFPE, c"SIGFPE", true),
    (libc::SIGINT, c"SIGINT", true),
    (libc::SIGHUP, c"SIGHUP", true),
    (libc::SIGPIPE, c"SIGPIPE", true),
    (libc::SIGTERM, c"SIGTERM", false),
];

/// What the process does with a signal now.
fn action(signal: c_int) -> Option<usize> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the action of a valid signal; `action` is valid for a write.
    let found = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 };
    // SAFETY: written, or still zeros, which are a value of it.
    found.then(|| unsafe { action.assume_init() }.sa_sigaction)
}

/// Raises `SIGQUIT` if the client catches it. Returns if its handler does.
pub(crate) fn tell_client() {
    if action(libc::SIGQUIT).is_some_and(|at| at != libc::SIG_DFL && at != libc::SIG_IGN) {
        // SAFETY: raising a signal that the client catches.
        unsafe { libc::raise(libc::SIGQUIT) };
    }
}

/// Only calls what a signal handler may (POSIX: write, sigaction, signal, raise); what the client's handler of `SIGQUIT`
/// does is its own affair.
extern "C" fn caught(signal: c_int) {
    if let Some((_, name, true)) = FATAL.iter().find(|(number, ..)| *number == signal) {
        for part in [c"*** Caught a fatal signal: ", *name, c"\n"] {
            // SAFETY: a valid buffer of that length. Nothing can be done about an error.
            let _ = unsafe { libc::write(2, part.as_ptr().cast(), part.count_bytes()) };
        }
    }
    // Once: a fault in the client's handler is fatal at once.
    // SAFETY: sets the default action of a valid signal.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    tell_client();
    // SAFETY: raises the signal with its default action, which ends the process when this handler returns.
    unsafe { libc::raise(signal) };
}

/// Catches fatal signals that still have their default action, but those that `GASNET_NO_CATCH_SIGNAL` names (`*`: none is
/// caught).
pub(crate) fn catch() {
    let left_alone = std::env::var("GASNET_NO_CATCH_SIGNAL").unwrap_or_default();
    let left_alone: Vec<&str> = left_alone.split([',', ' ']).map(str::trim).collect();
    for (signal, name, _) in FATAL {
        let name = name.to_str().unwrap_or_default();
        let by_number = signal.to_string();
        let named = |text: &&str| {
            *text == "*"
                || *text == name
                || *text == by_number
                || name.strip_prefix("SIG") == Some(text)
        };
        if left_alone.iter().any(named) || action(signal) != Some(libc::SIG_DFL) {
            continue;
        }
        let mut new = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeros are a valid `sigaction`; the mask is emptied by the function for that; the handler has the form
        // that actions without SA_SIGINFO need, and lives as long as the process.
        unsafe {
            let new = new.assume_init_mut();
            new.sa_sigaction = caught as *const () as usize;
            new.sa_flags = libc::SA_NODEFER;
            libc::sigemptyset(&raw mut new.sa_mask);
            libc::sigaction(signal, new, std::ptr::null_mut());
        }
    }
}
