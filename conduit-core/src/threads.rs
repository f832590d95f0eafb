//! GASNet's three threading modes. The mode is chosen by type, so that the sequential mode pays for
//! no lock.
//!
//! | mode | permitted callers | in Rust |
//! |---|---|---|
//! | [`Seq`] | one thread only | neither `Send` nor `Sync` |
//! | [`ParSync`] | any thread, one at a time | `Send`, not `Sync` |
//! | [`Par`] | any number of threads at once | `Send` and `Sync` |
//!
//! State that threads share is kept in the mode's [`Lock`]. This is a mutex in [`Par`], and a
//! `RefCell` in the modes in which only one thread at a time is inside. From the lock, the compiler
//! derives `Send` and `Sync` for everything that contains one.

use std::cell::{RefCell, RefMut};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::DerefMut;

/// A threading mode. This trait is sealed: only the three modes below implement it.
pub trait Mode: sealed::Sealed + Debug + Default + 'static {
    /// The lock around shared state.
    type Lock<T: Send>: Lock<T>;
    /// The way in which the parts of the flow control share the credits that a rank may lend
    /// ([`credits::Bank`]).
    type Bank: credits::Bank + Send;
    /// The mode's name in GASNet's spelling.
    const NAME: &'static str;
    /// Whether several threads may be inside calls at once.
    const PARALLEL: bool;
}

/// Mutual exclusion at the lowest cost that the mode allows.
pub trait Lock<T> {
    /// A guard, which grants access while it lives.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;
    /// Wraps a value.
    fn new(value: T) -> Self;
    /// Takes the lock. Returns `None` if the lock is already held, either by another thread or
    /// further up this thread's own stack.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
    /// Takes the lock, waiting for another thread if necessary. Must not be called where this
    /// thread may already hold the lock.
    fn lock(&self) -> Self::Guard<'_>;
}

impl<T> Lock<T> for RefCell<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;
    #[inline]
    fn new(value: T) -> Self {
        RefCell::new(value)
    }
    #[inline]
    fn try_lock(&self) -> Option<RefMut<'_, T>> {
        self.try_borrow_mut().ok()
    }
    #[inline]
    fn lock(&self) -> RefMut<'_, T> {
        self.borrow_mut()
    }
}

impl<T> Lock<T> for parking_lot::Mutex<T> {
    type Guard<'a>
        = parking_lot::MutexGuard<'a, T>
    where
        T: 'a;
    #[inline]
    fn new(value: T) -> Self {
        parking_lot::Mutex::new(value)
    }
    #[inline]
    fn try_lock(&self) -> Option<parking_lot::MutexGuard<'_, T>> {
        parking_lot::Mutex::try_lock(self)
    }
    #[inline]
    fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        parking_lot::Mutex::lock(self)
    }
}

/// One thread makes all calls (GASNET_SEQ).
#[derive(Debug, Default)]
pub struct Seq(PhantomData<*const ()>);
/// Any thread may make calls, but only one at a time (GASNET_PARSYNC).
#[derive(Debug, Default)]
pub struct ParSync;
/// Any number of threads may make calls at once (GASNET_PAR).
#[derive(Debug, Default)]
pub struct Par;

impl Mode for Seq {
    type Lock<T: Send> = RefCell<T>;
    type Bank = credits::OwnBank;
    const NAME: &'static str = "SEQ";
    const PARALLEL: bool = false;
}
impl Mode for ParSync {
    type Lock<T: Send> = RefCell<T>;
    type Bank = credits::OwnBank;
    const NAME: &'static str = "PARSYNC";
    const PARALLEL: bool = false;
}
impl Mode for Par {
    type Lock<T: Send> = parking_lot::Mutex<T>;
    type Bank = std::sync::Arc<credits::SharedBank>;
    const NAME: &'static str = "PAR";
    const PARALLEL: bool = true;
}

/// A mode in which a handler of this type may run. [`Seq`] can run every handler, because the one
/// thread that makes all calls also runs and drops the handlers. In the other modes handlers must
/// be `Send` and `Sync`.
///
/// # Safety
/// If the mode is `Send` or `Sync`, the handler must be both. The implementations below ensure
/// this, and no others are needed.
pub unsafe trait Runs<F>: Mode {}

// SAFETY: `Seq` is neither `Send` nor `Sync`, so nothing is required of the handler.
unsafe impl<F> Runs<F> for Seq {}
// SAFETY: the bound requires the handler to be `Send` and `Sync`.
unsafe impl<F: Send + Sync> Runs<F> for ParSync {}
// SAFETY: the bound requires the handler to be `Send` and `Sync`.
unsafe impl<F: Send + Sync> Runs<F> for Par {}

/// A mode in which any thread may use the values built on the mode, one thread at a time.
///
/// Types whose use by threads depends on the mode are `Send` by this bound rather than by their
/// fields. A wrong mode then causes one error instead of one for each field.
#[diagnostic::on_unimplemented(
    message = "a conduit in the mode `{Self}` cannot be sent to another thread",
    note = "join the job with `conduit::start_as::<conduit::Par>()` to use it from several threads"
)]
pub trait Movable: Mode {}
impl Movable for ParSync {}
impl Movable for Par {}

/// A mode in which several threads at once may use the values built on the mode. See [`Movable`].
#[diagnostic::on_unimplemented(
    message = "a conduit in the mode `{Self}` cannot be shared between threads",
    note = "join the job with `conduit::start_as::<conduit::Par>()` to use it from several threads"
)]
pub trait Shared: Mode {}
impl Shared for Par {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Seq {}
    impl Sealed for super::ParSync {}
    impl Sealed for super::Par {}
}
