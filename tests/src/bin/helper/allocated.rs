//! A global allocator that counts the bytes that Rust code has allocated. The count excludes what
//! the system's allocator keeps in reserve.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counted;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

// SAFETY: every call is forwarded to the system's allocator, which keeps the trait's contract.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which the system's
        // allocator shares.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, which the system's
        // allocator shares.
        unsafe { System.dealloc(pointer, layout) };
    }
}

/// Returns the number of bytes that are allocated now.
pub(crate) fn bytes() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}
