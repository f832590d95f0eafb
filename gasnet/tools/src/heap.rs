//! The checked heap of debug builds: guards around each block, and a table of the blocks with the
//! source locations that allocated them. Functions report faults as [`HeapError`], with which
//! [`crate::memory`] ends the process.
//!
//! A block lies in memory of the C library, with [`GUARD`] bytes of guard before it and behind it.
//! The table is separate from the blocks, so that a program that writes beyond a block does not
//! destroy the table too.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::fmt::Write;

use thiserror::Error;

/// The size of the guard on either side. It is a multiple of the strictest alignment, so that
/// blocks are aligned as malloc's are.
const GUARD: usize = 16;

/// The values of `at` in [`HeapError::Damaged`]: where the program wrote relative to the block.
/// [`INTO`] is for a block that had been freed.
const BEFORE: &str = "before";
const BEHIND: &str = "behind";
const INTO: &str = "into";

/// A fault in a block.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum HeapError {
    #[error("{address:#x} is not a block of this heap, or has already been freed")]
    Unknown { address: usize },
    #[error(
        "the program wrote {at} the block {address:#x} of {size} bytes, allocated at {place}{}",
        if *at == INTO { ", after it was freed" } else { "" }
    )]
    Damaged {
        /// [`BEFORE`], [`BEHIND`] or [`INTO`].
        at: &'static str,
        address: usize,
        size: usize,
        place: String,
    },
    #[error("cannot allocate {size} bytes")]
    NoMemory { size: usize },
}

/// The value that fills memory: a byte, or a word of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Byte(u8),
    Word(u64),
}

impl Fill {
    fn byte_at(self, index: usize) -> u8 {
        match self {
            Fill::Byte(byte) => byte,
            Fill::Word(word) => word.to_ne_bytes()[index % 8],
        }
    }

    fn apply(self, bytes: &mut [u8]) {
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte_at(index);
        }
    }

    fn holds(self, bytes: &[u8]) -> bool {
        bytes
            .iter()
            .enumerate()
            .all(|(index, &byte)| byte == self.byte_at(index))
    }
}

/// The checks that the environment requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// The value that fills new blocks that need not be zero.
    pub(crate) initial: Option<Fill>,
    /// The value that overwrites freed blocks.
    pub(crate) clobber: Option<Fill>,
    /// Whether freed blocks are never reused.
    pub(crate) leak: bool,
    /// Whether freed blocks that are kept are scanned for changes. Requires `clobber` and `leak`.
    pub(crate) scan_freed: bool,
    /// Whether each call checks all blocks.
    pub(crate) check_all: bool,
}

/// `gasnett_heapstats_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub(crate) allocated_bytes: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) live_bytes_max: u64,
    pub(crate) allocated_objects: u64,
    pub(crate) freed_objects: u64,
    pub(crate) live_objects: u64,
    pub(crate) live_objects_max: u64,
    pub(crate) overhead_bytes: u64,
}

#[derive(Debug)]
struct Block {
    size: usize,
    place: String,
}

impl Block {
    fn damaged(&self, at: &'static str, address: usize) -> HeapError {
        HeapError::Damaged {
            at,
            address,
            size: self.size,
            place: self.place.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Heap {
    settings: Settings,
    live: BTreeMap<usize, Block>,
    /// Freed blocks that are kept for `scan_freed`.
    freed: VecDeque<(usize, Block)>,
    statistics: Statistics,
    /// The address of the block that [`Heap::check_next`] checked last.
    checked: usize,
}

impl Heap {
    pub(crate) fn new(settings: Settings) -> Self {
        Heap {
            settings,
            ..Heap::default()
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Allocates a block, which may have 0 bytes. The block's content is zero or as the settings
    /// require.
    pub(crate) fn allocate(
        &mut self,
        size: usize,
        zeroed: bool,
        place: &str,
    ) -> Result<*mut c_void, HeapError> {
        self.check_if_asked()?;
        let whole = size
            .checked_add(2 * GUARD)
            .ok_or(HeapError::NoMemory { size })?;
        // SAFETY: `malloc` accepts any size, and the result is checked.
        let start = unsafe { libc::malloc(whole) }.cast::<u8>();
        if start.is_null() {
            return Err(HeapError::NoMemory { size });
        }
        // SAFETY: `start` was just allocated with `whole` bytes, which are not used otherwise.
        let bytes = unsafe {
            start.write_bytes(0, whole);
            std::slice::from_raw_parts_mut(start, whole)
        };
        guard(start.addr()).apply(&mut bytes[..GUARD]);
        guard(start.addr()).apply(&mut bytes[GUARD + size..]);
        if let (false, Some(fill)) = (zeroed, self.settings.initial) {
            fill.apply(&mut bytes[GUARD..GUARD + size]);
        }
        // SAFETY: the block begins within the allocated memory.
        let block = unsafe { start.add(GUARD) };
        self.live.insert(
            block.addr(),
            Block {
                size,
                place: place.to_owned(),
            },
        );
        self.count_allocated(size as u64);
        Ok(block.cast())
    }

    /// Allocates a block of `size` bytes, copies the old block's content to it as far as it fits,
    /// and frees the old block.
    pub(crate) fn reallocate(
        &mut self,
        old: *mut c_void,
        size: usize,
        place: &str,
    ) -> Result<*mut c_void, HeapError> {
        let old_size = self.check(old)?;
        let new = self.allocate(size, false, place)?;
        // SAFETY: `old` and `new` are different live blocks, and each has at least the number of
        // bytes copied.
        unsafe {
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), old_size.min(size))
        };
        self.free(old)?;
        Ok(new)
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, block: *mut c_void) -> Result<(), HeapError> {
        self.check_if_asked()?;
        self.check(block)?;
        let address = block.addr();
        let Some(entry) = self.live.remove(&address) else {
            return Err(HeapError::Unknown { address });
        };
        self.count_freed(entry.size as u64);
        if let Some(fill) = self.settings.clobber {
            // SAFETY: `block` has `entry.size` bytes, which are no longer in use.
            fill.apply(unsafe { std::slice::from_raw_parts_mut(block.cast::<u8>(), entry.size) });
        }
        if self.settings.scan_freed {
            self.freed.push_back((address, entry));
        }
        if !self.settings.leak {
            // SAFETY: `malloc` returned the address of the guard before the block, and the block is
            // no longer in any table.
            unsafe { libc::free(block.cast::<u8>().sub(GUARD).cast()) };
        }
        Ok(())
    }

    /// Checks the guards of a block and returns its size.
    pub(crate) fn check(&self, block: *const c_void) -> Result<usize, HeapError> {
        let address = block.addr();
        let entry = self
            .live
            .get(&address)
            .ok_or(HeapError::Unknown { address })?;
        check_guards(address, entry)?;
        Ok(entry.size)
    }

    /// Checks the block after the one that was checked last.
    pub(crate) fn check_next(&mut self) -> Result<(), HeapError> {
        let next = self
            .live
            .range(self.checked + 1..)
            .next()
            .or_else(|| self.live.iter().next());
        let Some((&address, entry)) = next else {
            return Ok(());
        };
        self.checked = address;
        check_guards(address, entry)
    }

    /// Checks all live blocks, and the freed blocks too if the settings request it.
    pub(crate) fn check_all(&self) -> Result<(), HeapError> {
        self.live
            .iter()
            .try_for_each(|(&address, entry)| check_guards(address, entry))?;
        let Some(fill) = self.settings.clobber else {
            return Ok(());
        };
        self.freed.iter().try_for_each(|(address, entry)| {
            check_guards(*address, entry)?;
            // SAFETY: blocks in `freed` still exist, because `scan_freed` requires `leak`, with
            // which no block is returned to the C library.
            let bytes = unsafe {
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance(*address), entry.size)
            };
            match fill.holds(bytes) {
                true => Ok(()),
                false => Err(entry.damaged(INTO, *address)),
            }
        })
    }

    /// Formats a readable report of the memory that has been allocated and not freed.
    pub(crate) fn report(&self) -> String {
        let Statistics {
            allocated_bytes,
            freed_bytes,
            live_bytes,
            live_bytes_max,
            allocated_objects,
            freed_objects,
            live_objects,
            live_objects_max,
            overhead_bytes,
        } = self.statistics;
        let mut text = format!(
            "allocated {allocated_bytes} bytes in {allocated_objects} blocks\n\
             freed {freed_bytes} bytes in {freed_objects} blocks\n\
             live {live_bytes} bytes in {live_objects} blocks, at most {live_bytes_max} bytes, {live_objects_max} blocks\n\
             guards {overhead_bytes} bytes\n"
        );
        // Sum the blocks by location, so that a leak in a loop takes one line. List the largest sum
        // first.
        let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for block in self.live.values() {
            let (bytes, blocks) = places.entry(&block.place).or_default();
            *bytes += block.size;
            *blocks += 1;
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
        for (place, (bytes, blocks)) in places {
            let _ = writeln!(
                text,
                "not freed: {bytes} bytes in {blocks} blocks from {place}"
            );
        }
        text
    }

    fn check_if_asked(&self) -> Result<(), HeapError> {
        if self.settings.check_all {
            self.check_all()
        } else {
            Ok(())
        }
    }

    fn count_allocated(&mut self, size: u64) {
        let s = &mut self.statistics;
        s.allocated_bytes += size;
        s.allocated_objects += 1;
        s.live_bytes += size;
        s.live_objects += 1;
        s.live_bytes_max = s.live_bytes_max.max(s.live_bytes);
        s.live_objects_max = s.live_objects_max.max(s.live_objects);
        s.overhead_bytes += 2 * GUARD as u64;
    }

    fn count_freed(&mut self, size: u64) {
        let s = &mut self.statistics;
        s.freed_bytes += size;
        s.freed_objects += 1;
        s.live_bytes -= size;
        s.live_objects -= 1;
        s.overhead_bytes -= 2 * GUARD as u64;
    }
}

/// Returns the guard value for the memory at an address. It differs between addresses, so that a
/// guard copied from elsewhere is detected too.
fn guard(start: usize) -> Fill {
    Fill::Word((start as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
}

fn check_guards(address: usize, entry: &Block) -> Result<(), HeapError> {
    let start = address - GUARD;
    // SAFETY: every block in a table lies in allocated memory of the block's size and two guards.
    let bytes = unsafe {
        std::slice::from_raw_parts(
            std::ptr::with_exposed_provenance::<u8>(start),
            entry.size + 2 * GUARD,
        )
    };
    let (before, behind) = (&bytes[..GUARD], &bytes[GUARD + entry.size..]);
    for (at, bytes) in [(BEFORE, before), (BEHIND, behind)] {
        if !guard(start).holds(bytes) {
            return Err(entry.damaged(at, address));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(block: *mut c_void, offset: isize, value: u8) {
        // SAFETY: the tests write only into guards and blocks, which are memory of the heap.
        unsafe { block.cast::<u8>().offset(offset).write(value) };
    }

    fn read(block: *mut c_void, offset: isize) -> u8 {
        // SAFETY: the tests read only from guards and blocks, which are memory of the heap.
        unsafe { block.cast::<u8>().offset(offset).read() }
    }

    #[test]
    fn a_block_is_zeroed_or_filled_and_aligned() {
        let settings = Settings {
            initial: Some(Fill::Byte(0xAB)),
            ..Settings::default()
        };
        let mut heap = Heap::new(settings);
        let filled = heap.allocate(5, false, "here").expect("memory");
        let zeroed = heap.allocate(5, true, "here").expect("memory");
        assert!((0..5).all(|at| read(filled, at) == 0xAB && read(zeroed, at) == 0));
        assert_eq!((filled.addr() % 16, zeroed.addr() % 16), (0, 0));
        assert!(heap.free(filled).and_then(|()| heap.free(zeroed)).is_ok());
    }

    #[test]
    fn writes_beyond_a_block_are_found_wherever_it_is_looked_at() {
        let mut heap = Heap::default();
        for (offset, at) in [(-1, BEFORE), (-16, BEFORE), (10, BEHIND), (25, BEHIND)] {
            let block = heap.allocate(10, true, "file.c:7").expect("memory");
            let held = read(block, offset);
            write(block, offset, held ^ 1);
            let expected = HeapError::Damaged {
                at,
                address: block.addr(),
                size: 10,
                place: "file.c:7".into(),
            };
            let found = [
                heap.check(block).map(|_| ()),
                heap.check_all(),
                heap.check_next(),
                heap.free(block),
            ];
            assert!(
                found.iter().all(|found| found.as_ref() == Err(&expected)),
                "{offset}: {found:?}"
            );
            write(block, offset, held);
            assert_eq!(heap.free(block), Ok(()));
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut heap = Heap::default();
        let block = heap.allocate(8, false, "here").expect("memory");
        let inside = block.wrapping_byte_add(1);
        assert_eq!(
            heap.free(inside),
            Err(HeapError::Unknown {
                address: inside.addr()
            })
        );
        assert_eq!(heap.free(block), Ok(()));
        assert_eq!(
            heap.free(block),
            Err(HeapError::Unknown {
                address: block.addr()
            })
        );
        assert_eq!(
            heap.allocate(usize::MAX - 8, false, "here"),
            Err(HeapError::NoMemory {
                size: usize::MAX - 8
            })
        );
    }

    #[test]
    fn writes_after_a_block_was_given_back_are_found() {
        let settings = Settings {
            clobber: Some(Fill::Word(0x0102_0304_0506_0708)),
            leak: true,
            scan_freed: true,
            ..Settings::default()
        };
        let mut heap = Heap::new(settings);
        let block = heap.allocate(24, true, "here").expect("memory");
        assert_eq!(heap.free(block), Ok(()));
        assert_eq!(heap.check_all(), Ok(()));
        write(block, 3, 0x55);
        assert_eq!(
            heap.check_all(),
            Err(HeapError::Damaged {
                at: INTO,
                address: block.addr(),
                size: 24,
                place: "here".into()
            })
        );
    }

    #[test]
    fn each_call_checks_all_blocks_when_asked() {
        let mut heap = Heap::new(Settings {
            check_all: true,
            ..Settings::default()
        });
        let block = heap.allocate(1, true, "here").expect("memory");
        let held = read(block, 1);
        write(block, 1, held ^ 1);
        assert!(matches!(
            heap.allocate(1, true, "there"),
            Err(HeapError::Damaged { at: BEHIND, .. })
        ));
        write(block, 1, held);
        assert_eq!(heap.free(block), Ok(()));
    }

    #[test]
    fn a_block_keeps_its_bytes_when_its_size_changes_and_all_is_counted() {
        let mut heap = Heap::default();
        let block = heap.allocate(4, true, "first").expect("memory");
        (0..4).for_each(|at| write(block, at, at as u8 + 1));
        let longer = heap.reallocate(block, 1000, "second").expect("memory");
        assert!((0..4).all(|at| read(longer, at) == at as u8 + 1));
        let shorter = heap.reallocate(longer, 2, "third").expect("memory");
        assert_eq!((read(shorter, 0), read(shorter, 1)), (1, 2));
        let counted = heap.statistics();
        let expected = Statistics {
            allocated_bytes: 1006,
            freed_bytes: 1004,
            live_bytes: 2,
            live_bytes_max: 1004,
            allocated_objects: 3,
            freed_objects: 2,
            live_objects: 1,
            live_objects_max: 2,
            overhead_bytes: 32,
        };
        assert_eq!(counted, expected);
        assert!(
            heap.report()
                .contains("not freed: 2 bytes in 1 blocks from third"),
            "{}",
            heap.report()
        );
        assert_eq!(heap.free(shorter), Ok(()));
    }

    #[test]
    fn looking_at_one_goes_round() {
        let mut heap = Heap::default();
        assert_eq!(heap.check_next(), Ok(()));
        let blocks: Vec<_> = (0..3)
            .map(|_| heap.allocate(8, true, "here").expect("memory"))
            .collect();
        let held = read(blocks[1], 8);
        write(blocks[1], 8, held ^ 1);
        let found = (0..3).filter(|_| heap.check_next().is_err()).count();
        assert_eq!(found, 1);
        write(blocks[1], 8, held);
    }
}
