//! The ranks' standard output and error, when they pass through the launcher.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};
use serde::{Deserialize, Serialize};

/// The number of bytes that may wait for a slow reader of the launcher's output, and that each host
/// may have sent in addition. While at least this many wait, the ranks' pipes are not read, so the
/// ranks wait too.
const MAX_PENDING: usize = 256 << 10;
/// The number of bytes that every kind of file accepts without blocking once it is ready for
/// output. Pipes accept the fewest (PIPE_BUF).
const ATOMIC: usize = 4096;

/// One of a rank's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The launcher on another host.
    Relayed(Relay),
}

/// Output for the launcher on another host.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    hold_lines: bool,
    texts: Vec<Text>,
    /// The number of bytes that the launcher has not taken.
    untaken: usize,
    dead: [bool; 2],
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) rank: usize,
    pub(crate) stream: Stream,
    pub(crate) bytes: Vec<u8>,
    /// Whether a newline follows.
    pub(crate) newline: bool,
}

impl Text {
    /// Returns the number of bytes that count towards the window, which is at least one for each
    /// text.
    pub(crate) fn charge(&self) -> usize {
        self.bytes.len() + 16
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Output::Drained { .. } => "Drained",
            Output::Captured(_) => "Captured",
            Output::Relayed(_) => "Relayed",
        })
    }
}

impl Output {
    pub(crate) fn relayed(hold_lines: bool) -> Self {
        Output::Relayed(Relay {
            hold_lines,
            ..Relay::default()
        })
    }

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
        match self {
            Output::Drained { prefix, .. } => *prefix,
            Output::Captured(_) => true,
            Output::Relayed(relay) => relay.hold_lines,
        }
    }

    /// Returns whether more may be read for this stream now.
    pub(crate) fn accepts(&self, stream: Stream) -> bool {
        match self {
            Output::Drained { drains, .. } => drains[stream as usize].pending.len() < MAX_PENDING,
            Output::Captured(_) => true,
            Output::Relayed(relay) => relay.untaken < MAX_PENDING,
        }
    }

    /// Returns whether this stream has lost its reader.
    pub(crate) fn dead(&self, stream: Stream) -> bool {
        match self {
            Output::Drained { drains, .. } => drains[stream as usize].dead,
            Output::Captured(_) => false,
            Output::Relayed(relay) => relay.dead[stream as usize],
        }
    }

    /// Returns the output for the launcher since the last call.
    pub(crate) fn take_texts(&mut self) -> Vec<Text> {
        match self {
            Output::Relayed(relay) => std::mem::take(&mut relay.texts),
            _ => Vec::new(),
        }
    }

    /// Records that the launcher has taken so many bytes.
    pub(crate) fn taken(&mut self, bytes: usize) {
        if let Output::Relayed(relay) = self {
            relay.untaken = relay.untaken.saturating_sub(bytes);
        }
    }

    /// Records that the launcher's stream has lost its reader.
    pub(crate) fn lose_reader(&mut self, stream: Stream) {
        if let Output::Relayed(relay) = self {
            relay.dead[stream as usize] = true;
        }
    }

    pub(crate) fn drains_mut(&mut self) -> &mut [Drain] {
        match self {
            Output::Drained { drains, .. } => drains,
            Output::Captured(_) | Output::Relayed(_) => &mut [],
        }
    }

    pub(crate) fn drains(&self) -> &[Drain] {
        match self {
            Output::Drained { drains, .. } => drains,
            Output::Captured(_) | Output::Relayed(_) => &[],
        }
    }

    /// Writes one line of a rank. If not `ended`, it has no newline, because the stream has ended
    /// or the line is so long that it is split.
    pub(crate) fn line(&mut self, rank: usize, stream: Stream, line: &[u8], ended: bool) {
        // Standard output is forwarded byte by byte, unless lines are held.
        let newline = ended || self.holds_lines() || stream == Stream::Stderr;
        self.write(rank, stream, line, newline);
    }

    /// Writes the beginning of a line without its end.
    pub(crate) fn piece(&mut self, rank: usize, stream: Stream, piece: &[u8]) {
        self.write(rank, stream, piece, false);
    }

    /// Writes output from another host.
    pub(crate) fn text(&mut self, text: &Text) {
        self.write(text.rank, text.stream, &text.bytes, text.newline);
    }

    fn write(&mut self, rank: usize, stream: Stream, bytes: &[u8], newline: bool) {
        match self {
            Output::Drained { prefix, drains } => {
                let drain = &mut drains[stream as usize];
                if *prefix {
                    drain.push(format!("[{rank}] ").as_bytes());
                }
                drain.push(bytes);
                if newline {
                    drain.push(b"\n");
                }
            }
            Output::Captured(sink) => sink(rank, stream, bytes),
            Output::Relayed(relay) => {
                let text = Text {
                    rank,
                    stream,
                    bytes: bytes.to_vec(),
                    newline,
                };
                relay.untaken += text.charge();
                relay.texts.push(text);
            }
        }
    }

    /// Writes a line of a remote shell to standard error.
    pub(crate) fn foreign_line(&mut self, line: &[u8]) {
        let line = [line, b"\n"].concat();
        self.write_error(&line);
    }

    /// Writes a message of the launcher itself to standard error.
    pub(crate) fn message(&mut self, text: &str) {
        self.write_error(format!("conduit-run: {text}\n").as_bytes());
    }

    /// Writes what the launcher's streams accept at once. Call this when the loop does not write.
    pub(crate) fn flush_ready(&mut self) {
        for drain in self.drains_mut() {
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            while !drain.is_empty()
                && let Ok(1) = poll(&mut [PollFd::new(&drain.fd(), PollFlags::OUT)], Some(&now))
            {
                drain.advance();
            }
        }
    }

    fn write_error(&mut self, line: &[u8]) {
        match self {
            Output::Drained {
                drains: [_, stderr],
                ..
            } => stderr.push(line),
            // An error that prevents writing to standard error cannot be reported.
            _ => drop(io::Write::write_all(&mut io::stderr(), line)),
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
