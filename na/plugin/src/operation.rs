//! The operations that users hold, and the delivery of their completions.

use std::cell::UnsafeCell;
use std::ffi::{c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use na::Error;
use na::raw::{Completion, OperationId, Outcome};

use crate::abi::{
    CallbackType, Received, na_cb_completion_data, na_cb_info, na_cb_t, na_class, na_context,
};
use crate::address::Address;
use crate::class::{PluginClass, class_of};
use crate::context::{Context, context_of};
use crate::log::{self, Level, Outlet};
use crate::report;
use crate::status::{self, Failure, Result, Return};

/// The operation is not under way, and may be begun.
const IDLE: u32 = 0;
/// The operation is being begun, and may have ended already.
const STARTING: u32 = 1;
/// The operation was begun, and its callback has not been called yet.
const ACTIVE: u32 = 2;
/// Same as `ACTIVE`, but the user has destroyed the operation.
const DESTROYED: u32 = 3;

/// An operation, which can be reused.
pub(crate) struct Op {
    /// The entry for the completion queue. The library owns it from `na_cb_completion_add` until
    /// the [release](release). At other times the plugin owns it: first the thread that begins the
    /// operation, then the [sink](complete).
    completion: UnsafeCell<na_cb_completion_data>,
    state: AtomicU32,
    id: AtomicU64,
    class: *const PluginClass,
    /// The library's context in which the operation was begun.
    library_context: AtomicPtr<na_context>,
    /// The plugin's part of that context.
    context: AtomicPtr<Context>,
}

impl Op {
    /// Marks an operation that is under way as destroyed, and returns its id. Another thread may
    /// free the operation at any time afterwards. If the operation is not under way, returns its
    /// state as the error.
    fn give_up(&self) -> std::result::Result<OperationId, u32> {
        // SYNC: Acquire, paired with the Release in `start`, so that this call sees the operation's
        // id.
        match self.state.load(Ordering::Acquire) {
            ACTIVE => {
                let id = OperationId::of_u64(self.id.load(Ordering::Relaxed));
                self.state
                    .compare_exchange(ACTIVE, DESTROYED, Ordering::AcqRel, Ordering::Acquire)
                    .map(|_| id)
            }
            state => Err(state),
        }
    }
}

/// The completion of one message of an operation that receives several.
struct Message {
    completion: na_cb_completion_data,
    /// The operation if it ends with this message, otherwise null.
    ends: *mut Op,
}

const NOTHING: Received = Received {
    actual_buf_size: 0,
    source: ptr::null_mut(),
    tag: 0,
    actual_buf: ptr::null_mut(),
    last: false,
};

/// The callback and the parameters of an operation.
pub(crate) struct Begin {
    pub(crate) callback: na_cb_t,
    pub(crate) arg: *mut c_void,
    pub(crate) kind: CallbackType,
    /// The buffer of an operation that receives several messages.
    pub(crate) buffer: *mut c_void,
}

/// Begins an operation by calling `begin` with the context's number and the cookie.
///
/// # Safety
/// The context must be the library's. `op` must be null or an operation that was created and not
/// destroyed.
pub(crate) unsafe fn start(
    class: &PluginClass,
    context: *mut na_context,
    op: *mut Op,
    what: Begin,
    begin: impl FnOnce(u8, u64) -> na::Result<OperationId>,
) -> Result {
    // SAFETY: the caller guarantees that the context is the library's.
    let (library_context, context) = (context, unsafe { context_of(class, context) }?);
    // SAFETY: the caller guarantees that `op` is null or was created and not destroyed.
    let op_ref = unsafe { op_of(class, op) }?;
    if op_ref
        .state
        .compare_exchange(IDLE, STARTING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return Err(Failure::new(
            Return::Busy,
            "the previous use of this operation has not ended",
        ));
    }
    // SAFETY: this thread has set the state to `STARTING`, so no other thread uses the entry before
    // the operation begins.
    unsafe {
        let completion = op_ref.completion.get();
        (*completion).callback = what.callback;
        (*completion).callback_info = na_cb_info {
            received: Received {
                actual_buf: what.buffer,
                ..NOTHING
            },
            arg: what.arg,
            kind: what.kind,
            ret: Return::Success,
        };
    }
    op_ref
        .library_context
        .store(library_context, Ordering::Relaxed);
    op_ref
        .context
        .store(ptr::from_ref(context).cast_mut(), Ordering::Relaxed);
    context.begun();
    match begin(context.id(), op.expose_provenance() as u64) {
        Ok(id) => {
            op_ref.id.store(id.to_u64(), Ordering::Relaxed);
            // SYNC: Release, paired with the Acquire in `release`, `give_up` and `cancel`, so that
            // these see the id.
            op_ref.state.store(ACTIVE, Ordering::Release);
            Ok(())
        }
        Err(error) => {
            context.ended();
            op_ref.state.store(IDLE, Ordering::Release);
            Err(error.into())
        }
    }
}

/// Returns the operation that a pointer refers to.
///
/// # Safety
/// The pointer must be null or refer to an operation that was created and not destroyed.
unsafe fn op_of<'a>(class: &PluginClass, op: *mut Op) -> Result<&'a Op> {
    // SAFETY: the caller guarantees that the pointer is null or refers to an operation that was
    // created and not destroyed.
    match unsafe { op.as_ref() } {
        None => Err(Failure::invalid("no operation given")),
        Some(op) if !ptr::eq(op.class, class) => {
            Err(Failure::invalid("the operation belongs to another class"))
        }
        Some(op) => Ok(op),
    }
}

/// Passes a completion to the library. This function is the class's sink. It is called with the
/// class's lock held, so it must not drop anything that takes that lock.
pub(crate) fn complete(completion: Completion) {
    let op: *mut Op = ptr::with_exposed_provenance_mut(completion.cookie as usize);
    // SAFETY: the cookie is an operation's address, which remains valid until the operation is
    // released. The library releases the operation only after this function has passed the
    // completion to the library.
    let op_ref = unsafe { &*op };
    // SAFETY: an operation refers to its class and to the context in which it was begun. The class
    // outlives its contexts, and a context outlives the operations that are under way in it.
    let (class, context) = unsafe {
        let context = op_ref.context.load(Ordering::Relaxed);
        (&*op_ref.class, &*context)
    };
    let library_context = op_ref.library_context.load(Ordering::Relaxed);
    let entry = op_ref.completion.get();
    // SAFETY: the operation is under way, so the sink owns the entry, and only one thread at a time
    // calls the sink.
    let info = unsafe { &mut (*entry).callback_info };
    let several = info.kind == CallbackType::MultiRecvUnexpected;
    let buffer = info.received.actual_buf;
    let mut last = true;
    let (received, ret) = match completion.result {
        Ok(Outcome::Done) => (NOTHING, Return::Success),
        Ok(Outcome::Received(length)) => {
            let received = Received {
                actual_buf_size: length,
                ..NOTHING
            };
            (received, Return::Success)
        }
        Ok(Outcome::Unexpected {
            source,
            tag,
            offset,
            length,
            last: ends,
        }) => {
            last = ends;
            let source = Address::new(class, class.class().source(source));
            let received = Received {
                actual_buf_size: length,
                source: Box::into_raw(Box::new(source)),
                tag,
                actual_buf: buffer.wrapping_byte_add(offset),
                last,
            };
            (received, Return::Success)
        }
        Err(error) => {
            if error != Error::Canceled {
                let text = format!("{:?}: {error}", info.kind);
                log::write(Outlet::Operation, Level::Error, c"complete", &text);
            }
            let received = Received {
                last: true,
                ..NOTHING
            };
            (received, status::code(&error))
        }
    };
    let entry = if several {
        let message = Box::into_raw(Box::new(Message {
            completion: na_cb_completion_data {
                callback_info: na_cb_info {
                    received,
                    arg: info.arg,
                    kind: info.kind,
                    ret,
                },
                // SAFETY: the callback does not change while the operation is under way.
                callback: unsafe { (*entry).callback },
                plugin_callback: Some(release_message),
                plugin_callback_args: ptr::null_mut(),
                entry: ptr::null_mut(),
            },
            ends: if last { op } else { ptr::null_mut() },
        }));
        // SAFETY: `message` was just allocated and is not shared yet.
        unsafe {
            (*message).completion.plugin_callback_args = message.cast();
            &raw mut (*message).completion
        }
    } else {
        info.received = received;
        info.ret = ret;
        entry
    };
    // SAFETY: the context is the library's and outlives the operation, and the entry remains valid
    // until the library calls its plugin callback.
    unsafe { class.completion_add()(library_context, entry) };
    context.completed();
}

/// Releases an operation that has ended. The library calls the user's callback next, which may
/// reuse the operation.
unsafe extern "C" fn release(op: *mut c_void) {
    let op: *mut Op = op.cast();
    // SAFETY: the library returns the pointer that it was given, once for each end of an operation,
    // and the operation is not freed before that.
    let op_ref = unsafe { &*op };
    let context = op_ref.context.load(Ordering::Relaxed);
    let mut spins = 0;
    let before = loop {
        // SYNC: Acquire, paired with the Release in `start`, so that `start` cannot overwrite the
        // id of the operation's next use.
        match op_ref
            .state
            .compare_exchange_weak(ACTIVE, IDLE, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(before) => break before,
            // The thread that began the operation has not set the state to `ACTIVE` yet, but is
            // about to set it.
            Err(STARTING | ACTIVE) => {
                spins += 1;
                if spins > 100 {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
            Err(before) => break before,
        }
    };
    if before == DESTROYED {
        // SAFETY: the user has destroyed the operation, and `op` is the last reference to it.
        drop(unsafe { Box::from_raw(op) });
    }
    // SAFETY: a context outlives the operations that are under way in it, and this operation counts
    // as such until `ended` returns.
    unsafe { &*context }.ended();
}

unsafe extern "C" fn release_message(message: *mut c_void) {
    // SAFETY: `complete` allocated the message, and the library returns it only once.
    let message = unsafe { Box::from_raw(message.cast::<Message>()) };
    if !message.ends.is_null() {
        // SAFETY: `ends` is an operation that has ended, and an operation ends only once per use.
        unsafe { release(message.ends.cast()) };
    }
}

// ---- entries of the table ----

pub(crate) unsafe extern "C" fn op_create(class: *mut na_class, _flags: c_ulong) -> *mut Op {
    let create = || -> Result<*mut Op> {
        // SAFETY: the library passes its class.
        let class = unsafe { class_of(class) }?;
        let op = Box::into_raw(Box::new(Op {
            completion: UnsafeCell::new(na_cb_completion_data {
                callback_info: na_cb_info {
                    received: NOTHING,
                    arg: ptr::null_mut(),
                    kind: CallbackType::SendUnexpected,
                    ret: Return::Success,
                },
                callback: None,
                plugin_callback: Some(release),
                plugin_callback_args: ptr::null_mut(),
                entry: ptr::null_mut(),
            }),
            state: AtomicU32::new(IDLE),
            id: AtomicU64::new(0),
            class,
            library_context: AtomicPtr::default(),
            context: AtomicPtr::default(),
        }));
        // SAFETY: the operation was just allocated and is not shared yet.
        unsafe { (*(*op).completion.get()).plugin_callback_args = op.cast() };
        Ok(op)
    };
    create().unwrap_or_else(|failure| {
        report(Outlet::Operation, c"op_create", Err(failure));
        ptr::null_mut()
    })
}

pub(crate) unsafe extern "C" fn op_destroy(class: *mut na_class, op: *mut Op) {
    // SAFETY: the pointer is null or refers to an operation that was created and not destroyed
    // before.
    let Some(op_ref) = (unsafe { op.as_ref() }) else {
        return;
    };
    match op_ref.give_up() {
        Ok(id) => {
            log::write(
                Outlet::Operation,
                Level::Warning,
                c"op_destroy",
                "the operation has not ended; it is canceled and then freed",
            );
            // SAFETY: the library passes its class.
            if let Ok(class) = unsafe { class_of(class) } {
                class.class().cancel(id);
            }
        }
        Err(IDLE) => {
            // SAFETY: `op_create` allocated the operation, and it is not under way.
            drop(unsafe { Box::from_raw(op) });
        }
        // The user has made a mistake. The operation is leaked, because freeing it could be
        // unsound.
        Err(_) => {
            let text = "the operation is already destroyed, or another thread is beginning it";
            log::write(Outlet::Operation, Level::Error, c"op_destroy", text);
        }
    }
}

pub(crate) unsafe extern "C" fn cancel(
    class: *mut na_class,
    _context: *mut na_context,
    op: *mut Op,
) -> Return {
    let cancel = || -> Result {
        // SAFETY: the library passes its class, and a pointer that is null or refers to an
        // operation of the user that was not destroyed.
        let (class, op) = unsafe {
            let class = class_of(class)?;
            (class, op_of(class, op)?)
        };
        // SYNC: Acquire, paired with the Release in `start`, so that this call sees the operation's
        // id.
        if op.state.load(Ordering::Acquire) == ACTIVE {
            let id = OperationId::of_u64(op.id.load(Ordering::Relaxed));
            class.class().cancel(id);
        }
        Ok(())
    };
    report(Outlet::Operation, c"cancel", cancel())
}
