//! Standard input of rank 0 when it is a terminal.
//!
//! Ranks lead their own process groups, and the terminal stops a process outside its foreground
//! group that reads from it. The launcher is in the foreground group, so it reads the input and
//! forwards it to rank 0 through a pipe.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpgrp;
use rustix::termios::{isatty, tcgetpgrp};

/// Forwards the terminal's input to rank 0.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The pipe to rank 0; closed at the end of input, or when rank 0 no longer reads.
    pipe: Option<OwnedFd>,
    /// The bytes read from the terminal that the pipe has not accepted yet.
    pending: Vec<u8>,
    /// Whether the launcher is in the background, where reading from the terminal would stop it.
    background: bool,
    input: io::Stdin,
}

impl Terminal {
    /// Returns the pump and rank 0's end of the pipe; `None` if standard input is not a terminal.
    pub(crate) fn new() -> io::Result<Option<(Self, OwnedFd)>> {
        let input = io::stdin();
        if !isatty(&input) {
            return Ok(None);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&write, true)?;
        let pipe = Some(write);
        Ok(Some((
            Terminal {
                pipe,
                pending: Vec::new(),
                background: false,
                input,
            },
            read,
        )))
    }

    /// Returns the descriptor and events to wait for, if any.
    pub(crate) fn poll_fd(&self) -> Option<PollFd<'_>> {
        match &self.pipe {
            Some(pipe) if !self.pending.is_empty() => Some(PollFd::new(pipe, PollFlags::OUT)),
            Some(_) if !self.background => Some(PollFd::new(&self.input, PollFlags::IN)),
            _ => None,
        }
    }

    /// Resumes reading. Call this when the launcher is continued, because it may now be in the
    /// foreground.
    pub(crate) fn resume(&mut self) {
        self.background = false;
    }

    /// Reads from the terminal or writes to the pipe once. Call this when
    /// [`poll_fd`](Self::poll_fd)'s descriptor is ready.
    pub(crate) fn advance(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        if self.pending.is_empty() {
            if tcgetpgrp(self.input.as_fd()).ok() != Some(getpgrp()) {
                self.background = true;
                return;
            }
            let mut chunk = [0; 4096];
            match rustix::io::read(&self.input, &mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.pending.extend_from_slice(&chunk[..count]),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(_) => self.pipe = None,
            }
            return;
        }
        match rustix::io::write(pipe, &self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => self.pipe = None,
        }
    }
}
