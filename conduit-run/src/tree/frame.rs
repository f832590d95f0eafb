//! Frames: the length of the rest, the number of a host, and a message.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number that addresses all hosts.
pub(crate) const ALL: u32 = u32::MAX;
/// The maximum length of a frame without its length field. The largest message has the arguments
/// and the environment of a program, which the system limits to a few MiB.
const MAX: usize = 32 << 20;
const NUMBER: usize = size_of::<u32>();

/// A frame from or to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) host: u32,
    pub(crate) payload: Vec<u8>,
}

/// Bytes that are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a message of {0} bytes is outside of the limits")]
    Length(usize),
    #[error("a message cannot be decoded")]
    Malformed,
}

impl Frame {
    /// Encodes a message. Our own messages can always be encoded.
    pub(crate) fn new<T: Serialize>(host: u32, message: &T) -> Self {
        let payload = postcard::to_stdvec(message).unwrap_or_default();
        Frame { host, payload }
    }

    /// Decodes the message.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, FrameError> {
        match postcard::take_from_bytes(&self.payload) {
            Ok((message, [])) => Ok(message),
            _ => Err(FrameError::Malformed),
        }
    }

    /// Returns the bytes to send before the payload.
    pub(crate) fn header(&self) -> [u8; 2 * NUMBER] {
        let mut header = [0; 2 * NUMBER];
        let length = u32::try_from(NUMBER + self.payload.len()).unwrap_or(u32::MAX);
        header[..NUMBER].copy_from_slice(&length.to_le_bytes());
        header[NUMBER..].copy_from_slice(&self.host.to_le_bytes());
        header
    }
}

/// Splits a byte stream into frames.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// The number of bytes at the start that have been returned already.
    taken: usize,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame; `None` if more bytes are needed. After an error the stream must be
    /// closed.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if !(NUMBER..=MAX).contains(&length) {
            return Err(FrameError::Length(length));
        }
        let Some((host, payload)) = rest
            .get(..length)
            .and_then(|frame| frame.split_first_chunk())
        else {
            return Ok(None);
        };
        let host = u32::from_le_bytes(*host);
        let payload = payload.to_vec();
        self.taken += NUMBER + length;
        Ok(Some(Frame { host, payload }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::message::{Down, Up};

    fn bytes(frames: &[Frame]) -> Vec<u8> {
        let bytes = |frame: &Frame| [&frame.header()[..], &frame.payload].concat();
        frames.iter().flat_map(bytes).collect()
    }

    #[test]
    fn lengths_outside_of_the_limits_are_refused() {
        for length in [0, 3, MAX + 1, u32::MAX as usize] {
            let mut decoder = Decoder::default();
            decoder.push(&(length as u32).to_le_bytes());
            assert_eq!(decoder.next(), Err(FrameError::Length(length)));
        }
    }

    #[test]
    fn a_message_with_more_than_it_needs_is_malformed() {
        let mut frame = Frame::new(0, &Down::Finish);
        assert!(matches!(frame.decode(), Ok(Down::Finish)));
        frame.payload.push(0);
        assert_eq!(frame.decode::<Down>().unwrap_err(), FrameError::Malformed);
    }

    proptest! {
        #[test]
        fn the_cuts_of_the_stream_do_not_matter(
            frames in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..9),
            cut in 1usize..23,
        ) {
            let frames: Vec<_> = frames.into_iter().map(|(host, payload)| Frame { host, payload }).collect();
            let mut decoder = Decoder::default();
            let mut out = Vec::new();
            for chunk in bytes(&frames).chunks(cut) {
                decoder.push(chunk);
                while let Some(frame) = decoder.next().unwrap() {
                    out.push(frame);
                }
            }
            prop_assert_eq!(out, frames);
        }

        #[test]
        fn garbage_never_panics(garbage in proptest::collection::vec(any::<u8>(), 0..300)) {
            let frame = Frame { host: 0, payload: garbage.clone() };
            let _ = (frame.decode::<Down>(), frame.decode::<Up>());
            let mut decoder = Decoder::default();
            decoder.push(&garbage);
            while let Ok(Some(frame)) = decoder.next() {
                let _ = (frame.decode::<Down>(), frame.decode::<Up>());
            }
        }
    }
}
