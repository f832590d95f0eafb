//! The threads inside a poll, for which a failing call has to wait.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// The number of threads inside a poll, in [`crate::threads::Par`].
///
/// A call that fails gives its caller's buffers back, so no completion may access these buffers any
/// more. A thread that polls has either seen the fault and accesses no buffer, or is counted here,
/// and the failing call waits until it is out. (SYNC: the count is raised before the fault is
/// checked, and the fault is recorded before the count is checked, all sequentially consistent: at
/// least one side sees the other.)
#[derive(Debug, Default)]
pub(crate) struct Polling {
    threads: AtomicU32,
}

thread_local! {
    /// The number of polls, of any engine, that this thread is inside. A handler may make calls
    /// that fail.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether this thread is inside a poll, in [`crate::threads::Par`].
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

pub(crate) struct Inside<'a>(&'a Polling);

impl Polling {
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.threads.fetch_add(1, SeqCst);
        INSIDE.set(INSIDE.get() + 1);
        Inside(self)
    }

    /// Waits until no other thread is inside.
    pub(crate) fn wait_until_out(&self) {
        while self.threads.load(SeqCst) > INSIDE.get() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
        self.0.threads.fetch_sub(1, SeqCst);
    }
}
