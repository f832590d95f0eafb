//! Starts one rank's process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::Mode;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal, umask,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::control::Control;
use super::input::Input;
use super::plan::{Limits, Plan};
use super::process::await_end;
use super::source::Source;
use super::{affinity, guard, program};
use crate::error::Error;
use crate::outcome::Status;
use crate::output::Stream;

/// The variable and the value for the maximum number of packets that libfabric's `ofi_rxd` sends to
/// a peer before it waits for an acknowledgement. A value that the user has set takes precedence.
/// The provider's default of 128 overruns a queue of the `udp` provider, which then loses some
/// completions and delivers others twice (`docs/ofi.md`). The provider reads this limit only from
/// the environment, which a rank cannot change safely once it has threads.
const RXD_WINDOW: (&str, &str) = ("FI_OFI_RXD_MAX_UNACKED", "16");

/// A rank from the point of view of its host.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) pid: Pid,
    pub(crate) control: Control,
    /// The launcher's ends of the pipes for standard output and standard error, in this order;
    /// `None` for a stream without a pipe.
    pub(crate) sources: [Option<Source>; 2],
    /// The pipe for standard input, if the rank reads it from one.
    pub(crate) input: Option<Input>,
    /// The program that the rank was running when it joined the job.
    pub(crate) program: Option<(u64, u64)>,
    /// Set once the process has ended and has been reaped; its pid is meaningless from then on.
    pub(crate) status: Option<Status>,
}

/// The parameters that all ranks of the host share.
pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) file: &'a Path,
    /// The processors of each rank; nothing if ranks are not bound.
    pub(crate) processors: &'a [Vec<usize>],
    pub(crate) piped: &'a [Stream],
    /// The socket to the guard.
    pub(crate) guard: RawFd,
}

/// Starts a rank and returns it with its pidfd. The rank's process leads its own group and is
/// killed when this thread ends.
pub(crate) fn start(
    shared: &Shared<'_>,
    rank: usize,
    inherit_stdin: bool,
) -> Result<(Rank, OwnedFd), Error> {
    let spawn_error = |source: io::Error| Error::Spawn { rank, source };
    let (ours, theirs) = UnixStream::pair().map_err(spawn_error)?;

    let plan = shared.plan;
    let mut command = Command::new(shared.file);
    command
        .arg0(plan.arg0.as_ref().unwrap_or(&plan.program))
        .args(&plan.args)
        .process_group(0);
    let mut input = None;
    command.stdin(match plan.readers.include(rank) {
        false => Stdio::null(),
        true if inherit_stdin => Stdio::inherit(),
        true => {
            let (ours, theirs) = Input::new().map_err(spawn_error)?;
            input = Some(ours);
            theirs.into()
        }
    });
    // An outer launcher may have set these variables for a job of its own, to which this rank does
    // not belong.
    for stale in ["PMI_PORT", "PMI_ID", "PMI_SPAWNED"] {
        command.env_remove(stale);
    }
    for name in &plan.unset {
        command.env_remove(name);
    }
    if std::env::var_os(RXD_WINDOW.0).is_none() {
        command.env(RXD_WINDOW.0, RXD_WINDOW.1);
    }
    command.envs(plan.env.iter().map(|(name, value)| (name, value)));
    command
        .env("PMI_FD", theirs.as_raw_fd().to_string())
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", plan.size.to_string())
        .env("CONDUIT_LAUNCHER", "1")
        .env("CONDUIT_JOB_ID", &plan.job_id);

    let mut sources = [None, None];
    for stream in shared.piped {
        let (read, write) = pipe().map_err(spawn_error)?;
        sources[*stream as usize] = Some(Source::new(read));
        match stream {
            Stream::Stdout => command.stdout(write),
            Stream::Stderr => command.stderr(write),
        };
    }

    let processors = shared.processors.get(rank - plan.ranks.start);
    let setup = Setup {
        launcher: getpid(),
        pmi: theirs.as_raw_fd(),
        guard: shared.guard,
        processors: processors.map(|processors| affinity::set(processors)),
        limits: plan.limits.clone(),
    };
    // SAFETY: between fork and exec, `Setup::apply` only makes system calls. It neither allocates
    // nor takes locks.
    unsafe { command.pre_exec(move || setup.apply()) };
    let child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            program::error(shared.file.to_owned(), source)
        }
        _ if source.raw_os_error() == Some(libc::ENOEXEC) => {
            program::error(shared.file.to_owned(), source)
        }
        _ => spawn_error(source),
    })?;

    let no_pid = || spawn_error(io::Error::from(io::ErrorKind::InvalidData));
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or_else(no_pid)?;
    let rank = Rank {
        pid,
        control: Control::new(ours.into()),
        sources,
        input,
        program: None,
        status: None,
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok((rank, pidfd)),
        Err(error) => {
            rank.kill_group(Signal::KILL);
            await_end(pid);
            Err(spawn_error(error.into()))
        }
    }
}

impl Rank {
    /// Signals the rank and its whole process group, unless the rank has been reaped.
    pub(crate) fn kill_group(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }
}

/// Creates a pipe whose reading end does not block.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// Steps that the new process takes before it executes the program.
struct Setup {
    launcher: Pid,
    pmi: RawFd,
    guard: RawFd,
    processors: Option<CpuSet>,
    limits: Limits,
}

impl Setup {
    fn apply(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The launcher may have died before this process requested its death signal.
        if getppid() != Some(self.launcher) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: both descriptors are open in this copy of the launcher's table until exec. Their
        // owners, `theirs` and the job's guard, live longer than the call that starts this process.
        let (pmi, guard) = unsafe {
            (
                BorrowedFd::borrow_raw(self.pmi),
                BorrowedFd::borrow_raw(self.guard),
            )
        };
        guard::enlist(guard);
        fcntl_setfd(pmi, FdFlags::empty())?;
        if let Some(processors) = &self.processors {
            sched_setaffinity(None, processors)?;
        }
        if let Some(mask) = self.limits.umask {
            umask(Mode::from_raw_mode(mask));
        }
        for (resource, soft) in &self.limits.soft {
            set_soft_limit(*resource, *soft);
        }
        Ok(())
    }
}

/// Sets a soft limit as far as the hard limit allows.
fn set_soft_limit(resource: i32, soft: Option<u64>) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // The type of a resource differs between C libraries.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let resource = resource as _;
    // SAFETY: both calls only access `limit`. The system refuses unknown resources.
    unsafe {
        if libc::getrlimit(resource, &raw mut limit) == 0 {
            limit.rlim_cur = soft.unwrap_or(libc::RLIM_INFINITY).min(limit.rlim_max);
            libc::setrlimit(resource, &raw const limit);
        }
    }
}
