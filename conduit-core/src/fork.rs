//! Children of a rank's process: how a network finds out that it is in one.
//!
//! A child that `fork` makes has all that the rank has: its sockets, its rings in shared memory,
//! its keys and the numbers of its next packets. What it sent would be taken for the rank's, under
//! nonces that the rank uses too, and what it received would be lost to the rank. So it may use
//! none of it; it may `exec`, or end by `_exit`. Whatever is looked at before the network is used
//! lies in memory that a child finds zeroed ([`Pages`]), and zeros mean no. That costs the rank no
//! instruction where it looks at something anyway, nor a system call. A child that shares the
//! rank's memory until it calls `exec` (`vfork`, `posix_spawn`) wipes nothing.

mod pages;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

pub use pages::Pages;

/// A table whose places are all zero in a child.
pub struct Wiped<T> {
    pages: Pages,
    len: usize,
    of: PhantomData<T>,
}

// SAFETY: it owns its places, as a boxed slice does.
unsafe impl<T: Send> Send for Wiped<T> {}
// SAFETY: as above: sharing it is sharing its places.
unsafe impl<T: Sync> Sync for Wiped<T> {}

impl<T> Wiped<T> {
    /// Without places.
    pub const EMPTY: Self = Self {
        pages: Pages::none::<T>(),
        len: 0,
        of: PhantomData,
    };

    /// With these. Ends the process as a vector does when the system has no memory left.
    ///
    /// # Safety
    /// All-zero bytes are a value of `T`.
    pub unsafe fn new(places: Vec<T>) -> Self {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= 4096) }
        if size_of_val(&*places) == 0 {
            return Self::EMPTY;
        }
        let table = Self {
            pages: Pages::new(Layout::for_value(&*places)),
            len: places.len(),
            of: PhantomData,
        };
        // SAFETY: the pages have room for all of them, are aligned as pages are, and are no part of
        // the vector.
        unsafe {
            (table.first()).copy_from_nonoverlapping(NonNull::from(&*places).cast(), table.len)
        };
        table
    }

    #[inline(always)]
    fn first(&self) -> NonNull<T> {
        self.pages.start().cast()
    }
}

impl<T> Deref for Wiped<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` has written so many places, or there are none, and `first` is aligned; the
        // pages are there for as long as `self` is. Nothing writes them behind this reference but
        // what makes a child: before `fork` returns there, they are zeros, which are values
        // (`new`). A thread that has looked before and is the child's now may go by what it has
        // seen, which is a value as well; so it is refused only from the next look on.
        unsafe { std::slice::from_raw_parts(self.first().as_ptr(), self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Wiped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

const CHILD: u8 = 0;
const STANDS: u8 = 1;
const FALLEN: u8 = 2;

/// Whether a rank may go on, found out by one comparison: not after it has failed, and not in a
/// child.
#[derive(Debug)]
pub struct Standing(Wiped<AtomicU8>);

impl Standing {
    /// It may. Takes a page.
    #[expect(clippy::new_without_default, reason = "two are not alike")]
    pub fn new() -> Self {
        // SAFETY: any byte is a value.
        Self(unsafe { Wiped::new(vec![AtomicU8::new(STANDS)]) })
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU8 {
        // SAFETY: `new` makes one place, see `Wiped`.
        unsafe { self.0.first().as_ref() }
    }

    /// Whether it may go on.
    #[inline(always)]
    pub fn stands(&self) -> bool {
        self.word().load(Relaxed) == STANDS
    }

    /// The same in the one order in which [`Standing::fall`] is seen by all.
    #[inline(always)]
    pub fn stands_for_all(&self) -> bool {
        self.word().load(SeqCst) == STANDS
    }

    /// It may not go on from here on.
    pub fn fall(&self) {
        let _ = self
            .word()
            .compare_exchange(STANDS, FALLEN, SeqCst, Relaxed);
    }

    /// Whether this process is a child of the one that has made it.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.word().load(Relaxed) == CHILD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `look` finds in a child, as its exit code.
    pub(super) fn in_a_child(look: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child of a process with threads calls only `look`, which loads and compares,
        // and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let code = look().into();
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        let mut status = 0;
        // SAFETY: waits for the child just made; `status` is valid for a write.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn a_child_is_noticed_and_its_parent_is_unharmed() {
        let standing = Standing::new();
        assert!(standing.stands() && standing.stands_for_all() && !standing.is_child());
        assert!(in_a_child(|| {
            standing.fall();
            standing.is_child() && !standing.stands() && !standing.stands_for_all()
        }));
        assert!(standing.stands());
        standing.fall();
        assert!(!standing.stands() && !standing.is_child());
        assert!(in_a_child(|| standing.is_child()));
    }

    #[test]
    fn a_table_is_zeros_in_a_child() {
        // SAFETY: zero is a value.
        let table = unsafe { Wiped::new((1..=2000u64).collect()) };
        assert_eq!((table.len(), table[1999]), (2000, 2000));
        assert!(in_a_child(
            || table.len() == 2000 && table.iter().all(|place| *place == 0)
        ));
        assert!((1..).zip(&*table).all(|(value, place)| value == *place));
        assert!(Wiped::<u64>::EMPTY.is_empty());
        // SAFETY: as above.
        assert!(unsafe { Wiped::<u64>::new(Vec::new()) }.is_empty());
    }
}
