//! Implicit handles: operations that belong to the thread that started them and are synchronised
//! together; access regions.
//!
//! A thread's implicit puts, gets, atomics and collectives form one group each, and an access
//! region forms another. Operations on mapped memory are complete when they return and never join a
//! group.

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
    /// Returns the index of a single class.
    pub(super) fn place(self) -> usize {
        self.bits().trailing_zeros() as usize
    }
}

/// One thread's implicit operations with one engine.
#[derive(Debug, Default)]
pub(super) struct Implicit {
    engine: u64,
    /// Indexed by [`Class::place`].
    pub(super) groups: [Option<OpId>; CLASSES],
    pub(super) region: Region,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Region {
    #[default]
    Closed,
    /// A region is open. Its group exists once an operation needs it.
    Open {
        group: Option<OpId>,
        /// Whether the region belongs to a scope. Only the scope may then end it.
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

/// Drops this thread's state for an engine that is gone.
pub(crate) fn forget(engine: u64) {
    // In a thread that is being torn down, the state is already gone.
    let _ = IMPLICIT.try_with(|all| {
        if let Ok(mut all) = all.try_borrow_mut() {
            all.retain(|implicit| implicit.engine != engine);
        }
    });
}
