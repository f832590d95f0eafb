//! Memory for secrets. It consists of separate pages that core dumps and forked children do not
//! contain, and that are overwritten before they are freed.

use std::alloc::{Layout, handle_alloc_error};
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice;

use conduit_core::fork::Pages;
use rustix::mm::{Advice, madvise};
use zerocopy::FromZeros;
use zeroize::Zeroize;

/// Values in pages of their own, which are initially zeroed. A forked child finds zeros there.
///
/// The pages are not locked, so they can be swapped out. They are not locked because the amount of
/// locked memory is limited, and other networks need it.
pub(crate) struct Guarded<T> {
    pages: Pages,
    count: usize,
    of: PhantomData<T>,
}

// SAFETY: the type owns its values in the same way as a `Box<[T]>`, and a `Box<[T]>` is `Send` if
// `T` is `Send`.
unsafe impl<T: Send> Send for Guarded<T> {}
// SAFETY: a `&Guarded<T>` gives access only to shared references to the values, in the same way as
// a `&Box<[T]>`, and a `Box<[T]>` is `Sync` if `T` is `Sync`.
unsafe impl<T: Sync> Sync for Guarded<T> {}

impl<T: FromZeros> Guarded<T> {
    /// Allocates `count` values, or one if `count` is 0. As with other allocations, the process is
    /// aborted if memory is exhausted.
    pub(crate) fn new(count: usize) -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) }
        let count = count.max(1);
        let Ok(layout) = Layout::array::<T>(count) else {
            handle_alloc_error(Layout::new::<T>());
        };
        let pages = Pages::new(layout);
        let start = pages.start().as_ptr().cast();
        // SAFETY: the advice applies only to the pages just made and changes none of their bytes. A
        // system that does not support the advice returns an error and leaves the pages as they
        // are.
        let _ = unsafe { madvise(start, pages.bytes(), Advice::LinuxDontDump) };
        Self {
            pages,
            count,
            of: PhantomData,
        }
    }
}

impl<T> Guarded<T> {
    #[inline(always)]
    fn first(&self) -> *mut T {
        self.pages.start().as_ptr().cast()
    }
}

impl<T> Deref for Guarded<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory lives as long as `self` and is page-aligned. Initially and in a forked
        // child it contains zeros, which are values of T because `new` requires `FromZeros`. All
        // other contents were written as values of T.
        unsafe { slice::from_raw_parts(self.first(), self.count) }
    }
}

impl<T> DerefMut for Guarded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the memory is valid for the reasons given in `deref`, and `&mut self` makes the
        // borrow exclusive.
        unsafe { slice::from_raw_parts_mut(self.first(), self.count) }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<T>();
        // SAFETY: the values occupy the first `bytes` bytes of the pages, which `&mut self` borrows
        // exclusively. The values need no drop and are not used any more, so their memory may hold
        // any bytes.
        unsafe { slice::from_raw_parts_mut(self.first().cast::<u8>(), bytes) }.zeroize();
    }
}

/// The number of stack words to overwrite after ciphers and hashes. It is at least the number of
/// words that they use.
pub(crate) const SHALLOW: usize = 128;
/// The number of stack words to overwrite after scalar multiplications. It is at least the number
/// of words that they use.
pub(crate) const DEEP: usize = 2048;

/// Runs `work` and then overwrites `WORDS` words of the stack that `work` used. Ciphers and hashes
/// leave copies of secrets on the stack because they take secrets by value.
pub(crate) fn scrubbed<const WORDS: usize, R>(work: impl FnOnce() -> R) -> R {
    #[inline(never)]
    fn apart<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    #[inline(never)]
    fn scrub<const WORDS: usize>() {
        let mut left = [0u64; WORDS];
        left.zeroize();
        black_box(&mut left);
    }
    let result = apart(work);
    scrub::<WORDS>();
    result
}
