//! The messages in transit to a rank, in the order of arrival.

/// A message on its way to a rank or waiting there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The time of arrival in nanoseconds.
    pub(crate) time: u64,
    pub(crate) source: u32,
    /// The number of credits returned, if this is a system message.
    pub(crate) value: u16,
    /// The credit byte or, for a system message, a combination of the flags [`Item::RETURN`] and
    /// [`Item::END`].
    pub(crate) byte: u8,
    /// The size of a request in credits.
    pub(crate) cost: u8,
}

const _: () = assert!(size_of::<Item>() == 16);

impl Item {
    /// The flag that says that a system message is a return rather than a revoke.
    pub(crate) const RETURN: u8 = 1;
    /// The flag that says that the sender of a system message has ended an epoch.
    pub(crate) const END: u8 = 2;

    fn key(&self) -> (u64, u32) {
        (self.time, self.source)
    }
}

/// The messages of one class to one rank, ordered by arrival and source. Messages from one source
/// that arrive at the same time keep their order of insertion. The order therefore does not depend
/// on when other parts of the simulation inserted their messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    items: Vec<Item>,
    /// The number of items at the start that have been taken out.
    head: u32,
    /// The number of items at the start that are sorted.
    sorted: u32,
    /// The number of items at the start that have arrived.
    arrived: u32,
    /// The size, in credits, of the items that have arrived and have not been taken out.
    waiting: u32,
}

impl Queue {
    #[inline]
    pub(crate) fn push(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Sorts in the items inserted since the last call. All of these items must arrive later than
    /// every time passed to `pop` or `waiting` so far.
    #[inline]
    pub(crate) fn sort(&mut self) {
        if (self.sorted as usize) < self.items.len() {
            self.sort_new();
        }
    }

    fn sort_new(&mut self) {
        if self.head > 32 && self.head as usize * 2 > self.items.len() {
            self.items.drain(..self.head as usize);
            self.sorted -= self.head;
            self.arrived -= self.head;
            self.head = 0;
        }
        let (head, sorted) = (self.head as usize, self.sorted as usize);
        let new = self.items[sorted..].iter().map(Item::key);
        let first = new.min().expect("there is something new");
        // Counts the sorted items that must come after a new one. There are usually few, because
        // only items that arrive at about the same time as the new ones are concerned.
        let behind = self.items[head..sorted]
            .iter()
            .rev()
            .take_while(|item| item.key() > first)
            .count();
        // The order of insertion is kept, because this sort is stable. It is fast if the items
        // consist of sorted runs.
        self.items[sorted - behind..].sort_by_key(Item::key);
        // The cast is lossless, because far fewer than 2^32 messages are ever in transit to one
        // rank.
        self.sorted = self.items.len() as u32;
    }

    /// Returns up to three items from the front of the queue.
    #[inline]
    pub(crate) fn ahead(&self) -> &[Item] {
        let items = &self.items[self.head as usize..];
        &items[..items.len().min(3)]
    }

    /// Returns the arrival time of the first item. [`sort`](Queue::sort) must have been called.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        debug_assert_eq!(self.sorted as usize, self.items.len());
        self.items
            .get(self.head as usize)
            .map_or(u64::MAX, |item| item.time)
    }

    /// Takes out the first item if it has arrived by `now`. [`sort`](Queue::sort) must have been
    /// called.
    #[inline]
    pub(crate) fn pop(&mut self, now: u64) -> Option<Item> {
        let item = *self.items.get(self.head as usize)?;
        if item.time > now {
            return None;
        }
        self.head += 1;
        if self.arrived >= self.head {
            self.waiting -= u32::from(item.cost);
        } else {
            self.arrived = self.head;
        }
        if self.head as usize == self.items.len() {
            self.items.clear();
            (self.head, self.sorted, self.arrived) = (0, 0, 0);
        }
        Some(item)
    }

    /// Returns the size, in credits, of the items that have arrived by `now` and have not been
    /// taken out. [`sort`](Queue::sort) must have been called.
    #[inline]
    pub(crate) fn waiting(&mut self, now: u64) -> u32 {
        while let Some(item) = self.items.get(self.arrived as usize)
            && item.time <= now
        {
            self.waiting += u32::from(item.cost);
            self.arrived += 1;
        }
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_out_as_from_a_sorted_list(
            windows in prop::collection::vec((prop::collection::vec((0u64..30, 0u32..4), 0..12), 0u64..10), 1..60)
        ) {
            let (mut queue, mut list) = (Queue::default(), Vec::<Item>::new());
            let (mut number, mut now) = (0u16, 0);
            for (new, advance) in windows {
                for (delay, source) in new {
                    let item = Item { time: now + 1 + delay, source, value: number, byte: 0, cost: 1 + (number % 8) as u8 };
                    number += 1;
                    queue.push(item);
                    list.push(item);
                }
                queue.sort();
                now += advance;
                list.sort_by_key(|item| (item.time, item.source, item.value));
                let due = list.iter().take_while(|item| item.time <= now).count();
                let waiting: u32 = list[..due].iter().map(|item| u32::from(item.cost)).sum();
                prop_assert_eq!(queue.first(), list.first().map_or(u64::MAX, |item| item.time));
                prop_assert_eq!(queue.waiting(now), waiting);
                // Only some of the items that are due are taken, because a rank need not take all.
                for item in list.drain(..due - due / 3) {
                    prop_assert_eq!(queue.pop(now), Some(item));
                }
                prop_assert_eq!(queue.items.len() - queue.head as usize, list.len());
            }
        }
    }
}
