//! Counts the memory of endpoints in the allocator, independently of the endpoints' own
//! bookkeeping.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, which also counts the bytes that are allocated [`inside`] an endpoint.
#[derive(Debug)]
pub struct Counting;

fn note(bytes: i64) {
    // A thread that ends may allocate after its thread-local variables are gone. Such allocations
    // are not counted.
    if COUNTS.try_with(Cell::get).unwrap_or(false) {
        let _ = BYTES.try_with(|sum| sum.set(sum.get() + bytes));
    }
}

// SAFETY: every call is forwarded to the system's allocator with the same arguments, and counting
// touches no memory of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Switches counting on or off until the scope is dropped, which restores the previous state.
struct Scope(bool);

impl Scope {
    fn enter(counts: bool) -> Self {
        Self(COUNTS.replace(counts))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        COUNTS.set(self.0);
    }
}

/// Calls into an endpoint. Adds to `held` the number of bytes that the call allocates, less those
/// that it frees.
pub fn inside<T>(held: &mut i64, call: impl FnOnce() -> T) -> T {
    let before = BYTES.get();
    let result = {
        let _scope = Scope::enter(true);
        call()
    };
    *held += BYTES.get() - before;
    result
}

/// Calls back out of an endpoint, without counting.
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(false);
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_inside_counts() {
        let mut held = 0;
        let kept = inside(&mut held, || {
            let dropped = vec![0u8; 500];
            let out = outside(|| vec![1u8; 10_000]);
            let mut kept = Vec::with_capacity(100);
            kept.extend_from_slice(&out[..dropped.len()]);
            outside(|| drop(out));
            kept
        });
        assert_eq!((held, kept.len()), (kept.capacity() as i64, 500));
        inside(&mut held, || drop(kept));
        assert_eq!(held, 0);
    }
}
