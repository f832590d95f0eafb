//! A running job.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, getpid, pidfd_send_signal};

use crate::error::Error;
use crate::event::{Command, Event, Report};
use crate::host::plan::{Limits, Plan, Readers};
use crate::host::{Host, Watch};
use crate::hosts::{self, mapping, needs_processors, place};
use crate::interest::Interest;
use crate::job::{Action, Job, Policy};
use crate::launch::{Launch, Several};
use crate::outcome::Outcome;
use crate::output::{Drain, Output};
use crate::pump::{self, Pump};
use crate::signals::{self, Signals};
use crate::tree::children::Part;
use crate::tree::message::{Below, Start};
use crate::tree::root::{FromTree, Tree};
use crate::tree::start;

/// The time in which hosts end what ranks have left once all ranks have ended.
const FAREWELL: Duration = Duration::from_secs(10);

/// A job whose ranks are running. Dropping a `RunningJob` kills the ranks.
///
/// A `RunningJob` cannot move to another thread, because the kernel kills the ranks when the thread
/// that started them ends.
#[derive(Debug)]
#[must_use = "dropping a running job kills it"]
pub struct RunningJob {
    job: Job,
    place: Place,
    output: Output,
    pump: Option<Pump>,
    signals: Option<Signals>,
    /// Whether all ranks have been started. Until then the loss of a host is an error.
    started: bool,
    killer: Killer,
    /// The end of a socket that wakes the loop when a killer has a request.
    wake: Option<UnixStream>,
    /// Makes the type `!Send`, because the job must stay on the thread that started it.
    _thread: PhantomData<*const ()>,
}

/// Where the ranks run.
#[derive(Debug)]
enum Place {
    /// On this host alone.
    Here(Box<Host>),
    /// On several hosts, or on another one. Hosts are given by name and number of ranks.
    Tree(Box<Tree>, Vec<(String, usize)>),
}

/// Signals ranks from any thread while their job runs. On this host, a `Killer` uses process
/// descriptors, so it never signals an unrelated process that has been given an ended rank's pid.
#[derive(Debug, Clone)]
pub struct Killer(Arc<Kill>);

#[derive(Debug)]
enum Kill {
    Here(Arc<Vec<OwnedFd>>),
    Tree {
        /// Whether each rank has ended.
        ended: Vec<AtomicBool>,
        requests: Mutex<Vec<(usize, i32)>>,
        wake: UnixStream,
    },
}

impl Killer {
    /// Sends a signal (by number, such as `libc::SIGKILL`) to a rank's process. Returns whether the
    /// rank was still alive to receive it; for a rank on another host, as far as is known.
    pub fn kill_rank(&self, rank: usize, signal: i32) -> bool {
        let Some(known) = Signal::from_named_raw(signal) else {
            return false;
        };
        match &*self.0 {
            Kill::Here(pidfds) => pidfds
                .get(rank)
                .is_some_and(|pidfd| pidfd_send_signal(pidfd, known).is_ok()),
            Kill::Tree {
                ended,
                requests,
                wake,
            } => {
                let alive = ended.get(rank);
                if alive.is_none_or(|ended| ended.load(Ordering::SeqCst)) {
                    return false;
                }
                let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
                requests.push((rank, signal));
                // If the socket is full, the loop wakes anyway.
                let _ = std::io::Write::write(&mut &*wake, &[0]);
                true
            }
        }
    }
}

/// The kind of a descriptor in the poll set.
#[derive(Debug, Clone, Copy)]
enum Token {
    Host(Watch),
    Child(usize, Part),
    Signal,
    Input,
    Drain(usize),
    Killer,
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
        signals::keep_exit_codes();
        let output = match self.sink.take() {
            Some(sink) => Output::Captured(sink),
            None => Output::drained(self.prefix_output),
        };
        match self.several.take() {
            None => RunningJob::start_here(self, output),
            Some(several) => RunningJob::start_tree(self, several, output),
        }
    }

    fn policy(&self) -> Policy {
        Policy {
            grace: self.grace,
            signal_grace: self.signal_grace,
            timeout: self.timeout,
            quiet: self.quiet,
            verbose: self.verbose,
        }
    }

    /// Returns the plan for one host that has all ranks.
    fn plan(&self) -> Plan {
        Plan {
            ranks: 0..self.ranks,
            size: self.ranks,
            job_id: job_id(),
            mapping: mapping(&[self.ranks]),
            program: self.program.clone(),
            arg0: self.arg0.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            unset: Vec::new(),
            readers: self.readers,
            limits: Limits::default(),
            bind: self.bind,
            report_bindings: self.report_bindings,
            agent: self.agent.clone(),
            own_process: self.own_process,
        }
    }

    fn catch_signals(&self) -> Result<Option<Signals>, Error> {
        match self.own_process {
            true => Ok(Some(
                Signals::catch().map_err(Error::system("catching signals"))?,
            )),
            false => Ok(None),
        }
    }
}

impl RunningJob {
    /// Starts a job on this host alone.
    fn start_here(launch: Launch, output: Output) -> Result<Self, Error> {
        check_reader(launch.readers, launch.ranks)?;
        // Start the guard before installing the signal handlers, so that the guard does not inherit
        // them.
        let mut host = Host::prepare(launch.plan(), output.piped().len())?;
        let signals = launch.catch_signals()?;
        let pumps = match launch.readers {
            Readers::None => false,
            Readers::Rank(_) => pump::is_terminal(),
            Readers::All => true,
        };
        host.start(output.piped(), !pumps)?;
        let mut job = RunningJob {
            job: Job::new(vec![(String::new(), launch.ranks)], launch.policy()),
            killer: Killer(Arc::new(Kill::Here(host.pidfds()))),
            place: Place::Here(Box::new(host)),
            output,
            pump: pumps.then(Pump::new),
            signals,
            started: true,
            wake: None,
            _thread: PhantomData,
        };
        let now = Instant::now();
        job.handle_reports(now);
        job.job.start_limit(now);
        Ok(job)
    }

    /// Starts a job on several hosts.
    fn start_tree(launch: Launch, several: Several, mut output: Output) -> Result<Self, Error> {
        let folder = start::folder()?;
        let mut hosts = several.hosts;
        let want = several.want;
        let mut counts = Vec::new();
        if !needs_processors(&hosts, want) {
            counts = place(&hosts, &[], want)?;
            // Leave the hosts without ranks alone.
            let mut count = counts.iter();
            hosts.retain(|_| count.next().is_some_and(|count| *count > 0));
            counts.retain(|count| *count > 0);
        }
        let mut signals = launch.catch_signals()?;
        let tree = Connecting {
            hosts: &hosts,
            limit: several.shell.limit,
            verbose: launch.verbose,
        };
        let names = hosts.iter().map(|host| host.name.clone());
        let below = Below {
            first: 0,
            names: names.collect(),
            shell: several.shell,
        };
        let tree = tree.connect(&below, &mut output, signals.as_mut());
        if tree.is_err() {
            output.flush_ready();
        }
        let mut tree = tree?;
        if counts.is_empty() {
            counts = place(&hosts, &tree.processors(), want)?;
        }
        if let Some(warning) = hosts::oversubscribed(&hosts, &tree.processors(), &counts) {
            output.message(&format!("warning: {warning}"));
        }
        let size = counts.iter().sum();
        check_reader(launch.readers, size)?;
        let mut env = start::variables(several.all_env);
        env.extend(launch.env.iter().cloned());
        let plan = Plan {
            size,
            mapping: mapping(&counts),
            env,
            limits: start::limits(),
            ..launch.plan()
        };
        let mut next = 0;
        let starts = counts.iter().map(|&count| {
            let ranks = next..next + count;
            next += count;
            (count > 0).then(|| Start {
                plan: Plan {
                    ranks,
                    ..plan.clone()
                },
                folder: folder.clone(),
                hold_lines: output.holds_lines(),
            })
        });
        tree.start_ranks(starts);
        let names = below.names.into_iter();
        let hosts: Vec<_> = names.zip(counts).collect();
        let (wake, killer) = UnixStream::pair().map_err(Error::system("creating a socket"))?;
        for end in [&wake, &killer] {
            end.set_nonblocking(true)
                .map_err(Error::system("creating a socket"))?;
        }
        let killer = Kill::Tree {
            ended: (0..size).map(|_| AtomicBool::new(false)).collect(),
            requests: Mutex::default(),
            wake: killer,
        };
        let mut job = RunningJob {
            job: Job::new(hosts.clone(), launch.policy()),
            place: Place::Tree(Box::new(tree), hosts),
            output,
            pump: (launch.readers != Readers::None).then(Pump::new),
            signals,
            started: false,
            killer: Killer(Arc::new(killer)),
            wake: Some(wake),
            _thread: PhantomData,
        };
        if let Err(error) = job.await_start(below.shell.limit) {
            job.output.flush_ready();
            return Err(error);
        }
        job.started = true;
        job.job.start_limit(Instant::now());
        Ok(job)
    }

    /// Waits until all hosts have started their ranks.
    fn await_start(&mut self, limit: Duration) -> Result<(), Error> {
        let due = Instant::now().checked_add(limit);
        loop {
            let Place::Tree(tree, hosts) = &self.place else {
                return Ok(());
            };
            let Some(missing) = tree.not_ready() else {
                return Ok(());
            };
            if due.is_some_and(|due| due <= Instant::now()) {
                let limit = limit.as_secs_f64();
                return Err(Error::Host {
                    host: hosts[missing].0.clone(),
                    code: 2,
                    what: format!("the ranks have not started within {limit} s (--start-timeout)"),
                });
            }
            self.turn(due)?;
        }
    }

    /// Returns the ranks' process ids, by rank. The id of a rank that has ended may belong to
    /// another process, so use [`kill_rank`](Self::kill_rank) to signal a rank.
    pub fn pids(&self) -> Vec<u32> {
        self.job.pids()
    }

    /// Sends a signal (by number) to a rank's process. Returns whether the rank was still alive to
    /// receive it.
    pub fn kill_rank(&self, rank: usize, signal: i32) -> bool {
        self.killer.kill_rank(rank, signal)
    }

    /// Returns a [`Killer`] for other threads and for the output function.
    pub fn killer(&self) -> Killer {
        self.killer.clone()
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
        if let Place::Here(host) = &self.place {
            host.end_strays();
        }
        let how = self.job.conclude();
        self.carry_out();
        self.finish_output()?;
        if let Place::Tree(tree, _) = &mut self.place {
            tree.close();
        }
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
        match &mut self.place {
            Place::Here(host) => host.finish_output(&mut self.output),
            Place::Tree(tree, _) => {
                tree.finish();
                let due = Instant::now() + FAREWELL;
                while matches!(&self.place, Place::Tree(tree, _) if !tree.is_finished())
                    && Instant::now() < due
                {
                    self.turn(Some(due))?;
                }
            }
        }
        while self.output.drains().iter().any(|drain| !drain.is_empty()) {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Waits for events, at most until `until`, and handles them.
    ///
    /// # Errors
    /// The system refuses to wait, or a host cannot start its ranks.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let due = match &self.place {
            Place::Here(host) => host.due(&self.output),
            Place::Tree(tree, _) => tree.due(),
        };
        let wake = [until, self.job.next_deadline(), due];
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
        let (mut of_host, mut of_tree) = (Vec::new(), Vec::new());
        for (token, flags) in ready {
            match token {
                Token::Host(watch) => of_host.push((watch, flags)),
                Token::Child(at, part) => of_tree.push(((at, part), flags)),
                Token::Drain(index) => {
                    if let Some(drain) = self.output.drains_mut().get_mut(index) {
                        drain.advance();
                    }
                    if let Place::Here(host) = &mut self.place {
                        host.drop_dead_sources(&self.output);
                    }
                }
                Token::Input => {
                    let bytes = self.pump.as_mut().and_then(Pump::advance);
                    match (&mut self.place, bytes) {
                        (Place::Here(host), Some(bytes)) => host.feed(&bytes),
                        (Place::Tree(tree, _), Some(bytes)) => tree.feed(&bytes),
                        (_, None) => {}
                    }
                }
                Token::Killer => self.kill_requested(),
                Token::Signal => {}
            }
        }
        let now = Instant::now();
        match &mut self.place {
            Place::Here(host) => {
                host.handle(&of_host, &mut self.output, now);
                if let Some(pump) = &mut self.pump {
                    let (taken, reads) = host.take_fed();
                    pump.taken(taken);
                    if !reads {
                        pump.close();
                    }
                }
            }
            Place::Tree(tree, _) => {
                let happened = tree.handle(&of_tree, &mut self.output, now);
                for happened in happened {
                    self.on_tree(happened, now)?;
                }
            }
        }
        self.handle_reports(now);
        self.job.on_time(now);
        self.handle_reports(now);
        Ok(())
    }

    fn interest(&self) -> Interest<'_, Token> {
        let mut interest = Interest::new();
        match &self.place {
            Place::Here(host) => host.watch(&self.output, &mut interest, Token::Host),
            Place::Tree(tree, _) => tree.watch(&self.output, &mut interest, Token::Child),
        }
        if let Some(signals) = &self.signals {
            let fd = PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN);
            interest.add(Token::Signal, fd);
        }
        if let Some(wake) = &self.wake {
            interest.add(Token::Killer, PollFd::new(wake, PollFlags::IN));
        }
        if let Some(fd) = self.pump.as_ref().and_then(Pump::poll_fd) {
            interest.add(Token::Input, fd);
        }
        for (index, drain) in self.output.drains().iter().enumerate() {
            if !drain.is_empty() {
                let fd = PollFd::from_borrowed_fd(drain.fd(), PollFlags::OUT);
                interest.add(Token::Drain(index), fd);
            }
        }
        interest
    }

    /// Handles what has happened on several hosts.
    fn on_tree(&mut self, happened: FromTree, now: Instant) -> Result<(), Error> {
        let Place::Tree(_, hosts) = &self.place else {
            return Ok(());
        };
        match happened {
            FromTree::Event(host, event) => {
                if let (Event::Ended(ends), Kill::Tree { ended, .. }) = (&event, &*self.killer.0) {
                    let ranks = ends.iter().filter_map(|end| ended.get(end.rank));
                    ranks.for_each(|ended| ended.store(true, Ordering::SeqCst));
                }
                self.job.on_event(host, event, now);
            }
            FromTree::Failed { host, code, what } => {
                return Err(Error::Host {
                    host: hosts[host].0.clone(),
                    code,
                    what,
                });
            }
            FromTree::Lost { named, what, .. } if !self.started => {
                return Err(Error::Host {
                    host: hosts
                        .get(named)
                        .map(|(name, _)| name.clone())
                        .unwrap_or_default(),
                    code: 2,
                    what,
                });
            }
            FromTree::Lost { hosts, named, what } => {
                // Once all ranks have ended, nothing depends on the host.
                if !self.job.all_ended() {
                    self.job.on_lost(hosts, named, what, now);
                }
            }
            FromTree::InputTaken(bytes) => self.pump.iter_mut().for_each(|pump| pump.taken(bytes)),
            FromTree::InputClosed => self.pump.iter_mut().for_each(Pump::close),
            FromTree::Connected(_) => {}
        }
        Ok(())
    }

    /// Passes the host's events to the job, and carries out what the job decides, until nothing is
    /// left.
    fn handle_reports(&mut self, now: Instant) {
        loop {
            self.carry_out();
            let Place::Here(host) = &mut self.place else {
                return;
            };
            let reports = host.take_reports();
            if reports.is_empty() {
                return;
            }
            for report in reports {
                // The others are of hosts that have a part of the ranks.
                if let Report::Event(event) = report {
                    self.job.on_event(0, event, now);
                }
            }
        }
    }

    /// Carries out the job's decisions.
    fn carry_out(&mut self) {
        for action in self.job.take_actions() {
            match action {
                Action::Say(text) => self.output.message(&text),
                Action::Do(command) => self.obey(command),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match &mut self.place {
            Place::Here(host) => host.obey(command),
            Place::Tree(tree, _) => tree.obey(command),
        }
    }

    /// Signals the ranks for which killers have asked.
    fn kill_requested(&mut self) {
        let (Place::Tree(tree, hosts), Kill::Tree { requests, .. }) =
            (&mut self.place, &*self.killer.0)
        else {
            return;
        };
        if let Some(mut wake) = self.wake.as_ref() {
            while matches!(std::io::Read::read(&mut wake, &mut [0; 64]), Ok(1..)) {}
        }
        let requests =
            std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner));
        for (rank, signal) in requests {
            let mut end = 0;
            let host = hosts.iter().position(|(_, count)| {
                end += count;
                rank < end
            });
            if let Some(host) = host {
                tree.kill_rank(host, rank, signal);
            }
        }
    }

    /// Handles a signal that the launcher itself has received.
    fn on_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGCHLD => {
                if let Place::Here(host) = &self.place {
                    host.reap_strays();
                }
            }
            libc::SIGCONT => self.pump.iter_mut().for_each(Pump::resume),
            libc::SIGTSTP => {
                self.obey(Command::Signal(libc::SIGSTOP));
                // Stops this process. When it is continued, so are the ranks.
                let _ = signal_hook::low_level::raise(libc::SIGSTOP);
                self.obey(Command::Signal(libc::SIGCONT));
            }
            libc::SIGINT | libc::SIGTERM => {
                let now = Instant::now();
                self.job.on_end_signal(signal, now);
                self.handle_reports(now);
                if self.job.all_ended() {
                    // The job only waits for a reader to take the remaining output, so discard it.
                    let drains = self.output.drains_mut().iter_mut();
                    drains.for_each(Drain::give_up);
                }
            }
            _ => self.obey(Command::Signal(signal)),
        }
    }
}

/// The start of the daemons of all hosts.
struct Connecting<'a> {
    hosts: &'a [hosts::Host],
    limit: Duration,
    verbose: bool,
}

impl Connecting<'_> {
    /// Starts the daemons and waits until all run.
    fn connect(
        &self,
        below: &Below,
        output: &mut Output,
        mut signals: Option<&mut Signals>,
    ) -> Result<Tree, Error> {
        let error = |(host, what): (usize, String)| Error::Host {
            host: below.names.get(host).cloned().unwrap_or_default(),
            code: 2,
            what,
        };
        let mut tree = Tree::start(below, hosts::is_here).map_err(error)?;
        // Each daemon watches over the start of those below it; this limit is for daemons that
        // hang after their own start.
        let due = Instant::now().checked_add(self.limit.saturating_mul(4));
        let mut connected = 0;
        while !tree.is_connected() {
            if due.is_some_and(|due| due <= Instant::now()) {
                let host = tree.not_connected().unwrap_or(0);
                let what = "its daemon has not started in time (--start-timeout)";
                return Err(error((host, what.to_owned())));
            }
            let mut interest = Interest::new();
            tree.watch(output, &mut interest, |at, part| Some((at, part)));
            if let Some(signals) = &signals {
                let fd = PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN);
                interest.add(None, fd);
            }
            let ready = interest.wait([due, tree.due()].into_iter().flatten().min())?;
            for signal in signals.as_mut().map(|s| s.take()).unwrap_or_default() {
                if let libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT = signal {
                    return Err(Error::Interrupted(signal));
                }
            }
            let ready = ready.into_iter();
            let ready: Vec<_> = ready
                .filter_map(|(part, flags)| Some((part?, flags)))
                .collect();
            for happened in tree.handle(&ready, output, Instant::now()) {
                match happened {
                    FromTree::Lost { named, what, .. } => return Err(error((named, what))),
                    FromTree::Connected(host) => {
                        connected += 1;
                        if self.verbose {
                            let (name, all) = (&below.names[host], self.hosts.len());
                            output.message(&format!(
                                "the daemon of host {name} has started ({connected} of {all})"
                            ));
                        }
                    }
                    _ => {}
                }
            }
            output.flush_ready();
        }
        Ok(tree)
    }
}

fn check_reader(readers: Readers, ranks: usize) -> Result<(), Error> {
    match readers {
        Readers::Rank(rank) if rank >= ranks => Err(Error::NoSuchReader { rank, ranks }),
        _ => Ok(()),
    }
}

/// Returns a word that is unique among the jobs of this host, made of the process id and the time.
fn job_id() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}-{:x}", getpid().as_raw_pid(), now.as_nanos())
}
