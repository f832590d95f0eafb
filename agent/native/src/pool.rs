//! The memory for messages. Long messages are in pools, which are mapped once and allocated by the
//! buddy system (Knowlton, "A fast storage allocator", CACM 1965).

use std::collections::BTreeSet;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::Code;
use agent::host::{self, NoMemory};
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The maximum size, in bytes, of messages that are allocated from the heap. Longer messages are in
/// a pool.
pub(crate) const SHORT: usize = 1024;
/// The size of the smallest block, in bytes.
const LEAST: usize = 2048;

/// The bytes of a message.
#[derive(Debug)]
pub struct Memory {
    bytes: Bytes,
    _share: Option<Share>,
}

#[derive(Debug)]
enum Bytes {
    /// From the heap.
    Short(Box<[u8]>),
    Long(Block),
}

impl Memory {
    /// Allocates memory for a message.
    pub(crate) fn allocate(bytes: usize, pool: &Pool) -> Result<Self, NoMemory> {
        Ok(Self {
            bytes: match bytes <= SHORT {
                true => Bytes::Short(vec![0; bytes].into()),
                false => Bytes::Long(pool.allocate(bytes)?),
            },
            _share: None,
        })
    }

    /// Attaches the share that counts the memory against a limit.
    pub(crate) fn shared(mut self, share: Share) -> Self {
        self._share = Some(share);
        self
    }

    /// Converts the memory to that of a message in a channel that reserves memory for messages of
    /// up to `block` bytes.
    pub(crate) fn deposited(self, block: usize) -> Self {
        use host::Memory as _;
        let length = self.length();
        let bytes = match self.bytes {
            Bytes::Long(_) if length <= block => {
                let mut bytes = vec![0; length];
                self.read(0, &mut bytes);
                Bytes::Short(bytes.into())
            }
            bytes => bytes,
        };
        Self {
            bytes,
            _share: None,
        }
    }
}

impl host::Memory for Memory {
    fn length(&self) -> usize {
        match &self.bytes {
            Bytes::Short(bytes) => bytes.len(),
            Bytes::Long(block) => block.length,
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        match &self.bytes {
            Bytes::Short(bytes) => into.copy_from_slice(&bytes[offset..][..into.len()]),
            Bytes::Long(block) => {
                let start = block.at(offset, into.len());
                // SAFETY: `at` has checked that the bytes are within the block, which has no other
                // owner. The region of the block is initialised with zeros. `into` is a Rust
                // reference, so it does not overlap the block.
                unsafe {
                    start.copy_to_nonoverlapping(NonNull::from(&mut *into).cast(), into.len());
                }
            }
        }
    }

    fn write(&mut self, offset: usize, from: &[u8]) {
        match &mut self.bytes {
            Bytes::Short(bytes) => bytes[offset..][..from.len()].copy_from_slice(from),
            Bytes::Long(block) => {
                let start = block.at(offset, from.len());
                // SAFETY: `at` has checked that the bytes are within the block, `from` is a Rust
                // reference and does not overlap the block, and `&mut self` excludes other
                // accesses.
                unsafe { start.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) }
            }
        }
    }
}

/// The memory for the long messages of one kind, such as those in channels.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    region: Region,
    buddies: Mutex<Buddies>,
}

/// A message's part of a pool. Dropping a `Block` frees the part.
#[derive(Debug)]
struct Block {
    pool: Pool,
    offset: usize,
    order: u32,
    length: usize,
}

/// A number of bytes that counts against a limit until the `Share` is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Share {
    /// Adds `bytes` to the count `held`. Returns `None` if the total would exceed `limit`.
    pub(crate) fn take(held: &Arc<AtomicUsize>, bytes: usize, limit: usize) -> Option<Self> {
        let held = Arc::clone(held);
        let sum = held
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        // If the total exceeds the limit, dropping the share undoes the addition.
        let share = Self { held, bytes };
        (sum <= limit).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Pool {
    /// Creates a pool of this many bytes, rounded up to a power of two. `huge` requests huge pages,
    /// if the system has any.
    pub(crate) fn new(bytes: usize, huge: bool) -> io::Result<Self> {
        let bytes = bytes.max(4 * LEAST).checked_next_power_of_two();
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(Arc::new(Inner {
            region: Region::map(bytes, huge)?,
            buddies: Mutex::new(Buddies::new((bytes / LEAST).ilog2())),
        })))
    }

    /// Returns the length of the longest possible message.
    pub(crate) fn longest(&self) -> usize {
        self.0.region.bytes / 2
    }

    /// Allocates a block for a message.
    fn allocate(&self, length: usize) -> Result<Block, NoMemory> {
        if length > self.longest() {
            return Err(NoMemory::Ever(Code::OUT_OF_SPACE));
        }
        let order = length.div_ceil(LEAST).next_power_of_two().ilog2();
        let place = self.0.buddies.lock().take(order).ok_or(NoMemory::Now)?;
        Ok(Block {
            pool: self.clone(),
            offset: place * LEAST,
            order,
            length,
        })
    }
}

impl Block {
    /// Returns the address of a range of the block.
    ///
    /// # Panics
    /// Panics if the range exceeds the block.
    fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "the range exceeds the message"
        );
        // SAFETY: the range is within the block, and the block is within the region.
        unsafe { self.pool.0.region.start.add(self.offset + offset) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut buddies = self.pool.0.buddies.lock();
        buddies.give(self.offset / LEAST, self.order);
    }
}

/// A region of memory that is private to this process and is initialised with zeros.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory does not belong to any thread, and each of its blocks has one owner.
unsafe impl Send for Region {}
// SAFETY: the memory is accessed only through blocks, each of which has one owner.
unsafe impl Sync for Region {}

impl Region {
    fn map(bytes: usize, huge: bool) -> io::Result<Self> {
        let map = |flags: MapFlags| {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | flags;
            // SAFETY: the system chooses the address, so no mapping is replaced.
            unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }
        };
        let reserved = match huge {
            true => map(MapFlags::HUGETLB),
            false => Err(rustix::io::Errno::INVAL),
        };
        let start = match reserved {
            Ok(start) => start,
            // NORESERVE: the system allocates pages on first access.
            Err(_) => map(MapFlags::NORESERVE)?,
        };
        if huge && let Err(reserved) = reserved {
            // SAFETY: `start` and `bytes` are the region that was just mapped and is not in use
            // yet.
            match unsafe { madvise(start, bytes, Advice::LinuxHugepage) } {
                Ok(()) => tracing::warn!(
                    bytes,
                    "no reserved huge pages ({reserved}; see vm.nr_hugepages), using transparent huge pages where available"
                ),
                Err(error) => tracing::warn!(
                    bytes,
                    "neither reserved ({reserved}) nor transparent huge pages ({error}), using ordinary pages"
                ),
            }
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region was mapped with this length. No blocks are left, because each keeps
        // the pool alive.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::debug!(%error, "cannot unmap memory");
        }
    }
}

/// The free blocks of a pool. A block of order `n` consists of `2^n` places and starts at a
/// multiple of `2^n`.
#[derive(Debug)]
struct Buddies {
    /// The first places of the free blocks, by order.
    free: Vec<BTreeSet<usize>>,
}

impl Buddies {
    /// Returns the state with one free block of this order.
    fn new(order: u32) -> Self {
        let mut free = vec![BTreeSet::new(); order as usize + 1];
        free[order as usize].insert(0);
        Self { free }
    }

    /// Takes the first free block that is large enough, so that the remaining ones stay together,
    /// and returns its place.
    fn take(&mut self, order: u32) -> Option<usize> {
        let sizes = order as usize..self.free.len();
        let mut from = sizes
            .into_iter()
            .find(|order| !self.free[*order].is_empty())?;
        let place = self.free[from].pop_first()?;
        while from > order as usize {
            from -= 1;
            self.free[from].insert(place + (1 << from));
        }
        Some(place)
    }

    /// Frees a block.
    fn give(&mut self, mut place: usize, order: u32) {
        let mut order = order as usize;
        while order + 1 < self.free.len() && self.free[order].remove(&(place ^ 1 << order)) {
            place &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(place);
    }
}

#[cfg(test)]
mod tests {
    use agent::host::Memory as _;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_comes_back(steps in prop::collection::vec((0u32..5, any::<prop::sample::Index>(), any::<bool>()), 0..200)) {
            let mut buddies = Buddies::new(6);
            let mut taken: Vec<(usize, u32)> = Vec::new();
            for (order, which, gives) in steps {
                if gives && !taken.is_empty() {
                    let (place, order) = taken.swap_remove(which.index(taken.len()));
                    buddies.give(place, order);
                    continue;
                }
                let used: usize = taken.iter().map(|(_, order)| 1usize << order).sum();
                match buddies.take(order) {
                    Some(place) => {
                        let end = place + (1 << order);
                        prop_assert!(end <= 64 && place % (1 << order) == 0);
                        let apart = |(other, size): &(usize, u32)| end <= *other || other + (1 << size) <= place;
                        prop_assert!(taken.iter().all(apart));
                        taken.push((place, order));
                    }
                    None => prop_assert!(used > 0),
                }
            }
            for (place, order) in taken {
                buddies.give(place, order);
            }
            prop_assert_eq!(buddies.take(6), Some(0));
        }
    }

    #[test]
    fn a_message_has_its_bytes_and_others_have_not() {
        for huge in [false, true] {
            let pool = Pool::new(1 << 20, huge).unwrap();
            let mut first = Memory::allocate(3000, &pool).unwrap();
            let mut second = Memory::allocate(pool.longest(), &pool).unwrap();
            second.write(0, &vec![2; pool.longest()]);
            first.write(10, &[1; 2990]);
            let mut bytes = [9; 3000];
            first.read(0, &mut bytes);
            assert_eq!(bytes[..10], [0; 10]);
            assert!(bytes[10..].iter().all(|byte| *byte == 1));
            let ever = NoMemory::Ever(Code::OUT_OF_SPACE);
            assert_eq!(pool.allocate(pool.longest() + 1).unwrap_err(), ever);
            assert_eq!(pool.allocate(pool.longest()).unwrap_err(), NoMemory::Now);
            drop(first);
            pool.allocate(pool.longest()).unwrap();
        }
    }

    #[test]
    #[should_panic = "the range exceeds the message"]
    fn nobody_reads_beyond_a_message() {
        let pool = Pool::new(1 << 20, false).unwrap();
        let memory = Memory::allocate(3000, &pool).unwrap();
        memory.read(2990, &mut [0; 11]);
    }
}
