//! Sleeping until a packet comes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conduit_portals::transport::{Wait, timespec};
use rustix::event::{PollFd, PollFlags};

/// Waits for packets at a socket, without having it.
#[derive(Debug)]
pub struct Waiter {
    pub(super) descriptor: OwnedFd,
    /// There are reports in the socket's error queue, which whoever has the socket takes with its next receive.
    pub(super) reports: Arc<AtomicBool>,
}

impl Waiter {
    /// Waits until there is something to receive or the time is over (`None`: for ever); says whether there is something. A
    /// signal ends it early.
    ///
    /// Whatever it says, the socket's owner must try to receive before the next wait: until then it may not wait at all.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.wait_with(None, timeout)
    }

    /// The same, and `also` ends the wait when it is readable; that alone isn't something to receive.
    fn wait_with(&self, also: Option<&OwnedFd>, timeout: Option<Duration>) -> bool {
        let socket = PollFd::new(&self.descriptor, PollFlags::IN);
        let mut descriptors = [
            socket.clone(),
            PollFd::new(also.unwrap_or(&self.descriptor), PollFlags::IN),
        ];
        let count = 1 + usize::from(also.is_some());
        let timeout = timeout.map(timespec);
        if rustix::event::poll(&mut descriptors[..count], timeout.as_ref()).is_err() {
            // Interrupted: a short wait.
            return false;
        }
        let events = descriptors[0].revents();
        if events.contains(PollFlags::ERR) {
            // Relaxed: who is told reads it after some later synchronisation, or one wait later.
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
