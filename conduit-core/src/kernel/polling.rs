//! Who is inside a poll: what a failing call has to wait for.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Counts the threads that are inside a poll, in [`crate::threads::Par`].
///
/// A call that fails gives its caller's buffers back, so no completion may touch them any more. A
/// thread that polls has either seen the fault and touches none, or is counted here, and the
/// failing call waits until it is out. (SYNC: the count goes up before the look at the fault, the
/// fault is recorded before the look at the count, all sequentially consistent: one of the two is
/// seen.)
#[derive(Debug, Default)]
pub(crate) struct Polling {
    threads: AtomicU32,
}

thread_local! {
    /// Polls of any engine that this thread is inside of: a handler may make calls that fail.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Is this thread inside of one, in [`crate::threads::Par`]?
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
