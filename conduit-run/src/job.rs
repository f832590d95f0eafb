//! A running job.

mod ending;
mod turn;

use std::collections::HashSet;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pmi::server::{Limits, Server};
use rustix::process::{Pid, Signal, getpid, pidfd_send_signal};

use crate::agent::{self, Agent};
use crate::guard::Guard;
use crate::output::{Output, Stream};
use crate::rank::{Plan, Rank, await_end, start};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::{Error, How, Launch, Outcome, Status, program, signals, strays};
use ending::{Ending, Suspicion};

/// A job whose ranks are running. Dropping a `RunningJob` kills the ranks.
///
/// A `RunningJob` cannot move to another thread, because the kernel kills the ranks when the thread
/// that started them ends.
#[derive(Debug)]
#[must_use = "dropping a running job kills it"]
pub struct RunningJob {
    ranks: Vec<Rank>,
    pidfds: Arc<Vec<OwnedFd>>,
    server: Server,
    output: Output,
    terminal: Option<Terminal>,
    signals: Option<Signals>,
    guard: Guard,
    /// The children that this process had before the job; `None` unless the launcher adopts
    /// orphans.
    spared: Option<HashSet<Pid>>,
    deadline: Option<Instant>,
    /// The reason why the job has to end, once it is known.
    ending: Option<Ending>,
    /// Suspicious events whose real cause may still show up.
    suspicions: Vec<Suspicion>,
    launch: Launch,
    /// The node's agent, which is ended after the ranks.
    _agent: Option<Agent>,
    /// Makes the type `!Send`, because the job must stay on the thread that started it.
    _thread: PhantomData<*const ()>,
}

/// Signals ranks from any thread while their job runs. A `Killer` uses process descriptors, so it
/// never signals an unrelated process that has been given an ended rank's pid.
#[derive(Debug, Clone)]
pub struct Killer(Arc<Vec<OwnedFd>>);

impl Killer {
    /// Sends a signal (by number, such as `libc::SIGKILL`) to a rank's process. Returns whether the
    /// rank was still alive to receive it.
    pub fn kill_rank(&self, rank: usize, signal: i32) -> bool {
        match (self.0.get(rank), Signal::from_named_raw(signal)) {
            (Some(pidfd), Some(signal)) => pidfd_send_signal(pidfd, signal).is_ok(),
            _ => false,
        }
    }
}

impl RunningJob {
    pub(crate) fn start(
        mut launch: Launch,
        file: &Path,
        processors: &[usize],
        output: Output,
    ) -> Result<Self, Error> {
        let job_id = job_id();
        signals::keep_exit_codes();
        // Start the agent before listing the children to spare, so that the agent is one of them.
        let agent = match &launch.agent {
            Some(program) => {
                let path = std::env::var_os("PATH");
                let program = program::find(program, path.as_deref())?;
                let name = format!("job-{job_id}");
                let agent = Agent::start(&program, &name)?;
                launch.env.push((agent::VARIABLE.into(), name.into()));
                Some(agent)
            }
            None => None,
        };
        let mut spared = None;
        if launch.own_process {
            rustix::process::set_child_subreaper(Some(getpid()))
                .map_err(Error::system("becoming the reaper of all descendants"))?;
            spared = Some(strays::children());
        }
        // Start the guard before installing the signal handlers, so that the guard does not inherit
        // them.
        let guard = Guard::start(launch.ranks).map_err(Error::system("starting the guard"))?;
        let signals = match launch.own_process {
            true => Some(Signals::catch().map_err(Error::system("catching signals"))?),
            false => None,
        };
        if let Some(spared) = &mut spared {
            spared.insert(guard.pid());
        }
        let mut terminal = None;
        let mut stdin = if launch.inherit_stdin {
            Stdio::inherit()
        } else {
            Stdio::null()
        };
        if launch.inherit_stdin {
            let pump = Terminal::new().map_err(Error::system("reading from the terminal"))?;
            if let Some((pump, read)) = pump {
                terminal = Some(pump);
                stdin = Stdio::from(read);
            }
        }

        let mut server = Server::new(launch.ranks, &format!("kvs_{job_id}"), Limits::default());
        // MPI libraries read the placement of ranks from this key: all ranks are on this node.
        server.preset(
            "PMI_process_mapping",
            &format!("(vector,(0,1,{}))", launch.ranks),
        );
        let mut job = RunningJob {
            ranks: Vec::with_capacity(launch.ranks),
            pidfds: Arc::default(),
            server,
            output,
            terminal,
            signals,
            guard,
            spared,
            deadline: None,
            ending: None,
            suspicions: Vec::new(),
            launch,
            _agent: agent,
            _thread: PhantomData,
        };
        let mut pidfds = Vec::with_capacity(job.launch.ranks);
        for number in 0..job.launch.ranks {
            let piped = job.output.piped();
            let plan = Plan {
                launch: &job.launch,
                file,
                processors,
                job_id: &job_id,
                piped,
                guard: job.guard.socket(),
            };
            // On an error, `job` is dropped, which kills the ranks started so far.
            let (rank, pidfd) = start(&plan, number, std::mem::replace(&mut stdin, Stdio::null()))?;
            if job.launch.verbose {
                job.output
                    .message(&format!("rank {number} is pid {}", rank.pid.as_raw_pid()));
            }
            job.ranks.push(rank);
            pidfds.push(pidfd);
        }
        job.pidfds = Arc::new(pidfds);
        job.deadline = job
            .launch
            .timeout
            .and_then(|limit| Instant::now().checked_add(limit));
        Ok(job)
    }

    /// Returns the ranks' process ids, by rank. The id of a rank that has ended may belong to
    /// another process, so use [`kill_rank`](Self::kill_rank) to signal a rank.
    pub fn pids(&self) -> Vec<u32> {
        self.ranks
            .iter()
            .map(|rank| rank.pid.as_raw_pid().cast_unsigned())
            .collect()
    }

    /// Sends a signal (by number) to a rank's process. Returns whether the rank was still alive to
    /// receive it.
    pub fn kill_rank(&self, rank: usize, signal: i32) -> bool {
        self.killer().kill_rank(rank, signal)
    }

    /// Returns a [`Killer`] for other threads and for the output function.
    pub fn killer(&self) -> Killer {
        Killer(Arc::clone(&self.pidfds))
    }

    /// Does the launcher's work for at most `time`. Returns whether all ranks have ended; if so,
    /// [`wait`](Self::wait) does not wait for any rank.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool, Error> {
        let until = Instant::now().checked_add(time);
        loop {
            if self.all_ended() {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            self.turn(until)?;
        }
    }

    /// Does the launcher's work until the job has ended and all its processes are reaped.
    ///
    /// # Errors
    /// The system refuses to wait; the ranks are then killed.
    pub fn wait(mut self) -> Result<Outcome, Error> {
        while !self.all_ended() {
            self.turn(None)?;
        }
        if let Some(spared) = &self.spared {
            strays::end_all(spared);
        }
        self.conclude();
        self.finish_output()?;
        let how = self
            .ending
            .as_ref()
            .map_or(How::Completed, |ending| self.verdict(ending));
        let ranks: Vec<Status> = self.ranks.iter().filter_map(|rank| rank.status).collect();
        Ok(Outcome {
            exit_code: how.exit_code(),
            failed_rank: how.failed_rank(),
            how,
            ranks,
        })
    }

    fn all_ended(&self) -> bool {
        self.ranks.iter().all(|rank| rank.status.is_some())
    }

    /// Forwards what is left in the ranks' pipes and waits until the readers of the output have
    /// taken it.
    fn finish_output(&mut self) -> Result<(), Error> {
        for rank in 0..self.ranks.len() {
            for stream in Stream::BOTH {
                while self.read_output(rank, stream) {}
                self.close_output(rank, stream);
            }
        }
        self.deadline = None;
        while self.output.drains().iter().any(|drain| !drain.is_empty()) {
            self.turn(None)?;
        }
        Ok(())
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        for rank in self.ranks.iter().filter(|rank| rank.status.is_none()) {
            rank.kill_group(Signal::KILL);
        }
        for rank in self.ranks.iter().filter(|rank| rank.status.is_none()) {
            self.guard.retire(rank.pid);
            await_end(rank.pid);
        }
        if let Some(spared) = &self.spared {
            strays::end_all(spared);
        }
    }
}

/// Returns a word that is unique among the jobs of this host, made of the process id and the time.
fn job_id() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}-{:x}", getpid().as_raw_pid(), now.as_nanos())
}
