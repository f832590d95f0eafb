//! What travels in a message of libfabric: a *frame*. Little-endian:
//!
//! ```text
//! kind 1 | bytes of the fragment's header 1 | number 2 | sender's rank 4 | the job's number 4 | length 4 | fragment's header | bytes
//!
//! TINY          a fragment that was copied, on the command channel
//! WHOLE         a fragment in one frame, on the data channel
//! FIRST         the first bytes of a longer one; length: all its bytes
//! CHUNK         the next bytes of it
//! PING, PONG    length: the number of a ping, given back
//! ```
//!
//! Frames between two ranks meet receives in the order in which they were sent (`FI_ORDER_SAS`), but with many providers the
//! receives may complete in another (`FI_ORDER_NONE`): so frames are numbered, and looked at by their numbers.

use conduit_core::ni::Rank;

/// Bytes of a frame's own header.
pub(crate) const HEADER: usize = 16;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tiny,
    Whole,
    First,
    Chunk,
    Ping,
    Pong,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Tiny,
        Self::Whole,
        Self::First,
        Self::Chunk,
        Self::Ping,
        Self::Pong,
    ];
}

/// A frame's own header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Bytes of the fragment's header.
    pub(crate) header: u8,
    /// Of this link's frames, the first is 0; wraps.
    pub(crate) number: u16,
    pub(crate) rank: Rank,
    /// The job's number: what is left of an older job at the same address is not this job's.
    pub(crate) job: u32,
    pub(crate) length: u32,
}

impl Frame {
    #[inline]
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8 + 1;
        bytes[1] = self.header;
        bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.job.to_le_bytes());
        bytes[12..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// What [`Self::decode`] makes of a tiny frame, nearly all that arrives. `None`: it is something else, or nothing.
    #[inline(always)]
    pub(crate) fn decode_tiny(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (own, rest) = bytes.split_first_chunk::<HEADER>()?;
        let (first, second) = own.split_first_chunk::<8>()?;
        let (first, second) = (
            u64::from_le_bytes(*first),
            u64::from_le_bytes(second.try_into().ok()?),
        );
        if first as u8 != Kind::Tiny as u8 + 1 {
            return None;
        }
        let frame = Self {
            kind: Kind::Tiny,
            header: (first >> 8) as u8,
            number: (first >> 16) as u16,
            rank: (first >> 32) as u32,
            job: second as u32,
            length: (second >> 32) as u32,
        };
        let (header, payload) = rest.split_at_checked(usize::from(frame.header))?;
        Some((frame, header, payload))
    }

    /// The frame, the fragment's header, and the bytes behind it. `None`: no rank writes this.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (own, rest) = bytes.split_first_chunk::<HEADER>()?;
        let [
            kind,
            header,
            n0,
            n1,
            r0,
            r1,
            r2,
            r3,
            j0,
            j1,
            j2,
            j3,
            l0,
            l1,
            l2,
            l3,
        ] = *own;
        let frame = Self {
            kind: *Kind::ALL.get(usize::from(kind).checked_sub(1)?)?,
            header,
            number: u16::from_le_bytes([n0, n1]),
            rank: u32::from_le_bytes([r0, r1, r2, r3]),
            job: u32::from_le_bytes([j0, j1, j2, j3]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
        };
        let (header, payload) = rest.split_at_checked(usize::from(header))?;
        let has_bytes = !matches!(frame.kind, Kind::Ping | Kind::Pong);
        (has_bytes || rest.is_empty()).then_some((frame, header, payload))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            kind in 0..6usize, header in prop::collection::vec(any::<u8>(), 0..64), number: u16, rank: u32, job: u32, length: u32,
            payload in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let kind = Kind::ALL[kind];
            let (header, payload) = match kind {
                Kind::Ping | Kind::Pong => (vec![], vec![]),
                _ => (header, payload),
            };
            let frame = Frame { kind, header: header.len() as u8, number, rank, job, length };
            let bytes = [&frame.encode()[..], &header, &payload].concat();
            let whole = Some((frame, &header[..], &payload[..]));
            prop_assert_eq!(Frame::decode(&bytes), whole);
            prop_assert_eq!(Frame::decode_tiny(&bytes), whole.filter(|_| kind == Kind::Tiny));
            for cut in 0..HEADER + header.len() {
                prop_assert_eq!(Frame::decode(&bytes[..cut]), None);
            }
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let tiny = Frame::decode_tiny(&bytes);
            prop_assert_eq!(tiny, Frame::decode(&bytes).filter(|(frame, ..)| frame.kind == Kind::Tiny));
            if let Some((frame, header, payload)) = Frame::decode(&bytes) {
                let again = [&frame.encode()[..], header, payload].concat();
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
