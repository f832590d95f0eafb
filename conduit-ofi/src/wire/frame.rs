//! Frames. A *frame* is the content of one message of libfabric. In the following layout, each
//! field is followed by its length in bytes, and numbers are little-endian:
//!
//! ```text
//! kind 1 | bytes of the fragment's header 1 | number 2 | sender's rank 4 | the job's number 8 | length 8 | fragment's header | bytes
//!
//! TINY          a copied fragment, on the command channel
//! WHOLE         a fragment in one frame, on the data channel
//! FIRST         the first bytes of a longer fragment; length: its total bytes
//! CHUNK         the next bytes of that fragment
//! PING, PONG    length: the number of a ping, echoed by PONG
//! BYE           the sender ends the session; in open networks only
//! CONNECT       begins a connection (`wire::connected`); length: the connection's number
//! TAKEN         on a connection: reports the frames taken from it
//! ASK           on a connection: asks for such reports without delay
//! ```
//!
//! Only FIRST, PING, PONG, CONNECT and TAKEN have the field `length`. Sealed frames end in a tag
//! (module `seal`). With encryption, everything after the job's number is encrypted.
//!
//! Frames between two ranks match receives in the order in which they were sent (`FI_ORDER_SAS`),
//! but with many providers the receives may complete in another order (`FI_ORDER_NONE`). Frames are
//! therefore numbered, and handled in the order of their numbers. Only the lower bits of a number
//! are transmitted. They suffice because no frame is more than [`EARLY`] ahead of the next one.

use conduit_core::ni::Rank;

/// The length of the header that every frame has and that is never encrypted.
pub(crate) const HEADER: usize = 16;
/// The length of the header of a frame with the field `length`.
pub(crate) const LONG_HEADER: usize = 24;
/// The number of frames by which a frame may be ahead of the next one from its sender. It must be
/// larger than the number of posted receives.
pub(crate) const EARLY: u16 = 1 << 13;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Tiny,
    Whole,
    First,
    Chunk,
    Ping,
    Pong,
    Bye,
    Connect,
    Taken,
    Ask,
}

impl FrameKind {
    const ALL: [Self; 10] = [
        Self::Tiny,
        Self::Whole,
        Self::First,
        Self::Chunk,
        Self::Ping,
        Self::Pong,
        Self::Bye,
        Self::Connect,
        Self::Taken,
        Self::Ask,
    ];

    /// Returns the length of the frame's own header.
    #[inline]
    pub(crate) fn header(self) -> usize {
        match self {
            Self::Tiny | Self::Whole | Self::Chunk | Self::Bye | Self::Ask => HEADER,
            Self::First | Self::Ping | Self::Pong | Self::Connect | Self::Taken => LONG_HEADER,
        }
    }
}

/// A frame's own header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    /// The length of the fragment's header.
    pub(crate) header: u8,
    /// The lower bits of the frame's number on its link, counted from 0.
    pub(crate) number: u16,
    pub(crate) rank: Rank,
    /// The job's number, which excludes leftovers of an older job at the same address.
    pub(crate) job: u64,
    /// The length, or zero if the kind has none.
    pub(crate) length: u64,
}

/// Returns a frame's full number from its lower bits. `next` is the number of the next frame from
/// the frame's sender. Returns `None` if the frame is ahead by [`EARLY`] or more, so that it is a
/// repetition or a forgery.
#[inline]
pub(crate) fn whole_number(number: u16, next: u64) -> Option<u64> {
    // The cast keeps the lower bits, which are the ones transmitted.
    let ahead = number.wrapping_sub(next as u16);
    (ahead < EARLY).then(|| next.wrapping_add(ahead.into()))
}

impl Frame {
    /// Returns the header that every frame has.
    #[inline]
    pub(crate) fn begin(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8 + 1;
        bytes[1] = self.header;
        bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..].copy_from_slice(&self.job.to_le_bytes());
        bytes
    }

    /// Writes the frame's header, whose length depends on the frame's kind.
    #[inline]
    pub(crate) fn write(&self, place: &mut [u8]) {
        place[..HEADER].copy_from_slice(&self.begin());
        if self.kind.header() == LONG_HEADER {
            place[HEADER..LONG_HEADER].copy_from_slice(&self.length.to_le_bytes());
        }
    }

    #[inline(always)]
    fn of_words(kind: FrameKind, first: u64, second: u64) -> Self {
        Self {
            kind,
            header: (first >> 8) as u8,
            number: (first >> 16) as u16,
            rank: (first >> 32) as u32,
            job: second,
            length: 0,
        }
    }

    #[inline(always)]
    fn words(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
        let (first, rest) = bytes.split_first_chunk()?;
        let (second, rest) = rest.split_first_chunk()?;
        Some((
            u64::from_le_bytes(*first),
            u64::from_le_bytes(*second),
            rest,
        ))
    }

    /// Reads the header that every frame has. Returns `None` if the header is malformed.
    #[inline]
    pub(crate) fn read_begin(bytes: &[u8]) -> Option<Self> {
        let (first, second, _) = Self::words(bytes)?;
        let kind = usize::from(first as u8).checked_sub(1)?;
        Some(Self::of_words(*FrameKind::ALL.get(kind)?, first, second))
    }

    /// Does the same as [`Self::decode`], but only for tiny frames, which are the most common kind.
    /// Returns `None` if the frame is malformed or of another kind.
    #[inline(always)]
    pub(crate) fn decode_tiny(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (first, second, rest) = Self::words(bytes)?;
        if first as u8 != FrameKind::Tiny as u8 + 1 {
            return None;
        }
        let frame = Self::of_words(FrameKind::Tiny, first, second);
        let (header, payload) = rest.split_at_checked(usize::from(frame.header))?;
        Some((frame, header, payload))
    }

    /// Returns the frame, the fragment's header and the payload, or `None` if the frame is
    /// malformed.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let mut frame = Self::read_begin(bytes)?;
        let mut rest = &bytes[HEADER..];
        if frame.kind.header() == LONG_HEADER {
            let (length, after) = rest.split_first_chunk()?;
            frame.length = u64::from_le_bytes(*length);
            rest = after;
        }
        let (header, payload) = rest.split_at_checked(usize::from(frame.header))?;
        let has_bytes = matches!(
            frame.kind,
            FrameKind::Tiny
                | FrameKind::Whole
                | FrameKind::First
                | FrameKind::Chunk
                | FrameKind::Connect
        );
        (has_bytes || rest.is_empty()).then_some((frame, header, payload))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(frame: &Frame) -> Vec<u8> {
        let mut bytes = vec![0; frame.kind.header()];
        frame.write(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_number_is_known_by_its_lower_bits(next in 0..u64::MAX / 2, ahead: u16) {
            let number = next + u64::from(ahead);
            let known = whole_number(number as u16, next);
            prop_assert_eq!(known, Some(number).filter(|_| ahead < EARLY));
        }

        #[test]
        fn what_is_written_is_read(
            kind in 0..10usize, header in prop::collection::vec(any::<u8>(), 0..64), number: u16, rank: u32, job: u64, length: u64,
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let kind = FrameKind::ALL[kind];
            let (header, payload) = match kind {
                FrameKind::Ping | FrameKind::Pong | FrameKind::Bye | FrameKind::Taken | FrameKind::Ask => (vec![], vec![]),
                _ => (header, payload),
            };
            let length = if kind.header() == LONG_HEADER { length } else { 0 };
            let frame = Frame { kind, header: header.len() as u8, number, rank, job, length };
            let bytes = [&own(&frame)[..], &header, &payload].concat();
            let whole = Some((frame, &header[..], &payload[..]));
            prop_assert_eq!(Frame::decode(&bytes), whole);
            prop_assert_eq!(Frame::decode_tiny(&bytes), whole.filter(|_| kind == FrameKind::Tiny));
            for cut in 0..kind.header() + header.len() {
                prop_assert_eq!(Frame::decode(&bytes[..cut]), None);
            }
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let tiny = Frame::decode_tiny(&bytes);
            prop_assert_eq!(tiny, Frame::decode(&bytes).filter(|(frame, ..)| frame.kind == FrameKind::Tiny));
            if let Some((frame, header, payload)) = Frame::decode(&bytes) {
                let again = [&own(&frame)[..], header, payload].concat();
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
