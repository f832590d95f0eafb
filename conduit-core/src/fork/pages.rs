//! Memory that a child finds zeroed.
//!
//! The system zeroes the memory (`MADV_WIPEONFORK`), whichever way the child is created. Where the
//! system does not know this advice (Linux before 4.14, gVisor), a handler zeroes the memory; the C
//! library's `fork` runs it in the child, but a bare `clone` does not. The handler takes no lock,
//! because another thread may be anywhere in this module when a child is created. It visits only
//! entries that are never freed.

use std::alloc::{Layout, handle_alloc_error};
use std::iter;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// Pages that are zero at first, and zero again in every child.
pub struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// Returns an empty range at an address that is aligned for `T`.
    pub(super) const fn none<T>() -> Self {
        Self {
            start: NonNull::<T>::dangling().cast(),
            bytes: 0,
        }
    }

    /// Allocates pages for a value of this layout. Like a vector, aborts if the system is out of
    /// memory.
    ///
    /// # Panics
    /// If the layout is empty, or if its alignment exceeds a page.
    pub fn new(layout: Layout) -> Self {
        assert!(layout.size() > 0 && layout.align() <= 4096, "{layout:?}");
        // SAFETY: this creates a new mapping at an address of the system's choice, so it affects no
        // existing memory.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                layout.size(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let pages = match NonNull::new(mapped.cast()) {
            Some(start) if mapped != libc::MAP_FAILED => Self {
                start,
                bytes: layout.size(),
            },
            _ => handle_alloc_error(layout),
        };
        // SAFETY: the range is the mapping just created. It holds only zeros, so zeroing it in a
        // child is harmless.
        let wiped = unsafe { libc::madvise(mapped, pages.bytes, libc::MADV_WIPEONFORK) };
        if wiped != 0 && !is_handled(&pages) {
            handle_alloc_error(layout);
        }
        pages
    }

    /// Returns the address of the first byte. The pages may be read and written through this
    /// address for as long as `self` lives.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of bytes requested.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let start = self.start.as_ptr();
        if let Some(range) = ranges().find(|range| range.start.load(Relaxed) == start) {
            range.start.store(ptr::null_mut(), Relaxed);
            range.bytes.store(0, Release);
        }
        // SAFETY: the range is the mapping created by `new`. The documentation of `start` forbids
        // access after `self` is dropped.
        unsafe { libc::munmap(start.cast(), self.bytes) };
    }
}

/// Pages that the handler zeroes.
struct Range {
    /// The first byte. Null if the range is not set yet, or has been removed.
    start: AtomicPtr<u8>,
    /// The length in bytes. 0 if the entry is free for reuse.
    bytes: AtomicUsize,
    next: Option<&'static Self>,
}

/// The newest range, which links to the older ones.
static RANGES: AtomicPtr<Range> = AtomicPtr::new(ptr::null_mut());

fn newest() -> Option<&'static Range> {
    // SAFETY: the pointer is null or refers to a complete range, which `add` has leaked, so it is
    // valid for the rest of the process.
    unsafe { RANGES.load(Acquire).as_ref() }
}

fn ranges() -> impl Iterator<Item = &'static Range> {
    iter::successors(newest(), |range| range.next)
}

/// Registers these pages with the handler. Returns `false` if the handler could not be installed
/// for lack of memory.
#[cold]
fn is_handled(pages: &Pages) -> bool {
    static HANDLED: OnceLock<bool> = OnceLock::new();
    // SAFETY: `wipe` lives as long as the process, and it is safe to run in any child because it
    // takes no lock and does not allocate.
    let handle = || unsafe { libc::pthread_atfork(None, None, Some(wipe)) == 0 };
    if !HANDLED.get_or_init(handle) {
        return false;
    }
    let is_taken = |range: &&Range| {
        let taken = range
            .bytes
            .compare_exchange(0, pages.bytes, Acquire, Relaxed);
        taken.is_ok()
    };
    let range = ranges().find(is_taken).unwrap_or_else(|| add(pages.bytes));
    // SYNC: Release makes the range's length visible to every reader that sees its start. A child
    // also sees the mapping, which was created before this store.
    range.start.store(pages.start.as_ptr(), Release);
    true
}

fn add(bytes: usize) -> &'static Range {
    let range = Box::leak(Box::new(Range {
        start: AtomicPtr::new(ptr::null_mut()),
        bytes: AtomicUsize::new(bytes),
        next: None,
    }));
    loop {
        let newest = RANGES.load(Acquire);
        // SAFETY: `newest` is null or refers to a complete range that has been leaked, so it is
        // valid for the rest of the process.
        range.next = unsafe { newest.as_ref() };
        let added = RANGES.compare_exchange(newest, range, AcqRel, Relaxed);
        if added.is_ok() {
            return range;
        }
    }
}

/// Zeroes all registered ranges. Runs in a child, before `fork` returns there.
extern "C" fn wipe() {
    for range in ranges() {
        let start = range.start.load(Acquire);
        if !start.is_null() {
            // SAFETY: the range is a mapping of that many bytes, because the rank registers a range
            // only after mapping it and removes it before unmapping it. This process has no other
            // thread, and this thread is inside `fork`. The owner of the pages guarantees that
            // zeros are valid values.
            unsafe { ptr::write_bytes(start, 0, range.bytes.load(Relaxed)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::in_a_child;
    use super::*;
    use crate::fork::{Standing, Wiped};

    /// Makes the system refuse the advice `MADV_WIPEONFORK` to this thread and its children, as a
    /// system that does not know the advice would.
    fn refuse_to_wipe() {
        /// The offset of the low half of the third argument in `seccomp_data`.
        const ADVICE: u32 = 16 + 2 * 8;
        let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let is = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let answer = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut filter = [
            step(load, 0, 0, 0),
            step(is, 0, 3, libc::SYS_madvise as u32),
            step(load, 0, 0, ADVICE),
            step(is, 0, 1, libc::MADV_WIPEONFORK as u32),
            step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
            step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: both calls affect only this thread, and the filter that they read lives until
        // they return.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        assert!(refused, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn where_the_system_wipes_nothing_fork_does() {
        let alone = std::thread::spawn(|| {
            refuse_to_wipe();
            let held = |pages: &Pages| {
                ranges().any(|range| range.start.load(Relaxed) == pages.start.as_ptr())
            };
            let layout = Layout::new::<[u8; 10_000]>();
            let pages = [(); 3].map(|()| Pages::new(layout));
            assert!(pages.iter().all(held));
            for pages in &pages {
                // SAFETY: the write lies within the pages, which are mapped and which only this
                // test uses.
                unsafe { pages.start().write_bytes(7, pages.bytes()) };
            }
            // SAFETY: the read lies within the pages, which are mapped and which only this test
            // uses.
            let bytes = |pages: &Pages| unsafe {
                std::slice::from_raw_parts(pages.start().as_ptr(), pages.bytes()).to_vec()
            };
            let [first, second, third] = pages;
            drop(second);
            assert!(in_a_child(
                || bytes(&first) == [0; 10_000] && bytes(&third) == [0; 10_000]
            ));
            assert!(bytes(&first) == [7; 10_000] && bytes(&third) == [7; 10_000]);

            let before = ranges().count();
            let standing = Standing::new();
            assert_eq!(
                ranges().count(),
                before,
                "the second range's entry was reused"
            );
            // SAFETY: zero is a valid `u64`.
            let table = unsafe { Wiped::new(vec![5u64; 2000]) };
            assert!(in_a_child(|| {
                standing.is_child() && !standing.stands() && *table == [0; 2000]
            }));
            assert!(standing.stands() && *table == [5; 2000]);
        });
        alone.join().unwrap();
    }
}
