//! The node agent that a job's ranks may have (`docs/agent.md`). The agent starts before the ranks
//! and ends after them. It also ends when the launcher ends, however that happens.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::Error;

/// The variable that tells clients the agent's name. The agent prints `VARIABLE=name` when it is
/// ready.
pub(crate) const VARIABLE: &str = "CONDUIT_AGENT";
/// The number of seconds from SIGTERM to SIGKILL.
const GRACE: i64 = 3;

/// A running agent. Dropping the handle ends the agent.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    /// The agent exits when this pipe closes, which also happens when the launcher dies.
    _input: Option<ChildStdin>,
}

impl Agent {
    /// Starts an agent with this name and waits until it is ready.
    pub(crate) fn start(program: &Path, name: &str) -> Result<Self, Error> {
        let error = |source| Error::Agent {
            program: program.to_owned(),
            source,
        };
        let mut child = Command::new(program)
            .args(["--native", "--until-eof", "--name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A separate process group keeps a terminal's signals from the agent, because the
            // launcher has to end it after the ranks.
            .process_group(0)
            .spawn()
            .map_err(error)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let agent = Self {
            child,
            _input: input,
        };
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line).map_err(error)?;
        }
        match line.trim_end().split_once('=') {
            Some((VARIABLE, known)) if known == name => Ok(agent),
            _ => Err(error(io::Error::other(format!(
                "it printed {line:?} instead of {VARIABLE}={name}"
            )))),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let pid = Pid::from_child(&self.child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        pidfd_send_signal(&pidfd, Signal::TERM)?;
        let grace = Timespec {
            tv_sec: GRACE,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&grace))?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Never leave the agent behind. Killing an agent that has ended has no effect.
        let _ = self.end();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
