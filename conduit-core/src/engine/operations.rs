//! The table of operations under way: 24-bit compact ids, completion by counting.
//!
//! An operation counts its outstanding pieces. It is one of three kinds:
//! - *explicit*: ends when its pieces have ended, then waits for its handle to be synchronised;
//! - *member*: belongs to a group, tells the group when it ends and is gone;
//! - *group*: a thread's implicit puts or gets, or an access region; its pieces are its members.
//!
//! Ids are 24 bits (seed, "The Implementation of GASNet Put and Get Operations"); the 8 bits above them are a generation
//! that finds handles which have been synchronised already.

use crate::ni::MdId;

/// A 24-bit id with its 8-bit generation above. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpId(u32);

impl OpId {
    pub(crate) const MAX: u32 = (1 << 24) - 1;

    fn new(index: u32, generation: u8) -> Self {
        Self(u32::from(generation) << 24 | (index + 1))
    }

    /// Its place in the table.
    pub(crate) fn index(self) -> usize {
        (self.0 & Self::MAX) as usize - 1
    }

    fn generation(self) -> u8 {
        (self.0 >> 24) as u8
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        (bits & Self::MAX != 0).then_some(Self(bits))
    }
}

/// What an operation frees when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The temporary descriptor over its local memory.
    pub(crate) md: Option<MdId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free { next: u32 },
    Explicit,
    Member { group: OpId },
    Group { open: bool },
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    value: u64,
    kind: Kind,
    md: Option<MdId>,
    outstanding: u32,
    generation: u8,
}

const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    free: u32,
    limit: u32,
}

impl Operations {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            limit: limit.min(OpId::MAX),
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    fn allocate(&mut self, kind: Kind, outstanding: u32) -> Option<OpId> {
        let index = if self.free != NONE {
            let index = self.free;
            let Kind::Free { next } = self.slots[index as usize].kind else {
                unreachable!("the free list holds free slots only")
            };
            self.free = next;
            index
        } else if (self.slots.len() as u32) < self.limit {
            self.slots.push(Slot {
                value: 0,
                kind: Kind::Explicit,
                md: None,
                outstanding: 0,
                generation: 0,
            });
            self.slots.len() as u32 - 1
        } else {
            return None;
        };
        let slot = &mut self.slots[index as usize];
        slot.kind = kind;
        slot.outstanding = outstanding;
        slot.md = None;
        slot.value = 0;
        Some(OpId::new(index, slot.generation))
    }

    /// Starts an operation with one piece outstanding: its initiation, ended by [`Operations::finish`].
    /// `None`: all ids are in use.
    pub(crate) fn begin(&mut self, group: Option<OpId>) -> Option<OpId> {
        let kind = match group {
            Some(group) => Kind::Member { group },
            None => Kind::Explicit,
        };
        let op = self.allocate(kind, 1)?;
        if let Some(group) = group {
            self.add(group);
        }
        Some(op)
    }

    /// Starts a group without members. An open one does not end even when it has none.
    pub(crate) fn begin_group(&mut self, open: bool) -> Option<OpId> {
        self.allocate(Kind::Group { open }, 0)
    }

    fn slot(&mut self, op: OpId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(op.index())?;
        (slot.generation == op.generation() && !matches!(slot.kind, Kind::Free { .. }))
            .then_some(slot)
    }

    /// One more piece is outstanding.
    pub(crate) fn add(&mut self, op: OpId) {
        if let Some(slot) = self.slot(op) {
            slot.outstanding += 1;
        }
    }

    pub(crate) fn set_md(&mut self, op: OpId, md: MdId) {
        if let Some(slot) = self.slot(op) {
            slot.md = Some(md);
        }
    }

    pub(crate) fn set_value(&mut self, op: OpId, value: u64) {
        if let Some(slot) = self.slot(op) {
            slot.value = value;
        }
    }

    /// A piece has ended. Says what to free when it was the last.
    pub(crate) fn finish(&mut self, op: OpId) -> Option<Ended> {
        let slot = self.slot(op)?;
        slot.outstanding = slot.outstanding.checked_sub(1)?;
        if slot.outstanding > 0 {
            return None;
        }
        let ended = Ended { md: slot.md.take() };
        if let Kind::Member { group } = slot.kind {
            self.release(op);
            self.finish(group);
        }
        Some(ended)
    }

    fn release(&mut self, op: OpId) {
        let free = self.free;
        if let Some(slot) = self.slot(op) {
            slot.kind = Kind::Free { next: free };
            slot.generation = slot.generation.wrapping_add(1);
            self.free = op.index() as u32;
        }
    }

    /// Has it ended? `None`: the handle is stale.
    pub(crate) fn is_done(&mut self, op: OpId) -> Option<bool> {
        let slot = self.slot(op)?;
        Some(slot.outstanding == 0 && slot.kind != Kind::Group { open: true })
    }

    /// Operations and groups that exist.
    pub(crate) fn live(&self) -> u32 {
        let free = |slot: &&Slot| !matches!(slot.kind, Kind::Free { .. });
        self.slots.iter().filter(free).count() as u32
    }

    /// Pieces of a group that are outstanding, 0 for a stale id.
    pub(crate) fn outstanding(&mut self, op: OpId) -> u32 {
        self.slot(op).map_or(0, |slot| slot.outstanding)
    }

    /// Closes an access region: it ends with its last member.
    pub(crate) fn close(&mut self, op: OpId) {
        if let Some(slot) = self.slot(op) {
            slot.kind = Kind::Group { open: false };
        }
    }

    /// Forgets an operation that has ended, and gives its value. `None`: it has not, or the handle is stale.
    pub(crate) fn take(&mut self, op: OpId) -> Option<u64> {
        if self.is_done(op) != Some(true) {
            return None;
        }
        let value = self.slot(op)?.value;
        self.release(op);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_operation_ends_with_its_last_piece_and_is_taken_once() {
        let mut table = Operations::new(4);
        let op = table.begin(None).unwrap();
        table.add(op);
        table.set_md(op, MdId(7));
        assert_eq!(table.finish(op), None);
        assert_eq!(table.is_done(op), Some(false));
        assert_eq!(table.take(op), None);
        assert_eq!(table.finish(op), Some(Ended { md: Some(MdId(7)) }));
        table.set_value(op, 42);
        assert_eq!(table.take(op), Some(42));
        assert_eq!(table.is_done(op), None, "stale");
        assert_eq!(
            table.finish(op),
            None,
            "a late piece of a stale operation is ignored"
        );
    }

    #[test]
    fn a_group_ends_with_its_members_once_closed() {
        let mut table = Operations::new(4);
        let group = table.begin_group(true).unwrap();
        let member = table.begin(Some(group)).unwrap();
        assert_eq!(table.outstanding(group), 1);
        assert!(table.finish(member).is_some());
        assert_eq!(table.outstanding(group), 0);
        assert_eq!(table.is_done(group), Some(false), "open");
        table.close(group);
        assert_eq!(table.is_done(group), Some(true));
    }

    #[test]
    fn ids_run_out_and_come_back() {
        let mut table = Operations::new(2);
        let a = table.begin(None).unwrap();
        let b = table.begin(None).unwrap();
        assert!(table.begin(None).is_none());
        table.finish(a);
        table.take(a);
        let c = table.begin(None).unwrap();
        assert_ne!(a, c);
        assert_ne!(b, c);
    }
}
