//! The threads inside a poll. A failing call has to wait for them.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// The number of threads inside a poll, in the mode [`crate::threads::Par`].
///
/// A call that fails returns buffers to its caller, so from then on no completion may access these
/// buffers. A thread that polls either has seen the fault and accesses no buffer, or is counted
/// here, so that the failing call waits until the thread is out. (SYNC: a polling thread raises the
/// count before it checks for the fault, and a failing call records the fault before it checks the
/// count. All four accesses are sequentially consistent, so at least one of the two sees the
/// other.)
#[derive(Debug, Default)]
pub(crate) struct Polling {
    threads: AtomicU32,
}

thread_local! {
    /// The number of polls, of any engine, that this thread is inside. The number can exceed 0 in a
    /// failing call, because handlers may make calls.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether this thread is inside a poll. Meaningful only in [`crate::threads::Par`].
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

    /// Waits until no other thread is inside a poll.
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
