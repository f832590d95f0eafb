//! This rank's operations in flight, and their ids.

use conduit_core::ni::{EqId, Event, MdId, MeId, Outcome, Rank};

use super::buffers::Buffer;

/// The kind of an operation, which determines the event that ends it.
#[derive(Debug)]
pub(crate) enum OperationKind {
    /// A put that ends when its source may be reused.
    Put,
    /// A put that ends with a response.
    AckedPut,
    /// A get of at most this many bytes.
    Get(u32),
    /// An atomic. The value is `true` if it fetches the old value.
    Atomic(bool),
    /// An inject, with a copy of its bytes. The end of an inject raises no event.
    Inject(Buffer),
    /// An operation that the transport performs directly on the memory of this entry of the target.
    Direct(End, MeId),
}

impl OperationKind {
    /// Returns the event that ends the operation, if there is one.
    #[inline]
    pub(crate) fn end(&self) -> Option<End> {
        match *self {
            Self::Put => Some(End::Send),
            Self::AckedPut | Self::Atomic(false) => Some(End::Ack),
            Self::Get(_) | Self::Atomic(true) => Some(End::Reply),
            Self::Inject(_) => None,
            Self::Direct(end, _) => Some(end),
        }
    }
}

/// The event that ends an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Send,
    Ack,
    Reply,
}

impl End {
    #[inline]
    pub(crate) fn event(self, token: u64, completion: Completion) -> Event<'static> {
        let Completion {
            outcome,
            length,
            value,
        } = completion;
        let length = length as usize;
        match self {
            Self::Send => Event::Send { token },
            Self::Ack => Event::Ack {
                token,
                outcome,
                length,
            },
            Self::Reply => Event::Reply {
                token,
                outcome,
                length,
                value,
            },
        }
    }
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: OperationKind,
    pub(crate) token: u64,
    pub(crate) target: Rank,
    /// The descriptor of the operation's memory, which counts the operation as pending.
    pub(crate) md: Option<MdId>,
    pub(crate) eq: EqId,
    /// The operation's memory within the descriptor.
    pub(crate) memory: *mut u8,
    /// Number of bytes at `memory`.
    pub(crate) length: usize,
    /// Whether the transport may still read the operation's bytes.
    pub(crate) unsent: bool,
    /// The operation's result at the target, once known.
    pub(crate) completion: Option<Completion>,
    /// Whether the operation is given up. If so, its memory belongs to the caller again, and its
    /// end raises no event.
    pub(crate) abandoned: bool,
}

// SAFETY: the pointer is used only under the network's lock. The contract of `Ni::md_bind` allows
// any thread of the process to access the memory while the operation is in flight.
unsafe impl Send for Operation {}

impl Operation {
    /// Creates an operation without memory.
    #[inline]
    pub(crate) fn new(kind: OperationKind, token: u64, target: Rank, eq: EqId) -> Self {
        Self {
            kind,
            token,
            target,
            md: None,
            eq,
            memory: std::ptr::null_mut(),
            length: 0,
            unsent: false,
            completion: None,
            abandoned: false,
        }
    }

    /// Returns whether the caller is still waiting for the target.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.kind.end(), Some(End::Ack | End::Reply)) && !self.abandoned
    }
}

/// The result of an operation at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) outcome: Outcome,
    pub(crate) length: u32,
    pub(crate) value: u64,
}

impl Completion {
    /// Returns the result of an operation that has moved this many bytes.
    pub(crate) fn done(length: u32) -> Self {
        Self {
            outcome: Outcome::Done,
            length,
            value: 0,
        }
    }
}

/// The number of low bits of an id that hold its slot. The other bits hold the slot's generation.
const SLOT_BITS: u32 = super::config::MAX_OPERATIONS.trailing_zeros();
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

#[derive(Debug)]
struct Slot {
    generation: u32,
    operation: Option<Operation>,
}

impl Slot {
    #[inline]
    fn is_current(&self, id: u32) -> bool {
        self.generation << SLOT_BITS == id & !SLOT_MASK
    }
}

/// The operations in flight, by id.
#[derive(Debug)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: u32,
}

impl Operations {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// Assigns an id to an operation; returns `None` if all ids are in use.
    #[inline]
    pub(crate) fn add(&mut self, operation: Operation) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if (self.slots.len() as u32) < self.limit => {
                self.slots.push(Slot {
                    generation: 0,
                    operation: None,
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = self.slots.get_mut(at as usize)?;
        slot.operation = Some(operation);
        Some(slot.generation << SLOT_BITS | at)
    }

    #[inline]
    fn slot(&mut self, id: u32) -> Option<&mut Slot> {
        let slot = self.slots.get_mut((id & SLOT_MASK) as usize)?;
        slot.is_current(id).then_some(slot)
    }

    #[inline]
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Operation> {
        self.slot(id)?.operation.as_mut()
    }

    #[inline]
    pub(crate) fn peek(&self, id: u32) -> Option<&Operation> {
        let slot = self.slots.get((id & SLOT_MASK) as usize)?;
        slot.operation.as_ref().filter(|_| slot.is_current(id))
    }

    /// Removes an operation; its id becomes stale.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Option<Operation> {
        let slot = self.slot(id)?;
        let operation = slot.operation.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id & SLOT_MASK);
        Some(operation)
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Operation> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.operation.as_mut())
    }

    /// Removes all operations to a target.
    pub(crate) fn remove_all_to(&mut self, target: Rank) -> Vec<Operation> {
        let mut removed = Vec::new();
        for (at, slot) in (0..).zip(&mut self.slots) {
            if let Some(operation) = slot.operation.take_if(|o| o.target == target) {
                slot.generation = slot.generation.wrapping_add(1);
                self.free.push(at);
                removed.push(operation);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(token: u64, target: Rank) -> Operation {
        Operation::new(OperationKind::Put, token, target, EqId(0))
    }

    #[test]
    fn ids_are_not_used_twice() {
        let mut operations = Operations::new(2);
        let a = operations.add(operation(1, 5)).unwrap();
        let b = operations.add(operation(2, 6)).unwrap();
        assert!(operations.add(operation(3, 5)).is_none());
        assert_eq!(operations.get(a).unwrap().token, 1);
        assert_eq!(operations.remove(a).unwrap().token, 1);
        assert!(operations.remove(a).is_none());
        let c = operations.add(operation(4, 5)).unwrap();
        assert_ne!(a, c);
        assert!(operations.get(a).is_none());
        let gone = operations.remove_all_to(5);
        assert_eq!(gone.iter().map(|o| o.token).collect::<Vec<_>>(), [4]);
        assert!(operations.get(c).is_none());
        assert_eq!(operations.get(b).unwrap().token, 2);
        assert!(operations.get(u32::MAX).is_none());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let id = operations.add(operation(0, 0)).unwrap();
            assert!(seen.insert(id));
            operations.remove(id);
        }
    }
}
