//! When a job has to end, and why.

use std::time::{Duration, Instant};

use pmi::server::{Departure, RankState};
use rustix::process::Signal;

use super::RunningJob;
use crate::outcome::signal_text;
use crate::{How, Status, process};

/// A job on its way out.
#[derive(Debug)]
pub(crate) struct Ending {
    how: How,
    /// When those still there are killed; `None` once they have been.
    kill_at: Option<Instant>,
    /// The first rank that failed after the launcher was told by a signal to end the job.
    failed: Option<How>,
    /// Whether ranks had to be killed at the end of their grace.
    forced: bool,
}

/// Something that ends the job after a while: a failed rank, which the others get a grace to follow
/// by themselves, or what looks wrong but is more often the consequence of what the launcher has
/// yet to hear of.
#[derive(Debug)]
pub(crate) struct Suspicion {
    how: How,
    /// `None`: in a time that can't be told, so large a grace was given.
    due: Option<Instant>,
}

/// How often a suspicion has the grace: a rank that has closed its connection may have much to say, a backtrace for example, on a
/// core that it shares with many.
const CLOSED: u32 = 30;
/// The same of a barrier that can't complete: the rank that ends the job waits for some seconds until all have heard of it.
const BARRIER: u32 = 10;

impl RunningJob {
    /// When the loop has to wake though nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let running = || {
            let due = self.suspicions.iter().filter_map(|suspicion| suspicion.due);
            due.chain(self.deadline).min()
        };
        self.ending
            .as_ref()
            .map_or_else(running, |ending| ending.kill_at)
    }

    /// Deals with deadlines that are over.
    pub(super) fn on_time(&mut self, now: Instant) {
        if let Some(ending) = &mut self.ending {
            if ending.kill_at.is_some_and(|when| when <= now) {
                ending.kill_at = None;
                ending.forced = true;
                self.kill_remaining();
            }
            return;
        }
        let due = |suspicion: &Suspicion| suspicion.due.is_some_and(|when| when <= now);
        if let Some(at) = self.suspicions.iter().position(due)
            && !self.all_ended()
        {
            let suspicion = self.suspicions.remove(at);
            self.end(suspicion.how);
        } else if self.deadline.is_some_and(|when| when <= now) && !self.all_ended() {
            let limit = self.launch.timeout.unwrap_or_default();
            self.end(How::TimedOut { limit });
        }
    }

    fn kill_remaining(&mut self) {
        let alive: Vec<String> = self
            .ranks
            .iter()
            .enumerate()
            .filter(|(_, rank)| rank.status.is_none())
            .map(|(number, rank)| {
                rank.kill_group(Signal::KILL);
                number.to_string()
            })
            .collect();
        if self.launch.verbose && !alive.is_empty() {
            self.output.message(&format!(
                "killing what has not ended: rank {}",
                alive.join(", ")
            ));
        }
    }

    pub(super) fn fail_protocol(&mut self, rank: usize, what: &str) {
        let how = self.protocol(rank, what);
        self.end(how);
    }

    /// A rank has closed its connection between `init` and `finalize`.
    pub(super) fn suspect_closed(&mut self, rank: usize) {
        let program = process::program(self.ranks[rank].pid);
        if program.is_some() && program != self.ranks[rank].program {
            let how = self.protocol(rank, "it has become another program without finalize");
            return self.suspect(how, self.launch.grace);
        }
        let how = self.protocol(rank, "it has closed its connection without finalize");
        self.suspect(how, self.launch.grace.saturating_mul(CLOSED));
    }

    /// A rank waits for one that won't come.
    pub(super) fn suspect_barrier(&mut self, error: &pmi::server::Error) {
        if let pmi::server::Error::BrokenBarrier {
            missing,
            how: Departure::NeverJoined,
            ..
        } = *error
        {
            return self.suspect_left(missing);
        }
        let how = self.protocol(error.rank(), &error.to_string());
        self.suspect(how, self.launch.grace.saturating_mul(BARRIER));
    }

    /// A rank has exited with 0 without the others, which may be about to do the same and then need
    /// not be ended.
    fn suspect_left(&mut self, rank: usize) {
        let how = How::Left {
            rank,
            pid: self.pid(rank),
            cut_off: true,
        };
        self.suspect(how, self.launch.grace);
    }

    /// The first rank that failed, while the others have their grace.
    fn failed(&self) -> Option<&How> {
        let mut suspected = self.suspicions.iter().map(|suspicion| &suspicion.how);
        suspected.find(|how| matches!(how, How::Exited { .. }))
    }

    /// The end of a rank says more than what it did before.
    pub(super) fn clear_protocol(&mut self, ended: usize) {
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

    fn suspect(&mut self, how: How, patience: Duration) {
        let due = Instant::now().checked_add(patience);
        self.suspicions.push(Suspicion { how, due });
    }

    /// All ranks have ended: what is left to say if nothing has ended the job.
    pub(super) fn conclude(&mut self) {
        if self.ending.is_some() || self.suspicions.is_empty() {
            return;
        }
        let mut how = match self.failed() {
            Some(failed) => failed.clone(),
            None => self.suspicions.remove(0).how,
        };
        if let How::Left { cut_off, .. } = &mut how {
            *cut_off = false;
        }
        // A code that all ranks agree on is the program's own.
        let is_common = matches!(how, How::Exited { code, .. }
            if self.ranks.iter().all(|rank| rank.status == Some(Status::Exited(code))));
        if !self.launch.quiet && !is_common {
            self.output.message(&how.to_string());
        }
        self.ending = Some(Ending::new(how, self.launch.grace));
    }

    pub(super) fn fail_abort(&mut self, rank: usize, code: i32, message: Option<String>) {
        self.end(How::Aborted {
            rank,
            pid: self.pid(rank),
            code,
            message,
        });
    }

    /// Whether a rank is between PMI's `init` and `finalize`.
    pub(super) fn is_active(&self, rank: usize) -> bool {
        let state = self.server.state(rank);
        matches!(state, Some(RankState::Active | RankState::InBarrier))
    }

    fn pid(&self, rank: usize) -> u32 {
        self.ranks[rank].pid.as_raw_pid().cast_unsigned()
    }

    /// Draws the consequences of ranks that ended in one turn of the loop.
    pub(super) fn judge(&mut self, ended: Vec<(usize, Status)>) {
        let mut causes = Vec::new();
        for (rank, status) in ended {
            let pid = self.pid(rank);
            if self.launch.verbose {
                let how = match status {
                    Status::Exited(code) => format!("has exited with code {code}"),
                    Status::Killed { signal, .. } => {
                        format!("was killed by {}", signal_text(signal))
                    }
                };
                self.output
                    .message(&format!("rank {rank} (pid {pid}) {how}"));
            }
            let active = self.is_active(rank);
            let broken = self.server.on_end(rank);
            let cause = match status {
                Status::Killed { signal, core } => How::Killed {
                    rank,
                    pid,
                    signal,
                    core,
                },
                Status::Exited(0) => {
                    if active && self.ranks.len() > 1 {
                        self.suspect_left(rank);
                    } else if let Err(error) = broken {
                        self.suspect_barrier(&error);
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
                // The others may be about to exit too, with output that is not written yet.
                How::Exited { .. } if self.ending.is_none() => {
                    self.suspect(how, self.launch.grace);
                }
                how => self.end(how),
            }
        }
    }

    /// Ends the job for this reason, unless it is ending already. A rank that has failed before is
    /// the reason, unless one is killed: that more likely drew the failed one along.
    fn end(&mut self, how: How) {
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
        if !self.launch.quiet {
            let stopped = self.stopped(&how);
            self.output
                .message(&format!("{how}{stopped}; ending the job"));
        }
        for (number, rank) in self.ranks.iter().enumerate() {
            // Who has aborted the job or closed its connection ends by itself, and may still have something to say.
            let aborted = matches!(how, How::Aborted { rank, .. } if rank == number);
            let leaves = aborted || rank.control.is_closed() && self.is_active(number);
            if !leaves {
                rank.kill_group(Signal::TERM);
            }
        }
        self.ending = Some(Ending::new(how, self.launch.grace));
        // A stopped rank hears SIGTERM only when it goes on.
        self.signal_all(Signal::CONT);
    }

    /// Names ranks that a signal has stopped: the one that failed may have waited for them.
    fn stopped(&self, how: &How) -> String {
        if !matches!(how, How::Exited { .. }) {
            return String::new();
        }
        let stopped = (0..self.ranks.len()).filter(|&rank| {
            self.ranks[rank].status.is_none() && process::is_stopped(self.ranks[rank].pid)
        });
        stopped
            .map(|rank| format!("; rank {rank} (pid {}) is stopped", self.pid(rank)))
            .collect()
    }

    fn signal_all(&self, signal: Signal) {
        self.ranks.iter().for_each(|rank| rank.kill_group(signal));
    }

    /// The launcher itself has received a signal.
    pub(super) fn on_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGCHLD => self.reap_strays(),
            libc::SIGCONT => self.terminal.iter_mut().for_each(|pump| pump.resume()),
            libc::SIGTSTP => {
                self.signal_all(Signal::STOP);
                // Stops this process, until somebody makes it go on: then the ranks go on too.
                let _ = signal_hook::low_level::raise(libc::SIGSTOP);
                self.signal_all(Signal::CONT);
            }
            libc::SIGINT | libc::SIGTERM => self.on_end_signal(signal),
            _ => Signal::from_named_raw(signal)
                .into_iter()
                .for_each(|s| self.signal_all(s)),
        }
    }

    /// The first request to end is forwarded and gives the ranks a grace; the second one ends it.
    fn on_end_signal(&mut self, signal: i32) {
        Signal::from_named_raw(signal)
            .into_iter()
            .for_each(|s| self.signal_all(s));
        match &mut self.ending {
            None => {
                if self.launch.verbose {
                    let text = format!("received {}; waiting for the ranks", signal_text(signal));
                    self.output.message(&text);
                }
                let how = How::Signalled { signal };
                let mut ending = Ending::new(how, self.launch.signal_grace);
                ending.failed = self.failed().cloned();
                self.ending = Some(ending);
                self.signal_all(Signal::CONT);
            }
            Some(ending) if matches!(ending.how, How::Signalled { .. }) => {
                ending.kill_at = Some(Instant::now());
            }
            Some(_) => {}
        }
        if self.all_ended() {
            // Nothing is left but output that nobody takes.
            self.output
                .drains_mut()
                .iter_mut()
                .for_each(crate::output::Drain::give_up);
        }
    }

    /// What ended the job, when all ranks have ended.
    pub(super) fn verdict(&self, ending: &Ending) -> How {
        match &ending.how {
            How::Signalled { .. } if ending.forced => ending.how.clone(),
            // Ranks that took the signal well make the job a success.
            How::Signalled { .. } => ending.failed.clone().unwrap_or(How::Completed),
            how => how.clone(),
        }
    }
}

/// Which of several ranks that failed in one turn is the cause. Who ended first is not known: a killed one rather drew
/// the others along than the other way round.
fn precedence(how: &How) -> u8 {
    match how {
        How::Killed { .. } => 0,
        _ => 1,
    }
}

impl Ending {
    fn new(how: How, grace: Duration) -> Self {
        let kill_at = Instant::now().checked_add(grace);
        Ending {
            how,
            kill_at,
            failed: None,
            forced: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_rank_is_the_cause_before_those_that_failed_with_it() {
        let pid = 1;
        let mut causes = [
            How::Exited {
                rank: 2,
                pid,
                code: 1,
            },
            How::Exited {
                rank: 3,
                pid,
                code: 1,
            },
            How::Killed {
                rank: 4,
                pid,
                signal: 9,
                core: false,
            },
        ];
        causes.sort_by_key(precedence);
        assert_eq!(causes[0].failed_rank(), Some(4));
        assert_eq!(causes[1].failed_rank(), Some(2));
    }
}
