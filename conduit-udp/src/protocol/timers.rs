//! The timers of a rank, which are kept in a heap with one entry for each link.
//!
//! An entry may be early, but never late. Each acknowledgement postpones a link's deadline without
//! moving the link's entry. The deadline is computed anew when the entry expires.

use super::contract::Nanos;

/// The place of a link without an entry.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: Nanos,
    link: u32,
}

/// A binary heap with an index of each link's entry.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Vec<Entry>,
    /// For each link, the index of its entry in the heap.
    place: Vec<u32>,
}

impl Timers {
    /// Returns the time of the first entry.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Makes the link due at `at`, unless it is already due earlier.
    pub(super) fn schedule(&mut self, link: u32, at: Nanos) {
        let index = link as usize;
        if index >= self.place.len() {
            self.place.resize(index + 1, NONE);
        }
        let place = self.place[index];
        if place == NONE {
            self.heap.push(Entry { at, link });
            self.up(self.heap.len() - 1);
        } else if at < self.heap[place as usize].at {
            self.heap[place as usize].at = at;
            self.up(place as usize);
        }
    }

    /// Removes and returns one of the links that are due, if there is one.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<u32> {
        let first = *self.heap.first()?;
        if first.at > now {
            return None;
        }
        self.remove(first.link);
        Some(first.link)
    }

    /// Removes the link's entry.
    pub(super) fn remove(&mut self, link: u32) {
        let Some(&place) = self.place.get(link as usize) else {
            return;
        };
        if place == NONE {
            return;
        }
        self.place[link as usize] = NONE;
        let place = place as usize;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.place[self.heap[place].link as usize] = place as u32;
            self.up(place);
            self.down(place);
        }
    }

    /// Renumbers the links, whose order is unchanged. `moved` holds each link's new index at its
    /// old index.
    pub(super) fn renumber(&mut self, moved: &[u32]) {
        let links = moved.iter().filter(|&&to| to != NONE).count();
        self.place = vec![NONE; links];
        self.heap.shrink_to(2 * links);
        for (place, entry) in (0..).zip(&mut self.heap) {
            entry.link = moved[entry.link as usize];
            self.place[entry.link as usize] = place;
        }
    }

    /// Returns the memory used, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<Entry>() + self.place.capacity() * size_of::<u32>()
    }

    fn up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].at <= entry.at {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].at < self.heap[child].at {
                child += 1;
            }
            if self.heap[child].at >= entry.at {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.place[entry.link as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn links_come_when_they_are_due(steps in proptest::collection::vec((0u8..4, 0u32..20, prop_oneof![1 => Just(0u64), 9 => 0u64..100]), 1..300)) {
            let (mut timers, mut reference) = (Timers::default(), BTreeMap::<u32, u64>::new());
            for (what, link, at) in steps {
                match what {
                    0 | 1 => {
                        timers.schedule(link, at);
                        let entry = reference.entry(link).or_insert(at);
                        *entry = at.min(*entry);
                    }
                    2 if at == 0 => {
                        // All waiting links get new numbers without gaps. The reference
                        // distinguishes the links by their order.
                        let numbers: Vec<u32> = reference.keys().copied().collect();
                        let mut moved = vec![NONE; 20];
                        for (to, &from) in (0..).zip(&numbers) {
                            moved[from as usize] = to;
                        }
                        timers.renumber(&moved);
                        reference = (0..).zip(reference.into_values()).collect();
                    }
                    2 => {
                        timers.remove(link);
                        reference.remove(&link);
                    }
                    _ => {
                        while let Some(link) = timers.pop(at) {
                            let was = reference.remove(&link);
                            prop_assert!(was.is_some_and(|was| was <= at && reference.values().all(|&other| other >= was)));
                        }
                        prop_assert!(reference.values().all(|&other| other > at));
                    }
                }
                prop_assert_eq!(timers.first(), reference.values().min().copied());
            }
        }
    }
}
