//! The receiver's side of a channel, which records the segments received and buffers segments that
//! arrived out of order.

use std::collections::BTreeMap;

use crate::protocol::config::MAX_WINDOW;
use crate::protocol::packet::{MAX_WORDS, PacketKind};

const WORDS: usize = MAX_WINDOW as usize / 64;
/// The approximate overhead of a buffered segment, in bytes.
const KEEPING: usize = 64;

/// The class of a received segment, by its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The first missing segment.
    Next,
    /// A segment behind a gap.
    Early,
    /// A segment that has already been received.
    Duplicate,
    /// A segment beyond the window.
    Outside,
}

/// Limits on the bytes of buffered segments.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The number of bytes buffered by all links.
    pub(crate) held: usize,
    /// The limit for all links together.
    pub(crate) limit: usize,
    /// The limit for one link.
    pub(crate) link_limit: usize,
}

/// A buffered segment, which consists of its kind and the bytes after its number.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) kind: PacketKind,
    pub(crate) bytes: Box<[u8]>,
}

/// The receiver's side of a channel.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// The channel's first sequence number.
    first: u64,
    /// The number before which all segments have been received.
    next: u64,
    /// The number before which all segments have been delivered.
    delivered: u64,
    /// One more than the highest segment number received.
    end: u64,
    /// A bitmap of the segments received, from `next` on, indexed by number modulo the window. It
    /// is allocated when needed.
    came: Option<Box<[u64; WORDS]>>,
    kept: BTreeMap<u64, Kept>,
    kept_bytes: usize,
}

impl Inbound {
    pub(crate) fn new(first: u64) -> Self {
        Self {
            first,
            next: first,
            delivered: first,
            end: first,
            came: None,
            kept: BTreeMap::new(),
            kept_bytes: 0,
        }
    }

    /// Creates a channel on which all segments before `next` have been received and delivered.
    pub(crate) fn resumed(first: u64, next: u64) -> Self {
        Self {
            first,
            ..Self::new(next)
        }
    }

    /// Returns whether there are no gaps and everything received has been delivered.
    pub(crate) fn is_settled(&self) -> bool {
        !self.has_gaps() && !self.is_behind() && self.kept.is_empty()
    }

    /// Returns the number of the first missing segment.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether anything was received.
    pub(crate) fn is_used(&self) -> bool {
        self.end > self.first
    }

    /// Returns the number of the first segment that has not been delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns whether there are gaps.
    pub(crate) fn has_gaps(&self) -> bool {
        self.end > self.next
    }

    /// Returns whether a segment before the first gap has not been delivered.
    pub(crate) fn is_behind(&self) -> bool {
        self.delivered < self.next
    }

    pub(crate) fn classify(&self, sequence: u64) -> Arrival {
        if sequence == self.next {
            Arrival::Next
        } else if sequence < self.next || self.has_come(sequence) {
            Arrival::Duplicate
        } else if sequence >= self.next + u64::from(MAX_WINDOW) {
            Arrival::Outside
        } else {
            Arrival::Early
        }
    }

    fn has_come(&self, sequence: u64) -> bool {
        sequence < self.end
            && self.came.as_ref().is_some_and(|came| {
                came[(sequence / 64) as usize % WORDS] & (1 << (sequence % 64)) != 0
            })
    }

    /// Marks a segment of the window as received for the first time.
    pub(crate) fn mark(&mut self, sequence: u64) {
        if sequence == self.next {
            self.next += 1;
            if self.end < self.next {
                self.end = self.next;
            } else {
                self.clear(sequence);
                while self.has_come(self.next) {
                    self.clear(self.next);
                    self.next += 1;
                }
            }
        } else {
            let came = self.came.get_or_insert_with(|| Box::new([0; WORDS]));
            came[(sequence / 64) as usize % WORDS] |= 1 << (sequence % 64);
            self.end = self.end.max(sequence + 1);
        }
    }

    fn clear(&mut self, sequence: u64) {
        if let Some(came) = &mut self.came {
            came[(sequence / 64) as usize % WORDS] &= !(1 << (sequence % 64));
        }
    }

    /// Records that the segment with the number [`delivered`](Self::delivered) has been delivered.
    pub(crate) fn deliver(&mut self) {
        self.delivered += 1;
    }

    /// Buffers a segment until its turn. Returns `false` if there is no room.
    pub(crate) fn keep(
        &mut self,
        sequence: u64,
        kind: PacketKind,
        bytes: &[u8],
        link_bytes: usize,
        budget: &mut Budget,
    ) -> bool {
        let cost = bytes.len() + KEEPING;
        if link_bytes + cost > budget.link_limit || budget.held + cost > budget.limit {
            return false;
        }
        budget.held += cost;
        self.kept_bytes += cost;
        self.kept.insert(
            sequence,
            Kept {
                kind,
                bytes: bytes.into(),
            },
        );
        true
    }

    /// Takes a segment out of the buffer.
    pub(crate) fn take_kept(&mut self, sequence: u64, budget: &mut Budget) -> Option<Kept> {
        if self.kept.is_empty() {
            return None;
        }
        let kept = self.kept.remove(&sequence)?;
        let cost = kept.bytes.len() + KEEPING;
        budget.held -= cost;
        self.kept_bytes -= cost;
        Some(kept)
    }

    /// Puts back a segment that could not be delivered.
    pub(crate) fn put_back(&mut self, sequence: u64, kept: Kept, budget: &mut Budget) {
        let cost = kept.bytes.len() + KEEPING;
        budget.held += cost;
        self.kept_bytes += cost;
        self.kept.insert(sequence, kept);
    }

    /// Returns the number of bytes in buffered segments.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns the number of bitmap words that cover the segments received behind gaps.
    pub(crate) fn words(&self) -> usize {
        if self.has_gaps() {
            ((self.end - 1) / 64 - self.next / 64 + 1) as usize
        } else {
            0
        }
    }

    /// Returns bitmap word `index`. Word 0 covers the aligned group of 64 segments that contains
    /// the first missing one.
    pub(crate) fn word(&self, index: usize) -> u64 {
        debug_assert!(index < MAX_WORDS);
        let begin = (self.next & !63) + index as u64 * 64;
        let Some(came) = &self.came else {
            return 0;
        };
        let mut word = came[(begin / 64) as usize % WORDS];
        // The window's first and last word are stored in the same place, so bits of the other word
        // are cleared.
        if begin < self.next {
            word &= u64::MAX << (self.next - begin);
        }
        if self.end - begin < 64 {
            word &= (1 << (self.end - begin)) - 1;
        }
        word
    }

    /// Frees memory if there are no gaps.
    pub(crate) fn shrink(&mut self) {
        if !self.has_gaps() {
            self.came = None;
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.came.as_ref().map_or(0, |came| size_of_val(&**came)) + self.kept_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_knows_what_has_come(first in 0u64..200, steps in proptest::collection::vec((0u64..3, 0u64..4200), 1..300)) {
            let mut inbound = Inbound::new(first);
            let (mut came, mut next) = (BTreeSet::new(), first);
            for (near, distance) in steps {
                let sequence = match near { 0 => inbound.next(), 1 => inbound.next() + distance % 70, _ => (inbound.next() + distance).saturating_sub(80).max(first) };
                let expected = if sequence < next || came.contains(&sequence) {
                    Arrival::Duplicate
                } else if sequence == next {
                    Arrival::Next
                } else if sequence >= next + u64::from(MAX_WINDOW) {
                    Arrival::Outside
                } else {
                    Arrival::Early
                };
                prop_assert_eq!(inbound.classify(sequence), expected);
                if matches!(expected, Arrival::Next | Arrival::Early) {
                    inbound.mark(sequence);
                    came.insert(sequence);
                    while came.remove(&next) {
                        next += 1;
                    }
                }
                prop_assert_eq!(inbound.next(), next);
                let mut told = BTreeSet::new();
                prop_assert!(inbound.words() <= MAX_WORDS);
                for index in 0..inbound.words() {
                    let word = inbound.word(index);
                    told.extend((0..64).filter(|bit| word & (1 << bit) != 0).map(|bit| (next & !63) + index as u64 * 64 + bit));
                }
                prop_assert_eq!(&told, &came);
            }
        }
    }
}
