//! The ranks' standard output and error, when they pass through the launcher.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read, write};

/// Maximum bytes of a line; longer lines are split.
const MAX_LINE: usize = 64 << 10;
/// The number of bytes that may wait for a slow reader of the launcher's output. While at least
/// this many wait, the launcher does not read the ranks' pipes, so the ranks wait too.
const MAX_PENDING: usize = 256 << 10;
/// The time without further output after which the beginning of a line is forwarded without its
/// end, because it may be a prompt. The time is long enough that a process that writes its lines in
/// pieces is rarely interrupted for longer between two pieces.
const SILENCE: Duration = Duration::from_millis(500);
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
    fn holds_lines(&self) -> bool {
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

    /// Returns the time at which the beginning of a line will have waited long enough for its end;
    /// `None` if nothing waits or lines are held until they end.
    pub(crate) fn due(&self, source: &Source) -> Option<Instant> {
        let waits = !source.partial.is_empty() && !self.holds_lines();
        waits.then(|| source.last + SILENCE)
    }

    /// Writes the beginning of a line without its end.
    pub(crate) fn piece(&mut self, stream: Stream, source: &mut Source) {
        if let Output::Drained { drains, .. } = self {
            drains[stream as usize].push(&std::mem::take(&mut source.partial));
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

/// The launcher's end of the pipe on which a rank writes one stream.
#[derive(Debug)]
pub(crate) struct Source {
    fd: OwnedFd,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    /// When the last bytes arrived.
    last: Instant,
}

impl Source {
    /// Creates the source for a pipe. `fd` must be in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Source {
            fd,
            partial: Vec::new(),
            last: Instant::now(),
        }
    }

    /// Reads one chunk and forwards its lines. Returns `Ok(false)` if there is nothing to read and
    /// `Err` at the end of the stream.
    pub(crate) fn read(&mut self, mut line: impl FnMut(&[u8])) -> Result<bool, ()> {
        let mut chunk = [0; 16 << 10];
        let count = match read(&self.fd, &mut chunk) {
            Ok(count @ 1..) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Ok(0) | Err(_) => return Err(()),
        };
        self.last = Instant::now();
        split(&mut self.partial, &chunk[..count], &mut line);
        Ok(true)
    }

    /// Forwards the last line of the stream if it has no newline.
    pub(crate) fn end_line(&mut self, mut line: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            line(&std::mem::take(&mut self.partial));
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Splits `chunk`, which continues `partial`, into lines of at most [`MAX_LINE`] bytes.
fn split(partial: &mut Vec<u8>, chunk: &[u8], line: &mut impl FnMut(&[u8])) {
    for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
        let (text, whole) = match piece {
            [text @ .., b'\n'] => (text, true),
            text => (text, false),
        };
        partial.extend_from_slice(text);
        while partial.len() > MAX_LINE {
            line(&partial[..MAX_LINE]);
            partial.drain(..MAX_LINE);
        }
        if whole {
            line(partial);
            partial.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut partial, mut out) = (Vec::new(), Vec::new());
        for chunk in chunks {
            split(&mut partial, chunk, &mut |line| out.push(line.to_vec()));
        }
        (out, partial)
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let (out, rest) = lines(&[b"a\nb", b"c", b"\n\nd"]);
        assert_eq!(out, [b"a".to_vec(), b"bc".to_vec(), b"".to_vec()]);
        assert_eq!(rest, b"d");
    }

    #[test]
    fn an_endless_line_is_cut() {
        let chunk = vec![b'x'; MAX_LINE];
        let (out, rest) = lines(&[&chunk, &chunk, b"y\n"]);
        assert_eq!(
            out.iter().map(Vec::len).collect::<Vec<_>>(),
            [MAX_LINE, MAX_LINE, 1]
        );
        assert!(rest.is_empty());
    }
}
