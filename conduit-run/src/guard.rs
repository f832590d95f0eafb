//! The guard: a small process that outlives a killed launcher for a moment and kills the ranks' process groups.
//!
//! The kernel's parent-death signal ends the ranks themselves when the launcher dies, but not what they started. The guard
//! holds one end of a socket pair, learns every rank's group through it, and when the other end closes without the
//! groups having been retired, it kills them. It is forked without `exec`, so that the library needs no helper program.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendFlags, send};
use rustix::process::Pid;

/// The launcher's hold on its guard; dropping it ends the guard, which then kills the groups not retired.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: Pid,
    socket: Option<OwnedFd>,
}

impl Guard {
    /// Starts a guard for at most `ranks` process groups.
    pub(crate) fn start(ranks: usize) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut groups = vec![0; ranks];
        // SAFETY: the child runs only `watch`, which makes async-signal-safe calls alone and never returns, so whatever
        // locks other threads of this process hold at the fork don't matter.
        match unsafe { libc::fork() } {
            0 => watch(theirs.as_raw_fd(), &mut groups),
            child => match Pid::from_raw(child) {
                Some(pid) if child > 0 => Ok(Guard {
                    pid,
                    socket: Some(ours.into()),
                }),
                _ => Err(io::Error::last_os_error()),
            },
        }
    }

    /// The guard's process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells the guard of a rank's process group.
    pub(crate) fn add(&self, group: Pid) {
        self.tell(group.as_raw_pid());
    }

    /// Tells the guard that a group has ended and its number may be used by others.
    pub(crate) fn retire(&self, group: Pid) {
        self.tell(-group.as_raw_pid());
    }

    /// A guard that is gone or stuck is no reason to fail: it only matters if the launcher is killed as well.
    fn tell(&self, message: i32) {
        if let Some(socket) = &self.socket {
            let _ = send(
                socket,
                &message.to_ne_bytes(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.socket = None;
        crate::rank::await_end(self.pid);
    }
}

/// The guard's whole life. Only async-signal-safe calls from here on: no allocation, no locks.
fn watch(socket: RawFd, groups: &mut [i32]) -> ! {
    detach(socket);
    let mut message = [0u8; 4];
    let mut have = 0;
    loop {
        let rest = &mut message[have..];
        // SAFETY: `rest` is valid for writes of its length.
        let count = unsafe { libc::read(socket, rest.as_mut_ptr().cast(), rest.len()) };
        // With all signals blocked there is no EINTR: anything but bytes means that the launcher is gone.
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
        // SAFETY: `kill` touches no memory. The group is a rank's: the launcher retires groups before it reaps their
        // leaders, so the number has not been given to another process while the launcher lived.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    // SAFETY: `_exit` ends the process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// Makes the guard independent of the launcher's terminal, signals and descriptors.
fn detach(socket: RawFd) {
    // SAFETY: all calls are async-signal-safe; `set` is initialised by sigfillset before use; the closed descriptors belong
    // to this process's copy of the table, and nothing in this process uses them any more.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"conduit-guard".as_ptr());
        let close = |from: RawFd, to: RawFd| {
            if from <= to && libc::syscall(libc::SYS_close_range, from, to, 0) != 0 {
                // Kernels before 5.9: the usual range has to do.
                for fd in from..=to.min(4096) {
                    libc::close(fd);
                }
            }
        };
        close(0, socket - 1);
        close(socket + 1, RawFd::MAX);
    }
}
