//! Jobs of real processes, which have a time limit and are always cleaned up.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::pace;

/// How long a process that outlives its job's launcher may take to end on an idle system.
const SWEEP: Duration = Duration::from_secs(5);
/// The environment variable that marks every process of a job, so that the process can be found.
const MARK: &str = "CONDUIT_TEST_JOB";

/// Two environments: one with the checks of a debug build, and one without them, as in an optimised
/// build.
pub const CHECKS: [[(&str, &str); 1]; 2] = [[("CONDUIT_CHECKS", "1")], [("CONDUIT_CHECKS", "0")]];

/// A job that has not been started yet.
#[derive(Debug)]
pub struct Job {
    command: Command,
    mark: String,
    limit: Duration,
}

/// How a job ended.
#[derive(Debug)]
pub struct Finished {
    /// The launcher's exit code, which is 128 plus the signal if a signal killed it. `None` if the
    /// time limit ended the launcher.
    pub code: Option<i32>,
    /// The text that the ranks and the launcher wrote to standard output.
    pub stdout: String,
    /// The text that the ranks and the launcher wrote to standard error.
    pub stderr: String,
    /// How long the job ran.
    pub time: Duration,
}

impl Job {
    /// Creates the job `launcher -n ranks program arguments…`.
    pub fn new(
        launcher: impl AsRef<Path>,
        ranks: u32,
        program: impl AsRef<Path>,
        arguments: &[&str],
    ) -> Self {
        let mut command = Command::new(launcher.as_ref());
        command
            .arg("-n")
            .arg(ranks.to_string())
            .arg(program.as_ref())
            .args(arguments);
        Self::of(command)
    }

    /// Creates the job `program arguments…`, which has no launcher. The program either starts its
    /// ranks itself or has none.
    pub fn alone<A: AsRef<OsStr>>(
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let mut command = Command::new(program.as_ref());
        command.args(arguments);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        command
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .process_group(0);
        Self {
            command,
            mark,
            limit: pace::HANG,
        }
    }

    /// Sets a variable of the job's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets several variables of the job's environment.
    #[must_use]
    pub fn envs(self, variables: &[(&str, &str)]) -> Self {
        let set = |job: Self, (name, value): &(&str, &str)| job.env(name, value);
        variables.iter().fold(self, set)
    }

    /// Sets a time limit that replaces [`pace::HANG`].
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts the job.
    pub fn start(mut self) -> Result<Running> {
        // The output goes to files instead of pipes, so that a left-over process can't block the
        // test.
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        self.command
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);
        let before = shared_memory();
        let begun = Instant::now();
        let child = self
            .command
            .spawn()
            .context("the launcher can't be started")?;
        Ok(Running {
            child,
            begun,
            limit: self.limit,
            mark: self.mark,
            stdout,
            stderr,
            before,
        })
    }

    /// Runs the job and requires this exit code, and all of these words on standard error.
    ///
    /// # Panics
    /// If the job ends in another way or leaves something behind.
    #[track_caller]
    pub fn ends_with(self, code: i32, words: &[&str]) -> Finished {
        let finished = self.run().expect("nothing is left behind");
        assert_eq!(finished.code, Some(code), "{finished:#?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
        }
        finished
    }

    /// Starts the job and waits for its end.
    pub fn run(self) -> Result<Finished> {
        self.start()?.wait()
    }
}

/// A running job. Dropping a `Running` kills all processes of its job.
#[derive(Debug)]
pub struct Running {
    child: Child,
    begun: Instant,
    limit: Duration,
    mark: String,
    stdout: File,
    stderr: File,
    before: BTreeSet<OsString>,
}

impl Running {
    /// Returns the launcher's process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until `is_enough` accepts the text that the ranks and the launcher have written to
    /// standard error so far, and returns that text.
    ///
    /// # Errors
    /// The job ended earlier or reached its time limit. The error holds the text.
    pub fn until(&mut self, is_enough: impl Fn(&str) -> bool) -> Result<String> {
        const PAUSE: Duration = Duration::from_millis(10);
        loop {
            // This check precedes the reading of the text, so that the text is complete if the job
            // has ended.
            let ended = await_end(self.pid(), PAUSE)?;
            let mut bytes = vec![0; usize::try_from(self.stderr.metadata()?.len())?];
            // The position is given explicitly, because the ranks share the file's offset.
            self.stderr.read_exact_at(&mut bytes, 0)?;
            let written = String::from_utf8_lossy(&bytes).into_owned();
            if is_enough(&written) {
                return Ok(written);
            }
            ensure!(!ended, "the job ended too early: {written}");
            ensure!(
                self.begun.elapsed() < self.limit,
                "the time limit was reached: {written}"
            );
        }
    }

    /// Waits until the launcher ends, at most for the time limit. Nothing of the job may be left
    /// then: no process, and no file in `/dev/shm`.
    ///
    /// # Errors
    /// Something was left behind, or a system call failed.
    pub fn wait(mut self) -> Result<Finished> {
        let ended = await_end(self.pid(), self.limit)?;
        let code = if ended {
            let status = self.child.wait()?;
            let signal = status.signal().map(|signal| 128 + signal);
            status.code().or(signal)
        } else {
            None
        };
        let time = self.begun.elapsed();
        if ended {
            self.check_sweep()?;
        } else {
            self.sweep();
        }
        Ok(Finished {
            code,
            stdout: text(&mut self.stdout)?,
            stderr: text(&mut self.stderr)?,
            time,
        })
    }

    /// Fails if anything of the job remains after its launcher has ended.
    fn check_sweep(&self) -> Result<()> {
        for pid in marked(&self.mark) {
            // The launcher doesn't wait for processes that its ranks started, so such a process
            // gets some time to end.
            let ended = await_end(pid, pace::scaled(SWEEP))?;
            ensure!(ended, "process {} is left behind", pid.as_raw_nonzero());
        }
        let left: Vec<_> = shared_memory().difference(&self.before).cloned().collect();
        ensure!(left.is_empty(), "left in /dev/shm: {left:?}");
        Ok(())
    }

    /// Kills every process of the job.
    fn sweep(&mut self) {
        // Errors are ignored, because the processes may have ended already.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let begun = Instant::now();
        loop {
            let left = marked(&self.mark);
            if left.is_empty() || begun.elapsed() > pace::scaled(SWEEP) {
                break;
            }
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
                let _ = await_end(pid, pace::scaled(SWEEP));
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) || !marked(&self.mark).is_empty() {
            self.sweep();
        }
    }
}

/// Waits at most `limit` for a process to end. Returns `false` if the process is still running
/// then.
fn await_end(pid: Pid, limit: Duration) -> Result<bool> {
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        Err(error) => return Err(error).context("pidfd_open"),
    };
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("time limit")?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready == 1),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
    }
}

/// Returns the processes that carry a job's mark. Zombies are not among them, because they have no
/// environment.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            // The file can't be read if the process has ended or belongs to another user. In
            // neither case is the process one of this job.
            let path = PathBuf::from(format!("/proc/{pid}/environ"));
            let environment = std::fs::read(path).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == wanted)
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// Returns the names in `/dev/shm` that may be those of this project.
pub fn shared_memory() -> BTreeSet<OsString> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| {
            let name = name.to_string_lossy();
            // Names of Dragon's channels begin with `Dconduit`. They belong to other tests.
            name.contains("conduit") && !name.starts_with("Dconduit")
        })
        .collect()
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
