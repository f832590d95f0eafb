//! The launcher's standard input, when the launcher forwards it to the ranks.
//!
//! Ranks on the launcher's host usually inherit its standard input. But ranks lead their own
//! process groups, and a terminal stops a process outside its foreground group that reads from it.
//! The launcher is in the foreground group, so it reads from a terminal and forwards the input.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::getpgrp;
use rustix::termios::{isatty, tcgetpgrp};

/// The number of bytes that may be on their way to the ranks.
const WINDOW: usize = 256 << 10;

/// Reads the launcher's standard input.
#[derive(Debug)]
pub(crate) struct Pump {
    input: io::Stdin,
    is_terminal: bool,
    /// Whether the launcher is in the background, where reading from the terminal would stop it.
    background: bool,
    /// Whether the input has ended, or no rank reads it any more.
    ended: bool,
    /// The number of bytes that the ranks have not taken.
    untaken: usize,
}

/// Returns whether standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
    isatty(io::stdin())
}

impl Pump {
    pub(crate) fn new() -> Self {
        Pump {
            input: io::stdin(),
            is_terminal: is_terminal(),
            background: false,
            ended: false,
            untaken: 0,
        }
    }

    /// Returns the descriptor and events to wait for, if any.
    pub(crate) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let reads = !self.ended && !self.background && self.untaken < WINDOW;
        reads.then(|| PollFd::new(&self.input, PollFlags::IN))
    }

    /// Resumes reading. Call this when the launcher is continued, because it may now be in the
    /// foreground.
    pub(crate) fn resume(&mut self) {
        self.background = false;
    }

    /// Records that the ranks have taken so many bytes.
    pub(crate) fn taken(&mut self, bytes: usize) {
        self.untaken = self.untaken.saturating_sub(bytes);
    }

    /// Stops reading because no rank does.
    pub(crate) fn close(&mut self) {
        self.ended = true;
    }

    /// Reads once. Returns the bytes for the ranks; none are the end of the input. Call this when
    /// [`poll_fd`](Self::poll_fd)'s descriptor is ready.
    pub(crate) fn advance(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        if self.is_terminal && tcgetpgrp(self.input.as_fd()).ok() != Some(getpgrp()) {
            self.background = true;
            return None;
        }
        let mut chunk = vec![0; 32 << 10];
        match rustix::io::read(&self.input, &mut chunk) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return None,
            Ok(count @ 1..) => chunk.truncate(count),
            Ok(0) | Err(_) => {
                self.ended = true;
                chunk.clear();
            }
        }
        self.untaken += chunk.len();
        Some(chunk)
    }
}
