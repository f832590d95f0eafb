//! The ranks of one host: starts them, serves them PMI, forwards their output and manages their
//! processes. A [`Host`] reports [`Event`]s and carries out [`Command`]s; it decides nothing about
//! the job.

mod affinity;
pub(crate) mod agent;
mod control;
mod guard;
mod input;
pub(crate) mod plan;
mod process;
mod program;
mod rank;
mod source;
pub(crate) mod strays;

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pmi::server::{Action, Limits, RankState, Server};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, getrlimit, pidfd_send_signal,
    setrlimit, waitid,
};

use crate::error::Error;
use crate::event::{Command, End, Event, Report, Stuck};
use crate::interest::Interest;
use crate::outcome::Status;
use crate::output::{Output, Stream};
use agent::Agent;
use control::Incoming;
use guard::Guard;
use plan::Plan;
use rank::{Rank, Shared};

/// The maximum number of PMI's pairs in a report, which bounds its size to about 300 KiB.
const PAIRS: usize = 256;

/// The ranks of one host. Dropping a `Host` kills the ranks.
#[derive(Debug)]
pub(crate) struct Host {
    plan: Plan,
    /// The file of the ranks' program.
    file: PathBuf,
    /// The processors of each rank; nothing if ranks are not bound.
    processors: Vec<Vec<usize>>,
    ranks: Vec<Rank>,
    pidfds: Arc<Vec<OwnedFd>>,
    server: Server,
    guard: Guard,
    /// The children that this process had before the job; `None` unless it adopts orphans.
    spared: Option<HashSet<Pid>>,
    reports: Vec<Report>,
    /// The number of bytes of the input that the ranks have not taken.
    untaken: usize,
    /// The host's agent, which is ended after the ranks.
    _agent: Option<Agent>,
}

/// A descriptor of a host in the poll set. Ranks are counted from the host's first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Watch {
    Control(usize),
    Input(usize),
    Output(usize, Stream),
    Ended(usize),
}

impl Host {
    /// Prepares the start of the ranks: finds the program, and starts the agent and the guard. Each
    /// rank will need `pipes` pipes.
    pub(crate) fn prepare(mut plan: Plan, pipes: usize) -> Result<Self, Error> {
        let count = plan.ranks.len();
        if plan.own_process {
            raise_descriptor_limit(count as u64);
        }
        check_descriptor_limit(count, pipes)?;
        let path = plan
            .env
            .iter()
            .rev()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone());
        let path = path.or_else(|| std::env::var_os("PATH"));
        let file = program::find(&plan.program, path.as_deref())?;
        let processors = affinity::of_ranks(plan.bind, count)?;
        // Start the agent before listing the children to spare, so that the agent is one of them.
        let agent = match &plan.agent {
            Some(program) => {
                let path = std::env::var_os("PATH");
                let program = program::find(program, path.as_deref())?;
                let name = format!("job-{}", plan.job_id);
                let agent = Agent::start(&program, &name)?;
                plan.env.push((agent::VARIABLE.into(), name.into()));
                Some(agent)
            }
            None => None,
        };
        let mut spared = None;
        if plan.own_process {
            rustix::process::set_child_subreaper(Some(getpid()))
                .map_err(Error::system("becoming the reaper of all descendants"))?;
            spared = Some(strays::children());
        }
        let guard = Guard::start(count).map_err(Error::system("starting the guard"))?;
        if let Some(spared) = &mut spared {
            spared.insert(guard.pid());
        }
        let kvsname = format!("kvs_{}", plan.job_id);
        let ranks = plan.ranks.clone();
        let mut server = Server::of_host(plan.size, ranks, &kvsname, Limits::default());
        // MPI libraries read the placement of ranks from this key.
        server.preset("PMI_process_mapping", &plan.mapping);
        Ok(Host {
            plan,
            file,
            processors,
            ranks: Vec::with_capacity(count),
            pidfds: Arc::default(),
            server,
            guard,
            spared,
            reports: Vec::new(),
            untaken: 0,
            _agent: agent,
        })
    }

    /// Starts the ranks. Those that read the input inherit this process's if `inherit_stdin`, or
    /// get what is [fed](Self::feed). On an error, dropping the host kills the ranks that have been
    /// started.
    pub(crate) fn start(&mut self, piped: &[Stream], inherit_stdin: bool) -> Result<(), Error> {
        let mut pidfds = Vec::with_capacity(self.plan.ranks.len());
        for number in self.plan.ranks.clone() {
            let shared = Shared {
                plan: &self.plan,
                file: &self.file,
                processors: &self.processors,
                piped,
                guard: self.guard.socket(),
            };
            let (rank, pidfd) = rank::start(&shared, number, inherit_stdin)?;
            let pid = rank.pid.as_raw_pid().cast_unsigned();
            self.reports
                .push(Report::Event(Event::Started { rank: number, pid }));
            self.ranks.push(rank);
            pidfds.push(pidfd);
            if self.plan.report_bindings {
                let bound = self.processors.get(number - self.plan.ranks.start);
                let processors = match bound {
                    Some(bound) => bound.clone(),
                    None => affinity::allowed()?,
                };
                let is_bound = bound.is_some();
                self.event(Event::Runs {
                    rank: number,
                    is_bound,
                    processors: affinity::list(&processors),
                });
            }
        }
        self.pidfds = Arc::new(pidfds);
        Ok(())
    }

    /// Returns the process descriptors of the ranks.
    pub(crate) fn pidfds(&self) -> Arc<Vec<OwnedFd>> {
        Arc::clone(&self.pidfds)
    }

    /// Returns the reports since the last call.
    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// Signals a rank of this host.
    pub(crate) fn kill_rank(&self, rank: usize, signal: i32) {
        let index = rank.checked_sub(self.plan.ranks.start);
        let pidfd = index.and_then(|index| self.pidfds.get(index));
        if let (Some(pidfd), Some(signal)) = (pidfd, Signal::from_named_raw(signal)) {
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }

    /// Passes input to the ranks that read it; nothing is its end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.untaken += bytes.len();
        for rank in &mut self.ranks {
            if let Some(input) = &mut rank.input {
                input.push(bytes);
            }
            rank.input.take_if(|input| !input.advance());
        }
    }

    /// Returns the number of bytes of the input that the ranks have taken since the last call, and
    /// whether there is still a rank that reads.
    pub(crate) fn take_fed(&mut self) -> (usize, bool) {
        let mut inputs = self.ranks.iter().filter_map(|rank| rank.input.as_ref());
        let reads = inputs.clone().next().is_some();
        match inputs.all(|input| input.is_empty()) {
            true => (std::mem::take(&mut self.untaken), reads),
            false => (0, reads),
        }
    }

    /// Completes PMI's barrier with the new pairs of all hosts.
    pub(crate) fn release(&mut self, pairs: Vec<(String, String)>) {
        let actions = self.server.release(pairs);
        self.carry_out(actions);
    }

    /// Adds the descriptors to wait for.
    pub(crate) fn watch<'a, T>(
        &'a self,
        output: &Output,
        interest: &mut Interest<'a, T>,
        token: impl Fn(Watch) -> T,
    ) {
        for (index, rank) in self.ranks.iter().enumerate() {
            if let Some((socket, flags)) = rank.control.interest() {
                interest.add(token(Watch::Control(index)), PollFd::new(socket, flags));
            }
            if let Some(input) = &rank.input {
                interest.add(token(Watch::Input(index)), input.poll_fd());
            }
            for stream in Stream::BOTH {
                if let Some(source) = &rank.sources[stream as usize]
                    && output.accepts(stream)
                {
                    let fd = PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN);
                    interest.add(token(Watch::Output(index, stream)), fd);
                }
            }
            if rank.status.is_none() {
                let fd = PollFd::new(&self.pidfds[index], PollFlags::IN);
                interest.add(token(Watch::Ended(index)), fd);
            }
        }
    }

    /// Returns the time at which [`handle`](Self::handle) has to be called even if nothing is
    /// ready.
    pub(crate) fn due(&self, output: &Output) -> Option<Instant> {
        if output.holds_lines() {
            return None;
        }
        let sources = self.ranks.iter().flat_map(|rank| rank.sources.iter());
        sources.flatten().filter_map(|source| source.due()).min()
    }

    /// Handles descriptors that are ready, and beginnings of lines that have waited long enough for
    /// their ends.
    pub(crate) fn handle(
        &mut self,
        ready: &[(Watch, PollFlags)],
        output: &mut Output,
        now: Instant,
    ) {
        let mut ended = Vec::new();
        for &(watch, flags) in ready {
            match watch {
                Watch::Control(index) => {
                    if flags.contains(PollFlags::OUT) {
                        self.ranks[index].control.flush();
                    }
                    self.on_control(index);
                }
                Watch::Input(index) => {
                    let broken = flags.contains(PollFlags::ERR);
                    let input = &mut self.ranks[index].input;
                    input.take_if(|input| broken || !input.advance());
                }
                Watch::Output(index, stream) => {
                    self.read_output(index, stream, output);
                }
                Watch::Ended(index) => ended.push(index),
            }
        }
        if !ended.is_empty() {
            self.on_ended(&ended, output);
        }
        self.hand_on_pieces(now, output);
    }

    /// Carries out a command.
    pub(crate) fn obey(&mut self, command: Command) {
        match command {
            Command::End { spare } => {
                for (index, rank) in self.ranks.iter().enumerate() {
                    // A rank that aborted the job or closed its connection exits by itself and may
                    // still have something to report.
                    let number = self.plan.ranks.start + index;
                    let closed = rank.control.is_closed() && self.is_active(number);
                    if spare != Some(number) && !closed {
                        rank.kill_group(Signal::TERM);
                    }
                }
                // A stopped rank receives SIGTERM only once it is continued.
                self.signal_all(Signal::CONT);
            }
            Command::Kill => self.signal_all(Signal::KILL),
            Command::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal_all(signal);
                }
            }
            Command::Probe => {
                let ranks = self.plan.ranks.clone().zip(&self.ranks);
                let stopped = ranks
                    .filter(|(_, rank)| rank.status.is_none() && process::is_stopped(rank.pid));
                let stopped = stopped.map(|(number, _)| number).collect();
                self.event(Event::Stopped(stopped));
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        self.ranks.iter().for_each(|rank| rank.kill_group(signal));
    }

    /// Returns whether a rank is between PMI's `init` and `finalize`.
    fn is_active(&self, number: usize) -> bool {
        let state = self.server.state(number);
        matches!(state, Some(RankState::Active | RankState::InBarrier))
    }

    /// Handles everything that a rank has sent over PMI.
    fn on_control(&mut self, index: usize) {
        let number = self.plan.ranks.start + index;
        loop {
            match self.ranks[index].control.next() {
                Incoming::Line(line) => self.on_line(index, &line),
                Incoming::Nothing => return,
                Incoming::Closed => {
                    if self.is_active(number) {
                        let rank = &self.ranks[index];
                        let program = process::program(rank.pid);
                        let replaced = program.is_some() && program != rank.program;
                        let rank = number;
                        self.event(Event::Closed { rank, replaced });
                    }
                    return;
                }
                Incoming::Broken(error) => return self.broken(number, error.to_string()),
            }
        }
    }

    fn on_line(&mut self, index: usize, line: &str) {
        let number = self.plan.ranks.start + index;
        if !self.is_active(number) {
            self.ranks[index].program = process::program(self.ranks[index].pid);
        }
        let actions = match self.server.on_line(number, line) {
            Ok(actions) => actions,
            Err(error) => {
                if let Some(stuck) = Stuck::from_error(&error) {
                    return self.event(Event::Stuck(stuck));
                }
                self.ranks[index].control.close();
                return self.broken(error.rank(), error.to_string());
            }
        };
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { rank, line } => {
                    let control = &mut self.ranks[rank - self.plan.ranks.start].control;
                    if !control.send(&line) {
                        control.close();
                        let what = "it does not read the answers to its requests";
                        self.broken(rank, what.to_owned());
                    }
                }
                Action::Abort {
                    rank,
                    code,
                    message,
                } => self.event(Event::Aborted {
                    rank,
                    code,
                    message,
                }),
                // The server remembers that the rank has called `finalize`; it is asked for the
                // rank's state when the rank ends.
                Action::Finalized { rank } => {
                    let stuck = self.server.check_barrier().err();
                    if let Some(stuck) = stuck.as_ref().and_then(Stuck::from_error) {
                        self.event(Event::Stuck(stuck));
                    } else if self.plan.ranks.len() < self.plan.size {
                        self.reports.push(Report::Finalized { rank });
                    }
                }
                Action::Waiting { rank } => self.reports.push(Report::Waiting { rank }),
                Action::Fence { pairs } => {
                    let chunks = pairs.chunks(PAIRS);
                    let chunks = chunks.map(|chunk| Report::Pairs(chunk.to_vec()));
                    self.reports.extend(chunks);
                    self.reports.push(Report::Fence);
                }
                _ => {}
            }
        }
    }

    fn broken(&mut self, rank: usize, what: String) {
        self.event(Event::Broken { rank, what });
    }

    fn event(&mut self, event: Event) {
        self.reports.push(Report::Event(event));
    }

    /// Forwards partial lines that have waited long enough for their end.
    fn hand_on_pieces(&mut self, now: Instant, output: &mut Output) {
        if output.holds_lines() {
            return;
        }
        for (number, rank) in self.plan.ranks.clone().zip(&mut self.ranks) {
            for (stream, source) in Stream::BOTH.into_iter().zip(&mut rank.sources) {
                if let Some(source) = source
                    && source.due().is_some_and(|due| due <= now)
                {
                    output.piece(number, stream, &source.take_piece());
                }
            }
        }
    }

    /// Reads a chunk of a rank's output. Returns whether there may be more.
    fn read_output(&mut self, index: usize, stream: Stream, output: &mut Output) -> bool {
        let number = self.plan.ranks.start + index;
        let Some(source) = &mut self.ranks[index].sources[stream as usize] else {
            return false;
        };
        match source.read(|line, ended| output.line(number, stream, line, ended)) {
            Ok(more) => more,
            Err(()) => {
                self.close_output(index, stream, output);
                false
            }
        }
    }

    fn close_output(&mut self, index: usize, stream: Stream, output: &mut Output) {
        self.end_line(index, stream, output);
        self.ranks[index].sources[stream as usize] = None;
    }

    /// Forwards the last line of a stream that will get no more input.
    fn end_line(&mut self, index: usize, stream: Stream, output: &mut Output) {
        let number = self.plan.ranks.start + index;
        if let Some(source) = &mut self.ranks[index].sources[stream as usize] {
            source.end_line(|line, ended| output.line(number, stream, line, ended));
        }
    }

    /// Closes the pipes of streams whose reader is gone, so that the ranks get SIGPIPE as they
    /// would without the launcher in between.
    pub(crate) fn drop_dead_sources(&mut self, output: &Output) {
        for stream in Stream::BOTH {
            if output.dead(stream) {
                let ranks = self.ranks.iter_mut();
                ranks.for_each(|rank| rank.sources[stream as usize] = None);
            }
        }
    }

    /// Reaps the ranks whose processes have ended in this turn, and reports them only once all of
    /// them are known.
    fn on_ended(&mut self, ended: &[usize], output: &mut Output) {
        let mut ends = Vec::new();
        for &index in ended {
            // The rank may have sent something before it ended, such as an abort.
            self.on_control(index);
            self.ranks[index].control.close();
            self.ranks[index].input = None;
            let pid = self.ranks[index].pid;
            // Kill the group before reaping the process: until then, neither the process's number
            // nor its group's can be reused.
            self.ranks[index].kill_group(Signal::KILL);
            // The rank's output is printed before the message about the rank.
            for stream in Stream::BOTH {
                while self.read_output(index, stream, output) {}
                self.end_line(index, stream, output);
            }
            self.guard.retire(pid);
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let status = match waitid(WaitId::Pid(pid), options) {
                Ok(Some(status)) => Status::from_wait(&status),
                // Other code in this process has reaped the rank, so its exit code is unknown.
                _ => Status::Exited(1),
            };
            self.ranks[index].status = Some(status);
            ends.push((index, status));
        }
        let ends = ends.into_iter().map(|(index, status)| {
            let rank = self.plan.ranks.start + index;
            let state = self.server.state(rank);
            let active = matches!(state, Some(RankState::Active | RankState::InBarrier));
            let stuck = self.server.on_end(rank).err();
            End {
                rank,
                status,
                active,
                joined: state != Some(RankState::Started),
                stuck: stuck.as_ref().and_then(Stuck::from_error),
            }
        });
        let ends = ends.collect();
        self.event(Event::Ended(ends));
    }

    /// Reaps adopted processes that have ended.
    pub(crate) fn reap_strays(&self) {
        let Some(spared) = &self.spared else { return };
        while let Some(child) = strays::peek_ended() {
            // Ranks are reaped when their pidfds become ready, and the guard is reaped when its
            // handle is dropped. Until then `peek_ended` keeps returning that child, so other
            // strays have to wait.
            if spared.contains(&child) || self.ranks.iter().any(|rank| rank.pid == child) {
                return;
            }
            strays::reap(child);
        }
    }

    /// Ends the processes that have left their rank's group. Call this once all ranks have ended.
    pub(crate) fn end_strays(&self) {
        if let Some(spared) = &self.spared {
            strays::end_all(spared);
        }
    }

    /// Forwards what is left in the ranks' pipes, and closes them.
    pub(crate) fn finish_output(&mut self, output: &mut Output) {
        for index in 0..self.ranks.len() {
            for stream in Stream::BOTH {
                while self.read_output(index, stream, output) {}
                self.close_output(index, stream, output);
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let alive = || self.ranks.iter().filter(|rank| rank.status.is_none());
        alive().for_each(|rank| rank.kill_group(Signal::KILL));
        for rank in alive() {
            self.guard.retire(rank.pid);
            process::await_end(rank.pid);
        }
        self.end_strays();
    }
}

/// Checks that this process may open the descriptors that its ranks need: one for the socket, one
/// for the pidfd and one for each pipe. Starting a rank needs a few more for a short time.
fn check_descriptor_limit(ranks: usize, pipes: usize) -> Result<(), Error> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, Iterator::count) as u64;
    let each = 2 + pipes as u64;
    let needed = (ranks as u64)
        .saturating_mul(each)
        .saturating_add(open + 32);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if needed > limit => Err(Error::TooManyRanks {
            ranks,
            needed,
            limit,
        }),
        _ => Ok(()),
    }
}

/// Raises the limit of open descriptors to the hard limit if the ranks need that many.
fn raise_descriptor_limit(ranks: u64) {
    let limit = getrlimit(Resource::Nofile);
    let needed = ranks.saturating_mul(4).saturating_add(128);
    if limit.current.is_some_and(|current| current < needed) {
        // Errors are ignored here: the check reports a limit that is too low for the job.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                ..limit
            },
        );
    }
}
