//! How ranks and jobs end.

use std::fmt;
use std::time::Duration;

use rustix::process::WaitIdStatus;
use serde::{Deserialize, Serialize};

/// How a rank's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Status {
    /// The process exited with this code.
    Exited(u8),
    /// This signal killed the process.
    Killed {
        /// The signal's number.
        signal: i32,
        /// Whether the process left a core file.
        core: bool,
    },
}

impl Status {
    pub(crate) fn from_wait(status: &WaitIdStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Status::Killed {
                signal,
                core: status.dumped(),
            },
            // An exit status has 8 bits.
            None => Status::Exited((status.exit_status().unwrap_or(1) & 0xff) as u8),
        }
    }

    /// Returns the code as shells report it: 128 + signal for a killed process.
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(code) => code,
            Status::Killed { signal, .. } => code_of_signal(signal),
        }
    }
}

/// Returns 128 + signal, which fits into 8 bits because signals are below 65.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}

/// The event that ended a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// All ranks exited with 0.
    Completed,
    /// A rank exited with 0 without finishing the job: between PMI's `init` and `finalize`, or
    /// before `init` while another rank waits for it in a barrier.
    Left {
        /// The rank.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// Whether other ranks had to be ended because this rank left. If not, the job has not
        /// failed.
        cut_off: bool,
    },
    /// A rank exited with a code other than 0.
    Exited {
        /// The rank.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// The rank's exit code.
        code: u8,
    },
    /// A rank was killed by a signal.
    Killed {
        /// The rank.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// The signal's number.
        signal: i32,
        /// Whether the process left a core file.
        core: bool,
    },
    /// A rank ended the job through PMI's `abort`.
    Aborted {
        /// The rank.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// The exit code that the rank passed.
        code: i32,
        /// The reason, if the rank passed one.
        message: Option<String>,
    },
    /// A rank broke the PMI protocol, or waited in a barrier that could not complete.
    Protocol {
        /// The rank.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// The violation.
        what: String,
    },
    /// The launcher lost a host, and with it all ranks there.
    HostLost {
        /// The host's name.
        host: String,
        /// How the launcher lost it.
        what: String,
    },
    /// The time limit expired.
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// A signal told the launcher to end the job.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
}

impl How {
    /// Returns the rank that failed; `None` if the job ended without a failure, by the loss of a
    /// host, by its time limit or by a signal to the launcher.
    pub fn failed_rank(&self) -> Option<usize> {
        match self {
            How::Aborted { code: 0, .. } | How::Left { cut_off: false, .. } => None,
            how => how.rank(),
        }
    }

    /// Returns the rank of the event, if it is of a single rank.
    pub(crate) fn rank(&self) -> Option<usize> {
        match self {
            How::Left { rank, .. }
            | How::Exited { rank, .. }
            | How::Killed { rank, .. }
            | How::Aborted { rank, .. }
            | How::Protocol { rank, .. } => Some(*rank),
            How::Completed
            | How::HostLost { .. }
            | How::TimedOut { .. }
            | How::Signalled { .. } => None,
        }
    }

    /// Returns the event for a message that also names the rank's host.
    pub(crate) fn on_host<'a>(&'a self, host: Option<&'a str>) -> OnHost<'a> {
        OnHost { how: self, host }
    }

    /// Returns the job's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            How::Completed => 0,
            How::Left { cut_off, .. } => u8::from(*cut_off),
            How::Exited { code, .. } => *code,
            How::Killed { signal, .. } | How::Signalled { signal } => code_of_signal(*signal),
            How::Aborted { code, .. } => conduit::process_code(*code) as u8,
            How::Protocol { .. } | How::HostLost { .. } => 1,
            How::TimedOut { .. } => 124,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.on_host(None).fmt(f)
    }
}

/// An event with the host of its rank, for a message of a job on several hosts.
pub(crate) struct OnHost<'a> {
    how: &'a How,
    host: Option<&'a str>,
}

impl fmt::Display for OnHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self
            .host
            .map_or_else(String::new, |host| format!(" on {host}"));
        match self.how {
            How::Completed => write!(f, "all ranks have exited with 0"),
            How::Left { rank, pid, .. } => {
                write!(
                    f,
                    "rank {rank}{on} (pid {pid}) exited with code 0 before it had finished the job \
                     (Conduit::finish, gasnet_exit, PMI finalize)"
                )
            }
            How::Exited { rank, pid, code } => {
                write!(f, "rank {rank}{on} (pid {pid}) exited with code {code}")
            }
            How::Killed {
                rank,
                pid,
                signal,
                core,
            } => {
                let core = if *core { ", core dumped" } else { "" };
                let signal = signal_text(*signal);
                write!(
                    f,
                    "rank {rank}{on} (pid {pid}) was killed by {signal}{core}"
                )
            }
            How::Aborted {
                rank,
                pid,
                code,
                message,
            } => {
                let verb = if *code == 0 { "ended" } else { "aborted" };
                write!(
                    f,
                    "rank {rank}{on} (pid {pid}) {verb} the job with code {code}"
                )?;
                message
                    .iter()
                    .try_for_each(|message| write!(f, ": {message}"))
            }
            How::Protocol { rank, pid, what } => {
                write!(
                    f,
                    "rank {rank}{on} (pid {pid}) broke the PMI protocol: {what}"
                )
            }
            How::HostLost { host, what } => write!(f, "host {host} is lost: {what}"),
            How::TimedOut { limit } => {
                write!(f, "the job has not ended within {} s", limit.as_secs_f64())
            }
            How::Signalled { signal } => write!(f, "received {}", signal_text(*signal)),
        }
    }
}

/// Formats a signal as `signal 9 (SIGKILL)`.
pub(crate) fn signal_text(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The job's exit code: 0 if all ranks exited with 0; 1 if other ranks had to be ended because
    /// one [left](How::Left), a rank broke the PMI protocol, or a host was lost; 124 if the time
    /// limit expired; 128 plus the signal if a signal to the launcher ended the job; otherwise the
    /// code of the first rank that failed, which is 128 plus the signal if that rank was killed.
    pub exit_code: u8,
    /// The first rank that failed, if any.
    pub failed_rank: Option<usize>,
    /// The event that ended the job.
    pub how: How,
    /// How each rank's process ended, by rank, including the processes that the launcher ended.
    pub ranks: Vec<Status>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(Status::Exited(3).code(), 3);
        assert_eq!(
            Status::Killed {
                signal: 9,
                core: false
            }
            .code(),
            137
        );
        assert_eq!(
            How::TimedOut {
                limit: Duration::ZERO
            }
            .exit_code(),
            124
        );
        assert_eq!(How::Signalled { signal: 2 }.exit_code(), 130);
        for cut_off in [false, true] {
            let left = How::Left {
                rank: 1,
                pid: 5,
                cut_off,
            };
            assert_eq!(left.exit_code(), u8::from(cut_off));
            assert_eq!(left.failed_rank(), cut_off.then_some(1));
        }
    }

    #[test]
    fn an_abort_that_failed_never_looks_like_success() {
        let abort = |code| How::Aborted {
            rank: 0,
            pid: 1,
            code,
            message: None,
        };
        let codes = [0, 1, 255, 256, -1].map(|code| abort(code).exit_code());
        assert_eq!(codes, [0, 1, 255, 1, 255]);
        assert_eq!(
            (abort(0).failed_rank(), abort(256).failed_rank()),
            (None, Some(0))
        );
    }

    #[test]
    fn messages_name_rank_and_signal() {
        let how = How::Killed {
            rank: 2,
            pid: 123,
            signal: 9,
            core: false,
        };
        assert_eq!(
            how.to_string(),
            "rank 2 (pid 123) was killed by signal 9 (SIGKILL)"
        );
    }
}
