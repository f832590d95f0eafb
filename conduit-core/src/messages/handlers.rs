//! The handlers that are registered.

use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

use am::handlers::{Entry, RegisterError, Table};

type Tables<H> = Vec<Arc<Table<H>>>;

/// The table of handlers, replaced as a whole by each registration so that a call reads it without
/// a lock.
///
/// Replaced tables are kept until the end, as a handler may be running out of one. A registration
/// is a rare event (once, or a few times in GASNet-EX), a table has 256 entries.
pub(crate) struct Handlers<H> {
    current: AtomicPtr<Table<H>>,
    /// The owners of what `current` has ever pointed at. Not boxes: a box that is moved claims its
    /// contents for itself alone.
    all: Mutex<Tables<H>>,
}

impl<H: Clone> Handlers<H> {
    pub(crate) fn new() -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            all: Mutex::new(Vec::new()),
        }
    }

    /// What is registered with an id.
    #[inline(always)]
    pub(crate) fn get(&self, id: u8) -> Option<&Entry<H>> {
        let table = self.current.load(Acquire);
        // SAFETY: null, or a table of `all`, none of which is dropped or changed while `self`
        // lives.
        unsafe { table.as_ref() }?.get(id)
    }

    /// Replaces the table by one that more handlers have been entered in.
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
