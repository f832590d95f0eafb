//! Implicit operations, which belong to the thread that started them and are synchronised together,
//! and access regions.
//!
//! The implicit puts, gets, atomics and collectives of a thread each form a group, and an access
//! region forms a separate group. Operations on mapped memory are complete when they return, so
//! they never join a group.

use std::cell::RefCell;

use crate::kernel::handle::OpId;

bitflags::bitflags! {
    /// Classes of implicit operations.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Class: u8 {
        /// Puts, and atomics that only set.
        const PUTS = 1 << 0;
        /// Gets, and atomics that only get.
        const GETS = 1 << 1;
        /// All other atomics.
        const ATOMICS = 1 << 2;
        /// Collective operations.
        const COLLECTIVES = 1 << 3;
    }
}

/// The number of classes.
pub(super) const CLASSES: usize = 4;

impl Class {
    /// Returns the index of a class. `self` must be a single class.
    pub(super) fn place(self) -> usize {
        self.bits().trailing_zeros() as usize
    }
}

/// The implicit operations of one thread with one engine.
#[derive(Debug, Default)]
pub(super) struct Implicit {
    engine: u64,
    /// The groups, indexed by [`Class::place`].
    pub(super) groups: [Option<OpId>; CLASSES],
    pub(super) region: Region,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Region {
    #[default]
    Closed,
    /// A region is open. Its group is created only when an operation needs it.
    Open {
        group: Option<OpId>,
        /// Whether the region belongs to a scope. If so, only the scope may end it.
        scoped: bool,
    },
}

thread_local! {
    static IMPLICIT: RefCell<Vec<Implicit>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn with<R>(engine: u64, f: impl FnOnce(&mut Implicit) -> R) -> R {
    IMPLICIT.with_borrow_mut(|all| {
        let at = all
            .iter()
            .position(|implicit| implicit.engine == engine)
            .unwrap_or_else(|| {
                all.push(Implicit {
                    engine,
                    ..Implicit::default()
                });
                all.len() - 1
            });
        f(&mut all[at])
    })
}

/// Drops this thread's state for an engine that has been dropped.
pub(crate) fn forget(engine: u64) {
    // In a thread that is ending, the state may already have been dropped.
    let _ = IMPLICIT.try_with(|all| {
        if let Ok(mut all) = all.try_borrow_mut() {
            all.retain(|implicit| implicit.engine != engine);
        }
    });
}
