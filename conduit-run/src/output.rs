//! The ranks' standard output and error, when they pass through the launcher.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, write};

/// The number of bytes that may wait for a slow reader of the launcher's output. While at least
/// this many wait, the launcher does not read the ranks' pipes, so the ranks wait too.
const MAX_PENDING: usize = 256 << 10;
/// The number of bytes that every kind of file accepts without blocking once it is ready for
/// output. Pipes accept the fewest (PIPE_BUF).
const ATOMIC: usize = 4096;

/// One of a rank's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    pub(crate) const BOTH: [Stream; 2] = [Stream::Stdout, Stream::Stderr];
}

/// Receives a rank's lines, without their newlines.
pub(crate) type LineSink = Box<dyn FnMut(usize, Stream, &[u8]) + Send>;

/// The destination of the ranks' output.
pub(crate) enum Output {
    /// The launcher's streams. With `prefix`, both streams are forwarded in whole lines, each
    /// prefixed with the rank. Without `prefix`, only standard error is forwarded, in whole lines,
    /// and ranks inherit standard output.
    Drained { prefix: bool, drains: [Drain; 2] },
    /// A function.
    Captured(LineSink),
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Output::Drained { .. } => "Drained",
            Output::Captured(_) => "Captured",
        })
    }
}

impl Output {
    pub(crate) fn drained(prefix: bool) -> Self {
        let drains = Stream::BOTH.map(Drain::new);
        Output::Drained { prefix, drains }
    }

    /// Returns the streams for which ranks need pipes: both, or only standard error. Standard error
    /// always needs one, because several ranks often report errors at the same time.
    pub(crate) fn piped(&self) -> &'static [Stream] {
        match self {
            Output::Drained { prefix: false, .. } => &[Stream::Stderr],
            _ => &Stream::BOTH,
        }
    }

    /// Returns whether the beginning of a line is held back until its end arrives, however long
    /// that takes.
    pub(crate) fn holds_lines(&self) -> bool {
        !matches!(self, Output::Drained { prefix: false, .. })
    }

    /// Returns whether more may be read for this stream now.
    pub(crate) fn accepts(&self, stream: Stream) -> bool {
        match self {
            Output::Drained { drains, .. } => drains[stream as usize].pending.len() < MAX_PENDING,
            Output::Captured(_) => true,
        }
    }

    /// Returns whether this stream has lost its reader.
    pub(crate) fn dead(&self, stream: Stream) -> bool {
        matches!(self, Output::Drained { drains, .. } if drains[stream as usize].dead)
    }

    pub(crate) fn drains_mut(&mut self) -> &mut [Drain] {
        match self {
            Output::Drained { drains, .. } => drains,
            Output::Captured(_) => &mut [],
        }
    }

    pub(crate) fn drains(&self) -> &[Drain] {
        match self {
            Output::Drained { drains, .. } => drains,
            Output::Captured(_) => &[],
        }
    }

    /// Writes one line of a rank.
    pub(crate) fn line(&mut self, rank: usize, stream: Stream, line: &[u8]) {
        match self {
            Output::Drained { prefix, drains } => {
                let drain = &mut drains[stream as usize];
                if *prefix {
                    drain.push(format!("[{rank}] ").as_bytes());
                }
                drain.push(line);
                drain.push(b"\n");
            }
            Output::Captured(sink) => sink(rank, stream, line),
        }
    }

    /// Writes the beginning of a line without its end.
    pub(crate) fn piece(&mut self, stream: Stream, piece: &[u8]) {
        if let Output::Drained { drains, .. } = self {
            drains[stream as usize].push(piece);
        }
    }

    /// Writes a message of the launcher itself to standard error.
    pub(crate) fn message(&mut self, text: &str) {
        let line = format!("conduit-run: {text}\n");
        match self {
            Output::Drained {
                drains: [_, stderr],
                ..
            } => stderr.push(line.as_bytes()),
            // An error that prevents writing to standard error cannot be reported.
            Output::Captured(_) => drop(io::Write::write_all(&mut io::stderr(), line.as_bytes())),
        }
    }
}

/// Text that waits to be written to one of the launcher's streams.
#[derive(Debug)]
pub(crate) struct Drain {
    stream: Stream,
    pending: VecDeque<u8>,
    dead: bool,
}

impl Drain {
    fn new(stream: Stream) -> Self {
        Drain {
            stream,
            pending: VecDeque::new(),
            dead: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if !self.dead {
            self.pending.extend(bytes);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the descriptor to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'static> {
        // SAFETY: by convention the standard streams are open for the life of a process; if one was
        // closed, writing to it returns an error.
        unsafe {
            BorrowedFd::borrow_raw(match self.stream {
                Stream::Stdout => libc::STDOUT_FILENO,
                Stream::Stderr => libc::STDERR_FILENO,
            })
        }
    }

    /// Writes as many bytes as the stream accepts at once. Call this only when the descriptor is
    /// ready.
    pub(crate) fn advance(&mut self) {
        let (front, _) = self.pending.as_slices();
        match write(self.fd(), &front[..front.len().min(ATOMIC)]) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.give_up(),
        }
    }

    /// Discards the waiting text and all later text. Call this when the stream has no reader any
    /// more.
    pub(crate) fn give_up(&mut self) {
        self.dead = true;
        self.pending.clear();
    }
}
