//! Turns signals that the launcher receives into events of its loop.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};

const CAUGHT: [i32; 9] = [
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD,
];

/// Catches signals until it is dropped. A handler sets the signal's flag and wakes the loop through
/// a socket pair.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: UnixStream,
    flags: Vec<(i32, Arc<AtomicBool>)>,
    handlers: Vec<SigId>,
}

impl Signals {
    /// Starts catching signals. If `SIGHUP` is ignored, it is not caught, because `nohup` relies on
    /// that.
    pub(crate) fn catch() -> io::Result<Self> {
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let mut signals = Signals {
            wake,
            flags: Vec::new(),
            handlers: Vec::new(),
        };
        for signal in CAUGHT {
            if signal == SIGHUP && ignored(signal) {
                continue;
            }
            let flag = Arc::new(AtomicBool::new(false));
            // Handlers run in the order of their registration, so the flag is set before the loop
            // wakes.
            signals
                .handlers
                .push(signal_hook::flag::register(signal, Arc::clone(&flag))?);
            let write = write.try_clone()?;
            signals
                .handlers
                .push(signal_hook::low_level::pipe::register(signal, write)?);
            signals.flags.push((signal, flag));
        }
        Ok(signals)
    }

    /// Returns the signals that have arrived since the last call, each only once.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(1..)) {}
        let came = |(signal, flag): &(i32, Arc<AtomicBool>)| {
            flag.swap(false, Ordering::SeqCst).then_some(*signal)
        };
        self.flags.iter().filter_map(came).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}

/// Makes the system keep the exit codes of children, which it discards in a process that ignores
/// `SIGCHLD`. A process may have inherited that from its parent.
pub(crate) fn keep_exit_codes() {
    if ignored(SIGCHLD) {
        // SAFETY: SIGCHLD is a valid signal, and its default action runs no code of this process.
        unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
    }
}

fn ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: because the new action is null, sigaction only writes the current action to `action`.
    // If the call fails, `action` is all zeroes, which are a valid value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
