//! A link's fragments whose bytes the fragment handler keeps until all their segments are
//! acknowledged.

use std::collections::VecDeque;

use conduit_core::ni::Rank;

use crate::protocol::contract::{FragmentHandler, MAX_HEADER};
use crate::protocol::packet::{ACKS, CHUNK, FIRST, FRAGMENT, OVERHEAD, PacketKind, Writer};
use crate::protocol::sequence;

/// The division of fragments into segments. All full segments have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// The number of bytes of a full segment, which is a packet without header, tag, and
    /// acknowledgements without words.
    pub(crate) segment: usize,
}

impl Geometry {
    pub(crate) fn new(packet: usize) -> Self {
        Self {
            segment: packet - OVERHEAD - ACKS,
        }
    }

    /// Returns the number of bytes in each chunk after a fragment's first.
    fn chunk(&self) -> usize {
        self.segment - CHUNK
    }

    fn first(&self, header: usize) -> usize {
        self.segment - FIRST - header
    }

    fn is_whole(&self, header: usize, length: usize) -> bool {
        FRAGMENT + header + length <= self.segment
    }

    fn chunks(&self, header: usize, length: usize) -> u32 {
        if self.is_whole(header, length) {
            1
        } else {
            1 + (length - self.first(header)).div_ceil(self.chunk()) as u32
        }
    }
}

/// A segment of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The number of the fragment on its link, modulo 2^32.
    pub(crate) fragment: u32,
    /// The index of the segment in the fragment.
    pub(crate) index: u32,
    /// The number of bytes of the segment with its headers.
    pub(crate) length: u16,
    /// Whether this is the fragment's last segment.
    pub(crate) last: bool,
}

#[derive(Debug)]
struct Fragment {
    token: u64,
    length: u32,
    /// The number of segments that have not been acknowledged.
    missing: u32,
    header_length: u8,
    header: [u8; MAX_HEADER],
}

impl Fragment {
    fn header(&self) -> &[u8] {
        &self.header[..self.header_length.into()]
    }
}

/// The fragments, in order of submission.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    fragments: VecDeque<Fragment>,
    /// The number of the first fragment of the queue, modulo 2^32.
    front: u32,
    /// The next new segment, given by the number of its fragment and its index in that fragment.
    next: (u32, u32),
}

impl Outgoing {
    pub(crate) fn held(&self) -> usize {
        self.fragments.len()
    }

    /// Returns the number of unacknowledged segments of all fragments, plus the number of
    /// fragments.
    pub(crate) fn missing(&self) -> usize {
        let missing = self
            .fragments
            .iter()
            .map(|fragment| fragment.missing as usize + 1);
        missing.sum()
    }

    /// Returns whether there are new segments to send.
    pub(crate) fn is_waiting(&self) -> bool {
        (self.next.0.wrapping_sub(self.front) as usize) < self.fragments.len()
    }

    /// Appends a fragment.
    pub(crate) fn push(&mut self, geometry: Geometry, header: &[u8], token: u64, length: u32) {
        let mut fragment = Fragment {
            token,
            length,
            missing: geometry.chunks(header.len(), length as usize),
            header_length: header.len() as u8,
            header: [0; MAX_HEADER],
        };
        fragment.header[..header.len()].copy_from_slice(header);
        self.fragments.push_back(fragment);
    }

    /// Returns the next new segment.
    pub(crate) fn peek(&self, geometry: Geometry) -> Option<Piece> {
        let (number, index) = self.next;
        let fragment = self
            .fragments
            .get(number.wrapping_sub(self.front) as usize)?;
        let (header, length) = (fragment.header().len(), fragment.length as usize);
        let (bytes, last) = if geometry.is_whole(header, length) {
            (FRAGMENT + header + length, true)
        } else if index == 0 {
            (geometry.segment, false)
        } else {
            let rest = length - geometry.first(header) - (index as usize - 1) * geometry.chunk();
            (CHUNK + rest.min(geometry.chunk()), rest <= geometry.chunk())
        };
        Some(Piece {
            fragment: number,
            index,
            length: bytes as u16,
            last,
        })
    }

    /// Records that the segment returned by [`peek`](Self::peek) is sent.
    pub(crate) fn advance(&mut self, piece: Piece) {
        self.next = if piece.last {
            (piece.fragment.wrapping_add(1), 0)
        } else {
            (piece.fragment, piece.index + 1)
        };
    }

    /// Returns the token of a fragment.
    pub(crate) fn token(&self, number: u32) -> Option<u64> {
        let fragment = self.fragments.get(number.wrapping_sub(self.front) as usize);
        fragment.map(|fragment| fragment.token)
    }

    /// Returns the token of a fragment and the offset of a chunk in the fragment. Returns `None` if
    /// the segment is not a chunk.
    pub(crate) fn chunk(
        &self,
        geometry: Geometry,
        (number, index): (u32, u32),
    ) -> Option<(u64, usize)> {
        let fragment = self
            .fragments
            .get(number.wrapping_sub(self.front) as usize)?;
        let header = fragment.header().len();
        let first = geometry.first(header);
        (index > 0).then(|| {
            (
                fragment.token,
                first + (index as usize - 1) * geometry.chunk(),
            )
        })
    }

    /// Writes a segment of `into.len()` bytes, which must be the length that [`peek`](Self::peek)
    /// returned.
    pub(crate) fn write(
        &self,
        geometry: Geometry,
        (number, index): (u32, u32),
        sequence: u64,
        into: &mut [u8],
        peer: Rank,
        handler: &mut impl FragmentHandler,
    ) -> PacketKind {
        let Some(fragment) = self.fragments.get(number.wrapping_sub(self.front) as usize) else {
            debug_assert!(false, "a segment of a fragment that is gone");
            return PacketKind::Nothing;
        };
        let header = fragment.header();
        let bytes = into.len();
        let mut writer = Writer::new(into);
        writer.u24(sequence::low(sequence));
        if geometry.is_whole(header.len(), fragment.length as usize) {
            writer.bytes(&[fragment.header_length]);
            writer.bytes(header);
            handler.read(
                peer,
                fragment.token,
                0,
                writer.space(fragment.length as usize),
            );
            PacketKind::Fragment
        } else if index == 0 {
            writer.bytes(&fragment.length.to_le_bytes());
            writer.bytes(&(geometry.chunk() as u16).to_le_bytes());
            writer.bytes(&[fragment.header_length]);
            writer.bytes(header);
            handler.read(
                peer,
                fragment.token,
                0,
                writer.space(geometry.first(header.len())),
            );
            PacketKind::First
        } else {
            let offset = geometry.first(header.len()) + (index as usize - 1) * geometry.chunk();
            handler.read(peer, fragment.token, offset, writer.space(bytes - CHUNK));
            PacketKind::Chunk
        }
    }

    /// Records that a segment of this fragment was acknowledged.
    pub(crate) fn acknowledged(
        &mut self,
        number: u32,
        peer: Rank,
        handler: &mut impl FragmentHandler,
    ) {
        let Some(fragment) = self
            .fragments
            .get_mut(number.wrapping_sub(self.front) as usize)
        else {
            debug_assert!(false, "an acknowledgement of a fragment that is gone");
            return;
        };
        fragment.missing -= 1;
        if fragment.missing == 0 {
            handler.sent(peer, fragment.token);
            while self
                .fragments
                .front()
                .is_some_and(|fragment| fragment.missing == 0)
            {
                self.fragments.pop_front();
                self.front = self.front.wrapping_add(1);
            }
        }
    }

    /// Frees the memory if nothing is held.
    pub(crate) fn shrink(&mut self) {
        if self.fragments.is_empty() {
            self.fragments = VecDeque::new();
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.fragments.capacity() * size_of::<Fragment>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::contract::Failure;
    use crate::protocol::link::assembly::Assembly;
    use crate::protocol::packet::Data;
    use proptest::prelude::*;

    /// Byte `n` of any fragment is `n` modulo 251.
    #[derive(Default)]
    struct Bytes(Vec<u64>);

    impl FragmentHandler for Bytes {
        fn read(&mut self, _: Rank, _: u64, offset: usize, into: &mut [u8]) {
            into.iter_mut()
                .zip(offset..)
                .for_each(|(byte, at)| *byte = (at % 251) as u8);
        }
        fn sent(&mut self, _: Rank, token: u64) {
            self.0.push(token);
        }
        fn fragment(&mut self, _: Rank, _: &[u8], _: &[u8]) -> bool {
            true
        }
        fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
            None
        }
        fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
        fn end(&mut self, _: u64) {}
        fn failed(&mut self, _: Rank, _: Failure) {}
        fn room(&self) -> usize {
            0
        }
    }

    proptest! {
        #[test]
        fn segments_hold_a_fragment_exactly(packet in 1024usize..4000, header in 0usize..=64, length in 0u32..40_000) {
            let geometry = Geometry::new(packet);
            let header: Vec<u8> = (0..header as u8).collect();
            let (mut outgoing, mut assembly, mut handler) = (Outgoing::default(), Assembly::default(), Bytes::default());
            outgoing.push(geometry, &header, 5, length);
            let (mut came, mut sequence, mut pieces) = (0, 100, Vec::new());
            while let Some(piece) = outgoing.peek(geometry) {
                prop_assert!(usize::from(piece.length) == geometry.segment || piece.last);
                outgoing.advance(piece);
                let mut segment = vec![0; piece.length.into()];
                let kind = outgoing.write(geometry, (piece.fragment, piece.index), sequence, &mut segment, 1, &mut handler);
                let (offset, bytes) = match Data::read(kind, &segment[3..]).unwrap() {
                    Data::Whole { header: read, payload } => {
                        prop_assert!(read == header && piece.last);
                        (0, payload)
                    }
                    Data::First { header: read, length: said, chunk, bytes } => {
                        prop_assert_eq!((read, said), (&header[..], length));
                        assembly.begin(sequence, 9, said, chunk, bytes.len());
                        (0, bytes)
                    }
                    data @ Data::Chunk(bytes) => (assembly.target(sequence, data).unwrap().unwrap().offset, bytes),
                };
                prop_assert_eq!(offset, came);
                prop_assert!(bytes.iter().zip(offset..).all(|(&byte, at)| byte == (at % 251) as u8));
                came += bytes.len();
                if kind != PacketKind::Fragment {
                    prop_assert_eq!(assembly.ends(sequence).is_some(), piece.last);
                }
                sequence += 1;
                pieces.push(piece);
            }
            prop_assert_eq!(came, length as usize);
            prop_assert!(!outgoing.is_waiting() && outgoing.held() == 1);
            for piece in pieces {
                prop_assert!(handler.0.is_empty());
                outgoing.acknowledged(piece.fragment, 1, &mut handler);
            }
            prop_assert_eq!(handler.0, [5]);
            prop_assert_eq!(outgoing.held(), 0);
        }
    }
}
