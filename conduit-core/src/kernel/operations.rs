//! The table of operations in flight. Operations have compact 24-bit ids and complete by counting
//! their pieces.
//!
//! An operation counts its outstanding pieces. There are three kinds:
//! - *explicit*: the operation ends with its last piece, and then waits until its handle is
//!   synchronised;
//! - *member*: the operation belongs to a group; when it ends, it is counted off the group and
//!   removed;
//! - *group*: a thread's implicit puts or gets, or an access region; the pieces of a group are its
//!   members.
//!
//! Ids have 24 bits (seed, "The Implementation of GASNet Put and Get Operations"). The upper 8 bits
//! of the word hold a generation, by which handles that have already been synchronised are
//! detected.

use std::collections::BTreeMap;

use crate::kernel::chunks::Descriptors;
use crate::kernel::control::SharedPtr;
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::{Handle, OpId};
use crate::kernel::job::Job;
use crate::ni::{AtomicType, MdId, Ni, Rank};
use crate::threads::{Lock, Mode};

/// A resource that an operation holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// The temporary descriptor over the operation's local memory. It is released when the
    /// operation ends.
    Descriptor(MdId),
    /// The destination and type of an atomic's old value.
    Result(ResultPlace),
}

/// The destination of an atomic's old value: memory of the caller that remains valid until the
/// operation is synchronised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultPlace {
    pub(crate) base: SharedPtr,
    pub(crate) ty: AtomicType,
}

impl ResultPlace {
    /// # Safety
    /// The operation that owns this destination must not have been synchronised.
    pub(crate) unsafe fn write(self, value: u64) {
        let base = self.base.0;
        // SAFETY: the operation has not been synchronised, as this function's caller guarantees.
        // Until then the caller that started the operation keeps `base` valid for a write of the
        // type's size. The write needs no alignment.
        unsafe {
            match self.ty.size() {
                4 => base.cast::<u32>().write_unaligned(value as u32),
                _ => base.cast::<u64>().write_unaligned(value),
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationKind {
    Free { next: u32 },
    Explicit,
    Member { group: OpId },
    Group { open: bool },
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The result of a fetching atomic once it has arrived. Before that, and for all other
    /// operations, the peer or [`NO_PEER`].
    value: u64,
    kind: OperationKind,
    held: Held,
    outstanding: u32,
    generation: u8,
}

const NONE: u32 = u32::MAX;

/// The value that stands for the peer if an operation concerns several peers.
const NO_PEER: u64 = u64::MAX;

/// The operations of a rank.
#[derive(Debug)]
pub(crate) struct Operations<M: Mode> {
    table: M::Lock<Table>,
    /// The group of the operations for which no call waits (the data of asynchronous longs).
    pub(crate) detached: OpId,
}

impl<M: Mode> Operations<M> {
    /// Creates the table for at most `limit` operations, one of which is the rank's own group.
    /// Returns `None` if `limit` is 0.
    pub(crate) fn new(limit: u32) -> Option<Self> {
        let mut table = Table::new(limit);
        let detached = table.begin_group(true)?;
        Some(Self {
            table: Lock::new(table),
            detached,
        })
    }

    /// Begins an operation. Fails if all ids are in use: ids are freed only when their owners
    /// synchronise the operations, so waiting here would not free any. `peer` is the rank that
    /// completes the operation, or `None` if several ranks do.
    pub(crate) fn begin<N: Ni>(
        &self,
        job: &Job<N>,
        operation: &'static str,
        group: Option<OpId>,
        peer: Option<Rank>,
    ) -> Result<OpId> {
        let begun = self.table.lock().begin(group, peer);
        begun.ok_or_else(|| self.exhausted(job, operation))
    }

    /// Begins a group; see [`Table::begin_group`].
    pub(crate) fn begin_group<N: Ni>(
        &self,
        job: &Job<N>,
        operation: &'static str,
        open: bool,
    ) -> Result<OpId> {
        let begun = self.table.lock().begin_group(open);
        begun.ok_or_else(|| self.exhausted(job, operation))
    }

    #[cold]
    fn exhausted<N: Ni>(&self, job: &Job<N>, operation: &'static str) -> Error {
        Error::Exhausted {
            operation,
            rank: job.rank,
            what: "operation ids",
            limit: self.table.lock().limit.into(),
            setting: "CONDUIT_MAX_OPERATIONS",
        }
    }

    /// Adds an outstanding piece.
    pub(crate) fn add(&self, op: OpId) {
        self.table.lock().add(op);
    }

    /// Attaches a temporary descriptor, which is released when the operation ends.
    pub(crate) fn set_md(&self, op: OpId, md: MdId) {
        self.table.lock().hold(op, Held::Descriptor(md));
    }

    /// Sets the destination in the caller's memory for an atomic's old value.
    pub(crate) fn set_result(&self, op: OpId, place: ResultPlace) {
        self.table.lock().hold(op, Held::Result(place));
    }

    /// Stores the result of a fetching atomic.
    pub(crate) fn set_value(&self, op: OpId, value: u64) {
        self.table.lock().set_value(op, value);
    }

    /// Counts off one piece.
    pub(crate) fn finish<N: Ni>(&self, job: &Job<N>, descriptors: &Descriptors<M>, op: OpId) {
        let ended = self.table.lock().finish(op);
        if let Some(Held::Descriptor(md)) = ended {
            descriptors.release(job, md);
        }
    }

    /// Frees an operation of which no piece has been started.
    pub(crate) fn forget(&self, op: OpId) {
        let mut table = self.table.lock();
        let _ = table.finish(op);
        let _ = table.take(op);
    }

    /// Returns whether the operation has ended or is already synchronised.
    pub(crate) fn has_ended(&self, op: OpId) -> bool {
        self.table.lock().is_done(op) != Some(false)
    }

    /// Ends the operation if it has completed, and returns its value, which is the result of a
    /// fetching atomic and otherwise unspecified. Returns `None` if the operation is still in
    /// flight.
    pub(crate) fn take<N: Ni>(
        &self,
        job: &Job<N>,
        operation: &'static str,
        op: OpId,
    ) -> Result<Option<u64>> {
        let mut table = self.table.lock();
        match table.is_done(op) {
            Some(true) => Ok(table.take(op)),
            Some(false) => Ok(None),
            None => Err(Error::StaleHandle {
                operation,
                rank: job.rank,
            }),
        }
    }

    /// Ends the operations among the handles that have completed. Returns the number that ended,
    /// and whether none is still in flight.
    pub(crate) fn sweep<N: Ni>(
        &self,
        job: &Job<N>,
        operation: &'static str,
        handles: &mut [Handle],
    ) -> Result<(usize, bool)> {
        let (mut ended, mut all) = (0, true);
        for handle in handles {
            if let Some(op) = handle.0 {
                if self.take(job, operation, op)?.is_some() {
                    *handle = Handle::DONE;
                    ended += 1;
                } else {
                    all = false;
                }
            }
        }
        Ok((ended, all))
    }

    /// Ends these groups if all their members have ended. Returns false, and ends none, if not.
    pub(crate) fn take_groups(&self, groups: &[Option<OpId>]) -> bool {
        let mut table = self.table.lock();
        let mut all = groups.iter().flatten();
        if !all.all(|&group| table.outstanding(group) == 0) {
            return false;
        }
        for &group in groups.iter().flatten() {
            // A group of implicit operations is never open, so a group without outstanding members
            // has ended.
            let _ = table.take(group);
        }
        true
    }

    /// Closes an access region, so that it ends with its last member.
    pub(crate) fn close(&self, group: OpId) -> Handle {
        self.table.lock().close(group);
        Handle(Some(group))
    }

    /// Returns the number of unfinished operations per peer. Counts the operation or the members of
    /// the group `of`, or all operations if `of` is `None`. Operations with several peers count
    /// under `None`.
    pub(crate) fn under_way(&self, of: Option<OpId>) -> Vec<(Option<Rank>, u32)> {
        self.table.lock().under_way(of)
    }

    /// Returns the number of operations and groups, without the rank's own group.
    pub(crate) fn live(&self) -> u32 {
        self.table.lock().live().saturating_sub(1)
    }
}

/// The table described in the documentation of this module.
#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    free: u32,
    limit: u32,
}

impl Table {
    fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            limit: limit.min(OpId::MAX),
        }
    }

    fn allocate(&mut self, kind: OperationKind, outstanding: u32, value: u64) -> Option<OpId> {
        let index = if self.free != NONE {
            let index = self.free;
            let OperationKind::Free { next } = self.slots[index as usize].kind else {
                unreachable!("the free list holds free slots only")
            };
            self.free = next;
            index
        } else if (self.slots.len() as u32) < self.limit {
            self.slots.push(Slot {
                value: 0,
                kind: OperationKind::Explicit,
                held: Held::Nothing,
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
        slot.held = Held::Nothing;
        slot.value = value;
        Some(OpId::new(index, slot.generation))
    }

    /// Begins an operation with one outstanding piece. This piece stands for the initiation and is
    /// counted off by [`Table::finish`]. Returns `None` if all ids are in use.
    fn begin(&mut self, group: Option<OpId>, peer: Option<Rank>) -> Option<OpId> {
        let kind = match group {
            Some(group) => OperationKind::Member { group },
            None => OperationKind::Explicit,
        };
        let op = self.allocate(kind, 1, peer.map_or(NO_PEER, u64::from))?;
        if let Some(group) = group {
            self.add(group);
        }
        Some(op)
    }

    /// Begins a group without members. While a group is open, it does not end even if it has no
    /// members.
    fn begin_group(&mut self, open: bool) -> Option<OpId> {
        self.allocate(OperationKind::Group { open }, 0, NO_PEER)
    }

    fn slot(&mut self, op: OpId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(op.index())?;
        (slot.generation == op.generation() && !matches!(slot.kind, OperationKind::Free { .. }))
            .then_some(slot)
    }

    /// Adds an outstanding piece.
    fn add(&mut self, op: OpId) {
        if let Some(slot) = self.slot(op) {
            slot.outstanding += 1;
        }
    }

    fn hold(&mut self, op: OpId, held: Held) {
        if let Some(slot) = self.slot(op) {
            slot.held = held;
        }
    }

    fn set_value(&mut self, op: OpId, value: u64) {
        if let Some(slot) = self.slot(op) {
            slot.value = value;
            if let Held::Result(place) = slot.held {
                // SAFETY: the operation is still in the table, so it has not been synchronised.
                unsafe { place.write(value) };
            }
        }
    }

    /// Counts off a piece. After the last piece, returns the resource to free.
    fn finish(&mut self, op: OpId) -> Option<Held> {
        let slot = self.slot(op)?;
        slot.outstanding = slot.outstanding.checked_sub(1)?;
        if slot.outstanding > 0 {
            return None;
        }
        let held = slot.held;
        if let OperationKind::Member { group } = slot.kind {
            self.release(op);
            self.finish(group);
        }
        Some(held)
    }

    fn release(&mut self, op: OpId) {
        let free = self.free;
        if let Some(slot) = self.slot(op) {
            slot.kind = OperationKind::Free { next: free };
            slot.generation = slot.generation.wrapping_add(1);
            self.free = op.index() as u32;
        }
    }

    /// Returns whether the operation has ended, or `None` if its id is stale.
    fn is_done(&mut self, op: OpId) -> Option<bool> {
        let slot = self.slot(op)?;
        Some(slot.outstanding == 0 && slot.kind != OperationKind::Group { open: true })
    }

    /// Returns the number of unfinished operations per peer, as [`Operations::under_way`] does.
    fn under_way(&self, of: Option<OpId>) -> Vec<(Option<Rank>, u32)> {
        let mut counts = BTreeMap::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let group = match slot.kind {
                OperationKind::Explicit => None,
                OperationKind::Member { group } => Some(group),
                OperationKind::Free { .. } | OperationKind::Group { .. } => continue,
            };
            let own = OpId::new(index as u32, slot.generation);
            if slot.outstanding > 0 && of.is_none_or(|of| of == own || group == Some(of)) {
                // A piece is outstanding, so `value` is the peer, not yet the result of an atomic.
                *counts.entry(Rank::try_from(slot.value).ok()).or_default() += 1;
            }
        }
        counts.into_iter().collect()
    }

    /// Returns the number of operations and groups.
    fn live(&self) -> u32 {
        let free = |slot: &&Slot| !matches!(slot.kind, OperationKind::Free { .. });
        self.slots.iter().filter(free).count() as u32
    }

    /// Returns the number of outstanding pieces of a group, or 0 for a stale id.
    fn outstanding(&mut self, op: OpId) -> u32 {
        self.slot(op).map_or(0, |slot| slot.outstanding)
    }

    /// Closes an access region, so that it ends with its last member.
    fn close(&mut self, op: OpId) {
        if let Some(slot) = self.slot(op) {
            slot.kind = OperationKind::Group { open: false };
        }
    }

    /// Removes an operation that has ended, and returns its value. Returns `None` if the operation
    /// has not ended, or its id is stale.
    fn take(&mut self, op: OpId) -> Option<u64> {
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
        let mut table = Table::new(4);
        let op = table.begin(None, Some(3)).unwrap();
        table.add(op);
        table.hold(op, Held::Descriptor(MdId(7)));
        assert_eq!(table.finish(op), None);
        assert_eq!(table.is_done(op), Some(false));
        assert_eq!(table.take(op), None);
        assert_eq!(table.finish(op), Some(Held::Descriptor(MdId(7))));
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
        let mut table = Table::new(4);
        let group = table.begin_group(true).unwrap();
        let member = table.begin(Some(group), Some(5)).unwrap();
        let collective = table.begin(None, None).unwrap();
        assert_eq!(table.outstanding(group), 1);
        assert_eq!(table.under_way(Some(group)), [(Some(5), 1)]);
        assert_eq!(table.under_way(None), [(None, 1), (Some(5), 1)]);
        assert!(table.finish(collective).is_some());
        assert!(table.finish(member).is_some());
        assert_eq!(table.outstanding(group), 0);
        assert_eq!(table.is_done(group), Some(false), "open");
        table.close(group);
        assert_eq!(table.is_done(group), Some(true));
    }

    #[test]
    fn an_atomic_writes_its_value_where_it_was_told_to() {
        let mut table = Table::new(4);
        let group = table.begin_group(false).unwrap();
        let mut words = [u64::MAX; 2];
        for (ty, expected) in [
            (AtomicType::F64, [u64::MAX, 0x1122_3344_5566_7788]),
            (AtomicType::I32, [u64::MAX, 0x1122_3344_99aa_bbcc]),
        ] {
            let op = table.begin(Some(group), Some(3)).unwrap();
            let base = SharedPtr(words.as_mut_ptr().wrapping_add(1).cast());
            table.hold(op, Held::Result(ResultPlace { base, ty }));
            let value = match ty.size() {
                4 => 0x99aa_bbcc,
                _ => expected[1],
            };
            table.set_value(op, value);
            table.finish(op);
            assert_eq!(words.map(u64::from_le), expected);
            // A value that arrives after the operation has gone changes nothing.
            table.set_value(op, 0);
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn ids_run_out_and_come_back() {
        let mut table = Table::new(2);
        let a = table.begin(None, Some(3)).unwrap();
        let b = table.begin(None, Some(3)).unwrap();
        assert!(table.begin(None, Some(3)).is_none());
        table.finish(a);
        table.take(a);
        let c = table.begin(None, Some(3)).unwrap();
        assert_ne!(a, c);
        assert_ne!(b, c);
    }
}
