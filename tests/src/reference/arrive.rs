//! The arrival of a message at its target, and the events that result.

use std::ptr;

use conduit_core::ni::{
    Ack, Claim, EqId, Event, MeEvents, MeId, MeMemory, MeOptions, Outcome, PtIndex, PutEvent, Rank,
};
use conduit_core::process_memory;

use super::fabric::{End, Fabric, Kind, Linked, Message, Node, Queued};
use super::memory::{apply, copy, read};
use crate::held::Held;

impl Fabric {
    /// Runs a message at its target. If the message's index is not open or its queue is full,
    /// returns `None` and has no effect.
    pub(super) fn arrive(
        &mut self,
        target: Rank,
        index: PtIndex,
        message: &Message,
    ) -> Option<End> {
        let node = &mut self.nodes[target as usize];
        let open = node.indices.get_mut(&index.0)?;
        if let Some(eq) = open.eq {
            let queue = &node.queues[usize::from(eq.0)];
            if queue.from_peers >= queue.slots {
                return None;
            }
        }
        let (at, room, offset, place) = loop {
            let found = open.list.iter().position(|linked| takes(linked, message));
            let Some(at) = found else {
                return Some(ended(Outcome::NoMatch, 0, 0));
            };
            let linked = &open.list[at];
            let (room, offset) = room(linked, message.offset);
            let Some(room) = room else {
                return Some(ended(Outcome::OutOfRange, 0, 0));
            };
            let place = match linked.entry.memory {
                MeMemory::Region { region, offset, .. } => {
                    let base = node.regions[region.0 as usize].base;
                    base.wrapping_add(offset + message.offset as usize)
                }
                MeMemory::Process { base, .. } => {
                    let address = base.wrapping_add(message.offset);
                    ptr::with_exposed_provenance_mut(address as usize)
                }
                MeMemory::Managed { .. } | MeMemory::Nothing => ptr::null_mut(),
            };
            if let Kind::Atomic(atomic) = &message.kind {
                let size = atomic.ty.size();
                if message.length.min(room) < size || !place.addr().is_multiple_of(size) {
                    return Some(ended(Outcome::OutOfRange, 0, 0));
                }
            }
            // If the claim fails, another network has used the entry, and the next iteration skips
            // it.
            if linked.claim.as_ref().is_none_or(Claim::take) {
                break (at, room, offset, place);
            }
        };
        if let MeMemory::Process { base, len } = open.list[at].entry.memory
            && (message.offset.saturating_add(message.length as u64) > len
                || !in_process(
                    &message.kind,
                    base.wrapping_add(message.offset),
                    message.length,
                ))
        {
            return Some(ended(Outcome::OutOfRange, 0, 0));
        }
        let linked = &mut open.list[at];
        let (id, entry) = (linked.id, linked.entry);
        let length = message.length.min(room);
        let (mut value, mut data) = (0, Vec::new());
        match &message.kind {
            Kind::Put(from) => match entry.memory {
                MeMemory::Managed { .. } => data = read(*from, length),
                MeMemory::Region { .. } => copy(*from, place, length),
                MeMemory::Process { .. } | MeMemory::Nothing => (),
            },
            Kind::Get(_) if entry.memory.is_process() => (),
            Kind::Get(to) => copy(place, *to, length),
            Kind::Atomic(atomic) => value = apply(place, atomic),
        }
        let mut full = entry.options.contains(MeOptions::USE_ONCE);
        let mut is_managed = false;
        if let MeMemory::Managed { bytes, min_free } = entry.memory {
            is_managed = true;
            linked.used += length.next_multiple_of(64);
            full |= bytes.saturating_sub(linked.used) < min_free;
        }
        if full {
            open.list.remove(at);
        }
        let Some(eq) = open.eq else {
            return Some(ended(Outcome::Done, length, value));
        };
        let told = entry.events.contains(MeEvents::OPERATION);
        if told {
            let event = told_of(message, index, entry.tag, offset, length, &data);
            node.tell(eq, event, is_managed.then_some(id));
        }
        if full && entry.events.contains(MeEvents::LINK) {
            node.tell(eq, Event::Unlinked { tag: entry.tag }, None);
            if is_managed {
                match node.undelivered.get_mut(&id.0) {
                    Some(left) => left.free = Some((eq, entry.tag)),
                    None => node.tell(eq, Event::Free { tag: entry.tag }, None),
                }
            }
        }
        Some(ended(Outcome::Done, length, value))
    }

    // ---- events
    // ----------------------------------------------------------------------------------

    pub(super) fn put_ended(&mut self, rank: Rank, eq: EqId, ack: Ack, token: u64, end: &End) {
        let event = match ack {
            Ack::Local => Event::Send { token },
            Ack::Remote => Event::Ack {
                token,
                outcome: end.outcome,
                length: end.length,
            },
        };
        self.own_event(rank, eq, event);
    }

    pub(super) fn reply(&mut self, rank: Rank, eq: EqId, token: u64, end: &End) {
        let event = Event::Reply {
            token,
            outcome: end.outcome,
            length: end.length,
            value: end.value,
        };
        self.own_event(rank, eq, event);
    }

    fn own_event(&mut self, rank: Rank, eq: EqId, event: Event<'_>) {
        let queue = &mut self.node(rank).queues[usize::from(eq.0)];
        // The contract makes the caller responsible for this room. The oracle checks that the suite
        // meets that duty.
        assert!(
            queue.own < queue.slots,
            "rank {rank} submitted more operations than its queue {} has room for",
            eq.0
        );
        queue.own += 1;
        queue.events.push_back(Queued {
            held: Held::of(event),
            from_peer: false,
            shows: None,
        });
    }

    /// Marks a queue as being polled. Returns false if the queue doesn't exist or is already being
    /// polled.
    pub(super) fn begin_poll(&mut self, rank: Rank, eq: EqId) -> bool {
        let queue = self.node(rank).queues.get_mut(usize::from(eq.0));
        queue.is_some_and(|queue| !std::mem::replace(&mut queue.polling, true))
    }

    pub(super) fn end_poll(&mut self, rank: Rank, eq: EqId) {
        self.node(rank).queues[usize::from(eq.0)].polling = false;
    }

    pub(super) fn next_event(&mut self, rank: Rank, eq: EqId) -> Option<Queued> {
        let queue = &mut self.node(rank).queues[usize::from(eq.0)];
        queue.events.pop_front()
    }

    /// Frees the room of a delivered event, and also its entry if this was the entry's last
    /// message.
    pub(super) fn delivered(&mut self, rank: Rank, eq: EqId, queued: Queued) {
        let node = self.node(rank);
        let queue = &mut node.queues[usize::from(eq.0)];
        if queued.from_peer {
            queue.from_peers -= 1;
        } else {
            queue.own -= 1;
        }
        let Some(id) = queued.shows else { return };
        if let Some(left) = node.undelivered.get_mut(&id.0) {
            left.messages -= 1;
            if left.messages == 0 {
                let free = left.free;
                node.undelivered.remove(&id.0);
                if let Some((eq, tag)) = free {
                    node.tell(eq, Event::Free { tag }, None);
                }
            }
        }
    }
}

impl Node {
    fn tell(&mut self, eq: EqId, event: Event<'_>, shows: Option<MeId>) {
        if let Some(id) = shows {
            self.undelivered.entry(id.0).or_default().messages += 1;
        }
        let queue = &mut self.queues[usize::from(eq.0)];
        queue.from_peers += 1;
        queue.events.push_back(Queued {
            held: Held::of(event),
            from_peer: true,
            shows,
        });
    }
}

fn ended(outcome: Outcome, length: usize, value: u64) -> End {
    End {
        outcome,
        length,
        value,
    }
}

/// Returns the event that reports a message taken by an entry.
fn told_of<'a>(
    message: &Message,
    index: PtIndex,
    tag: u64,
    offset: u64,
    length: usize,
    data: &'a [u8],
) -> Event<'a> {
    let (source, match_bits) = (message.source, message.match_bits);
    match message.kind {
        Kind::Put(_) => Event::Put(PutEvent {
            index,
            tag,
            source,
            match_bits,
            hdr_data: message.hdr_data,
            offset,
            length,
            requested: message.length,
            data,
        }),
        Kind::Get(_) => Event::Get {
            tag,
            source,
            match_bits,
            offset,
            length,
        },
        Kind::Atomic(_) => Event::Atomic {
            tag,
            source,
            match_bits,
            offset,
        },
    }
}

/// Returns how many bytes an entry has from a message's place onwards, and that place. The number
/// is `None` if the place is outside the entry.
fn room(linked: &Linked, offset: u64) -> (Option<usize>, u64) {
    match linked.entry.memory {
        MeMemory::Managed { bytes, .. } => {
            (Some(bytes.saturating_sub(linked.used)), linked.used as u64)
        }
        MeMemory::Region { len, .. } => {
            let left = usize::try_from(offset)
                .ok()
                .and_then(|o| len.checked_sub(o));
            (left, offset)
        }
        // The range is checked separately, because the contract calls a message that doesn't fit
        // out of range.
        MeMemory::Process { .. } => (Some(usize::MAX), offset),
        MeMemory::Nothing => (Some(0), offset),
    }
}

/// Copies bytes to or from this process's memory. Returns false if that memory isn't accessible.
/// For an atomic, only checks whether the memory is writable.
fn in_process(kind: &Kind, address: u64, length: usize) -> bool {
    let this = process_memory::this();
    // SAFETY: the initiator's side was checked against its descriptor, whose owner keeps the memory
    // live (`Ni::md_bind`).
    let moved = unsafe {
        match kind {
            Kind::Put(from) => process_memory::write(this, address, *from, length),
            Kind::Get(to) => process_memory::read(*to, this, address, length),
            // The caller has checked the alignment.
            Kind::Atomic(_) => return process_memory::is_writable(address),
        }
    };
    moved.is_ok()
}

/// Applies the contract's matching rule: returns whether an entry takes a message.
fn takes(linked: &Linked, message: &Message) -> bool {
    let entry = &linked.entry;
    let kind = match message.kind {
        Kind::Put(_) => MeOptions::PUT,
        Kind::Get(_) => MeOptions::GET,
        Kind::Atomic(_) => MeOptions::ATOMIC,
    };
    let fits = room(linked, message.offset)
        .0
        .is_some_and(|room| message.length <= room);
    linked.claim.as_ref().is_none_or(|claim| !claim.is_taken())
        && (message.match_bits ^ entry.match_bits) & !entry.ignore_bits == 0
        && entry.source.is_none_or(|source| source == message.source)
        && entry.options.contains(kind)
        && (fits || entry.options.contains(MeOptions::TRUNCATE))
}
