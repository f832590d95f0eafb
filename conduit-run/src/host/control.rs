//! The launcher's end of a rank's PMI socket.

use std::os::fd::OwnedFd;

use pmi::wire::{self, LineBuffer};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The maximum number of bytes that may wait for a rank that does not read its replies. A correct
/// rank has at most one outstanding request, so at most one line waits for it.
const MAX_PENDING: usize = 64 * wire::MAX_LINE;

/// One rank's PMI socket; holds `None` once it is closed.
#[derive(Debug)]
pub(crate) struct Control {
    socket: Option<OwnedFd>,
    lines: LineBuffer,
    pending: Vec<u8>,
}

/// The result of reading from the socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A whole line.
    Line(String),
    /// No whole line has arrived yet.
    Nothing,
    /// The rank has closed its end.
    Closed,
    /// The bytes received are not a valid line.
    Broken(wire::Error),
}

impl Control {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Control {
            socket: Some(socket),
            lines: LineBuffer::new(),
            pending: Vec::new(),
        }
    }

    /// Returns the socket and the events to wait for.
    pub(crate) fn interest(&self) -> Option<(&OwnedFd, PollFlags)> {
        let output = if self.pending.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        self.socket
            .as_ref()
            .map(|socket| (socket, PollFlags::IN | output))
    }

    /// Returns whether either end has closed the socket.
    pub(crate) fn is_closed(&self) -> bool {
        self.socket.is_none()
    }

    /// Returns the next line. After [`Incoming::Closed`] and [`Incoming::Broken`] this end is
    /// closed too.
    pub(crate) fn next(&mut self) -> Incoming {
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => return Incoming::Line(line),
                Ok(None) => {}
                Err(error) => {
                    self.close();
                    return Incoming::Broken(error);
                }
            }
            let Some(socket) = &self.socket else {
                return Incoming::Nothing;
            };
            let mut chunk = [0; 4096];
            match recv(socket, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((count @ 1.., _)) => self.lines.push(&chunk[..count]),
                Err(Errno::AGAIN) => return Incoming::Nothing,
                Err(Errno::INTR) => {}
                Ok((0, _)) | Err(_) => {
                    self.close();
                    return Incoming::Closed;
                }
            }
        }
    }

    /// Sends a line, or as much of it as the rank accepts now. Returns `false` if too many bytes
    /// are waiting for the rank.
    pub(crate) fn send(&mut self, line: &str) -> bool {
        if self.socket.is_some() {
            self.pending.extend_from_slice(line.as_bytes());
            self.flush();
        }
        self.pending.len() <= MAX_PENDING
    }

    /// Sends waiting bytes. Send errors only discard them: the death of a rank is noticed when
    /// reading.
    pub(crate) fn flush(&mut self) {
        let Some(socket) = &self.socket else { return };
        while !self.pending.is_empty() {
            match send(
                socket,
                &self.pending,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.pending.clear(),
            }
        }
    }

    /// Closes this end.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.pending.clear();
        self.lines = LineBuffer::new();
    }
}
