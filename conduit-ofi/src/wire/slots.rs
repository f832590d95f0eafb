//! Slots for operations in flight. A slot is the context of its operation: libfabric returns the
//! context with the completion, and many providers use its memory meanwhile (`FI_CONTEXT`,
//! `FI_CONTEXT2`). Slots therefore do not move, and their number is fixed.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use conduit_core::ni::Rank;
use libfabric_sys::fi_context2;

use crate::wire::objects::Registered;

/// An operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The slot is free.
    Free,
    /// A receive into this buffer.
    Receive(u32),
    /// A frame in a buffer of the large or the small pool.
    Frame {
        peer: Rank,
        large: bool,
        buffer: u32,
    },
    /// A frame sent from the user's memory. Its header is in a buffer of the small pool.
    Pieces { peer: Rank, token: u64, buffer: u32 },
    /// An atomic whose operands are in a buffer of the small pool.
    Atomic {
        peer: Rank,
        token: u64,
        buffer: u32,
        /// Whether the operands have 64 bits.
        is_wide: bool,
    },
    /// A direct access. `own` is set if the local memory was registered for this access alone.
    Direct {
        peer: Rank,
        token: u64,
        own: Option<Registered>,
    },
}

/// A slot, whose beginning is the context that libfabric sees. Its size is a power of two, so that
/// a slot's index is computed without a division.
#[repr(C, align(128))]
struct Slot {
    context: UnsafeCell<fi_context2>,
    operation: Operation,
}

const _: () = assert!(size_of::<Slot>() == 128);

/// All slots.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u32>,
}

// SAFETY: the pointers in a context belong to the library, whose objects may be used by any thread,
// but only by one at a time.
unsafe impl Send for Slots {}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        let slot = || Slot {
            context: UnsafeCell::new(fi_context2::default()),
            operation: Operation::Free,
        };
        Self {
            slots: (0..count).map(|_| slot()).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// Takes a slot for an operation. Returns its index and the context for libfabric, or `None` if
    /// all slots are in use.
    #[inline]
    pub(crate) fn take(&mut self, operation: Operation) -> Option<(u32, *mut c_void)> {
        let at = self.free.pop()?;
        let slot = &mut self.slots[at as usize];
        slot.operation = operation;
        Some((at, slot.context.get().cast()))
    }

    /// Returns whether a slot is free.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Frees a slot whose operation has ended or was never submitted.
    #[inline]
    pub(crate) fn give(&mut self, at: u32) {
        self.slots[at as usize].operation = Operation::Free;
        self.free.push(at);
    }

    /// Frees the slots of the operations for which `is_lost` returns `true`, because the library
    /// will not report those operations any more.
    pub(crate) fn reclaim(&mut self, mut is_lost: impl FnMut(&Operation) -> bool) {
        for (at, slot) in (0..).zip(&mut self.slots) {
            if slot.operation != Operation::Free && is_lost(&slot.operation) {
                slot.operation = Operation::Free;
                self.free.push(at);
            }
        }
    }

    /// Returns the slot of a context that libfabric returned, and the slot's operation. Returns
    /// `None` if the context is not that of a slot in use.
    #[inline]
    pub(crate) fn find(&self, context: *mut c_void) -> Option<(u32, &Operation)> {
        let begin = self.slots.as_ptr().addr();
        let offset = context.addr().checked_sub(begin)?;
        let at = offset / size_of::<Slot>();
        let slot = self.slots.get(at)?;
        let is_begin = offset.is_multiple_of(size_of::<Slot>());
        // The cast is lossless, because the value is the index of a slot.
        (is_begin && slot.operation != Operation::Free).then_some((at as u32, &slot.operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_by_its_context_while_it_is_in_use() {
        let mut slots = Slots::new(3);
        let taken: Vec<_> = (0..3)
            .map(|n| slots.take(Operation::Receive(n)).unwrap())
            .collect();
        assert!(slots.take(Operation::Receive(9)).is_none() && !slots.has_room());
        for (n, (at, context)) in (0..).zip(&taken) {
            assert_eq!(slots.find(*context), Some((*at, &Operation::Receive(n))));
            assert_eq!(slots.find(context.wrapping_byte_add(8)), None);
        }
        let (at, context) = taken[1];
        slots.give(at);
        assert_eq!(slots.find(context), None);
        assert_eq!(slots.find(std::ptr::null_mut()), None);
        assert!(slots.take(Operation::Receive(4)).is_some());
    }
}
