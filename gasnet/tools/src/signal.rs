//! Signals: handlers of clients, and the signals by which a running process is asked for a backtrace or to wait for a
//! debugger.

use std::ffi::{CStr, c_int};
use std::sync::Once;

use crate::failure::{fatal, freeze_now};
use crate::{backtrace, environment};

/// Names of the signals that a setting may name.
const NAMES: [(&str, c_int); 28] = [
    ("SIGHUP", libc::SIGHUP),
    ("SIGINT", libc::SIGINT),
    ("SIGQUIT", libc::SIGQUIT),
    ("SIGILL", libc::SIGILL),
    ("SIGTRAP", libc::SIGTRAP),
    ("SIGABRT", libc::SIGABRT),
    ("SIGBUS", libc::SIGBUS),
    ("SIGFPE", libc::SIGFPE),
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGSEGV", libc::SIGSEGV),
    ("SIGUSR2", libc::SIGUSR2),
    ("SIGPIPE", libc::SIGPIPE),
    ("SIGALRM", libc::SIGALRM),
    ("SIGTERM", libc::SIGTERM),
    ("SIGCHLD", libc::SIGCHLD),
    ("SIGCONT", libc::SIGCONT),
    ("SIGTSTP", libc::SIGTSTP),
    ("SIGTTIN", libc::SIGTTIN),
    ("SIGTTOU", libc::SIGTTOU),
    ("SIGURG", libc::SIGURG),
    ("SIGXCPU", libc::SIGXCPU),
    ("SIGXFSZ", libc::SIGXFSZ),
    ("SIGVTALRM", libc::SIGVTALRM),
    ("SIGPROF", libc::SIGPROF),
    ("SIGWINCH", libc::SIGWINCH),
    ("SIGIO", libc::SIGIO),
    ("SIGPWR", libc::SIGPWR),
    ("SIGSYS", libc::SIGSYS),
];

/// A signal by its name, with or without SIG, in either case, or by its number.
pub fn by_name(name: &str) -> Option<c_int> {
    let name = name.trim().to_ascii_uppercase();
    if let Ok(number) = name.parse::<c_int>() {
        return (1..=libc::SIGRTMAX()).contains(&number).then_some(number);
    }
    NAMES
        .iter()
        .find(|(known, _)| *known == name || known.strip_prefix("SIG") == Some(&name))
        .map(|&(_, signal)| signal)
}

/// The name of a signal that a setting may name. Handlers of signals may call it.
pub fn name_of(signal: c_int) -> Option<&'static str> {
    let found = NAMES.iter().find(|(_, known)| *known == signal);
    found.map(|&(name, _)| name)
}

/// Installs the handlers that `GASNET_BACKTRACE_SIGNAL` and `GASNET_FREEZE_SIGNAL` ask for, once.
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
            "{}='{value}' is not the name of a signal, like SIGUSR1",
            name.to_string_lossy()
        ));
    };
    if let Err(error) = register(signal, handler as *const () as libc::sighandler_t) {
        fatal(&format!("{}='{value}': {error}", name.to_string_lossy()));
    }
}

/// The process goes on afterwards. A backtrace allocates memory, which a handler should not do; it is asked for by hand, of a
/// process that hangs.
extern "C" fn on_backtrace(_: c_int) {
    backtrace::print_now(libc::STDERR_FILENO);
}

extern "C" fn on_freeze(_: c_int) {
    freeze_now();
}

/// Sets a handler and returns the one before. Interrupted calls of the system go on.
fn register(signal: c_int, handler: libc::sighandler_t) -> std::io::Result<libc::sighandler_t> {
    // SAFETY: both are plain data, for which zero is valid: an empty mask and no flags.
    let (mut new, mut old) = unsafe {
        (
            std::mem::zeroed::<libc::sigaction>(),
            std::mem::zeroed::<libc::sigaction>(),
        )
    };
    new.sa_sigaction = handler;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: both are valid; what the handler does is up to whoever gave it.
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
            "gasnett_reghandler: signal {sigtocatch} can't be handled: {error}"
        ))
    })
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
    }
}
