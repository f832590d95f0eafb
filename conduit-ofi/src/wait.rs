//! Sleeping until something arrives.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use soft_portals::{Wait, timespec};

/// Where nothing becomes readable when something arrives, how long one sleeps before looking.
const LOOK: Duration = Duration::from_micros(100);

/// Waits for a completion queue, without having it.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The library's; it is open as long as the endpoint, which outlives every wait: who waits is a thread of the network's owner.
    descriptor: Option<RawFd>,
}

impl Waiter {
    pub(crate) fn new(descriptor: Option<RawFd>) -> Self {
        Self { descriptor }
    }
}

impl Wait for Waiter {
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        let mut descriptors = Vec::with_capacity(2);
        // SAFETY: open during the wait, as the field says.
        let queue = self
            .descriptor
            .map(|queue| unsafe { BorrowedFd::borrow_raw(queue) });
        if let Some(queue) = &queue {
            descriptors.push(PollFd::new(queue, PollFlags::IN));
        }
        if let Some(also) = also {
            descriptors.push(PollFd::new(also, PollFlags::IN));
        }
        let limit = match queue {
            Some(_) => limit,
            None => Some(limit.map_or(LOOK, |limit| limit.min(LOOK))),
        };
        let limit = limit.map(timespec);
        // Interrupted: a short wait.
        let ended = rustix::event::poll(&mut descriptors, limit.as_ref());
        match queue {
            Some(_) => ended.is_ok() && !descriptors[0].revents().is_empty(),
            // Nobody knows.
            None => true,
        }
    }
}
