//! A bare single-producer single-consumer queue, whose rate is the limit for a one-way flood of
//! messages.
//!
//! The queue is a ring of slots, each of which consists of a sequence word and a message. The
//! producer writes the message and then, with release, the sequence number. The consumer spins on
//! the next slot's sequence word. A few times per lap, the consumer publishes in a separate word
//! how many messages it has read. The producer reads that word only when no slot is free. There is
//! no prefetching, no batching, and no flow control except the ring itself.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::Error;
use crate::area::LINE_SPACING;
use crate::piece::Piece;
use crate::side::Side;

/// The number of bytes of a cache line, which is also the size of the smallest slot.
pub const LINE: usize = 64;

/// The number of the message's words in the first line of a slot, which follow the sequence word.
const INLINE_WORDS: usize = LINE / 8 - 1;

/// The number of times per lap that the consumer publishes its position.
const TELLS_PER_LAP: u64 = 4;

/// The offset of the slots in the work area. The consumer's position lies before them.
const SLOTS_AT: usize = 2 * LINE_SPACING;

/// A flood of `count` messages from side 0 to side 1. An operation is one message.
#[derive(Debug)]
pub struct Queue {
    slots: u64,
    payload: Vec<u64>,
}

impl Queue {
    /// Creates a queue of at least `slots` slots (rounded up to a power of two). A message has 56
    /// bytes after the sequence word in one cache line and, if `payload` is not 0, that many
    /// further bytes (rounded up to 8), which the producer copies in and the consumer reads in
    /// place.
    #[must_use]
    pub fn new(slots: u64, payload: usize) -> Self {
        let words = payload.div_ceil(8) as u64;
        Self {
            slots: slots.next_power_of_two().max(TELLS_PER_LAP),
            payload: (0..words)
                .map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .collect(),
        }
    }

    /// Returns the distance in bytes from one slot to the next.
    fn stride(&self) -> usize {
        LINE + (self.payload.len() * 8).next_multiple_of(LINE)
    }

    fn ring<'s>(&self, side: &'s Side<'_>) -> Result<Ring<'s>, Error> {
        let stride = self.stride();
        let bytes = (self.slots as usize).saturating_mul(stride);
        let base = side.area().work(SLOTS_AT, bytes)?.as_ptr();
        Ok(Ring {
            base,
            stride,
            mask: self.slots - 1,
            read: side.area().word(0)?,
        })
    }

    fn produce(&self, side: &Side<'_>, ring: &Ring<'_>, count: u64) -> Result<(), Error> {
        let mut known_read = 0;
        for position in 0..count {
            if position - known_read == self.slots {
                side.spin_until("the queue's consumer", || {
                    known_read = ring.read.load(Acquire);
                    position - known_read < self.slots
                })?;
            }
            let slot = ring.slot(position);
            // SAFETY: `ring` checked that all slots are in the work area. The producer owns this
            // slot, because it is unused, or because the consumer has published with release that
            // it has read the slot's previous message. The consumer reads the slot again only after
            // the store below.
            unsafe {
                for word in 1..=INLINE_WORDS {
                    slot.add(word).write(position);
                }
                if !self.payload.is_empty() {
                    std::ptr::copy_nonoverlapping(
                        self.payload.as_ptr(),
                        slot.add(INLINE_WORDS + 1),
                        self.payload.len(),
                    );
                }
            }
            // SYNC POINT: pairs with the consumer's acquire load of the same word.
            ring.sequence(position).store(position + 1, Release);
        }
        side.spin_until("the queue's consumer", || ring.read.load(Acquire) == count)
    }

    fn consume(&self, side: &Side<'_>, ring: &Ring<'_>, count: u64) -> Result<(), Error> {
        let tell = self.slots / TELLS_PER_LAP;
        let mut sum = 0u64;
        for position in 0..count {
            let sequence = ring.sequence(position);
            // SYNC POINT: pairs with the producer's release store, so that the message is visible
            // once its number is.
            side.spin_until("the queue's producer", || {
                sequence.load(Acquire) == position + 1
            })?;
            let slot = ring.slot(position);
            // SAFETY: `ring` checked that all slots are in the work area. The producer writes this
            // slot again only after the consumer has published in `read` below that it has read the
            // slot.
            unsafe {
                for word in 1..=INLINE_WORDS {
                    sum = sum.wrapping_add(slot.add(word).read());
                }
                let payload =
                    std::slice::from_raw_parts(slot.add(INLINE_WORDS + 1), self.payload.len());
                sum = sum.wrapping_add(checksum(payload));
            }
            if (position + 1) & (tell - 1) == 0 {
                ring.read.store(position + 1, Release);
            }
        }
        let positions = (u128::from(count) * u128::from(count.saturating_sub(1)) / 2) as u64;
        let expected = positions
            .wrapping_mul(INLINE_WORDS as u64)
            .wrapping_add(checksum(&self.payload).wrapping_mul(count));
        if sum != expected {
            return Err(Error::Corrupt {
                what: "bare queue",
                got: sum,
                expected,
            });
        }
        ring.read.store(count, Release);
        Ok(())
    }
}

impl Piece for Queue {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let ring = self.ring(side)?;
        if side.rank() == 1 {
            ring.read.store(0, Relaxed);
            for slot in 0..self.slots {
                ring.sequence(slot).store(0, Relaxed);
            }
        }
        side.meet()?;
        let start = Instant::now();
        match side.rank() {
            0 => self.produce(side, &ring, count)?,
            1 => self.consume(side, &ring, count)?,
            _ => {}
        }
        Ok(start.elapsed())
    }
}

/// Returns the sum of a payload's words. The bare queue's consumer and the handler of a measured
/// flood both call this, so they read the same number of words.
#[must_use]
pub fn checksum(payload: &[u64]) -> u64 {
    payload.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

/// One side's view of the ring.
struct Ring<'s> {
    base: *mut u8,
    stride: usize,
    mask: u64,
    /// The number of messages that the consumer has read.
    read: &'s AtomicU64,
}

impl Ring<'_> {
    /// Returns the words of the slot for message `position`.
    #[inline(always)]
    fn slot(&self, position: u64) -> *mut u64 {
        let index = (position & self.mask) as usize;
        // SAFETY: `index` is less than the number of slots, and `Queue::ring` checked that all
        // slots are in the work area.
        unsafe { self.base.add(index * self.stride).cast() }
    }

    #[inline(always)]
    fn sequence(&self, position: u64) -> &AtomicU64 {
        // SAFETY: the first word of a slot is in the work area, is aligned because slots are
        // aligned to `LINE` bytes, and is only accessed atomically. The area outlives the ring.
        unsafe { AtomicU64::from_ptr(self.slot(position)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_threads;

    #[test]
    fn messages_arrive_whole_over_many_laps() {
        for payload in [0, 8, 100, 4096] {
            let results = in_threads(2, |side| {
                let mut queue = Queue::new(16, payload);
                // The queue runs twice, because the second run must not mistake the first run's
                // sequence numbers for its own.
                queue.run(side, 1000)?;
                side.meet()?;
                queue.run(side, 333)
            });
            for result in results {
                result.expect("no loss, no change");
            }
        }
    }

    #[test]
    fn a_queue_larger_than_the_area_is_refused() {
        let results = in_threads(2, |side| Queue::new(1 << 20, 4096).run(side, 1).map(drop));
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Err(Error::AreaTooSmall { .. })))
        );
    }
}
