//! Handles requests in a pseudo-random order determined by a seed (`CONDUIT_SHUFFLE`), to test
//! programs that must not rely on any order.
//!
//! Each arriving request is copied and held back for a random number of polls. Requests that are
//! due in the same poll are handled in random order. This module is a state machine without a
//! network. The seed, the arrivals and the polls determine which requests are held back and when
//! they are handled.

use crate::ni::PutEvent;

/// The maximum number of requests held back. Further requests remain in the network. With the
/// largest chunks, the requests held back take 17 MiB.
pub(crate) const MOST_HELD: usize = 256;
/// A request is held back for fewer than `1 << LONGEST` polls. The number is usually small, so that
/// an awaited request is handled soon, and occasionally large, so that a request sent much later
/// overtakes it.
const LONGEST: u32 = 8;

/// The unit of the buffers in which requests are held. It is 16 bytes because payloads must be
/// aligned to 16 bytes.
type Unit = u128;
const _: () = assert!(align_of::<Unit>() == 16);

/// The held-back requests of a rank.
#[derive(Debug)]
pub(crate) struct Shuffle {
    /// The state of SplitMix64.
    random: u64,
    held: Vec<Held>,
}

/// A held-back request, or one of the two halves of a long request.
#[derive(Debug)]
pub(crate) struct Held {
    put: PutEvent<'static>,
    data: Box<[Unit]>,
    /// The number of polls for which it is still held back.
    polls: u32,
}

impl Held {
    /// Returns the event as it arrived.
    pub(crate) fn put(&self) -> PutEvent<'_> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.data);
        PutEvent {
            data: &bytes[..self.put.length.min(bytes.len())],
            ..self.put
        }
    }
}

impl Shuffle {
    pub(crate) fn new(seed: u32, rank: u32) -> Self {
        Self {
            random: u64::from(rank) << 32 | u64::from(seed),
            held: Vec::with_capacity(MOST_HELD),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns whether another request can be held back.
    pub(crate) fn has_room(&self) -> bool {
        self.held.len() < MOST_HELD
    }

    /// Holds back a request.
    pub(crate) fn add(&mut self, put: &PutEvent<'_>) {
        let mut data = vec![0; put.data.len().div_ceil(size_of::<Unit>())];
        bytemuck::cast_slice_mut(&mut data)[..put.data.len()].copy_from_slice(put.data);
        let most = 1 << self.draw(LONGEST + 1);
        let polls = self.draw(most);
        self.held.push(Held {
            put: put.without_data(),
            data: data.into(),
            polls,
        });
    }

    /// Counts a poll.
    pub(crate) fn count_poll(&mut self) {
        for held in &mut self.held {
            held.polls = held.polls.saturating_sub(1);
        }
    }

    /// Takes one of the requests that are due, chosen at random.
    pub(crate) fn take(&mut self) -> Option<Held> {
        let is_due = |held: &&Held| held.polls == 0;
        let due = self.held.iter().filter(is_due).count() as u32;
        if due == 0 {
            return None;
        }
        let drawn = self.draw(due) as usize;
        let mut places = (0..self.held.len()).filter(|&place| self.held[place].polls == 0);
        let place = places.nth(drawn)?;
        Some(self.held.swap_remove(place))
    }

    /// Draws a number below `end`, by SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
    /// number generators, 2014).
    fn draw(&mut self, end: u32) -> u32 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((mixed >> 32) * u64::from(end)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ni::PtIndex;

    fn put(number: u64, data: &[u8]) -> PutEvent<'_> {
        PutEvent {
            index: PtIndex(0),
            tag: 0,
            source: 1,
            match_bits: number,
            hdr_data: 0,
            offset: 0,
            length: data.len(),
            requested: data.len(),
            data,
        }
    }

    /// Returns the order in which `count` simultaneous requests are handled.
    fn order(seed: u32, count: u64) -> Vec<u64> {
        let mut shuffle = Shuffle::new(seed, 0);
        for number in 0..count {
            shuffle.add(&put(number, &[]));
        }
        let mut order = Vec::new();
        for _ in 0..1 << LONGEST {
            shuffle.count_poll();
            while let Some(held) = shuffle.take() {
                order.push(held.put().match_bits);
            }
        }
        assert!(
            shuffle.is_empty(),
            "every request is handled within the maximum number of polls"
        );
        order
    }

    #[test]
    fn the_order_is_the_seeds_and_not_that_of_arrival() {
        let arrival: Vec<_> = (0..20).collect();
        let orders = [1, 2, 3].map(|seed| order(seed, 20));
        for (seed, order_of) in (1..).zip(&orders) {
            assert_ne!(order_of, &arrival);
            assert_eq!(order_of, &order(seed, 20));
            let mut sorted = order_of.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, arrival, "every request is handled once");
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    }

    #[test]
    fn two_requests_go_in_either_order() {
        let first: Vec<_> = (0..100).map(|seed| order(seed, 2)[0]).collect();
        assert!((20..80).contains(&first.iter().sum::<u64>()), "{first:?}");
    }

    #[test]
    fn what_is_held_goes_as_it_came_and_aligned() {
        let bytes: Vec<u8> = (0..100).collect();
        for length in [0, 1, 15, 16, 17, 100] {
            let mut shuffle = Shuffle::new(5, 0);
            shuffle.add(&put(7, &bytes[..length]));
            let held = std::iter::repeat_with(|| {
                shuffle.count_poll();
                shuffle.take()
            });
            let held = held.take(1 << LONGEST).flatten().next().expect("in time");
            let put = held.put();
            assert_eq!(
                (put.data, put.match_bits, put.source),
                (&bytes[..length], 7, 1)
            );
            assert!(put.data.as_ptr().addr().is_multiple_of(16));
        }
    }

    #[test]
    fn no_more_are_held_than_there_is_room_for() {
        let mut shuffle = Shuffle::new(0, 0);
        let mut held = 0;
        while shuffle.has_room() {
            shuffle.add(&put(held, &[]));
            held += 1;
        }
        assert_eq!(held, MOST_HELD as u64);
    }
}
