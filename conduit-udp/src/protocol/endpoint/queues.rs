//! The queues of the links that have something to send. There is one queue for each kind of packet.

use std::collections::VecDeque;

use crate::protocol::link::UdpLink;

/// The reasons to queue a link, in order of priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Queue {
    /// Probes and replies to them.
    Control,
    /// Tiny fragments.
    Commands,
    /// Retransmissions, and the data channel.
    Data,
    /// Acknowledgements in separate packets.
    Acks,
    /// Fragments for which the fragment handler had no room, so that the handler has to be asked
    /// again.
    Refused,
    /// Peers without credits, which are to be notified once there are credits.
    Starved,
}

/// A FIFO queue for each [`Queue`]. A link is in each queue at most once.
#[derive(Debug, Default)]
pub(super) struct Queues([VecDeque<u32>; 6]);

impl Queues {
    /// Enters a link, unless it is already in this queue.
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
        // A link that is gone leaves its index in the queue. A new link may have that index, but is
        // not queued unless its own bit says so.
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

    /// Renumbers the links. `moved` holds each link's new index at its old index.
    pub(super) fn renumber(&mut self, moved: &[u32]) {
        for queue in &mut self.0 {
            let new = queue.iter().filter_map(|&old| {
                let to = *moved.get(old as usize)?;
                (to != u32::MAX).then_some(to)
            });
            *queue = new.collect();
        }
    }

    /// Returns whether all queues are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }

    /// Returns the length of a queue.
    pub(super) fn length(&self, kind: Queue) -> usize {
        self.0[kind as usize].len()
    }

    /// Returns the memory used, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0
            .iter()
            .map(|queue| queue.capacity() * size_of::<u32>())
            .sum()
    }
}
