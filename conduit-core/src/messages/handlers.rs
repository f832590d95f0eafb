//! The registered handlers.

use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

use am::handlers::{Entry, RegisterError, Table};

type Tables<H> = Vec<Arc<Table<H>>>;

/// The table of handlers. Each registration replaces the whole table, so that a call can read the
/// table without a lock.
///
/// Replaced tables are kept until `Handlers` is dropped, because a handler from one of them may be
/// running. Registrations are rare (once, or a few times in GASNet-EX), and a table has 256
/// entries.
pub(crate) struct Handlers<H> {
    current: AtomicPtr<Table<H>>,
    /// The owners of all tables to which `current` has ever pointed. They are not boxes, because
    /// moving a box asserts unique access to its contents.
    all: Mutex<Tables<H>>,
}

impl<H: Clone> Handlers<H> {
    pub(crate) fn new() -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            all: Mutex::new(Vec::new()),
        }
    }

    /// Returns the entry for an id.
    #[inline(always)]
    pub(crate) fn get(&self, id: u8) -> Option<&Entry<H>> {
        let table = self.current.load(Acquire);
        // SAFETY: the pointer is null or refers to a table in `all`. No table in `all` is dropped
        // or changed while `self` lives.
        unsafe { table.as_ref() }?.get(id)
    }

    /// Replaces the table by a copy to which `enter` has added handlers.
    pub(crate) fn replace(
        &self,
        enter: impl FnOnce(&mut Table<H>) -> Result<(), RegisterError>,
    ) -> Result<(), RegisterError> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = all.last().map_or_else(Table::new, |last| (**last).clone());
        enter(&mut table)?;
        let table = Arc::new(table);
        self.current.store(Arc::as_ptr(&table).cast_mut(), Release);
        all.push(table);
        Ok(())
    }
}
