//! A running job.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, getpid, pidfd_send_signal};

use crate::error::Error;
use crate::event::Command;
use crate::host::plan::Plan;
use crate::host::{Host, Watch};
use crate::interest::Interest;
use crate::job::{Action, Job, Policy};
use crate::launch::Launch;
use crate::outcome::Outcome;
use crate::output::{Drain, Output};
use crate::signals::{self, Signals};
use crate::terminal::Terminal;

/// A job whose ranks are running. Dropping a `RunningJob` kills the ranks.
///
/// A `RunningJob` cannot move to another thread, because the kernel kills the ranks when the thread
/// that started them ends.
#[derive(Debug)]
#[must_use = "dropping a running job kills it"]
pub struct RunningJob {
    job: Job,
    host: Host,
    output: Output,
    terminal: Option<Terminal>,
    signals: Option<Signals>,
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

/// The kind of a descriptor in the poll set.
#[derive(Debug, Clone, Copy)]
enum Token {
    Host(Watch),
    Signal,
    Terminal,
    Drain(usize),
}

impl Launch {
    /// Starts the job and waits for its end.
    ///
    /// # Errors
    /// The job cannot be started: no ranks, too many ranks for this process, no such program, a
    /// reserved variable, or the system refuses to create a process. No rank is left running. A job
    /// that fails is not an error but an [`Outcome`].
    pub fn run(self) -> Result<Outcome, Error> {
        self.spawn()?.wait()
    }

    /// Starts the job. If this process ignores `SIGCHLD`, the call restores the signal's default
    /// action, because otherwise the system would discard the ranks' exit codes. The launcher does
    /// its work (PMI, output, noticing failures) only inside [`RunningJob::wait`] and
    /// [`RunningJob::wait_for`].
    ///
    /// # Errors
    /// The same as for [`run`](Self::run).
    pub fn spawn(mut self) -> Result<RunningJob, Error> {
        self.check()?;
        let output = match self.sink.take() {
            Some(sink) => Output::Captured(sink),
            None => Output::drained(self.prefix_output),
        };
        RunningJob::start(self, output)
    }
}

impl RunningJob {
    fn start(launch: Launch, output: Output) -> Result<Self, Error> {
        signals::keep_exit_codes();
        let policy = Policy {
            grace: launch.grace,
            signal_grace: launch.signal_grace,
            timeout: launch.timeout,
            quiet: launch.quiet,
            verbose: launch.verbose,
        };
        let plan = Plan {
            ranks: 0..launch.ranks,
            size: launch.ranks,
            job_id: job_id(),
            mapping: format!("(vector,(0,1,{}))", launch.ranks),
            program: launch.program,
            arg0: launch.arg0,
            args: launch.args,
            env: launch.env,
            bind: launch.bind,
            agent: launch.agent,
            own_process: launch.own_process,
        };
        // Start the guard before installing the signal handlers, so that the guard does not inherit
        // them.
        let mut host = Host::prepare(plan, output.piped().len())?;
        let signals = match launch.own_process {
            true => Some(Signals::catch().map_err(Error::system("catching signals"))?),
            false => None,
        };
        let mut terminal = None;
        let mut first = match launch.inherit_stdin {
            true => Stdio::inherit(),
            false => Stdio::null(),
        };
        if launch.inherit_stdin {
            let pump = Terminal::new().map_err(Error::system("reading from the terminal"))?;
            if let Some((pump, read)) = pump {
                terminal = Some(pump);
                first = Stdio::from(read);
            }
        }
        host.start(output.piped(), |_| {
            std::mem::replace(&mut first, Stdio::null())
        })?;
        let mut job = RunningJob {
            job: Job::new(vec![(String::new(), launch.ranks)], policy),
            host,
            output,
            terminal,
            signals,
            _thread: PhantomData,
        };
        let now = Instant::now();
        job.handle_events(now);
        job.job.start_limit(now);
        Ok(job)
    }

    /// Returns the ranks' process ids, by rank. The id of a rank that has ended may belong to
    /// another process, so use [`kill_rank`](Self::kill_rank) to signal a rank.
    pub fn pids(&self) -> Vec<u32> {
        self.job.pids()
    }

    /// Sends a signal (by number) to a rank's process. Returns whether the rank was still alive to
    /// receive it.
    pub fn kill_rank(&self, rank: usize, signal: i32) -> bool {
        self.killer().kill_rank(rank, signal)
    }

    /// Returns a [`Killer`] for other threads and for the output function.
    pub fn killer(&self) -> Killer {
        Killer(self.host.pidfds())
    }

    /// Does the launcher's work for at most `time`. Returns whether all ranks have ended; if so,
    /// [`wait`](Self::wait) does not wait for any rank.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool, Error> {
        let until = Instant::now().checked_add(time);
        loop {
            if self.job.all_ended() {
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
        while !self.job.all_ended() {
            self.turn(None)?;
        }
        self.host.end_strays();
        let how = self.job.conclude();
        self.carry_out();
        self.finish_output()?;
        Ok(Outcome {
            exit_code: how.exit_code(),
            failed_rank: how.failed_rank(),
            how,
            ranks: self.job.statuses(),
        })
    }

    /// Forwards what is left in the ranks' pipes and waits until the readers of the output have
    /// taken it.
    fn finish_output(&mut self) -> Result<(), Error> {
        self.host.finish_output(&mut self.output);
        while self.output.drains().iter().any(|drain| !drain.is_empty()) {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Waits for events, at most until `until`, and handles them.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let wake = [until, self.job.next_deadline(), self.host.due(&self.output)];
        let ready = self.interest().wait(wake.into_iter().flatten().min())?;
        // Handle signals first: they must have an effect whatever else is going on.
        if ready
            .iter()
            .any(|(token, _)| matches!(token, Token::Signal))
        {
            let came = self.signals.as_mut().map(|signals| signals.take());
            for signal in came.unwrap_or_default() {
                self.on_signal(signal);
            }
        }
        let mut of_host = Vec::new();
        for (token, flags) in ready {
            match token {
                Token::Host(watch) => of_host.push((watch, flags)),
                Token::Drain(index) => {
                    if let Some(drain) = self.output.drains_mut().get_mut(index) {
                        drain.advance();
                    }
                    self.host.drop_dead_sources(&self.output);
                }
                Token::Terminal => self.terminal.iter_mut().for_each(|pump| pump.advance()),
                Token::Signal => {}
            }
        }
        let now = Instant::now();
        self.host.handle(&of_host, &mut self.output, now);
        self.handle_events(now);
        self.job.on_time(now);
        self.handle_events(now);
        Ok(())
    }

    fn interest(&self) -> Interest<'_, Token> {
        let mut interest = Interest::new();
        self.host.watch(&self.output, &mut interest, Token::Host);
        if let Some(signals) = &self.signals {
            let fd = PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN);
            interest.add(Token::Signal, fd);
        }
        if let Some(fd) = self.terminal.as_ref().and_then(|pump| pump.poll_fd()) {
            interest.add(Token::Terminal, fd);
        }
        for (index, drain) in self.output.drains().iter().enumerate() {
            if !drain.is_empty() {
                let fd = PollFd::from_borrowed_fd(drain.fd(), PollFlags::OUT);
                interest.add(Token::Drain(index), fd);
            }
        }
        interest
    }

    /// Passes the host's events to the job, and carries out what the job decides, until nothing is
    /// left.
    fn handle_events(&mut self, now: Instant) {
        loop {
            self.carry_out();
            let events = self.host.take_events();
            if events.is_empty() {
                return;
            }
            for event in events {
                self.job.on_event(0, event, now);
            }
        }
    }

    /// Carries out the job's decisions.
    fn carry_out(&mut self) {
        for action in self.job.take_actions() {
            match action {
                Action::Say(text) => self.output.message(&text),
                Action::Do(command) => self.host.obey(command),
            }
        }
    }

    /// Handles a signal that the launcher itself has received.
    fn on_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGCHLD => self.host.reap_strays(),
            libc::SIGCONT => self.terminal.iter_mut().for_each(|pump| pump.resume()),
            libc::SIGTSTP => {
                self.host.obey(Command::Signal(libc::SIGSTOP));
                // Stops this process. When it is continued, so are the ranks.
                let _ = signal_hook::low_level::raise(libc::SIGSTOP);
                self.host.obey(Command::Signal(libc::SIGCONT));
            }
            libc::SIGINT | libc::SIGTERM => {
                let now = Instant::now();
                self.job.on_end_signal(signal, now);
                self.handle_events(now);
                if self.job.all_ended() {
                    // The job only waits for a reader to take the remaining output, so discard it.
                    let drains = self.output.drains_mut().iter_mut();
                    drains.for_each(Drain::give_up);
                }
            }
            _ => self.host.obey(Command::Signal(signal)),
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
