//! The state that the portals keep for each peer they have exchanged fragments with.

use std::collections::VecDeque;

use conduit_core::ni::Rank;

use crate::compact;
use crate::transport::fragment::Failure;

use super::control::Control;
use super::window::{IdleWindows, ReceiveWindows, SendWindows, WindowSize};
use super::wire::{Left, WindowUpdate};

/// A peer's flow control and control queue.
#[derive(Debug)]
pub(crate) struct TransportLink {
    pub(crate) peer: Rank,
    pub(crate) send: SendWindows,
    pub(crate) receive: ReceiveWindows,
    /// The window size of this rank at the peer. `receive_size` is that of the peer at this rank.
    /// Both are the job's size, except for [lanes](super::wide).
    pub(crate) send_size: WindowSize,
    pub(crate) receive_size: WindowSize,
    /// The control queue. It is bounded by two windows and a few messages for each index, because
    /// no more operations are reported as consumed while the queue holds a full window of messages.
    pub(crate) control: VecDeque<Control>,
    /// Whether the link is in the list of links to be flushed.
    pub(crate) scheduled: bool,
    /// Set once the peer has announced that it leaves.
    pub(crate) left: Option<Left>,
    pub(crate) failure: Option<Failure>,
}

// `docs/udp.md` states this size.
const _: () = assert!(size_of::<TransportLink>() <= 152);

impl TransportLink {
    fn new(peer: Rank, window: WindowSize) -> Self {
        Self {
            peer,
            send_size: window,
            receive_size: window,
            send: SendWindows::default(),
            receive: ReceiveWindows::default(),
            control: VecDeque::new(),
            scheduled: false,
            left: None,
            failure: None,
        }
    }

    /// Returns whether the peer has neither left nor failed.
    pub(crate) fn is_up(&self) -> bool {
        self.left.is_none() && self.failure.is_none()
    }

    /// Returns the window update for the next tiny fragment; call [`ReceiveWindows::update_sent`]
    /// once the fragment is sent.
    #[inline(always)]
    pub(crate) fn window_update(&self, size: WindowSize) -> WindowUpdate {
        match self.control.len() < usize::from(size.operations) {
            true => self.receive.update(),
            false => self.receive.last_update(),
        }
    }

    /// Returns whether the window update reports anything new.
    #[inline(always)]
    pub(crate) fn has_window_update(&self, size: WindowSize) -> bool {
        self.receive.has_update() && self.control.len() < usize::from(size.operations)
    }
}

/// The state that is kept of an idle [`TransportLink`]. When the link becomes active again, the
/// counters of its windows continue from this state.
#[derive(Debug, Clone, Copy)]
struct IdleLink {
    /// The peer's rank, in two halves to avoid an alignment of four bytes.
    peer: [u16; 2],
    send: SendWindows,
    receive: IdleWindows,
    /// The window of the last update.
    last: u8,
    left: Option<Left>,
}

// `docs/udp.md` states this size.
const _: () = assert!(size_of::<IdleLink>() == 70);

impl IdleLink {
    fn of(link: &TransportLink, window: WindowSize) -> Option<Self> {
        let is_lane = link.send_size != window || link.receive_size != window;
        if !link.control.is_empty() || link.scheduled || link.failure.is_some() || is_lane {
            return None;
        }
        Some(Self {
            peer: [link.peer as u16, (link.peer >> 16) as u16],
            send: link.send,
            receive: link.receive.idle()?,
            last: link.receive.last_updated(),
            left: link.left,
        })
    }

    fn peer(&self) -> Rank {
        let [low, high] = self.peer;
        Rank::from(high) << 16 | Rank::from(low)
    }

    fn resume(&self, window: WindowSize) -> TransportLink {
        TransportLink {
            send: self.send,
            receive: ReceiveWindows::resume(&self.receive, self.last, window),
            left: self.left,
            ..TransportLink::new(self.peer(), window)
        }
    }
}

/// All peers. A peer that was never used takes four bytes of memory, and an idle peer takes 74.
#[derive(Debug)]
pub(crate) struct Links {
    /// For each rank, an index into `links`, an index into `idle` with [`IDLE`] added, or
    /// [`UNUSED`].
    slots: Box<[u32]>,
    links: Vec<TransportLink>,
    idle: Vec<IdleLink>,
    /// The common size of the windows.
    window: WindowSize,
}

const UNUSED: u32 = u32::MAX;
const IDLE: u32 = 1 << 31;
/// The minimum number of links for which memory is freed.
const MIN_SHRINK: usize = 16;

impl Links {
    pub(crate) fn new(size: u32, window: WindowSize) -> Self {
        Self {
            slots: vec![UNUSED; size as usize].into(),
            links: Vec::new(),
            idle: Vec::new(),
            window,
        }
    }

    /// Returns the link of a rank of the job, making it active if it was not.
    #[inline]
    pub(crate) fn get(&mut self, peer: Rank) -> Option<&mut TransportLink> {
        let slot = *self.slots.get(peer as usize)?;
        if slot >= IDLE {
            return self.activate(peer, slot);
        }
        self.links.get_mut(slot as usize)
    }

    #[cold]
    fn activate(&mut self, peer: Rank, slot: u32) -> Option<&mut TransportLink> {
        let link = if slot == UNUSED {
            TransportLink::new(peer, self.window)
        } else {
            let slot = slot ^ IDLE;
            let idle = self.idle.get(slot as usize)?.resume(self.window);
            self.idle.swap_remove(slot as usize);
            if let Some(moved) = self.idle.get(slot as usize) {
                self.slots[moved.peer() as usize] = IDLE | slot;
            }
            if self.idle.len() < self.idle.capacity() / 2 {
                self.idle.shrink_to(self.idle.len());
            }
            idle
        };
        *self.slots.get_mut(peer as usize)? = self.links.len() as u32;
        self.links.push(link);
        self.links.last_mut()
    }

    /// Reduces the link of a peer without traffic to an [`IdleLink`], if nothing is pending on it.
    pub(crate) fn make_idle(&mut self, peer: Rank) {
        let Some(&slot) = self.slots.get(peer as usize) else {
            return;
        };
        let link = self.links.get(slot as usize);
        let Some(idle) = link.and_then(|link| IdleLink::of(link, self.window)) else {
            return;
        };
        self.links.swap_remove(slot as usize);
        if let Some(moved) = self.links.get(slot as usize) {
            self.slots[moved.peer as usize] = slot;
        }
        if self.links.len() >= MIN_SHRINK && self.links.len() < self.links.capacity() / 4 {
            self.links.shrink_to(2 * self.links.len());
        }
        self.slots[peer as usize] = IDLE | self.idle.len() as u32;
        compact::push(&mut self.idle, idle);
    }

    /// Returns the links that are not idle.
    pub(crate) fn active(&mut self) -> impl Iterator<Item = &mut TransportLink> {
        self.links.iter_mut()
    }

    /// Returns all links that were ever used, after making them active.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut TransportLink> {
        for idle in std::mem::take(&mut self.idle) {
            self.slots[idle.peer() as usize] = self.links.len() as u32;
            self.links.push(idle.resume(self.window));
        }
        self.links.iter_mut()
    }

    /// Returns the memory used in bytes, without that of the control queues.
    #[cfg(test)]
    fn memory(&self) -> usize {
        size_of_val(&*self.slots)
            + self.links.capacity() * size_of::<TransportLink>()
            + self.idle.capacity() * size_of::<IdleLink>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Cost;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SIZE: WindowSize = WindowSize {
        operations: 40,
        units: 1000,
    };

    proptest! {
        /// No matter which links become idle and when, the windows continue as if no link had
        /// become idle.
        #[test]
        fn idle_links_go_on_as_if_they_had_not_been(steps in prop::collection::vec((0u8..8, 0u32..20, 0u8..4), 1..400)) {
            let (mut links, mut reference) = (Links::new(20, SIZE), BTreeMap::<Rank, (SendWindows, ReceiveWindows, bool)>::new());
            for (what, peer, index) in steps {
                let cost = Cost::of_put(index, 100, 1000);
                if what == 0 {
                    links.make_idle(peer);
                    continue;
                }
                let other = reference.entry(peer).or_default();
                let link = links.get(peer).expect("a rank of the job");
                prop_assert_eq!(link.peer, peer);
                match what {
                    1 => prop_assert_eq!(link.send.reserve(cost, SIZE), other.0.reserve(cost, SIZE)),
                    2 | 3 => {
                        link.receive.arrive(cost, SIZE);
                        other.1.arrive(cost, SIZE);
                        // Most operations are consumed at once.
                        if what == 2 || peer > 10 {
                            link.receive.consume(cost, SIZE);
                            other.1.consume(cost, SIZE);
                        }
                    }
                    4 => {
                        let update = link.receive.update();
                        prop_assert_eq!(update, other.1.update());
                        link.receive.update_sent(update);
                        other.1.update_sent(update);
                    }
                    5 if index == 0 => {
                        link.left = Some(Left::Finished);
                        other.2 = true;
                    }
                    6 => prop_assert_eq!(links.all().count(), reference.len()),
                    _ => {}
                }
            }
            for (peer, (sent, arrived, left)) in reference {
                let link = links.get(peer).expect("a rank of the job");
                prop_assert_eq!((link.send, link.receive, link.left.is_some()), (sent, arrived, left));
            }
        }
    }

    #[test]
    fn links_with_something_pending_do_not_become_idle() {
        let mut links = Links::new(3, SIZE);
        for peer in 0..3 {
            links.get(peer).expect("a rank of the job");
        }
        links
            .get(0)
            .expect("a rank")
            .control
            .push_back(Control::Leave(Left::Finished));
        links.get(1).expect("a rank").scheduled = true;
        assert!(
            links
                .get(2)
                .expect("a rank")
                .receive
                .arrive(Cost::of_header(1), SIZE)
        );
        for peer in 0..3 {
            links.make_idle(peer);
        }
        assert_eq!((links.links.len(), links.idle.len()), (3, 0));
    }

    /// Checks the memory of an idle link that `docs/udp.md` states, which is less than 75 bytes for
    /// the link and four for its slot.
    #[test]
    fn idle_links_cost_little() {
        for size in [10, 10_000, 1_000_000] {
            let mut links = Links::new(size, SIZE);
            for peer in 0..size {
                links.get(peer).expect("a rank of the job");
                links.make_idle(peer);
            }
            let each = links.memory() as f64 / f64::from(size);
            assert!(
                each < 4.0 + 75.0 + 152.0 * 4.0 / f64::from(size),
                "{each} of {size}"
            );
        }
    }
}
