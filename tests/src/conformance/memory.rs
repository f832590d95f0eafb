//! Memory that cases lend to networks, read and written only by copy, because peers may write it
//! concurrently.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use conduit_core::ni::{Region, Window};

use super::world::Md;

/// Private memory of a rank, at an odd address so that no case passes only thanks to alignment.
#[derive(Debug)]
pub(super) struct Buffer {
    start: *mut u8,
    layout: Layout,
}

/// The buffer's distance from a multiple of 16, in bytes.
const SKEW: usize = 3;

impl Buffer {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let buffer = Self::zeroed(bytes.len());
        write(buffer.base(), bytes);
        buffer
    }

    pub(super) fn zeroed(len: usize) -> Self {
        let layout = Layout::from_size_align(len + 16, 16).expect("a length that memory can have");
        // SAFETY: the layout is not empty (16 bytes at least).
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, layout }
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.start.wrapping_add(SKEW)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `start` was returned by the allocator for this layout, and only this buffer frees
        // it.
        unsafe { dealloc(self.start, self.layout) }
    }
}

fn write(base: *mut u8, bytes: &[u8]) {
    // SAFETY: every caller has checked that `base` has room for `bytes` in a live allocation,
    // mapping or window.
    unsafe { base.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

fn read(base: *const u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: every caller has checked that `base` has `len` bytes in a live allocation, mapping or
    // window, and the world's one thread has seen the end of the operations that wrote them.
    unsafe { base.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    bytes
}

/// A piece of memory that a case reads and writes. Panics outside of it.
pub trait Peek {
    /// Returns its address and length.
    fn extent(&self) -> (*mut u8, usize);

    /// Returns a copy of `len` bytes at `offset`.
    #[track_caller]
    fn peek(&self, offset: usize, len: usize) -> Vec<u8> {
        let (base, all) = self.extent();
        assert!(offset + len <= all, "reading outside the memory");
        read(base.wrapping_add(offset), len)
    }

    /// Returns a copy of all bytes.
    fn bytes(&self) -> Vec<u8> {
        self.peek(0, self.extent().1)
    }

    /// Writes `bytes` at `offset`.
    #[track_caller]
    fn poke(&self, offset: usize, bytes: &[u8]) {
        let (base, all) = self.extent();
        assert!(offset + bytes.len() <= all, "writing outside the memory");
        write(base.wrapping_add(offset), bytes);
    }
}

impl Peek for Region {
    fn extent(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }
}

impl Peek for Window {
    fn extent(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }
}

impl Peek for Md {
    fn extent(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }
}
