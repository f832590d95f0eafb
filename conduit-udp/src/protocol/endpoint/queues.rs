//! Links that have something to send, each kind in the order in which they came.

use std::collections::VecDeque;

use crate::protocol::link::Link;

/// What a link waits for its turn to do, in the order in which turns are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Turn {
    /// Probes and answers to them.
    Control,
    /// Tiny fragments.
    Commands,
    /// What is lost, and the data channel.
    Data,
    /// Acknowledgements of their own.
    Acks,
    /// To ask the fragment handler for room again.
    Refused,
    /// To tell the peer that there is room again.
    Starved,
}

/// A queue for each kind of turn. A link is at most once in each.
#[derive(Debug, Default)]
pub(super) struct Queues([VecDeque<u32>; 6]);

impl Queues {
    /// The link wants a turn, if it does not wait for one already.
    pub(super) fn enter(&mut self, turn: Turn, index: u32, link: &mut Link) {
        let bit = 1 << turn as u8;
        if link.queued & bit == 0 {
            link.queued |= bit;
            self.0[turn as usize].push_back(index);
        }
    }

    /// The link whose turn it is. It has left the queue.
    pub(super) fn next<'l>(
        &mut self,
        turn: Turn,
        links: &'l mut [Option<Box<Link>>],
    ) -> Option<(u32, &'l mut Link)> {
        let bit = 1 << turn as u8;
        let queue = &mut self.0[turn as usize];
        // A link that is gone leaves its place in the queue behind, which may have come to another
        // that is not waiting.
        while let Some(index) = queue.pop_front() {
            if links[index as usize]
                .as_ref()
                .is_some_and(|link| link.queued & bit != 0)
            {
                let link = links[index as usize].as_deref_mut()?;
                link.queued &= !bit;
                return Some((index, link));
            }
        }
        None
    }

    /// Links have other places: `moved` says which, by their old ones.
    pub(super) fn renumber(&mut self, moved: &[u32]) {
        for queue in &mut self.0 {
            let new = queue.iter().filter_map(|&old| {
                let to = *moved.get(old as usize)?;
                (to != u32::MAX).then_some(to)
            });
            *queue = new.collect();
        }
    }

    /// Whether no link has anything to send or to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }

    /// Places in a queue.
    pub(super) fn length(&self, turn: Turn) -> usize {
        self.0[turn as usize].len()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.0
            .iter()
            .map(|queue| queue.capacity() * size_of::<u32>())
            .sum()
    }
}
