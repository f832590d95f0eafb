//! The node agent that a job's ranks may have (`docs/agent.md`): it is started before them and ends after them, or with
//! the launcher, however that ends.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::Error;

/// What the agent says when it is ready, before its name: a variable that its clients know it by.
pub(crate) const VARIABLE: &str = "CONDUIT_AGENT";
/// Seconds from SIGTERM to SIGKILL.
const GRACE: i64 = 3;

/// A running agent, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    /// It ends when this does, also with the launcher.
    _input: Option<ChildStdin>,
}

impl Agent {
    /// Starts one that is known by a name, and waits until it is ready.
    pub(crate) fn start(program: &Path, name: &str) -> Result<Self, Error> {
        let error = |source| Error::Agent {
            program: program.to_owned(),
            source,
        };
        let mut child = Command::new(program)
            .args(["--native", "--until-eof", "--name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It hears of a terminal's signals when the ranks have ended.
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
                "it says {line:?} instead of {VARIABLE}={name}"
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
        // Whatever happened: it is not left behind, and has no effect on one that has ended.
        let _ = self.end();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
