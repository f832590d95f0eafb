//! The unacknowledged tiny fragments of a link, whether or not they are in a bundle.

use crate::protocol::bundle::ENTRY;

/// The number of bytes of the ring at first use.
const FIRST_SIZE: usize = 1024;

/// A ring of bytes that grows by doubling. Its entries have the wire format, so a bundle is a range
/// of the ring.
///
/// Positions count bytes since the link began, modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    bytes: Box<[u8]>,
    /// The position before which everything has been acknowledged.
    head: u32,
    /// The position before which everything is in bundles.
    bundled: u32,
    tail: u32,
}

impl Commands {
    /// Returns whether another fragment of `length` bytes would fit into `limit` bytes. `limit`
    /// must be a power of two.
    pub(crate) fn fits(&self, length: usize, limit: usize) -> bool {
        self.held() + ENTRY + length <= limit
    }

    /// Appends a fragment, which must [fit](Self::fits).
    pub(crate) fn push(&mut self, header: &[u8], pieces: &[&[u8]], payload: usize) {
        let needed = self.held() + ENTRY + header.len() + payload;
        if needed > self.bytes.len() {
            self.grow(needed.next_power_of_two().max(FIRST_SIZE));
        }
        let length = (payload as u16).to_le_bytes();
        self.append(&[header.len() as u8, length[0], length[1]]);
        self.append(header);
        for piece in pieces {
            self.append(piece);
        }
    }

    /// Returns the number of bytes that are not in bundles.
    pub(crate) fn waiting(&self) -> usize {
        self.tail.wrapping_sub(self.bundled) as usize
    }

    /// Returns the number of bytes held.
    pub(crate) fn held(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Takes the next bundle, which contains as many whole fragments as fit into `capacity` bytes.
    /// Returns the bundle's position and length.
    pub(crate) fn bundle(&mut self, capacity: usize) -> (u32, usize) {
        let (begin, waiting) = (self.bundled, self.waiting());
        let mut length = 0;
        if waiting <= capacity {
            length = waiting;
        } else {
            while length < waiting {
                let entry = self.entry(begin.wrapping_add(length as u32));
                if length + entry > capacity {
                    break;
                }
                length += entry;
            }
        }
        self.bundled = begin.wrapping_add(length as u32);
        (begin, length)
    }

    /// Copies a bundle's bytes.
    pub(crate) fn copy(&self, position: u32, into: &mut [u8]) {
        if into.is_empty() {
            return;
        }
        let at = self.index(position);
        let front = into.len().min(self.bytes.len() - at);
        let (first, second) = into.split_at_mut(front);
        first.copy_from_slice(&self.bytes[at..at + front]);
        second.copy_from_slice(&self.bytes[..second.len()]);
    }

    /// Frees everything before `position`, which must have been acknowledged.
    pub(crate) fn release(&mut self, position: u32) {
        debug_assert!(position.wrapping_sub(self.head) as usize <= self.held());
        self.head = position;
    }

    /// Frees the memory if nothing is held.
    pub(crate) fn shrink(&mut self) {
        if self.head == self.tail {
            self.bytes = Box::default();
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the length in bytes of the entry at `position`.
    fn entry(&self, position: u32) -> usize {
        let byte = |ahead: u32| self.bytes[self.index(position.wrapping_add(ahead))];
        ENTRY + usize::from(byte(0)) + usize::from(u16::from_le_bytes([byte(1), byte(2)]))
    }

    fn index(&self, position: u32) -> usize {
        position as usize & (self.bytes.len() - 1)
    }

    fn append(&mut self, piece: &[u8]) {
        let at = self.index(self.tail);
        let front = piece.len().min(self.bytes.len() - at);
        let (first, second) = piece.split_at(front);
        self.bytes[at..at + front].copy_from_slice(first);
        self.bytes[..second.len()].copy_from_slice(second);
        self.tail = self.tail.wrapping_add(piece.len() as u32);
    }

    #[cold]
    fn grow(&mut self, size: usize) {
        let mut bytes = vec![0; size].into_boxed_slice();
        for ahead in 0..self.held() as u32 {
            let position = self.head.wrapping_add(ahead);
            bytes[position as usize & (size - 1)] = self.bytes[self.index(position)];
        }
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::bundle::Bundle;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn bundles_bring_all_fragments_in_order(
            steps in proptest::collection::vec((0u8..3, 0usize..64, 0usize..700), 1..400),
            begin: u32,
        ) {
            let mut commands = Commands { head: begin, bundled: begin, tail: begin, ..Commands::default() };
            let (mut sent, mut under_way, mut count) = (VecDeque::new(), VecDeque::new(), 0u8);
            for (what, header, payload) in steps {
                match what {
                    0 if commands.fits(header + payload, 1 << 12) => {
                        count = count.wrapping_add(1);
                        let (header, payload) = (vec![count; header], vec![count ^ 0xff; payload]);
                        let (front, back) = payload.split_at(payload.len() / 3);
                        commands.push(&header, &[front, back], payload.len());
                        sent.push_back((header, payload));
                    }
                    1 => {
                        let (position, length) = commands.bundle(800 + payload);
                        let mut bytes = vec![0; length];
                        commands.copy(position, &mut bytes);
                        for entry in Bundle::new(&bytes) {
                            let (header, payload) = entry.unwrap();
                            let expected = sent.pop_front().unwrap();
                            prop_assert_eq!((header, payload), (&expected.0[..], &expected.1[..]));
                        }
                        under_way.push_back((position, bytes));
                    }
                    _ => if let Some((position, bytes)) = under_way.pop_front() {
                        let mut again = vec![0; bytes.len()];
                        commands.copy(position, &mut again);
                        prop_assert_eq!(&again, &bytes);
                        commands.release(position.wrapping_add(bytes.len() as u32));
                        commands.shrink();
                    }
                }
                prop_assert!(commands.memory() <= 1 << 12);
            }
        }
    }
}
