//! The device, which is the state that a domain's objects share: registrations, operations in
//! flight, and faults.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libfabric_sys::{
    FI_EAGAIN, FI_ECANCELED, FI_EINVAL, FI_ENODEV, FI_EOPNOTSUPP, FI_ETRUNC, FI_MR_LOCAL,
    FI_MULTI_RECV, FI_READ, FI_RECV, FI_WRITE, fi_close, fid_ep,
};

use crate::faults::{Atomics, End, Faults};

/// The number of operations that this process has begun.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// Memory that is registered and enabled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) base: usize,
    pub(crate) length: usize,
    pub(crate) access: u64,
}

/// A failed operation that the completion queue is to report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) error: c_int,
}

#[derive(Debug, Default)]
struct State {
    /// How the device has ended, if it has ended.
    gone: Option<End>,
    /// The number of calls so far that submit operations.
    calls: u64,
    /// The number of messages that have arrived in buffers for several messages. The last message
    /// of each buffer is not counted.
    messages: u64,
    /// The operations in flight, by context, with the flags of their completions.
    under_way: HashMap<usize, u64>,
    failed: VecDeque<Failed>,
    /// The registrations, by descriptor.
    pieces: BTreeMap<usize, Piece>,
    /// The number of bytes that are registered now.
    registered: u64,
    /// The number of registrations so far.
    registrations: u64,
    /// The address of the real endpoint, while it is open.
    endpoint: Option<usize>,
    /// The number of registrations that are bound to the endpoint.
    bound: u32,
}

/// The device of a domain, which the [module](self) describes.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) faults: Faults,
    state: Mutex<State>,
}

/// Reports on standard error that the caller has violated the library's rules.
#[cold]
pub(crate) fn wrong(what: &str) {
    eprintln!("refusing-fabric: rule violated: {what}");
}

const INVALID: isize = -(FI_EINVAL as isize);

impl Device {
    pub(crate) fn new(faults: Faults) -> Self {
        Self {
            faults,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the endpoint -------------------------------------------------------------------------

    pub(crate) fn opened(&self, endpoint: *mut fid_ep) {
        self.state().endpoint = Some(endpoint.expose_provenance());
    }

    /// Returns the real endpoint, or `None` if it is closed.
    pub(crate) fn endpoint(&self) -> Option<*mut fid_ep> {
        self.state()
            .endpoint
            .map(std::ptr::with_exposed_provenance_mut)
    }

    /// Closes the endpoint. Returns false if registrations are bound to the endpoint and must be
    /// closed first.
    ///
    /// # Safety
    ///
    /// Same as `fi_close` of the endpoint.
    pub(crate) unsafe fn close_endpoint(&self) -> bool {
        let mut state = self.state();
        if self.faults.endpoint_last && state.bound > 0 {
            return false;
        }
        // SAFETY: the caller keeps the contract of `fi_close` for the endpoint.
        unsafe { close(&mut state) };
        true
    }

    pub(crate) fn bind(&self) {
        self.state().bound += 1;
    }

    /// Counts a registration as no longer bound. Returns false if the endpoint must be closed
    /// first.
    pub(crate) fn unbind(&self) -> bool {
        let mut state = self.state();
        if !self.faults.endpoint_last && state.endpoint.is_some() {
            return false;
        }
        state.bound -= 1;
        true
    }

    // ---- operations ---------------------------------------------------------------------------

    /// Begins an operation whose completion has these flags. Returns `Ok(true)` if the operation
    /// must be passed to the real library, and `Ok(false)` if it only counts as accepted.
    ///
    /// # Errors
    /// The value that the call must return.
    pub(crate) fn begin(&self, context: *mut c_void, flags: u64) -> Result<bool, isize> {
        const AGAIN: isize = -(FI_EAGAIN as isize);
        let mut state = self.state();
        state.calls += 1;
        // The seed is the call's number, so that the same program gets the same refusals.
        let mut random = fastrand::Rng::with_seed(state.calls);
        if self
            .faults
            .again
            .is_some_and(|every| random.u64(..every) != 0)
        {
            return Err(AGAIN);
        }
        let number = OPERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((after, end)) = self.faults.end
            && number >= after
            && state.gone.is_none()
        {
            state.go(end);
        }
        match state.gone {
            None if context.is_null() => Ok(true),
            None => match state.under_way.insert(context.addr(), flags) {
                None => Ok(true),
                Some(_) => {
                    wrong("a context is already in use");
                    Err(INVALID)
                }
            },
            Some(End::Flushed | End::Gone) => Err(-(FI_ENODEV as isize)),
            Some(End::Silent) => Ok(false),
            Some(End::Stuck) => Err(AGAIN),
            Some(End::Hung) => loop {
                std::thread::park();
            },
        }
    }

    /// Begins an atomic. Returns the same as [`begin`](Self::begin).
    ///
    /// # Errors
    /// The value that the call must return.
    pub(crate) fn begin_atomic(&self, context: *mut c_void, flags: u64) -> Result<bool, isize> {
        match self.faults.atomics {
            Some(Atomics::Refused) => Err(-(FI_EOPNOTSUPP as isize)),
            Some(Atomics::Failing) => {
                self.state().failed.push_back(Failed {
                    context: context.expose_provenance(),
                    flags,
                    error: FI_EOPNOTSUPP,
                });
                Ok(false)
            }
            None => self.begin(context, flags),
        }
    }

    /// Forgets an operation that the real library has not accepted.
    pub(crate) fn refused(&self, context: *mut c_void) {
        self.state().under_way.remove(&context.addr());
    }

    /// Handles a completion of an operation.
    pub(crate) fn ended(&self, context: *mut c_void, flags: u64) {
        let mut state = self.state();
        let is_multi = state
            .under_way
            .get(&context.addr())
            .is_some_and(|flags| flags & FI_MULTI_RECV != 0);
        // A buffer for several messages stays in flight until a completion says that the buffer is
        // full.
        if !is_multi || flags & FI_RECV == 0 || flags & FI_MULTI_RECV != 0 {
            state.under_way.remove(&context.addr());
            return;
        }
        state.messages += 1;
        if let Some(every) = self.faults.spoil
            && state.messages.is_multiple_of(every)
        {
            state.failed.push_back(Failed {
                context: context.expose_provenance(),
                flags,
                error: FI_ETRUNC,
            });
        }
    }

    /// Returns `Ok` if the real queue may be read.
    ///
    /// # Errors
    /// The value that the read of the queue must return.
    pub(crate) fn may_read(&self) -> Result<(), isize> {
        let state = self.state();
        match state.gone {
            _ if !state.failed.is_empty() => Err(-(libfabric_sys::FI_EAVAIL as isize)),
            None => Ok(()),
            Some(End::Gone) => Err(-(FI_ENODEV as isize)),
            Some(_) => Err(-(FI_EAGAIN as isize)),
        }
    }

    /// Returns whether there are failed operations still to be reported.
    pub(crate) fn has_failed(&self) -> bool {
        !self.state().failed.is_empty()
    }

    /// Takes the next failed operation that is still to be reported.
    pub(crate) fn next_failed(&self) -> Option<Failed> {
        self.state().failed.pop_front()
    }

    // ---- memory -------------------------------------------------------------------------------

    /// Counts bytes as registered for this access. Returns the registration's number, or `None` if
    /// the registration is refused.
    pub(crate) fn lock(&self, bytes: usize, access: u64) -> Option<u64> {
        let mut state = self.state();
        let registered = state.registered + bytes as u64;
        let is_own = access & !(FI_READ | FI_WRITE) == 0;
        if self.faults.memlock && registered > may_lock() || self.faults.refuse_own && is_own {
            return None;
        }
        state.registered = registered;
        state.registrations += 1;
        Some(state.registrations)
    }

    pub(crate) fn unlock(&self, bytes: usize) {
        self.state().registered -= bytes as u64;
    }

    pub(crate) fn enabled(&self, descriptor: *mut c_void, piece: Piece) {
        self.state().pieces.insert(descriptor.addr(), piece);
    }

    pub(crate) fn disabled(&self, descriptor: *mut c_void) {
        self.state().pieces.remove(&descriptor.addr());
    }

    /// Checks that the user passes local memory with the descriptor that this library requires.
    ///
    /// # Errors
    /// The value that the call must return.
    pub(crate) fn check_own(
        &self,
        what: &str,
        descriptor: *mut c_void,
        memory: *const c_void,
        length: usize,
        access: u64,
    ) -> Result<(), isize> {
        if self.faults.mr_mode & FI_MR_LOCAL == 0 || length == 0 {
            return Ok(());
        }
        let piece = self.state().pieces.get(&descriptor.addr()).copied();
        let Some(piece) = piece else {
            wrong(&format!(
                "{what}: local memory is passed without a descriptor (FI_MR_LOCAL)"
            ));
            return Err(INVALID);
        };
        let offset = memory.addr().checked_sub(piece.base);
        let end = offset.and_then(|offset| offset.checked_add(length));
        if end.is_none_or(|end| end > piece.length) || piece.access & access != access {
            wrong(&format!(
                "{what}: {length} bytes at {memory:?} with access {access:#x} exceed the registration {piece:x?}"
            ));
            return Err(INVALID);
        }
        Ok(())
    }
}

impl State {
    fn go(&mut self, end: End) {
        self.gone = Some(end);
        if matches!(end, End::Flushed | End::Gone) {
            // SAFETY: no other thread is in a call (`FI_THREAD_DOMAIN`), and no later call uses the
            // endpoint.
            unsafe { close(self) };
        }
        if end == End::Flushed {
            let failed = self.under_way.drain().map(|(context, flags)| Failed {
                context,
                flags,
                error: FI_ECANCELED,
            });
            self.failed.extend(failed);
        }
    }
}

/// # Safety
///
/// Same as `fi_close` of the endpoint.
unsafe fn close(state: &mut State) {
    if let Some(endpoint) = state.endpoint.take() {
        let endpoint: *mut fid_ep = std::ptr::with_exposed_provenance_mut(endpoint);
        // SAFETY: the caller keeps the contract of `fi_close` for the endpoint.
        unsafe { fi_close(&raw mut (*endpoint).fid) };
    }
}

/// Returns how many bytes this process may lock. The limit is read and not tried out, because a
/// test may run as root, which may lock everything.
fn may_lock() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}
