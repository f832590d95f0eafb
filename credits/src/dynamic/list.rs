//! The list of the peers that can be asked for credits, which are those with more than the minimum.
//!
//! The list is a ring through the peers' own state. It is walked in a circle, so that all peers are
//! asked equally often. A peer that has fallen to the minimum is removed only when the walk next
//! reaches it, at the cost of one step. Removing it at once would need backward links.

use super::peer::{Flags, Peer};
use crate::Store;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct List {
    /// The number of places in the store, on the list or not.
    len: u32,
    /// The number of places on the list.
    listed: u32,
    /// The place that the walk visited last.
    last: u32,
}

impl List {
    /// Creates a list of all places in ascending order, or an empty one.
    pub(super) fn new(len: u32, all: bool) -> List {
        List {
            len,
            listed: if all { len } else { 0 },
            last: len.saturating_sub(1),
        }
    }

    pub(super) fn listed(&self) -> u32 {
        self.listed
    }

    fn after<S: Store<Value = Peer>>(&self, peers: &S, place: u32) -> u32 {
        // The sum is computed in 64 bits, because both terms may be almost 2^32.
        let next = u64::from(place) + 1 + u64::from(peers.get(place).skip);
        (next % u64::from(self.len)) as u32
    }

    fn link<S: Store<Value = Peer>>(&self, peers: &mut S, place: u32, next: u32) {
        let skip = u64::from(next) + u64::from(self.len) - u64::from(place) - 1;
        peers.get_mut(place).skip = (skip % u64::from(self.len)) as u32;
    }

    /// Returns the next place of the walk without moving there.
    pub(super) fn peek<S: Store<Value = Peer>>(&self, peers: &S) -> Option<u32> {
        (self.listed > 0).then(|| self.after(peers, self.last))
    }

    /// Moves the walk on to the next place.
    pub(super) fn advance<S: Store<Value = Peer>>(&mut self, peers: &S) {
        self.last = self.after(peers, self.last);
    }

    /// Puts a place on the list at the position that the walk reaches last. Does nothing if the
    /// place is on the list already.
    pub(super) fn insert<S: Store<Value = Peer>>(&mut self, peers: &mut S, place: u32) {
        let flags = &mut peers.get_mut(place).flags;
        if flags.contains(Flags::LISTED) {
            return;
        }
        flags.insert(Flags::LISTED);
        if self.listed == 0 {
            self.link(peers, place, place);
        } else {
            let next = self.after(peers, self.last);
            self.link(peers, place, next);
            self.link(peers, self.last, place);
        }
        self.last = place;
        self.listed += 1;
    }

    /// Removes the next place of the walk.
    pub(super) fn remove_next<S: Store<Value = Peer>>(&mut self, peers: &mut S) {
        let Some(place) = self.peek(peers) else {
            return;
        };
        let next = self.after(peers, place);
        self.link(peers, self.last, next);
        peers.get_mut(place).flags.remove(Flags::LISTED);
        self.listed -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::Dense;

    proptest! {
        /// Compares the list with a queue whose front is the next place of the walk.
        #[test]
        fn the_ring_is_a_queue(len in 1u32..20, all in any::<bool>(), steps in prop::collection::vec((0u8..3, 0u32..20), 0..200)) {
            let mut peers = Dense::new(len, Peer::new(4, all));
            let mut list = List::new(len, all);
            let mut queue: VecDeque<u32> = if all { (0..len).collect() } else { VecDeque::new() };
            for (step, place) in steps {
                match step {
                    0 => {
                        let place = place % len;
                        list.insert(&mut peers, place);
                        if !queue.contains(&place) {
                            queue.push_back(place);
                        }
                    }
                    1 => {
                        list.remove_next(&mut peers);
                        queue.pop_front();
                    }
                    _ if queue.is_empty() => {}
                    _ => {
                        list.advance(&peers);
                        queue.rotate_left(1);
                    }
                }
                prop_assert_eq!(list.peek(&peers), queue.front().copied());
                prop_assert_eq!(list.listed() as usize, queue.len());
                for place in 0..len {
                    prop_assert_eq!(peers.get(place).flags.contains(Flags::LISTED), queue.contains(&place));
                }
            }
        }
    }
}
