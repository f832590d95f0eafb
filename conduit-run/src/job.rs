//! Decides when and why a job has to end: a state machine over the ranks of all hosts, without I/O
//! and clock. It takes [`Event`]s and the time, and returns [`Action`]s.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::event::{Command, End, Event, Stuck};
use crate::outcome::{How, Status, signal_text};

/// An action of the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Print a message.
    Say(String),
    /// Have all hosts carry out a command.
    Do(Command),
}

/// The properties of a job that its end depends on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// The time between `SIGTERM` and `SIGKILL`.
    pub(crate) grace: Duration,
    /// The time between a forwarded signal and `SIGKILL`.
    pub(crate) signal_grace: Duration,
    pub(crate) timeout: Option<Duration>,
    /// Suppresses the message that names a failed rank.
    pub(crate) quiet: bool,
    /// Reports starts and ends of ranks.
    pub(crate) verbose: bool,
}

/// A rank, as far as the launcher knows.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    pid: u32,
    status: Option<Status>,
}

/// A job that is ending.
#[derive(Debug)]
struct Ending {
    how: How,
    /// The time at which the remaining ranks are killed; `None` once they have been.
    kill_at: Option<Instant>,
    /// The first rank that failed, if a signal to the launcher ends the job.
    failed: Option<How>,
    /// Whether ranks had to be killed at the end of their grace.
    forced: bool,
    /// The ranks that a signal has stopped, while hosts are being asked for them. The job ends once
    /// all hosts have answered.
    stopped: Option<Stopped>,
}

#[derive(Debug, Default)]
struct Stopped {
    ranks: BTreeSet<usize>,
    /// The hosts that have not answered.
    awaited: BTreeSet<usize>,
}

/// An event that ends the job after a delay. It is either the exit of a failed rank, after which
/// the others have a grace period to end by themselves, or a suspicious event that usually follows
/// from a failure that the launcher has yet to see.
#[derive(Debug)]
struct Suspicion {
    how: How,
    /// The time at which the event ends the job; `None` if the grace is too long for an `Instant`.
    due: Option<Instant>,
}

/// The multiple of the grace period within which a rank must exit after it has closed its
/// connection. The time is long because the rank may still write a lot, such as a backtrace, on a
/// core that it shares with many others.
const CLOSED: u32 = 30;
/// The multiple of the grace period for which a barrier that cannot complete is tolerated. The time
/// is long because a rank that ends the job waits some seconds until all ranks have heard of the
/// end.
const BARRIER: u32 = 10;

/// The state of a job.
#[derive(Debug)]
pub(crate) struct Job {
    policy: Policy,
    ranks: Vec<Rank>,
    /// The names of the hosts, each with its number of ranks. Hosts have the ranks in this order.
    hosts: Vec<(String, usize)>,
    /// The hosts that take part and are not lost.
    present: BTreeSet<usize>,
    deadline: Option<Instant>,
    /// The reason why the job has to end, once it is known.
    ending: Option<Ending>,
    /// Suspicious events whose real cause may still show up.
    suspicions: Vec<Suspicion>,
    actions: Vec<Action>,
}

impl Job {
    /// Creates a job on these hosts, each given by its name and number of ranks. Hosts have the
    /// ranks in this order. Messages name the host of a rank only if there are several.
    pub(crate) fn new(hosts: Vec<(String, usize)>, policy: Policy) -> Self {
        let size = hosts.iter().map(|(_, count)| count).sum();
        Job {
            policy,
            ranks: vec![Rank::default(); size],
            present: (0..hosts.len()).collect(),
            hosts,
            deadline: None,
            ending: None,
            suspicions: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Returns the actions since the last call.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Starts the time limit.
    pub(crate) fn start_limit(&mut self, now: Instant) {
        let limit = self.policy.timeout;
        self.deadline = limit.and_then(|limit| now.checked_add(limit));
    }

    /// Returns the processes of the ranks, by rank.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.pid).collect()
    }

    /// Returns how the ranks have ended, by rank, except those that have not.
    pub(crate) fn statuses(&self) -> Vec<Status> {
        self.ranks.iter().filter_map(|rank| rank.status).collect()
    }

    /// Returns whether all ranks have ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.ranks.iter().all(|rank| rank.status.is_some())
    }

    /// Returns the time at which [`on_time`](Self::on_time) must be called.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match &self.ending {
            Some(ending) => ending.kill_at,
            None => {
                let due = self.suspicions.iter().filter_map(|suspicion| suspicion.due);
                due.chain(self.deadline).min()
            }
        }
    }

    /// Handles an event of a host.
    pub(crate) fn on_event(&mut self, host: usize, event: Event, now: Instant) {
        match event {
            Event::Started { rank, pid } => self.on_started(rank, pid),
            Event::Runs {
                rank,
                is_bound,
                processors,
            } => {
                let (on, pid) = (self.on_host(rank), self.pid(rank));
                let how = match is_bound {
                    true => "is bound to",
                    false => "is not bound and may use",
                };
                self.say(format!(
                    "rank {rank}{on} (pid {pid}) {how} processors {processors}"
                ));
            }
            Event::Closed { rank, replaced } => self.on_closed(rank, replaced, now),
            Event::Broken { rank, what } => {
                let how = self.protocol(rank, &what);
                self.end(how, now);
            }
            Event::Aborted {
                rank,
                code,
                message,
            } => {
                let how = How::Aborted {
                    rank,
                    pid: self.pid(rank),
                    code,
                    message,
                };
                self.end(how, now);
            }
            Event::Stuck(stuck) => self.suspect_barrier(&stuck, now),
            Event::Ended(ends) => self.judge(ends, now),
            Event::Stopped(ranks) => self.on_stopped(host, ranks),
        }
    }

    /// Handles the loss of hosts, of which `named` is the one that the launcher lost first. Their
    /// ranks cannot be reached any more; what remains on the hosts kills them.
    pub(crate) fn on_lost(
        &mut self,
        hosts: Range<usize>,
        named: usize,
        what: String,
        now: Instant,
    ) {
        let mut first = 0;
        for (host, (_, count)) in self.hosts.iter().enumerate() {
            if hosts.contains(&host) && self.present.remove(&host) {
                for rank in &mut self.ranks[first..first + count] {
                    rank.status.get_or_insert(Status::Killed {
                        signal: libc::SIGKILL,
                        core: false,
                    });
                }
            }
            first += count;
        }
        let name = self.hosts.get(named).map(|(name, _)| name.clone());
        let host = name.unwrap_or_default();
        self.end(How::HostLost { host, what }, now);
        for host in hosts {
            self.on_stopped(host, Vec::new());
        }
    }

    fn on_started(&mut self, rank: usize, pid: u32) {
        let Some(started) = self.ranks.get_mut(rank) else {
            return;
        };
        started.pid = pid;
        if self.policy.verbose {
            let on = self.on_host(rank);
            self.say(format!("rank {rank}{on} is pid {pid}"));
        }
    }

    /// Handles expired deadlines.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if let Some(ending) = &mut self.ending {
            if ending.kill_at.is_some_and(|when| when <= now) {
                ending.kill_at = None;
                ending.forced = true;
                if ending.stopped.is_some() {
                    self.tell_ranks_to_end();
                }
                self.kill_remaining();
            }
            return;
        }
        let due = |suspicion: &Suspicion| suspicion.due.is_some_and(|when| when <= now);
        if let Some(at) = self.suspicions.iter().position(due)
            && !self.all_ended()
        {
            let suspicion = self.suspicions.remove(at);
            self.end(suspicion.how, now);
        } else if self.deadline.is_some_and(|when| when <= now) && !self.all_ended() {
            let limit = self.policy.timeout.unwrap_or_default();
            self.end(How::TimedOut { limit }, now);
        }
    }

    fn kill_remaining(&mut self) {
        let ranks = self.ranks.iter().enumerate();
        let alive = ranks.filter(|(_, rank)| rank.status.is_none());
        let alive: Vec<String> = alive.map(|(number, _)| number.to_string()).collect();
        self.actions.push(Action::Do(Command::Kill));
        if self.policy.verbose && !alive.is_empty() {
            self.say(format!(
                "killing the ranks that have not ended: {}",
                alive.join(", ")
            ));
        }
    }

    /// Suspects a rank that closed its connection between `init` and `finalize` of having failed.
    /// It is probably about to report a reason and exit, which says more than the closed
    /// connection.
    fn on_closed(&mut self, rank: usize, replaced: bool, now: Instant) {
        if replaced {
            let how = self.protocol(
                rank,
                "it executed another program before it called finalize",
            );
            return self.suspect(how, self.policy.grace, now);
        }
        let how = self.protocol(rank, "it closed its connection before it called finalize");
        self.suspect(how, self.policy.grace.saturating_mul(CLOSED), now);
    }

    /// Handles a barrier in which a rank waits for another that will never arrive.
    fn suspect_barrier(&mut self, stuck: &Stuck, now: Instant) {
        if let Some(missing) = stuck.never_joined {
            return self.suspect_left(missing, now);
        }
        let how = self.protocol(stuck.waiting, &stuck.what);
        self.suspect(how, self.policy.grace.saturating_mul(BARRIER), now);
    }

    /// Handles a rank that exited with 0 before the others. If the other ranks do the same within
    /// the grace period, they need not be ended.
    fn suspect_left(&mut self, rank: usize, now: Instant) {
        let how = How::Left {
            rank,
            pid: self.pid(rank),
            cut_off: true,
        };
        self.suspect(how, self.policy.grace, now);
    }

    /// Returns the first suspicion that is a rank's exit with a code other than 0. The other ranks
    /// have their grace period meanwhile.
    fn failed(&self) -> Option<&How> {
        let mut suspected = self.suspicions.iter().map(|suspicion| &suspicion.how);
        suspected.find(|how| matches!(how, How::Exited { .. }))
    }

    /// Drops the suspicions that a rank has broken the protocol, because its exit status says more.
    fn clear_protocol(&mut self, ended: usize) {
        let of_ended = |how: &How| matches!(how, How::Protocol { rank, .. } if *rank == ended);
        self.suspicions
            .retain(|suspicion| !of_ended(&suspicion.how));
    }

    fn protocol(&self, rank: usize, what: &str) -> How {
        How::Protocol {
            rank,
            pid: self.pid(rank),
            what: what.to_owned(),
        }
    }

    fn suspect(&mut self, how: How, patience: Duration, now: Instant) {
        let due = now.checked_add(patience);
        self.suspicions.push(Suspicion { how, due });
    }

    /// Decides the outcome when all ranks have ended, and returns it. Reports it if nothing has
    /// ended the job before.
    pub(crate) fn conclude(&mut self) -> How {
        self.deadline = None;
        if self.ending.as_ref().is_some_and(|e| e.stopped.is_some()) {
            self.tell_ranks_to_end();
        }
        let failed = self.failed().cloned();
        let first = std::mem::take(&mut self.suspicions).into_iter().next();
        if let Some(ending) = &self.ending {
            return ending.verdict();
        }
        let Some(mut how) = failed.or_else(|| first.map(|suspicion| suspicion.how)) else {
            return How::Completed;
        };
        if let How::Left { cut_off, .. } = &mut how {
            *cut_off = false;
        }
        // If all ranks exit with the same code, the program chose it, so it is not reported.
        let is_common = matches!(how, How::Exited { code, .. }
            if self.ranks.iter().all(|rank| rank.status == Some(Status::Exited(code))));
        if !self.policy.quiet && !is_common {
            let text = self.named(&how);
            self.say(text);
        }
        how
    }

    fn pid(&self, rank: usize) -> u32 {
        self.ranks.get(rank).map_or(0, |rank| rank.pid)
    }

    /// Reacts to the ranks that ended at the same time.
    fn judge(&mut self, ended: Vec<End>, now: Instant) {
        let mut causes = Vec::new();
        for end in &ended {
            self.clear_protocol(end.rank);
            if let Some(rank) = self.ranks.get_mut(end.rank) {
                rank.status = Some(end.status);
            }
        }
        for end in ended {
            let (rank, pid) = (end.rank, self.pid(end.rank));
            if self.policy.verbose {
                let how = match end.status {
                    Status::Exited(code) => format!("has exited with code {code}"),
                    Status::Killed { signal, .. } => {
                        format!("was killed by {}", signal_text(signal))
                    }
                };
                let on = self.on_host(rank);
                self.say(format!("rank {rank}{on} (pid {pid}) {how}"));
            }
            let cause = match end.status {
                Status::Killed { signal, core } => How::Killed {
                    rank,
                    pid,
                    signal,
                    core,
                },
                Status::Exited(0) => {
                    if end.active && self.ranks.len() > 1 {
                        self.suspect_left(rank, now);
                    } else if let Some(stuck) = &end.stuck {
                        self.suspect_barrier(stuck, now);
                    }
                    continue;
                }
                Status::Exited(code) => How::Exited { rank, pid, code },
            };
            causes.push(cause);
        }
        causes.sort_by_key(precedence);
        for how in causes {
            match how {
                // The other ranks may be about to exit too, and may have output that they have not
                // written yet.
                How::Exited { .. } if self.ending.is_none() => {
                    self.suspect(how, self.policy.grace, now);
                }
                how => self.end(how, now),
            }
        }
    }

    /// Ends the job with the reason `how`, unless the job is ending already. If a rank has exited
    /// with an error before, that exit is the reason instead, unless `how` is a kill: a killed rank
    /// more likely caused the other's failure.
    fn end(&mut self, how: How, now: Instant) {
        let how = match self.failed() {
            Some(failed) if precedence(&how) > 0 => failed.clone(),
            _ => how,
        };
        if let Some(ending) = &mut self.ending {
            if how.failed_rank().is_some() && matches!(ending.how, How::Signalled { .. }) {
                ending.failed.get_or_insert(how);
            }
            return;
        }
        let asks = matches!(how, How::Exited { .. }) && !self.policy.quiet;
        let mut ending = Ending::new(how, self.policy.grace, now);
        ending.stopped = Some(Stopped::default());
        if asks {
            // The failed rank may have waited for a rank that a signal has stopped.
            ending.stopped = Some(Stopped {
                ranks: BTreeSet::new(),
                awaited: self.present.clone(),
            });
            self.actions.push(Action::Do(Command::Probe));
        }
        self.ending = Some(ending);
        if !asks || self.present.is_empty() {
            self.tell_ranks_to_end();
        }
    }

    /// Handles a host's answer to [`Command::Probe`].
    fn on_stopped(&mut self, host: usize, ranks: Vec<usize>) {
        let Some(Ending {
            stopped: Some(stopped),
            ..
        }) = &mut self.ending
        else {
            return;
        };
        stopped.awaited.remove(&host);
        stopped.ranks.extend(ranks);
        if stopped.awaited.is_empty() {
            self.tell_ranks_to_end();
        }
    }

    /// Reports the reason for the end, and ends the ranks.
    fn tell_ranks_to_end(&mut self) {
        let Some(ending) = &mut self.ending else {
            return;
        };
        let stopped = ending.stopped.take().unwrap_or_default();
        let how = ending.how.clone();
        if !self.policy.quiet {
            let mut text = self.named(&how);
            for rank in stopped.ranks {
                let (on, pid) = (self.on_host(rank), self.pid(rank));
                text += &format!("; rank {rank}{on} (pid {pid}) is stopped");
            }
            self.say(format!("{text}; ending the job"));
        }
        let spare = match how {
            How::Aborted { rank, .. } => Some(rank),
            _ => None,
        };
        self.actions.push(Action::Do(Command::End { spare }));
    }

    /// Handles a `SIGINT` or `SIGTERM` that the launcher itself has received. The first such signal
    /// starts the ranks' grace period, and a second one ends it.
    pub(crate) fn on_end_signal(&mut self, signal: i32, now: Instant) {
        self.actions.push(Action::Do(Command::Signal(signal)));
        match &mut self.ending {
            None => {
                if self.policy.verbose {
                    let signal = signal_text(signal);
                    self.say(format!("received {signal}; waiting for the ranks"));
                }
                let how = How::Signalled { signal };
                let mut ending = Ending::new(how, self.policy.signal_grace, now);
                ending.failed = self.failed().cloned();
                self.ending = Some(ending);
                // A stopped rank receives the signal only once it is continued.
                self.actions
                    .push(Action::Do(Command::Signal(libc::SIGCONT)));
            }
            Some(ending) if matches!(ending.how, How::Signalled { .. }) => {
                ending.kill_at = Some(now);
            }
            Some(_) => {}
        }
    }

    fn say(&mut self, text: String) {
        self.actions.push(Action::Say(text));
    }

    /// Returns ` on <host>` for a rank's host if there are several hosts.
    fn on_host(&self, rank: usize) -> String {
        self.host(rank)
            .map_or_else(String::new, |host| format!(" on {host}"))
    }

    /// Returns the name of a rank's host if there are several hosts.
    fn host(&self, rank: usize) -> Option<&str> {
        let mut first = 0;
        let mut hosts = self.hosts.iter().filter(|_| self.hosts.len() > 1);
        let host = hosts.find(|(_, count)| {
            first += count;
            rank < first
        });
        host.map(|(name, _)| &**name)
    }

    /// Returns a message about an event, which names the rank's host if there are several.
    fn named(&self, how: &How) -> String {
        how.on_host(how.rank().and_then(|rank| self.host(rank)))
            .to_string()
    }
}

/// Returns the sort key of a failure among those of one turn: the likelier it is the cause, the
/// lower. It is unknown which process ended first, but a killed one or a lost host more likely
/// caused the other failures than the reverse.
fn precedence(how: &How) -> u8 {
    match how {
        How::Killed { .. } | How::HostLost { .. } => 0,
        _ => 1,
    }
}

impl Ending {
    fn new(how: How, grace: Duration, now: Instant) -> Self {
        Ending {
            how,
            kill_at: now.checked_add(grace),
            failed: None,
            forced: false,
            stopped: None,
        }
    }

    /// Returns the event that ended the job. Call this once all ranks have ended.
    fn verdict(&self) -> How {
        match &self.how {
            How::Signalled { .. } if self.forced => self.how.clone(),
            // If all ranks ended within their grace period and none failed, the job is a success.
            How::Signalled { .. } => self.failed.clone().unwrap_or(How::Completed),
            how => how.clone(),
        }
    }
}
