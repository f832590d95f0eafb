//! The match list of one portal table index.
//!
//! In addition to the rules of [`MatchEntry`], a message is checked against the entries by these
//! rules, in this order:
//!
//! 1. An entry matches by the message's kind, source and match bits.
//! 2. An offset outside of a region entry ends the message with [`Outcome::OutOfRange`]: the entry
//!    has matched, but it is not used up and raises no event. An offset is outside if it lies
//!    beyond the end of the entry, or exactly at the end when the message has bytes to move.
//! 3. A message that doesn't fit is truncated if the entry allows truncation; otherwise the next
//!    entry is tried. An atomic is never truncated.

use conduit_core::ni::{Claim, MatchEntry, MeEvents, MeId, MeMemory, MeOptions, Outcome, Rank};

/// Stands for "no entry" in links between entries.
const NIL: u16 = u16::MAX;
/// The maximum number of entries in a list. [`EntryId::me`] has only 12 bits for the slot.
pub const MAX_ENTRIES: usize = 4096;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A message that writes memory.
    Put,
    /// A message that reads memory.
    Get,
    /// A message that changes an integer in memory.
    Atomic,
}

impl MessageKind {
    #[inline]
    fn option(self) -> MeOptions {
        match self {
            Self::Put => MeOptions::PUT,
            Self::Get => MeOptions::GET,
            Self::Atomic => MeOptions::ATOMIC,
        }
    }
}

/// The properties of a message that matching depends on.
#[derive(Debug, Clone, Copy)]
pub struct Incoming {
    /// The message's kind.
    pub kind: MessageKind,
    /// The rank that sent the message.
    pub source: Rank,
    /// The message's match bits.
    pub match_bits: u64,
    /// Offset within the entry's memory.
    pub offset: u64,
    /// Number of bytes to move.
    pub length: usize,
}

/// The memory of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Memory filled in order of arrival, the counterpart of [`MeMemory::Managed`].
    Managed {
        /// Capacity in bytes.
        bytes: usize,
        /// The entry is unlinked when fewer bytes than this are free.
        min_free: usize,
    },
    /// A piece of a region.
    Region {
        /// First byte of the piece. The network decides whether this is an address or an offset.
        base: usize,
        /// Length of the piece in bytes.
        len: usize,
    },
    /// Memory of the whole process, the counterpart of [`MeMemory::Process`].
    Process {
        /// First address.
        base: u64,
        /// Length in bytes.
        len: u64,
    },
    /// No memory: the entry takes only headers.
    Nothing,
}

impl Memory {
    /// Returns the memory of an appended entry; `base` is the start of a region entry.
    fn new(memory: MeMemory, base: usize) -> Self {
        match memory {
            MeMemory::Managed { bytes, min_free } => Self::Managed { bytes, min_free },
            MeMemory::Region { len, .. } => Self::Region { base, len },
            MeMemory::Process { base, len } => Self::Process { base, len },
            MeMemory::Nothing => Self::Nothing,
        }
    }
}

/// A match entry.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The memory that messages access.
    pub memory: Memory,
    /// The bits with which a message's match bits are compared.
    pub match_bits: u64,
    /// The bits that are not compared.
    pub ignore_bits: u64,
    /// The only rank whose messages match, if the entry is restricted to one.
    pub source: Option<Rank>,
    /// The permitted operations and other options.
    pub options: MeOptions,
    /// The events that the entry raises.
    pub events: MeEvents,
    /// Value passed back in the entry's events.
    pub tag: u64,
}

impl Entry {
    /// Creates the entry for a call of [`me_append`](conduit_core::ni::Ni::me_append); `base` is
    /// the start of a [region entry](Memory::Region).
    pub fn new(entry: &MatchEntry, base: usize) -> Self {
        Self {
            memory: Memory::new(entry.memory, base),
            match_bits: entry.match_bits,
            ignore_bits: entry.ignore_bits,
            source: entry.source,
            options: entry.options,
            events: entry.events,
            tag: entry.tag,
        }
    }

    /// Returns whether the entry may be the list's `front`: it is managed, persistent, takes puts,
    /// and raises an event for each of them.
    fn may_be_front(&self) -> bool {
        let put = MeOptions::PUT | MeOptions::USE_ONCE;
        matches!(self.memory, Memory::Managed { .. })
            && self.options.intersection(put) == MeOptions::PUT
            && self.events.contains(MeEvents::OPERATION)
    }

    /// Returns whether no match bits can match both this entry and `other`.
    fn excludes(&self, other: &Self) -> bool {
        let compared = !self.ignore_bits & !other.ignore_bits;
        (self.match_bits ^ other.match_bits) & compared != 0
    }
}

/// Identifies an entry of a list. A reused slot gets a new generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryId {
    /// Slot of the entry, less than [`MAX_ENTRIES`].
    pub slot: u16,
    /// Generation of the slot, which increases each time that an entry in the slot is unlinked.
    pub generation: u16,
}

impl EntryId {
    /// Returns the id for the network's user: the index in 4 bits, the slot in 12, the generation
    /// in 16.
    #[inline]
    pub fn me(self, index: u8) -> MeId {
        MeId(u32::from(index) << 28 | u32::from(self.slot) << 16 | u32::from(self.generation))
    }

    /// Returns the index and the entry of an id. This is the inverse of [`EntryId::me`].
    pub fn of(me: MeId) -> (u8, Self) {
        let id = Self {
            slot: (me.0 >> 16) as u16 & 0xfff,
            generation: me.0 as u16,
        };
        ((me.0 >> 28) as u8, id)
    }
}

/// The memory that a message accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The memory of a managed entry, whose bytes are delivered with the event.
    Managed,
    /// This place in a region, counted from the same origin as the base of [`Memory::Region`].
    Region(usize),
    /// This address of the process, which may not be mapped.
    Process(u64),
    /// No memory.
    Nothing,
}

/// A match: the entry that took a message, and what the message does there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// The entry that took the message.
    pub id: EntryId,
    /// The entry's tag.
    pub tag: u64,
    /// The events that the entry raises.
    pub events: MeEvents,
    /// The memory that the message accesses.
    pub location: Location,
    /// Offset within the entry's memory.
    pub offset: u64,
    /// Number of bytes to move.
    pub length: usize,
    /// The outcome. Unless it is [`Outcome::Done`], no bytes are moved and no event is raised.
    pub outcome: Outcome,
    /// Whether the entry has left the list.
    pub unlinked: bool,
}

/// A match by a managed entry that takes the whole message and stays linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastHit {
    /// The entry that took the message.
    pub id: EntryId,
    /// The entry's tag.
    pub tag: u64,
    /// Offset within the entry's memory.
    pub offset: u64,
}

/// Returns how many bytes of a managed entry a message of `length` bytes uses.
#[inline(always)]
pub fn rounded(length: usize) -> usize {
    (length + 63) & !63
}

/// A sequence of messages that one managed entry takes in full while it stays linked. During a run,
/// the entry must not be unlinked, and no other call may match messages to the index. Therefore no
/// other entry can take one of the run's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The entry that takes the messages.
    pub id: EntryId,
    /// The entry's tag.
    pub tag: u64,
    /// The only rank whose messages match, if the entry is restricted to one.
    pub source: Option<Rank>,
    match_bits: u64,
    compared: u64,
    fill: usize,
    /// The largest `fill` at which the entry stays linked.
    most: usize,
}

impl Run {
    /// Returns whether a put with these match bits belongs to the run. The caller must have checked
    /// that the source is permitted and that the run has room.
    #[inline(always)]
    pub fn matches(&self, match_bits: u64) -> bool {
        (match_bits ^ self.match_bits) & self.compared == 0
    }

    /// Returns the number of puts of `length` bytes, at most `wanted`, for which there is room.
    #[inline]
    pub fn room_for(&self, wanted: u32, length: usize) -> u32 {
        let room = self.most.saturating_sub(self.fill);
        let each = rounded(length);
        match (wanted as usize).checked_mul(each) {
            Some(all) if all <= room => wanted,
            // The cast is lossless: the value is less than `wanted`.
            _ => (room / each) as u32,
        }
    }

    /// Returns the offset at which the next put is placed.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.fill as u64
    }

    /// Accounts for `puts` puts of `length` bytes each, for which there must be
    /// [room](Run::room_for).
    #[inline]
    pub fn charge(&mut self, puts: u32, length: usize) {
        self.fill += puts as usize * rounded(length);
    }
}

#[derive(Debug)]
struct Node {
    entry: Entry,
    /// Number of bytes in use, if the entry is managed.
    fill: usize,
    previous: u16,
    next: u16,
    generation: u16,
    linked: bool,
    /// The claim, if the entry also exists in other networks. The entry takes a message only if it
    /// can take the claim.
    claim: Option<Claim>,
}

/// An ordered list of entries.
#[derive(Debug)]
pub struct MatchList {
    nodes: Vec<Node>,
    free: Vec<u16>,
    first: u16,
    last: u16,
    /// The first managed entry for puts, if no message can match both that entry and an entry
    /// before it; otherwise `NIL`. Valid only while `front_known` is set.
    front: u16,
    front_known: bool,
}

impl Default for MatchList {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of testing an entry for a message.
enum Fit {
    Takes {
        location: Location,
        offset: u64,
        length: usize,
    },
    Outside,
    Passes,
}

impl MatchList {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            first: NIL,
            last: NIL,
            front: NIL,
            front_known: false,
        }
    }

    /// Appends an entry to the overflow list if its options ask for that, otherwise in front of the
    /// overflow list. Returns `None` if the list is full.
    pub fn append(&mut self, entry: Entry) -> Option<EntryId> {
        self.append_claimed(entry, None)
    }

    /// Does the same as [`Self::append`], for an entry with a claim. The entry takes a message only
    /// if it can take the claim. Once the claim is taken, the entry takes no messages.
    pub fn append_claimed(&mut self, entry: Entry, claim: Option<Claim>) -> Option<EntryId> {
        let mut previous = self.last;
        if !entry.options.contains(MeOptions::OVERFLOW) {
            while previous != NIL && self.is_overflow(previous) {
                previous = self.nodes[usize::from(previous)].previous;
            }
        }
        let next = match previous {
            NIL => self.first,
            previous => self.nodes[usize::from(previous)].next,
        };
        let mut node = Node {
            entry,
            fill: 0,
            previous,
            next,
            generation: 0,
            linked: true,
            claim,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                let old = &mut self.nodes[usize::from(slot)];
                node.generation = old.generation;
                *old = node;
                slot
            }
            None if self.nodes.len() < MAX_ENTRIES => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u16
            }
            None => return None,
        };
        self.front_known = false;
        match previous {
            NIL => self.first = slot,
            previous => self.nodes[usize::from(previous)].next = slot,
        }
        match next {
            NIL => self.last = slot,
            next => self.nodes[usize::from(next)].previous = slot,
        }
        Some(EntryId {
            slot,
            generation: self.nodes[usize::from(slot)].generation,
        })
    }

    fn is_overflow(&self, slot: u16) -> bool {
        let node = &self.nodes[usize::from(slot)];
        node.entry.options.contains(MeOptions::OVERFLOW)
    }

    /// Unlinks an entry. Returns `false` if the entry isn't in the list.
    pub fn unlink(&mut self, id: EntryId) -> bool {
        let known = self.contains(id);
        if known {
            self.remove(id.slot);
        }
        known
    }

    /// Returns whether an entry is in the list.
    pub fn contains(&self, id: EntryId) -> bool {
        let node = self.nodes.get(usize::from(id.slot));
        node.is_some_and(|node| node.linked && node.generation == id.generation)
    }

    fn remove(&mut self, slot: u16) {
        self.front_known = false;
        let node = &mut self.nodes[usize::from(slot)];
        let (previous, next) = (node.previous, node.next);
        node.linked = false;
        node.claim = None;
        node.generation = node.generation.wrapping_add(1);
        match previous {
            NIL => self.first = next,
            previous => self.nodes[usize::from(previous)].next = next,
        }
        match next {
            NIL => self.last = previous,
            next => self.nodes[usize::from(next)].previous = previous,
        }
        self.free.push(slot);
    }

    /// Begins a run, the fast path for most messages: puts to the first managed entry. If the call
    /// returns `None`, or the run does not take a message, call [`Self::accept`] for the message,
    /// because an entry may still match.
    #[inline]
    pub fn begin_run(&mut self) -> Option<Run> {
        if !self.front_known {
            self.find_front();
        }
        let slot = self.front;
        let Node {
            entry,
            fill,
            generation,
            ..
        } = self.nodes.get(usize::from(slot))?;
        let Memory::Managed { bytes, min_free } = entry.memory else {
            return None;
        };
        Some(Run {
            id: EntryId {
                slot,
                generation: *generation,
            },
            tag: entry.tag,
            source: entry.source,
            match_bits: entry.match_bits,
            compared: !entry.ignore_bits,
            fill: *fill,
            most: bytes.saturating_sub(min_free),
        })
    }

    /// Does the same as [`Self::begin_run`] for a single message, and accounts for the message at
    /// once.
    #[inline(always)]
    pub fn accept_fast(&mut self, source: Rank, match_bits: u64, length: usize) -> Option<FastHit> {
        if !self.front_known {
            self.find_front();
        }
        let slot = self.front;
        let Node {
            entry,
            fill,
            generation,
            ..
        } = self.nodes.get_mut(usize::from(slot))?;
        let Memory::Managed { bytes, min_free } = entry.memory else {
            return None;
        };
        let end = *fill + rounded(length);
        if (entry.match_bits ^ match_bits) & !entry.ignore_bits != 0
            || entry.source.is_some_and(|only| only != source)
            || end > bytes.saturating_sub(min_free)
        {
            return None;
        }
        let offset = std::mem::replace(fill, end) as u64;
        Some(FastHit {
            id: EntryId {
                slot,
                generation: *generation,
            },
            tag: entry.tag,
            offset,
        })
    }

    /// Accounts for the messages of a run.
    #[inline]
    pub fn end_run(&mut self, run: &Run) {
        if let Some(node) = self.nodes.get_mut(usize::from(run.id.slot)) {
            node.fill = run.fill;
        }
    }

    /// Finds [`Self::front`]. Managed entries are seldom the first in the list, because an entry
    /// that is used up and appended again moves behind the others.
    #[cold]
    fn find_front(&mut self) {
        self.front_known = true;
        self.front = NIL;
        let mut slot = self.first;
        while let Some(Node { entry, next, .. }) = self.nodes.get(usize::from(slot)) {
            if entry.may_be_front() {
                let front = entry;
                let mut before = self.first;
                while before != slot {
                    let Node { entry, next, .. } = &self.nodes[usize::from(before)];
                    if !entry.excludes(front) {
                        return;
                    }
                    before = *next;
                }
                self.front = slot;
                return;
            }
            slot = *next;
        }
    }

    /// Finds the first entry that takes a message, and accounts for the message.
    #[inline]
    pub fn accept(&mut self, incoming: &Incoming) -> Option<Hit> {
        let mut slot = self.first;
        while slot != NIL {
            let node = &mut self.nodes[usize::from(slot)];
            let entry = &node.entry;
            let bits = (entry.match_bits ^ incoming.match_bits) & !entry.ignore_bits;
            if bits == 0
                && entry.options.contains(incoming.kind.option())
                && entry.source.is_none_or(|source| source == incoming.source)
            {
                let mut hit = Hit {
                    id: EntryId {
                        slot,
                        generation: node.generation,
                    },
                    tag: entry.tag,
                    events: entry.events,
                    location: Location::Nothing,
                    offset: incoming.offset,
                    length: 0,
                    outcome: Outcome::OutOfRange,
                    unlinked: false,
                };
                match node.fit(incoming) {
                    Fit::Outside => return Some(hit),
                    Fit::Takes {
                        location,
                        offset,
                        length,
                    } if node.claim.as_ref().is_none_or(Claim::take) => {
                        hit.location = location;
                        hit.offset = offset;
                        hit.length = length;
                        hit.outcome = Outcome::Done;
                        hit.unlinked = node.charge(length);
                        if hit.unlinked {
                            self.remove(slot);
                        }
                        return Some(hit);
                    }
                    Fit::Passes | Fit::Takes { .. } => {}
                }
            }
            slot = node.next;
        }
        None
    }
}

impl Node {
    #[inline]
    fn fit(&self, incoming: &Incoming) -> Fit {
        if self.claim.as_ref().is_some_and(Claim::is_taken) {
            return Fit::Passes;
        }
        let cut = self.entry.options.contains(MeOptions::TRUNCATE)
            && incoming.kind != MessageKind::Atomic;
        let limited = |room: usize| match incoming.length <= room {
            true => Some(incoming.length),
            false if cut => Some(room),
            false => None,
        };
        match self.entry.memory {
            Memory::Managed { bytes, .. } => {
                if incoming.kind != MessageKind::Put {
                    return Fit::Passes;
                }
                match limited(bytes - self.fill) {
                    None => Fit::Passes,
                    Some(length) => Fit::Takes {
                        location: Location::Managed,
                        offset: self.fill as u64,
                        length,
                    },
                }
            }
            Memory::Region { base, len } => {
                let room = (len as u64).checked_sub(incoming.offset);
                let Some(room) = room.filter(|&room| room > 0 || incoming.length == 0) else {
                    return Fit::Outside;
                };
                match limited(room as usize) {
                    None => Fit::Passes,
                    Some(length) => Fit::Takes {
                        location: Location::Region(base + incoming.offset as usize),
                        offset: incoming.offset,
                        length,
                    },
                }
            }
            Memory::Process { base, len } => {
                let end = incoming.offset.checked_add(incoming.length as u64);
                match end.filter(|&end| end <= len) {
                    None => Fit::Outside,
                    Some(_) => Fit::Takes {
                        location: Location::Process(base.wrapping_add(incoming.offset)),
                        offset: incoming.offset,
                        length: incoming.length,
                    },
                }
            }
            Memory::Nothing => match limited(0) {
                Some(_) if incoming.kind != MessageKind::Atomic => Fit::Takes {
                    location: Location::Nothing,
                    offset: incoming.offset,
                    length: 0,
                },
                _ => Fit::Passes,
            },
        }
    }

    /// Accounts for a message. Returns `true` if the message is the last that the entry takes.
    #[inline]
    fn charge(&mut self, length: usize) -> bool {
        let full = match self.entry.memory {
            Memory::Managed { bytes, min_free } => {
                self.fill = bytes.min(self.fill + rounded(length));
                bytes - self.fill < min_free
            }
            _ => false,
        };
        full || self.entry.options.contains(MeOptions::USE_ONCE)
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
