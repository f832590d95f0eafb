//! Queues of the links that have something to send, one for each kind of packet.

use std::collections::VecDeque;

use crate::protocol::link::UdpLink;

/// What a link is queued for, in order of priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Queue {
    /// Probes and replies to them.
    Control,
    /// Tiny fragments.
    Commands,
    /// Retransmissions, and the data channel.
    Data,
    /// Acknowledgements in packets of their own.
    Acks,
    /// The fragment handler had no room, and is to be asked again.
    Refused,
    /// The peer was given no credits, and is to be notified when there are some.
    Starved,
}

/// A FIFO queue for each kind. A link is at most once in each.
#[derive(Debug, Default)]
pub(super) struct Queues([VecDeque<u32>; 6]);

impl Queues {
    /// Enters a link, if it is not in this queue.
    pub(super) fn enter(&mut self, kind: Queue, index: u32, link: &mut UdpLink) {
        let bit = 1 << kind as u8;
        if link.queued & bit == 0 {
            link.queued |= bit;
            self.0[kind as usize].push_back(index);
        }
    }

    /// Removes and returns the first link of a queue.
    pub(super) fn next<'l>(
        &mut self,
        kind: Queue,
        links: &'l mut [Option<Box<UdpLink>>],
    ) -> Option<(u32, &'l mut UdpLink)> {
        let bit = 1 << kind as u8;
        let queue = &mut self.0[kind as usize];
        // A link that is gone leaves its index in the queue, which may now be that of a link that
        // is not queued.
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

    /// Links have new indices: `moved` has the new one by the old one.
    pub(super) fn renumber(&mut self, moved: &[u32]) {
        for queue in &mut self.0 {
            let new = queue.iter().filter_map(|&old| {
                let to = *moved.get(old as usize)?;
                (to != u32::MAX).then_some(to)
            });
            *queue = new.collect();
        }
    }

    /// Whether all queues are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }

    /// Length of a queue.
    pub(super) fn length(&self, kind: Queue) -> usize {
        self.0[kind as usize].len()
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.0
            .iter()
            .map(|queue| queue.capacity() * size_of::<u32>())
            .sum()
    }
}
