//! The descriptors that a loop waits for.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::Error;

/// Descriptors with the events to wait for, each with a token that tells its owner which one it is.
#[derive(Debug)]
pub(crate) struct Interest<'a, T> {
    tokens: Vec<T>,
    fds: Vec<PollFd<'a>>,
}

impl<'a, T> Interest<'a, T> {
    pub(crate) fn new() -> Self {
        Interest {
            tokens: Vec::new(),
            fds: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, token: T, fd: PollFd<'a>) {
        self.tokens.push(token);
        self.fds.push(fd);
    }

    /// Waits until a descriptor is ready, at most until `wake`. Returns the ready descriptors with
    /// their events.
    pub(crate) fn wait(mut self, wake: Option<Instant>) -> Result<Vec<(T, PollFlags)>, Error> {
        let left = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut self.fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("waiting for the ranks")(error)),
        }
        let flags = self.fds.iter().map(PollFd::revents);
        let ready = self.tokens.into_iter().zip(flags);
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }
}
