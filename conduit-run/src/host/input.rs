//! The pipe through which a rank reads the launcher's standard input, if the launcher forwards it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, write};
use rustix::pipe::{PipeFlags, pipe_with};

/// The writing end of a rank's standard input.
#[derive(Debug)]
pub(crate) struct Input {
    pipe: OwnedFd,
    /// The bytes that the pipe has not accepted yet. The launcher bounds what it sends.
    pending: VecDeque<u8>,
    /// Whether the input ends after `pending`.
    ends: bool,
}

impl Input {
    /// Creates a pipe. Returns its writing end and the rank's end.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&write, true)?;
        let input = Input {
            pipe: write,
            pending: VecDeque::new(),
            ends: false,
        };
        Ok((input, read))
    }

    /// Appends bytes; none are the end of the input.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
        self.ends |= bytes.is_empty();
    }

    /// Returns whether the pipe has accepted everything so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the descriptor to wait for. The system also reports when the rank closes its end.
    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        let events = match self.pending.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::OUT,
        };
        PollFd::new(&self.pipe, events)
    }

    /// Writes as much as the pipe accepts now. Returns `false` once the pipe is of no more use.
    pub(crate) fn advance(&mut self) -> bool {
        while !self.pending.is_empty() {
            let (front, _) = self.pending.as_slices();
            match write(&self.pipe, front) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        !self.ends
    }
}
