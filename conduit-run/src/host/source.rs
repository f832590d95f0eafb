//! The pipes through which ranks write their standard output and error.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read};

/// Maximum bytes of a line; longer lines are split.
const MAX_LINE: usize = 64 << 10;
/// The time without further output after which the beginning of a line is forwarded without its
/// end, because it may be a prompt. The time is long enough that a process that writes its lines in
/// pieces is rarely interrupted for longer between two pieces.
const SILENCE: Duration = Duration::from_millis(500);

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

    /// Returns the time at which the beginning of a line will have waited long enough for its end;
    /// `None` if nothing waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.partial.is_empty()).then(|| self.last + SILENCE)
    }

    /// Returns the beginning of a line, whose end the source will return separately.
    pub(crate) fn take_piece(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// Reads one chunk and forwards its lines, each with whether it has a newline. Returns
    /// `Ok(false)` if there is nothing to read and `Err` at the end of the stream.
    pub(crate) fn read(&mut self, mut line: impl FnMut(&[u8], bool)) -> Result<bool, ()> {
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
    pub(crate) fn end_line(&mut self, mut line: impl FnMut(&[u8], bool)) {
        if !self.partial.is_empty() {
            line(&std::mem::take(&mut self.partial), false);
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Splits `chunk`, which continues `partial`, into lines of at most [`MAX_LINE`] bytes.
fn split(partial: &mut Vec<u8>, chunk: &[u8], line: &mut impl FnMut(&[u8], bool)) {
    for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
        let (text, whole) = match piece {
            [text @ .., b'\n'] => (text, true),
            text => (text, false),
        };
        partial.extend_from_slice(text);
        while partial.len() > MAX_LINE {
            line(&partial[..MAX_LINE], false);
            partial.drain(..MAX_LINE);
        }
        if whole {
            line(partial, true);
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
            split(&mut partial, chunk, &mut |line, _| out.push(line.to_vec()));
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
