//! A pool of buffers of a few sizes, for messages between arrival and delivery and for injects in
//! flight. The pool itself has no limit; [`super::window`] and the pool's users bound the memory
//! that they take.

use std::fmt;

/// Size and alignment in bytes of the blocks that buffers consist of.
pub(crate) const UNIT: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u8; UNIT]);

/// `len` bytes of memory, aligned to [`UNIT`] bytes.
pub(crate) struct Buffer {
    blocks: Box<[Block]>,
    len: usize,
}

impl Buffer {
    pub(crate) fn empty() -> Self {
        Self {
            blocks: Box::default(),
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let first = self.blocks.as_ptr().cast::<u8>();
        // SAFETY: `len` is at most the number of bytes in the blocks, which are initialised and
        // have no padding.
        unsafe { std::slice::from_raw_parts(first, self.len) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let first = self.blocks.as_mut_ptr().cast::<u8>();
        // SAFETY: `len` is at most the number of bytes in the blocks, which are initialised, have
        // no padding, and are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(first, self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish()
    }
}

/// Size classes: 1, 2, 4 ... 4096 units.
const CLASSES: usize = 13;
/// The maximum number of bytes in the free buffers of one size class.
const MAX_FREE: usize = 1 << 20;

/// Free buffers by size class.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Box<[Block]>>; CLASSES],
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Block")
    }
}

fn class(len: usize) -> usize {
    let units = len.div_ceil(UNIT).max(1);
    units.next_power_of_two().trailing_zeros() as usize
}

impl Pool {
    /// Returns a buffer of `len` bytes, whose contents are left over from earlier use in this rank.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        if len == 0 {
            return Buffer::empty();
        }
        let class = class(len);
        let free = self.free.get_mut(class).and_then(Vec::pop);
        let blocks = free.unwrap_or_else(|| vec![Block([0; UNIT]); 1 << class].into());
        Buffer { blocks, len }
    }

    #[inline]
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let blocks = buffer.blocks;
        if blocks.is_empty() {
            return;
        }
        let class = blocks.len().trailing_zeros() as usize;
        if let Some(free) = self.free.get_mut(class)
            && free.len() * blocks.len() * UNIT < MAX_FREE
        {
            free.push(blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let mut pool = Pool::default();
        assert_eq!(pool.take(0).bytes(), []);
        for len in [1, 64, 65, 768, 66 << 10, 256 << 10, 1 << 20] {
            let mut buffer = pool.take(len);
            assert_eq!(buffer.bytes().len(), len);
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(UNIT));
            buffer.bytes_mut().fill(7);
            let place = buffer.bytes().as_ptr();
            pool.give(buffer);
            let again = pool.take(len);
            let kept = len <= 256 << 10;
            assert!(!kept || again.bytes().as_ptr() == place, "{len} bytes");
        }
    }

    #[test]
    fn not_all_is_kept() {
        let mut pool = Pool::default();
        let many: Vec<_> = (0..100).map(|_| pool.take(64 << 10)).collect();
        for buffer in many {
            pool.give(buffer);
        }
        let kept: usize = pool.free.iter().flatten().map(|b| b.len() * UNIT).sum();
        assert_eq!(kept, MAX_FREE);
    }
}
