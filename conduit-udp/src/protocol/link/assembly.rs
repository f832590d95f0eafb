//! Reassembles fragments of more than one segment, in the order in which they were sent.

use std::collections::VecDeque;

use crate::protocol::packet::Data;

/// A fragment that has begun, which means that the fragment handler has provided its destination.
#[derive(Debug)]
struct Begun {
    /// The sequence number of the fragment's first segment.
    first: u64,
    /// The sequence number of the fragment's last segment.
    last: u64,
    place: u64,
    length: u32,
    /// The number of bytes in the fragment's first segment.
    front: u32,
    /// The number of bytes in each later segment except the last.
    chunk: u32,
}

/// The destination of a segment's bytes, which consists of the handler's token and the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) place: u64,
    pub(crate) offset: usize,
}

/// The fragments that have begun and are not complete.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    begun: VecDeque<Begun>,
}

impl Assembly {
    /// Returns the number of the segment after all fragments that have begun, or `delivered` if no
    /// fragment has begun.
    pub(crate) fn frontier(&self, delivered: u64) -> u64 {
        self.begun.back().map_or(delivered, |begun| begun.last + 1)
    }

    /// Begins a fragment. Its first segment has the number `first` and holds `front` bytes of the
    /// fragment.
    pub(crate) fn begin(&mut self, first: u64, place: u64, length: u32, chunk: u16, front: usize) {
        let (front, chunk) = (front as u32, u32::from(chunk));
        let last = first + u64::from((length - front).div_ceil(chunk));
        self.begun.push_back(Begun {
            first,
            last,
            place,
            length,
            front,
            chunk,
        });
    }

    /// Returns the destination of the segment with this number, or `None` if the segment's fragment
    /// has not begun. Returns an error if a different segment belongs at this number, which is a
    /// protocol violation.
    pub(crate) fn target(
        &self,
        sequence: u64,
        segment: Data<'_>,
    ) -> Result<Option<Target>, &'static str> {
        // Usually the newest fragment is the right one.
        let Some(begun) = self
            .begun
            .iter()
            .rev()
            .find(|begun| begun.first <= sequence)
        else {
            return Ok(None);
        };
        if sequence > begun.last {
            return Ok(None);
        }
        let Data::Chunk(bytes) = segment else {
            return Err("a fragment that begins inside another");
        };
        if sequence == begun.first {
            return Err("a chunk where its fragment begins");
        }
        let offset =
            begun.front as usize + (sequence - begun.first - 1) as usize * begun.chunk as usize;
        if bytes.len() != (begun.length as usize - offset).min(begun.chunk as usize) {
            return Err("a chunk of the wrong length");
        }
        Ok(Some(Target {
            place: begun.place,
            offset,
        }))
    }

    /// Records that all segments up to `sequence` have been delivered. Returns the token of the
    /// fragment that ends with segment `sequence`, if there is one.
    pub(crate) fn ends(&mut self, sequence: u64) -> Option<u64> {
        if self.begun.front()?.last != sequence {
            return None;
        }
        self.begun.pop_front().map(|begun| begun.place)
    }

    /// Returns whether no fragment is incomplete.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Frees memory if no fragment is incomplete.
    pub(crate) fn shrink(&mut self) {
        if self.begun.is_empty() {
            self.begun = VecDeque::new();
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.begun.capacity() * size_of::<Begun>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_go_where_their_number_says() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.frontier(7), 7);
        assembly.begin(7, 50, 1000, 300, 250);
        assert_eq!(assembly.frontier(7), 11);
        let chunk = [0; 300];
        assert_eq!(
            assembly.target(8, Data::Chunk(&chunk)),
            Ok(Some(Target {
                place: 50,
                offset: 250
            }))
        );
        assert_eq!(
            assembly.target(10, Data::Chunk(&chunk[..150])),
            Ok(Some(Target {
                place: 50,
                offset: 850
            }))
        );
        assert_eq!(assembly.target(11, Data::Chunk(&chunk)), Ok(None));
        assert!(assembly.target(10, Data::Chunk(&chunk)).is_err());
        assert!(assembly.target(7, Data::Chunk(&chunk)).is_err());
        assert!(
            assembly
                .target(
                    8,
                    Data::Whole {
                        header: &[],
                        payload: &chunk
                    }
                )
                .is_err()
        );
        assembly.begin(11, 51, 100, 50, 50);
        assert_eq!(
            assembly.target(12, Data::Chunk(&chunk[..50])),
            Ok(Some(Target {
                place: 51,
                offset: 50
            }))
        );
        assert_eq!(assembly.ends(9), None);
        assert_eq!(assembly.ends(10), Some(50));
        assert_eq!(assembly.ends(11), None);
        assert_eq!(assembly.ends(12), Some(51));
        assert_eq!(assembly.frontier(13), 13);
    }
}
