//! What the ranks write to standard output and error, when it doesn't go there directly.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read, write};

/// Bytes of one line; a longer one is cut into several.
const MAX_LINE: usize = 64 << 10;
/// Bytes that may wait for a slow reader of the launcher's output. Beyond it the ranks' pipes aren't read, so that the
/// ranks wait too.
const MAX_PENDING: usize = 256 << 10;
/// After so much silence the begin of a line is handed on without its end: it may be a question. Longer than a process that writes
/// its lines in pieces is kept from its core.
const SILENCE: Duration = Duration::from_millis(500);
/// What a pipe that is ready for output takes without blocking, the least of all kinds of files (PIPE_BUF).
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

/// Takes a rank's lines, without their newlines.
pub(crate) type LineSink = Box<dyn FnMut(usize, Stream, &[u8]) + Send>;

/// Where the ranks' output goes.
pub(crate) enum Output {
    /// To the launcher's streams: each line whole, with the rank before it; or whole lines of standard error only, while ranks
    /// inherit standard output.
    Drained { prefix: bool, drains: [Drain; 2] },
    /// To a function.
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

    /// The streams for which ranks need pipes: all, or standard error, in which the errors of several ranks come at once.
    pub(crate) fn piped(&self) -> &'static [Stream] {
        match self {
            Output::Drained { prefix: false, .. } => &[Stream::Stderr],
            _ => &Stream::BOTH,
        }
    }

    /// Whether the begin of a line waits for its end however long that takes.
    fn holds_lines(&self) -> bool {
        !matches!(self, Output::Drained { prefix: false, .. })
    }

    /// Whether more may be read for this stream now.
    pub(crate) fn accepts(&self, stream: Stream) -> bool {
        match self {
            Output::Drained { drains, .. } => drains[stream as usize].pending.len() < MAX_PENDING,
            Output::Captured(_) => true,
        }
    }

    /// Whether nobody will ever see what comes on this stream.
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

    /// One line of a rank.
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

    /// When the begin of a line has waited long enough for its end.
    pub(crate) fn due(&self, source: &Source) -> Option<Instant> {
        let waits = !source.partial.is_empty() && !self.holds_lines();
        waits.then(|| source.last + SILENCE)
    }

    /// The begin of a line whose end doesn't come.
    pub(crate) fn piece(&mut self, stream: Stream, source: &mut Source) {
        if let Output::Drained { drains, .. } = self {
            drains[stream as usize].push(&std::mem::take(&mut source.partial));
        }
    }

    /// A message of the launcher's own, to standard error.
    pub(crate) fn message(&mut self, text: &str) {
        let line = format!("conduit-run: {text}\n");
        match self {
            Output::Drained {
                drains: [_, stderr],
                ..
            } => stderr.push(line.as_bytes()),
            // Nowhere to complain about a standard error that can't be written.
            Output::Captured(_) => drop(io::Write::write_all(&mut io::stderr(), line.as_bytes())),
        }
    }
}

/// Text on its way to one of the launcher's streams.
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

    /// The descriptor to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'static> {
        // SAFETY: the standard streams are open for the life of the process, by convention of all programs; if somebody
        // closed one, writing to it gives an error.
        unsafe {
            BorrowedFd::borrow_raw(match self.stream {
                Stream::Stdout => libc::STDOUT_FILENO,
                Stream::Stderr => libc::STDERR_FILENO,
            })
        }
    }

    /// Writes a piece, after the descriptor became ready.
    pub(crate) fn advance(&mut self) {
        let (front, _) = self.pending.as_slices();
        match write(self.fd(), &front[..front.len().min(ATOMIC)]) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.give_up(),
        }
    }

    /// Nobody reads any more.
    pub(crate) fn give_up(&mut self) {
        self.dead = true;
        self.pending.clear();
    }
}

/// The launcher's end of the pipe on which a rank writes one stream.
#[derive(Debug)]
pub(crate) struct Source {
    fd: OwnedFd,
    /// The begin of a line whose end has not come.
    partial: Vec<u8>,
    /// When something came last.
    last: Instant,
}

impl Source {
    /// `fd` must not block.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Source {
            fd,
            partial: Vec::new(),
            last: Instant::now(),
        }
    }

    /// Reads one chunk and hands on the lines in it. `Ok(false)`: nothing there. `Err`: the stream has ended.
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

    /// Hands on a last line without a newline.
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

/// Cuts `chunk`, which continues `partial`, into lines of at most [`MAX_LINE`] bytes.
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
