//! Sleeps until a packet arrives.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conduit_portals::transport::{Wait, timespec};
use rustix::event::{PollFd, PollFlags};

/// Waits for packets at a socket without borrowing it.
#[derive(Debug)]
pub struct Waiter {
    pub(super) descriptor: OwnedFd,
    /// Whether the socket's error queue has reports. The socket's owner takes them with the next
    /// receive.
    pub(super) reports: Arc<AtomicBool>,
}

impl Waiter {
    /// Waits until there is something to receive or the timeout has passed. There is no timeout if
    /// it is `None`. Returns whether there is something to receive. A signal ends the wait early.
    ///
    /// Whatever the result, the socket's owner must try to receive before the next wait, which may
    /// otherwise return at once.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.wait_with(None, timeout)
    }

    /// Does the same as [`wait`](Self::wait), but also ends when `also` becomes readable, which
    /// does not count as something to receive.
    fn wait_with(&self, also: Option<&OwnedFd>, timeout: Option<Duration>) -> bool {
        let socket = PollFd::new(&self.descriptor, PollFlags::IN);
        let mut descriptors = [
            socket.clone(),
            PollFd::new(also.unwrap_or(&self.descriptor), PollFlags::IN),
        ];
        let count = 1 + usize::from(also.is_some());
        let timeout = timeout.map(timespec);
        if rustix::event::poll(&mut descriptors[..count], timeout.as_ref()).is_err() {
            // The wait was interrupted, so it ends early.
            return false;
        }
        let events = descriptors[0].revents();
        if events.contains(PollFlags::ERR) {
            // The ordering may be relaxed, because the owner may read the flag one wait later.
            self.reports.store(true, Ordering::Relaxed);
        }
        !events.is_empty()
    }
}

impl Wait for Waiter {
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        self.wait_with(also, limit)
    }
}
