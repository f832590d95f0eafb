//! Blocking transfer of lines over a file descriptor, with a deadline.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::wire::{self, LineBuffer};

/// The reason why a line was not transferred.
#[derive(Debug)]
pub(super) enum Failure {
    Closed,
    TimedOut,
    Io(io::Error),
    Line(wire::Error),
}

/// A socket to the launcher.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    lines: LineBuffer,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Socket {
            fd,
            lines: LineBuffer::new(),
        }
    }

    /// Sends a whole line, in one write unless the socket's buffer is full.
    pub(super) fn send(&self, line: &str, deadline: Option<Instant>) -> Result<(), Failure> {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match send(&self.fd, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Failure::Closed),
                Err(error) => return Err(Failure::Io(error.into())),
            }
        }
        Ok(())
    }

    /// Receives the next line, without its newline.
    pub(super) fn receive(&mut self, deadline: Option<Instant>) -> Result<String, Failure> {
        let mut chunk = [0; 2048];
        loop {
            if let Some(line) = self.lines.next_line().map_err(Failure::Line)? {
                return Ok(line);
            }
            match recv(&self.fd, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(Failure::Closed),
                Ok((count, _)) => self.lines.push(&chunk[..count]),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::Io(error.into())),
            }
        }
    }

    fn wait(&self, events: PollFlags, deadline: Option<Instant>) -> Result<(), Failure> {
        let timeout =
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Err(Failure::TimedOut),
                Some(left) => Timespec::try_from(left).ok(),
                None => None,
            };
        match poll(&mut [PollFd::new(&self.fd, events)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::Io(error.into())),
        }
    }
}
