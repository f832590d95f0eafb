//! Memory that cases lend to networks. Cases read and write it only by copy, because peers may
//! write it concurrently.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use conduit_core::ni::{Region, Window};

use super::world::Md;

/// Private memory of a rank. Its address is odd, so that no case passes only thanks to alignment.
#[derive(Debug)]
pub(super) struct Buffer {
    start: *mut u8,
    layout: Layout,
}

/// The distance of a buffer's address from a multiple of 16, in bytes.
const SKEW: usize = 3;

impl Buffer {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let buffer = Self::zeroed(bytes.len());
        write(buffer.base(), bytes);
        buffer
    }

    pub(super) fn zeroed(len: usize) -> Self {
        let layout = Layout::from_size_align(len + 16, 16).expect("a length that memory can have");
        // SAFETY: the layout's size is at least 16 bytes, so it is not 0.
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
        // SAFETY: the allocator returned `start` for this layout, and only this buffer frees it.
        unsafe { dealloc(self.start, self.layout) }
    }
}

fn write(base: *mut u8, bytes: &[u8]) {
    // SAFETY: every caller has checked that `base` points into a live allocation, mapping or window
    // with room for `bytes`.
    unsafe { base.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

fn read(base: *const u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: every caller has checked that `base` points to `len` bytes in a live allocation,
    // mapping or window. The world's only thread has seen the end of the operations that wrote
    // them.
    unsafe { base.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    bytes
}

/// A piece of memory that a case reads and writes. Its methods panic for ranges outside the memory.
pub trait Peek {
    /// Returns the memory's address and length.
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
