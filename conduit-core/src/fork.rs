//! Detection of forked children, which must not use the network.
//!
//! A child made by `fork` inherits the whole state of the rank: its sockets, its rings in shared
//! memory, its keys and the numbers of its next packets. Peers would take the child's packets for
//! the rank's, these packets would reuse the rank's nonces, and the rank would lose the packets
//! that the child receives. The child must therefore use none of this state; it may only `exec` or
//! `_exit`. The words that are checked before each use of the network lie in memory that a child
//! finds zeroed ([`Pages`]), and zero means that the network must not be used. The rank checks such
//! a word anyway, so detection costs neither further instructions nor a system call. Nothing is
//! zeroed in a child that shares the rank's memory until it calls `exec` (`vfork`, `posix_spawn`).

mod pages;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

pub use pages::Pages;

/// A table whose elements are all zero in a child.
pub struct Wiped<T> {
    pages: Pages,
    len: usize,
    of: PhantomData<T>,
}

// SAFETY: a table owns its elements, as a boxed slice does, so sending the table sends only them.
unsafe impl<T: Send> Send for Wiped<T> {}
// SAFETY: a table owns its elements, as a boxed slice does, so sharing the table shares only them.
unsafe impl<T: Sync> Sync for Wiped<T> {}

impl<T> Wiped<T> {
    /// The empty table.
    pub const EMPTY: Self = Self {
        pages: Pages::none::<T>(),
        len: 0,
        of: PhantomData,
    };

    /// Creates a table with these elements. Like a vector, aborts if the system is out of memory.
    ///
    /// # Safety
    /// All-zero bytes must be a valid `T`.
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
        // SAFETY: the pages were allocated for the layout of the elements, so they have room for
        // all elements and are aligned. They do not overlap the vector.
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
        // SAFETY: `new` has written `len` elements, or there are none, and `first` is aligned. The
        // pages live as long as `self`. While this reference exists, only the creation of a child
        // writes the pages: it zeroes the child's copy before `fork` returns in the child, and
        // `new` requires that zeros be a valid value. A thread that read an element before the fork
        // may continue in the child with that value, which is also valid. The child's next check of
        // the table refuses the network.
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

/// Whether a rank may continue. One comparison checks this. A rank must not continue after a
/// failure or in a child.
#[derive(Debug)]
pub struct Standing(Wiped<AtomicU8>);

impl Standing {
    /// Creates a state in which the rank may continue. The state takes a page of memory.
    #[expect(
        clippy::new_without_default,
        reason = "instances are not interchangeable"
    )]
    pub fn new() -> Self {
        // SAFETY: every byte is a valid `AtomicU8`.
        Self(unsafe { Wiped::new(vec![AtomicU8::new(STANDS)]) })
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU8 {
        // SAFETY: `new` creates one element, which lives as long as `self`. In a child the element
        // is zero, which is a valid value.
        unsafe { self.0.first().as_ref() }
    }

    /// Returns whether the rank may continue.
    #[inline(always)]
    pub fn stands(&self) -> bool {
        self.word().load(Relaxed) == STANDS
    }

    /// Returns whether the rank may continue. The load is sequentially consistent with
    /// [`Standing::fall`].
    #[inline(always)]
    pub fn stands_for_all(&self) -> bool {
        self.word().load(SeqCst) == STANDS
    }

    /// Records that the rank may not continue.
    pub fn fall(&self) {
        let _ = self
            .word()
            .compare_exchange(STANDS, FALLEN, SeqCst, Relaxed);
    }

    /// Returns whether this process is a child of the one that created `self`.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.word().load(Relaxed) == CHILD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `look` in a child and returns its result, which the child passes on in its exit code.
    pub(super) fn in_a_child(look: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child of a process with several threads may call only async-signal-safe
        // functions. It calls only `look`, which loads and compares, and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let code = look().into();
            // SAFETY: `_exit` has no preconditions. It ends only the child.
            unsafe { libc::_exit(code) }
        }
        let mut status = 0;
        // SAFETY: the child exists, because it was just created, and `status` is valid for a write.
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
        // SAFETY: zero is a valid `u64`.
        let table = unsafe { Wiped::new((1..=2000u64).collect()) };
        assert_eq!((table.len(), table[1999]), (2000, 2000));
        assert!(in_a_child(
            || table.len() == 2000 && table.iter().all(|place| *place == 0)
        ));
        assert!((1..).zip(&*table).all(|(value, place)| value == *place));
        assert!(Wiped::<u64>::EMPTY.is_empty());
        // SAFETY: zero is a valid `u64`.
        assert!(unsafe { Wiped::<u64>::new(Vec::new()) }.is_empty());
    }
}
