//! Signals: clients' handlers, and the signals that make a running process print a backtrace or
//! wait for a debugger.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Once;

use crate::failure::{fatal, freeze_now};
use crate::{backtrace, environment};

/// The names of signals. If a number has two names, messages use the first.
const NAMES: [(&CStr, c_int); 31] = [
    (c"SIGHUP", libc::SIGHUP),
    (c"SIGINT", libc::SIGINT),
    (c"SIGQUIT", libc::SIGQUIT),
    (c"SIGILL", libc::SIGILL),
    (c"SIGTRAP", libc::SIGTRAP),
    (c"SIGABRT", libc::SIGABRT),
    (c"SIGBUS", libc::SIGBUS),
    (c"SIGFPE", libc::SIGFPE),
    (c"SIGKILL", libc::SIGKILL),
    (c"SIGUSR1", libc::SIGUSR1),
    (c"SIGSEGV", libc::SIGSEGV),
    (c"SIGUSR2", libc::SIGUSR2),
    (c"SIGPIPE", libc::SIGPIPE),
    (c"SIGALRM", libc::SIGALRM),
    (c"SIGTERM", libc::SIGTERM),
    (c"SIGCHLD", libc::SIGCHLD),
    (c"SIGCONT", libc::SIGCONT),
    (c"SIGSTOP", libc::SIGSTOP),
    (c"SIGTSTP", libc::SIGTSTP),
    (c"SIGTTIN", libc::SIGTTIN),
    (c"SIGTTOU", libc::SIGTTOU),
    (c"SIGURG", libc::SIGURG),
    (c"SIGXCPU", libc::SIGXCPU),
    (c"SIGXFSZ", libc::SIGXFSZ),
    (c"SIGVTALRM", libc::SIGVTALRM),
    (c"SIGPROF", libc::SIGPROF),
    (c"SIGWINCH", libc::SIGWINCH),
    (c"SIGPOLL", libc::SIGPOLL),
    (c"SIGIO", libc::SIGIO),
    (c"SIGPWR", libc::SIGPWR),
    (c"SIGSYS", libc::SIGSYS),
];

/// Returns a signal by its name, with or without SIG and in either case, or by its number.
pub fn by_name(name: &str) -> Option<c_int> {
    let name = name.trim().to_ascii_uppercase();
    if let Ok(number) = name.parse::<c_int>() {
        return (1..=libc::SIGRTMAX()).contains(&number).then_some(number);
    }
    let name = name.as_bytes();
    let is_named = |known: &CStr| {
        let known = known.to_bytes();
        known == name || known.strip_prefix(b"SIG") == Some(name)
    };
    let found = NAMES.iter().find(|(known, _)| is_named(known));
    found.map(|&(_, signal)| signal)
}

fn c_name_of(signal: c_int) -> Option<&'static CStr> {
    let found = NAMES.iter().find(|(_, known)| *known == signal);
    found.map(|&(name, _)| name)
}

/// Returns the name of a signal. Signal handlers may call it.
pub fn name_of(signal: c_int) -> Option<&'static str> {
    c_name_of(signal)?.to_str().ok()
}

/// Installs the handlers that `GASNET_BACKTRACE_SIGNAL` and `GASNET_FREEZE_SIGNAL` request. Only
/// the first call has an effect.
pub(crate) fn watch_settings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        watch(c"GASNET_BACKTRACE_SIGNAL", on_backtrace);
        watch(c"GASNET_FREEZE_SIGNAL", on_freeze);
    });
}

fn watch(name: &CStr, handler: extern "C" fn(c_int)) {
    let Some(value) = environment::setting(name) else {
        return;
    };
    let Some(signal) = by_name(&value) else {
        fatal(&format!(
            "{}='{value}' is not the name of a signal such as SIGUSR1",
            name.to_string_lossy()
        ));
    };
    if let Err(error) = register(signal, handler as *const () as libc::sighandler_t) {
        fatal(&format!("{}='{value}': {error}", name.to_string_lossy()));
    }
}

/// Prints a backtrace, after which the process continues. Printing allocates memory, which is not
/// safe in a signal handler, but users request this only from a process that hangs.
extern "C" fn on_backtrace(_: c_int) {
    backtrace::print_now(libc::STDERR_FILENO);
}

extern "C" fn on_freeze(_: c_int) {
    freeze_now();
}

/// Sets a handler and returns the previous one. Interrupted system calls are restarted.
fn register(signal: c_int, handler: libc::sighandler_t) -> std::io::Result<libc::sighandler_t> {
    // SAFETY: both structures are plain data, for which zero is valid and means an empty mask and
    // no flags.
    let (mut new, mut old) = unsafe {
        (
            std::mem::zeroed::<libc::sigaction>(),
            std::mem::zeroed::<libc::sigaction>(),
        )
    };
    new.sa_sigaction = handler;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: both structures are valid. The provider of the handler guarantees that it may run as
    // a signal handler.
    match unsafe { libc::sigaction(signal, &raw const new, &raw mut old) } {
        0 => Ok(old.sa_sigaction),
        _ => Err(std::io::Error::last_os_error()),
    }
}

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn gasnett_reghandler(sigtocatch: c_int, fp: libc::sighandler_t) -> libc::sighandler_t {
    register(sigtocatch, fp).unwrap_or_else(|error| {
        fatal(&format!(
            "gasnett_reghandler: signal {sigtocatch} cannot be handled: {error}"
        ))
    })
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_signame_fromval(sigval: c_int) -> *const c_char {
    c_name_of(sigval).map_or(std::ptr::null(), CStr::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for name in ["SIGUSR1", "usr1", " SigUsr1 ", "10"] {
            assert_eq!(by_name(name), Some(libc::SIGUSR1), "{name}");
        }
        for name in ["", "SIG", "SIGFOO", "0", "-1", "1000"] {
            assert_eq!(by_name(name), None, "{name}");
        }
        assert_eq!(name_of(libc::SIGUSR1), Some("SIGUSR1"));
        assert_eq!(name_of(0), None);
        // One number with two names.
        assert_eq!(by_name("io"), by_name("poll"));
        assert_eq!(name_of(libc::SIGIO), Some("SIGPOLL"));
    }
}
