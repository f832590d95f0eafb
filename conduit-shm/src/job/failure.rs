//! Detection of dead peers. For each peer's process there is a file descriptor that becomes
//! readable when the process ends.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conduit_core::ni::Rank;
use conduit_core::process_memory::{self, Pid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_millis(100);
const NONE: u32 = u32::MAX;

/// The process of a rank.
#[derive(Debug)]
pub(super) struct Process {
    /// The process's id in the namespace of this process, or 0 if it has none there. Once the
    /// process has ended, another process may get the same id.
    pub(super) number: Pid,
    /// A descriptor that is readable once the process has ended. `None` for this process itself,
    /// and if the system does not support such descriptors.
    pub(super) descriptor: Option<OwnedFd>,
}

impl Process {
    pub(super) fn this() -> Self {
        Self {
            number: process_memory::this(),
            descriptor: None,
        }
    }

    /// Returns whether the process is known to have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.descriptor.as_ref().is_some_and(|descriptor| {
            let mut asked = [PollFd::new(descriptor, PollFlags::IN)];
            retry_on_intr(|| poll(&mut asked, Some(&Timespec::default()))) != Ok(0)
        })
    }
}

/// Watches the peers' processes.
#[derive(Debug)]
pub(super) struct Failures {
    started: Instant,
    /// Milliseconds after `started` at which the next check is due.
    due: AtomicU64,
    first: AtomicU32,
}

impl Failures {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            due: AtomicU64::new(0),
            first: AtomicU32::new(NONE),
        }
    }

    /// Returns the first peer that was found dead and had not closed its network, according to
    /// `closed`. `processes` must be indexed by rank. Processes without a descriptor are never
    /// found dead.
    pub(super) fn first(
        &self,
        processes: &[Process],
        closed: impl Fn(Rank) -> bool,
    ) -> Option<Rank> {
        let known = self.first.load(Ordering::Relaxed);
        if known != NONE {
            return Some(known);
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
        let dead = ended(processes).into_iter().find(|rank| !closed(*rank))?;
        let first = self
            .first
            .compare_exchange(NONE, dead, Ordering::Relaxed, Ordering::Relaxed);
        Some(first.err().unwrap_or(dead))
    }
}

/// Returns the ranks of the processes that have ended. Makes one system call.
fn ended(processes: &[Process]) -> Vec<Rank> {
    let (ranks, mut asked): (Vec<Rank>, Vec<_>) = (0..)
        .zip(processes)
        .filter_map(|(rank, process)| {
            let descriptor = process.descriptor.as_ref()?;
            Some((rank, PollFd::new(descriptor, PollFlags::IN)))
        })
        .unzip();
    if poll(&mut asked, Some(&Timespec::default())).is_err() {
        return Vec::new();
    }
    let ended = asked.iter().zip(ranks);
    ended
        .filter(|(fd, _)| !fd.revents().is_empty())
        .map(|(_, rank)| rank)
        .collect()
}
