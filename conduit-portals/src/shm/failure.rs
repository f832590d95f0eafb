//! Which peers have died: a file descriptor per peer process, which becomes readable when the process ends.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conduit_core::ni::Rank;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often the system is asked.
const INTERVAL: Duration = Duration::from_millis(100);
const NONE: u32 = u32::MAX;

/// Looks after the processes of the peers.
#[derive(Debug)]
pub(super) struct Failures {
    processes: Vec<(Rank, OwnedFd)>,
    started: Instant,
    /// Milliseconds after `started` at which the system is asked again.
    due: AtomicU64,
    first: AtomicU32,
}

impl Failures {
    /// Watches these. Peers that are not in the list are never found dead.
    pub(super) fn new(processes: Vec<(Rank, OwnedFd)>) -> Self {
        Self {
            processes,
            started: Instant::now(),
            due: AtomicU64::new(0),
            first: AtomicU32::new(NONE),
        }
    }

    /// The first peer found dead that had not closed its network (`closed` says so).
    pub(super) fn first(&self, closed: impl Fn(Rank) -> bool) -> Option<Rank> {
        let known = self.first.load(Ordering::Relaxed);
        if known != NONE {
            return Some(known);
        }
        if self.processes.is_empty() {
            return None;
        }
        let now = self.started.elapsed().as_millis() as u64;
        let due = self.due.load(Ordering::Relaxed);
        let next = now + INTERVAL.as_millis() as u64;
        let turn = due <= now
            && self
                .due
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !turn {
            return None;
        }
        let dead = self.ask(closed)?;
        let first = self
            .first
            .compare_exchange(NONE, dead, Ordering::Relaxed, Ordering::Relaxed);
        Some(first.err().unwrap_or(dead))
    }

    fn ask(&self, closed: impl Fn(Rank) -> bool) -> Option<Rank> {
        let mut asked: Vec<_> = self
            .processes
            .iter()
            .map(|(_, process)| PollFd::new(process, PollFlags::IN))
            .collect();
        poll(&mut asked, Some(&Timespec::default())).ok()?;
        let ended = asked.iter().zip(&self.processes);
        ended
            .filter(|(fd, _)| !fd.revents().is_empty())
            .map(|(_, (rank, _))| *rank)
            .find(|&rank| !closed(rank))
    }
}
