//! Splits a byte stream into lines of bounded length.

use super::{Error, MAX_LINE, quoted};

/// Collects bytes as they arrive and returns whole lines.
///
/// If its owner takes out all lines after each [`push`](Self::push), the buffer never holds more
/// than [`MAX_LINE`] bytes and one chunk. After an error the line boundaries are lost, so the
/// stream must be closed.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// The number of bytes at the start that have been returned already.
    taken: usize,
}

impl LineBuffer {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole line without its newline, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`Error::TooLong`] if there is no newline within [`MAX_LINE`] bytes, [`Error::NotText`] if a
    /// line is not UTF-8.
    pub fn next_line(&mut self) -> Result<Option<String>, Error> {
        let rest = &self.bytes[self.taken..];
        let Some(length) = rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            return if rest.len() >= MAX_LINE {
                Err(Error::TooLong)
            } else {
                Ok(None)
            };
        };
        let line = &rest[..length];
        let line = std::str::from_utf8(line)
            .map_err(|_| Error::NotText(quoted(&String::from_utf8_lossy(line))))?
            .to_owned();
        self.taken += length + 1;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_out_whole() {
        let mut buffer = LineBuffer::new();
        buffer.push(b"cmd=a");
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.push(b"\ncmd=b\ncm");
        assert_eq!(buffer.next_line(), Ok(Some("cmd=a".into())));
        assert_eq!(buffer.next_line(), Ok(Some("cmd=b".into())));
        assert_eq!(buffer.next_line(), Ok(None));
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut buffer = LineBuffer::new();
        buffer.push(&[b'x'; MAX_LINE - 1]);
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.push(b"x");
        assert_eq!(buffer.next_line(), Err(Error::TooLong));
    }

    #[test]
    fn bytes_that_are_not_text_are_an_error() {
        let mut buffer = LineBuffer::new();
        buffer.push(&[0xff, 0xfe, b'\n']);
        assert!(matches!(buffer.next_line(), Err(Error::NotText(_))));
    }

    proptest! {
        #[test]
        fn the_cuts_of_the_stream_do_not_matter(
            lines in proptest::collection::vec("[^\n]{0,40}", 0..10),
            cut in 1usize..17,
        ) {
            let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut buffer = LineBuffer::new();
            let mut out = Vec::new();
            for chunk in stream.as_bytes().chunks(cut) {
                buffer.push(chunk);
                while let Some(line) = buffer.next_line().unwrap() {
                    out.push(line);
                }
            }
            prop_assert_eq!(out, lines);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..6000)) {
            let mut buffer = LineBuffer::new();
            buffer.push(&bytes);
            while let Ok(Some(_)) = buffer.next_line() {}
        }
    }
}
