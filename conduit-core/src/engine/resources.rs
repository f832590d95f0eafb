//! What operations hold while they are under way: send tickets, temporary-descriptor tickets, chunks.
//!
//! All are counted and limited (seed, "Recognized environment variables"); when they are used up, the caller polls.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A counted resource without identity: send tickets (`MSG_LIMIT`) and TMPMD tickets (`NUM_TMPMD`).
#[derive(Debug)]
pub(crate) struct Tickets {
    free: AtomicU32,
}

impl Tickets {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            free: AtomicU32::new(count),
        }
    }

    /// Takes `count` tickets or none.
    pub(crate) fn take(&self, count: u32) -> bool {
        self.free
            .fetch_update(Relaxed, Relaxed, |free| free.checked_sub(count))
            .is_ok()
    }

    pub(crate) fn give(&self, count: u32) {
        self.free.fetch_add(count, Relaxed);
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.load(Relaxed)
    }
}

/// The free chunks of a send buffer, last freed first used, so that a chunk is likely to be in the cache.
///
/// A chunk is known by its number; where it lies is the engine's business.
#[derive(Debug)]
pub(crate) struct ChunkPool {
    free: Vec<u32>,
    /// Where a get that bounces through the chunk is to be copied.
    bounce: Vec<Bounce>,
    held: Vec<bool>,
}

/// The destination of a bounced get.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounce {
    pub(crate) destination: *mut u8,
    pub(crate) length: usize,
}

impl Bounce {
    /// Nothing to copy.
    const NONE: Self = Self {
        destination: std::ptr::null_mut(),
        length: 0,
    };
}

// SAFETY: the pointer is only a note; who stores it has promised (`get` is unsafe) that it stays valid until the get has
// completed, whichever thread completes it.
unsafe impl Send for Bounce {}

impl ChunkPool {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            free: (0..count).rev().collect(),
            bounce: vec![Bounce::NONE; count as usize],
            held: vec![false; count as usize],
        }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let chunk = self.free.pop()?;
        self.held[chunk as usize] = true;
        Some(chunk)
    }

    /// Gives a chunk back. `false`: it was not held (a peer's message named a wrong one).
    #[must_use]
    pub(crate) fn give(&mut self, chunk: u32) -> bool {
        match self.held.get_mut(chunk as usize) {
            Some(held) if *held => {
                *held = false;
                self.free.push(chunk);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn set_bounce(&mut self, chunk: u32, bounce: Bounce) {
        self.bounce[chunk as usize] = bounce;
    }

    /// Ends the get that bounces through a chunk: where its data is to be copied. [`Bounce::NONE`] if there is no such get:
    /// the number has been at the peer, and must not lead to memory that is the caller's again.
    pub(crate) fn bounce(&mut self, chunk: u32) -> Bounce {
        let noted = self.bounce.get_mut(chunk as usize);
        noted.map_or(Bounce::NONE, |noted| std::mem::replace(noted, Bounce::NONE))
    }

    /// No get that bounces through a chunk is copied any more.
    pub(crate) fn forget_bounces(&mut self) {
        self.bounce.fill(Bounce::NONE);
    }

    /// Chunks that are not free.
    pub(crate) fn held(&self) -> u32 {
        (self.held.len() - self.free.len()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_taken_all_or_none() {
        let tickets = Tickets::new(3);
        assert!(tickets.take(2));
        assert!(!tickets.take(2));
        assert!(tickets.take(1));
        tickets.give(3);
        assert_eq!(tickets.free(), 3);
    }

    #[test]
    fn a_chunk_is_given_back_once() {
        let mut pool = ChunkPool::new(2);
        let first = pool.take().unwrap();
        let second = pool.take().unwrap();
        assert_ne!(first, second);
        assert_eq!(pool.take(), None);
        assert!(pool.give(first));
        assert!(!pool.give(first));
        assert!(!pool.give(77));
        assert_eq!(pool.take(), Some(first));
        assert_eq!(pool.held(), 2);
    }

    #[test]
    fn a_bounced_get_is_copied_once() {
        let mut pool = ChunkPool::new(2);
        let chunk = pool.take().unwrap();
        let mut byte = 0_u8;
        pool.set_bounce(
            chunk,
            Bounce {
                destination: &raw mut byte,
                length: 1,
            },
        );
        assert_eq!(pool.bounce(chunk).length, 1);
        assert_eq!(pool.bounce(chunk).length, 0);
        assert_eq!(pool.bounce(77).length, 0);
        pool.set_bounce(
            chunk,
            Bounce {
                destination: &raw mut byte,
                length: 1,
            },
        );
        pool.forget_bounces();
        assert_eq!(pool.bounce(chunk).length, 0);
    }
}
