//! Runs `conduit-run` with a hard time limit, and watches processes.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// The time limit of every test; processes that remain after it are killed.
pub const LIMIT: Duration = Duration::from_secs(600);

pub const PROBE: &str = env!("CARGO_BIN_EXE_pmi-probe");

/// Returns a `conduit-run` command with these arguments and an empty standard input.
pub fn conduit_run(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conduit-run"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The remote shell of the tests: each "host" is a daemon on this host.
pub const SHELL: &str = "env CONDUIT_HOST={host}";

/// Returns a `conduit-run` command for these hosts, which need not exist.
pub fn on_hosts(hosts: &str, args: &[&str]) -> Command {
    let mut all = vec!["--remote-shell", SHELL, "--hosts", hosts];
    all.extend(args);
    conduit_run(&all)
}

pub struct Finished {
    /// The exit code as shells report it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Finished {
    // Files instead of pipes, so that a process left behind cannot block the test.
    let (mut stdout, mut stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command
        .stdout(stdout.try_clone().unwrap())
        .stderr(stderr.try_clone().unwrap());
    let mut guard = Killed(command.spawn().unwrap());
    let code = guard.wait();
    let read = |file: &mut std::fs::File| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    Finished {
        code,
        stdout: read(&mut stdout),
        stderr: read(&mut stderr),
    }
}

/// A running command whose standard output the test reads line by line.
pub struct Running {
    child: Killed,
    lines: BufReader<ChildStdout>,
    stderr: std::fs::File,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let stderr = tempfile::tempfile().unwrap();
        command
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().unwrap());
        let mut child = Killed(command.spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap());
        Running {
            child,
            lines,
            stderr,
        }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        while self.lines.buffer().is_empty() {
            await_readable(self.lines.get_ref());
            if self.lines.fill_buf().unwrap().is_empty() {
                panic!("output ended: {}", self.stderr());
            }
        }
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads the rest of the output.
    pub fn discard(&mut self) {
        while !self.lines.fill_buf().unwrap().is_empty() {
            let count = self.lines.buffer().len();
            self.lines.consume(count);
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.child.pid(), signal).unwrap();
    }

    pub fn wait(&mut self) -> i32 {
        self.child.wait()
    }

    /// Returns standard error so far. Does not move the position at which the command writes.
    pub fn stderr(&self) -> String {
        let mut text = vec![0; self.stderr.metadata().unwrap().len() as usize];
        self.stderr.read_exact_at(&mut text, 0).unwrap();
        String::from_utf8(text).unwrap()
    }
}

/// Kills the child at the end of the test, even if the test failed.
struct Killed(Child);

impl Killed {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let pidfd = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        assert!(await_readable(&pidfd), "the command does not end");
        let status = self.0.wait().unwrap();
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails if the child has already been reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that the test did not start itself.
pub struct Process(Option<rustix::fd::OwnedFd>);

impl Process {
    pub fn new(pid: &str) -> Self {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        // Opening fails if the process has already ended.
        Process(pidfd_open(pid, PidfdFlags::empty()).ok())
    }

    /// Waits until it has ended.
    pub fn await_end(&self) {
        if let Some(pidfd) = &self.0 {
            assert!(await_readable(pidfd), "a process is left behind");
        }
    }

    /// Returns whether the process has ended, without waiting.
    pub fn ended(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Some(pidfd) = &self.0 else { return true };
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)).unwrap() == 1
    }
}

fn await_readable(fd: &impl rustix::fd::AsFd) -> bool {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap();
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready == 1,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
