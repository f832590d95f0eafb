//! Facts about a rank's process, from `/proc`.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Returns the device and inode of the file that a process runs; `None` if the system does not
/// report them.
pub(crate) fn program(pid: Pid) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{}/exe", pid.as_raw_pid())).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns whether a signal has stopped a process.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
    status.is_ok_and(|status| status.lines().any(|line| line.starts_with("State:\tT")))
}

/// Waits until a child ends, and reaps it.
pub(crate) fn await_end(child: Pid) {
    while matches!(
        waitid(WaitId::Pid(child), WaitIdOptions::EXITED),
        Err(Errno::INTR)
    ) {}
}
