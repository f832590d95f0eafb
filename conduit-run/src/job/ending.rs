//! When and why a job has to end.

use std::time::{Duration, Instant};

use pmi::server::{Departure, RankState};
use rustix::process::Signal;

use super::RunningJob;
use crate::outcome::signal_text;
use crate::{How, Status, process};

/// A job that is ending.
#[derive(Debug)]
pub(crate) struct Ending {
    how: How,
    /// The time at which the remaining ranks are killed; `None` once they have been.
    kill_at: Option<Instant>,
    /// The first rank that failed, if a signal to the launcher ends the job.
    failed: Option<How>,
    /// Whether ranks had to be killed at the end of their grace.
    forced: bool,
}

/// An event that ends the job after a delay. It is either the exit of a failed rank, after which
/// the others have a grace period to end by themselves, or a suspicious event that usually follows
/// from a failure that the launcher has yet to see.
#[derive(Debug)]
pub(crate) struct Suspicion {
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

impl RunningJob {
    /// Returns the time at which the loop must wake up even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let running = || {
            let due = self.suspicions.iter().filter_map(|suspicion| suspicion.due);
            due.chain(self.deadline).min()
        };
        self.ending
            .as_ref()
            .map_or_else(running, |ending| ending.kill_at)
    }

    /// Handles expired deadlines.
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
                "killing the ranks that have not ended: {}",
                alive.join(", ")
            ));
        }
    }

    pub(super) fn fail_protocol(&mut self, rank: usize, what: &str) {
        let how = self.protocol(rank, what);
        self.end(how);
    }

    /// Suspects a rank that closed its connection between `init` and `finalize` of having failed.
    pub(super) fn suspect_closed(&mut self, rank: usize) {
        let program = process::program(self.ranks[rank].pid);
        if program.is_some() && program != self.ranks[rank].program {
            let how = self.protocol(
                rank,
                "it executed another program before it called finalize",
            );
            return self.suspect(how, self.launch.grace);
        }
        let how = self.protocol(rank, "it closed its connection before it called finalize");
        self.suspect(how, self.launch.grace.saturating_mul(CLOSED));
    }

    /// Handles a barrier in which a rank waits for another that will never arrive.
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

    /// Handles a rank that exited with 0 before the others. If the other ranks do the same within
    /// the grace period, they need not be ended.
    fn suspect_left(&mut self, rank: usize) {
        let how = How::Left {
            rank,
            pid: self.pid(rank),
            cut_off: true,
        };
        self.suspect(how, self.launch.grace);
    }

    /// Returns the first suspicion that is a rank's exit with a code other than 0. The other ranks
    /// have their grace period meanwhile.
    fn failed(&self) -> Option<&How> {
        let mut suspected = self.suspicions.iter().map(|suspicion| &suspicion.how);
        suspected.find(|how| matches!(how, How::Exited { .. }))
    }

    /// Drops the suspicions that a rank has broken the protocol, because its exit status says more.
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

    /// Decides the outcome when all ranks have ended and nothing has ended the job.
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
        // If all ranks exit with the same code, the program chose it, so it is not reported.
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

    /// Returns whether a rank is between PMI's `init` and `finalize`.
    pub(super) fn is_active(&self, rank: usize) -> bool {
        let state = self.server.state(rank);
        matches!(state, Some(RankState::Active | RankState::InBarrier))
    }

    fn pid(&self, rank: usize) -> u32 {
        self.ranks[rank].pid.as_raw_pid().cast_unsigned()
    }

    /// Reacts to the ranks that ended in one turn of the loop.
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
                // The other ranks may be about to exit too, and may have output that they have not
                // written yet.
                How::Exited { .. } if self.ending.is_none() => {
                    self.suspect(how, self.launch.grace);
                }
                how => self.end(how),
            }
        }
    }

    /// Ends the job with the reason `how`, unless the job is ending already. If a rank has exited
    /// with an error before, that exit is the reason instead, unless `how` is a kill: a killed rank
    /// more likely caused the other's failure.
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
            // A rank that aborted the job or closed its connection exits by itself and may still
            // have something to report.
            let aborted = matches!(how, How::Aborted { rank, .. } if rank == number);
            let leaves = aborted || rank.control.is_closed() && self.is_active(number);
            if !leaves {
                rank.kill_group(Signal::TERM);
            }
        }
        self.ending = Some(Ending::new(how, self.launch.grace));
        // A stopped rank receives SIGTERM only once it is continued.
        self.signal_all(Signal::CONT);
    }

    /// Returns a text that names the ranks that a signal has stopped, because the failed rank may
    /// have waited for them.
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

    /// Handles a signal that the launcher itself has received.
    pub(super) fn on_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGCHLD => self.reap_strays(),
            libc::SIGCONT => self.terminal.iter_mut().for_each(|pump| pump.resume()),
            libc::SIGTSTP => {
                self.signal_all(Signal::STOP);
                // Stops this process. When it is continued, so are the ranks.
                let _ = signal_hook::low_level::raise(libc::SIGSTOP);
                self.signal_all(Signal::CONT);
            }
            libc::SIGINT | libc::SIGTERM => self.on_end_signal(signal),
            _ => Signal::from_named_raw(signal)
                .into_iter()
                .for_each(|s| self.signal_all(s)),
        }
    }

    /// Forwards a SIGINT or SIGTERM to the ranks. The first such signal starts the ranks' grace
    /// period, and a second one ends it.
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
            // The job only waits for a reader to take the remaining output, so discard it.
            self.output
                .drains_mut()
                .iter_mut()
                .for_each(crate::output::Drain::give_up);
        }
    }

    /// Returns the event that ended the job. Call this once all ranks have ended.
    pub(super) fn verdict(&self, ending: &Ending) -> How {
        match &ending.how {
            How::Signalled { .. } if ending.forced => ending.how.clone(),
            // If all ranks ended within their grace period and none failed, the job is a success.
            How::Signalled { .. } => ending.failed.clone().unwrap_or(How::Completed),
            how => how.clone(),
        }
    }
}

/// Returns the sort key of a failure among those of one turn: the likelier it is the cause, the
/// lower. It is unknown which process ended first, but a killed one more likely caused the other
/// failures than the reverse.
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
