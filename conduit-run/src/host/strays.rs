//! Processes that left their rank's process group, for a launcher that reaps its descendants.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, waitid,
};

/// How long to wait for killed strays to end. Only the kernel can delay their end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the children of this process.
pub(crate) fn children() -> HashSet<Pid> {
    let me = getpid().as_raw_pid();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return HashSet::new();
    };
    processes
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
            stat.is_ok_and(|stat| parent(&stat) == Some(me))
        })
        .collect()
}

/// Returns the parent from the text of `/proc/<pid>/stat`: the second field after the process's
/// name. The name ends at the last `)`.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Kills and reaps all children except `spared`, then the children that this process inherits from
/// the killed ones, and so on.
pub(crate) fn end_all(spared: &HashSet<Pid>) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let strays: Vec<Pid> = children().difference(spared).copied().collect();
        if strays.is_empty() {
            return;
        }
        for stray in &strays {
            // A child that has not been reaped keeps its pid, so this cannot hit another process.
            let _ = kill_process(*stray, Signal::KILL);
        }
        for stray in strays {
            await_end(stray, deadline);
            let _ = waitid(
                WaitId::Pid(stray),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
        }
    }
}

fn await_end(child: Pid, deadline: Instant) {
    let Ok(pidfd) = pidfd_open(child, PidfdFlags::empty()) else {
        return;
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).unwrap_or_default();
    let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout));
}

/// Returns a child that has ended, if any, without reaping it.
pub(crate) fn peek_ended() -> Option<Pid> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waitid writes at most a siginfo_t to `info`, and all zeroes are a valid siginfo_t.
    // `si_pid` is valid once waitid has filled in the siginfo_t, and 0 if waitid has found no
    // child.
    let pid = unsafe {
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) != 0 {
            return None;
        }
        info.assume_init().si_pid()
    };
    Pid::from_raw(pid)
}

/// Reaps one child that has ended.
pub(crate) fn reap(child: Pid) {
    let _ = waitid(
        WaitId::Pid(child),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_whatever_the_name() {
        assert_eq!(parent("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a) b (c)) R 8 1"), Some(8));
        assert_eq!(parent("12 (sh"), None);
        assert_eq!(parent("12 (sh) S x"), None);
    }
}
