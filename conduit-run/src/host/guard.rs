//! The guard: a small process that briefly outlives a killed launcher and kills the ranks' process
//! groups.
//!
//! When the launcher dies, the kernel's parent-death signal ends the ranks but not the processes
//! they started. The guard holds one end of a socket pair, through which it learns every rank's
//! group. When the other end closes, the guard kills the groups that have not been retired. The
//! guard is forked without `exec`, so the library needs no helper program.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::process::await_end;

/// The maximum time that sending a message to the guard may take when its socket is full.
const PATIENCE: Duration = Duration::from_secs(1);

/// The launcher's handle to its guard. Dropping the handle ends the guard without killing any
/// group, because the launcher has ended all groups by then.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: Pid,
    socket: OwnedFd,
}

impl Guard {
    /// Starts a guard for at most `ranks` process groups.
    pub(crate) fn start(ranks: usize) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let mut groups = vec![0; ranks];
        // SAFETY: the child runs only `watch`, which makes only async-signal-safe calls and never
        // returns, so locks that other threads of this process hold at the fork do not matter.
        match unsafe { libc::fork() } {
            0 => watch(theirs.as_raw_fd(), &mut groups),
            child @ 1.. => match Pid::from_raw(child) {
                Some(pid) => Ok(Guard {
                    pid,
                    socket: ours.into(),
                }),
                None => Err(io::Error::from(io::ErrorKind::InvalidData)),
            },
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the guard's process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the socket to pass to [`enlist`] in the processes that this one forks.
    pub(crate) fn socket(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Tells the guard that a group has ended and that its number may be reused.
    pub(crate) fn retire(&self, group: Pid) {
        tell(self.socket.as_fd(), -group.as_raw_pid());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Kill the guard before the socket closes: otherwise it would kill the groups. The guard
        // has not been reaped, so the pid is still its own.
        let _ = kill_process(self.pid, Signal::KILL);
        await_end(self.pid);
    }
}

/// Tells the guard about the process group that the calling process leads. Each rank calls this
/// itself, before its program can start other processes, because the launcher might be killed
/// before it could report the rank. The function is async-signal-safe.
pub(crate) fn enlist(guard: BorrowedFd<'_>) {
    tell(guard, getpid().as_raw_pid());
}

/// Sends a message. Errors are ignored: a dead or stuck guard matters only if the launcher is
/// killed as well.
fn tell(guard: BorrowedFd<'_>, message: i32) {
    let _ = send(guard, &message.to_ne_bytes(), SendFlags::NOSIGNAL);
}

/// Runs the guard until its end. From here on, only async-signal-safe calls are allowed: no
/// allocation and no locks.
fn watch(socket: RawFd, groups: &mut [i32]) -> ! {
    detach(socket);
    let mut message = [0u8; 4];
    let mut have = 0;
    loop {
        let rest = &mut message[have..];
        // SAFETY: `rest` is valid for writes of its length.
        let count = unsafe { libc::read(socket, rest.as_mut_ptr().cast(), rest.len()) };
        // All signals are blocked, so EINTR cannot occur: if `read` returns no bytes, the launcher
        // is gone.
        let Ok(count @ 1..) = usize::try_from(count) else {
            break;
        };
        have += count;
        if have < message.len() {
            continue;
        }
        have = 0;
        let group = i32::from_ne_bytes(message);
        let (old, new) = if group > 0 { (0, group) } else { (-group, 0) };
        if let Some(slot) = groups.iter_mut().find(|slot| **slot == old) {
            *slot = new;
        }
    }
    for group in groups.iter().filter(|group| **group > 1) {
        // SAFETY: `kill` touches no memory. The launcher retires a group before it reaps the
        // group's leader, so the number still belonged to a rank's group when the launcher died.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    // SAFETY: `_exit` ends the process without running any of the parent's code.
    unsafe { libc::_exit(0) }
}

/// Detaches the guard from the launcher's terminal, signals and descriptors.
fn detach(socket: RawFd) {
    // SAFETY: all calls are async-signal-safe; `set` is initialised by sigfillset before use; the
    // closed descriptors belong to this process's copy of the table, and nothing in this process
    // uses them any more.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"conduit-guard".as_ptr());
        let close = |from: RawFd, to: RawFd| {
            if from <= to && libc::syscall(libc::SYS_close_range, from, to, 0) != 0 {
                // Kernels before 5.9 have no close_range, so close the descriptors that are likely
                // to be open.
                for fd in from..=to.min(4096) {
                    libc::close(fd);
                }
            }
        };
        close(0, socket - 1);
        close(socket + 1, RawFd::MAX);
    }
}
