//! Operations: what their users hold of them, and the completions that come of them.

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

/// Nothing is under way, and it may be begun.
const IDLE: u32 = 0;
/// It is being begun, and may have ended already.
const STARTING: u32 = 1;
/// It was begun; its callback was not called yet.
const ACTIVE: u32 = 2;
/// Likewise, but its user has destroyed it.
const DESTROYED: u32 = 3;

/// An operation, which is used again and again.
pub(crate) struct Op {
    /// The user's from `na_cb_completion_add` on until the [release](release), else the plugin's:
    /// of who begins it, then of the [sink](complete).
    completion: UnsafeCell<na_cb_completion_data>,
    state: AtomicU32,
    id: AtomicU64,
    class: *const PluginClass,
    /// The library's context that it was begun in, and its part here.
    library_context: AtomicPtr<na_context>,
    context: AtomicPtr<Context>,
}

impl Op {
    /// Its user destroys it while it is under way: its number. After that another thread may free
    /// it at any time. Otherwise its state.
    fn give_up(&self) -> std::result::Result<OperationId, u32> {
        // SYNC: Acquire, so that its number is seen.
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

/// A message of an operation that receives several.
struct Message {
    completion: na_cb_completion_data,
    /// The operation, if it has ended with this.
    ends: *mut Op,
}

const NOTHING: Received = Received {
    actual_buf_size: 0,
    source: ptr::null_mut(),
    tag: 0,
    actual_buf: ptr::null_mut(),
    last: false,
};

/// What is begun: where its callback goes, and what it is told.
pub(crate) struct Begin {
    pub(crate) callback: na_cb_t,
    pub(crate) arg: *mut c_void,
    pub(crate) kind: CallbackType,
    /// Memory that messages are received to, of an operation that receives several.
    pub(crate) buffer: *mut c_void,
}

/// Begins an operation by `begin`, which is given the context's number and the cookie.
///
/// # Safety
/// The context is the library's; `op` is null or an operation that was created and not destroyed.
pub(crate) unsafe fn start(
    class: &PluginClass,
    context: *mut na_context,
    op: *mut Op,
    what: Begin,
    begin: impl FnOnce(u8, u64) -> na::Result<OperationId>,
) -> Result {
    // SAFETY: the caller's promise.
    let (library_context, context) = (context, unsafe { context_of(class, context) }?);
    // SAFETY: the caller's promise.
    let op_ref = unsafe { op_of(class, op) }?;
    if op_ref
        .state
        .compare_exchange(IDLE, STARTING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return Err(Failure::new(
            Return::Busy,
            "the operation has not ended that this was begun with before",
        ));
    }
    // SAFETY: this thread has set the state, so nobody else uses it before the operation begins.
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
            // SYNC: Release, with the Acquire of `release` and `cancel`, which see the number.
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

/// The operation behind a pointer.
///
/// # Safety
/// It is null, or an operation that was created and not destroyed.
unsafe fn op_of<'a>(class: &PluginClass, op: *mut Op) -> Result<&'a Op> {
    // SAFETY: the caller's promise.
    match unsafe { op.as_ref() } {
        None => Err(Failure::invalid("no operation is given")),
        Some(op) if !ptr::eq(op.class, class) => {
            Err(Failure::invalid("the operation is another class's"))
        }
        Some(op) => Ok(op),
    }
}

/// The sink of all completions, which is called with the class's lock held: nothing that takes it
/// may be dropped here.
pub(crate) fn complete(completion: Completion) {
    let op: *mut Op = ptr::with_exposed_provenance_mut(completion.cookie as usize);
    // SAFETY: the cookie is an operation's address, which stays until it is released, as it is not
    // before it was handed to the library.
    let op_ref = unsafe { &*op };
    // SAFETY: operations are begun by calls with a class, and the class stays as long as one of its
    // contexts does, which stays as long as operations are under way in it.
    let (class, context) = unsafe {
        let context = op_ref.context.load(Ordering::Relaxed);
        (&*op_ref.class, &*context)
    };
    let library_context = op_ref.library_context.load(Ordering::Relaxed);
    let entry = op_ref.completion.get();
    // SAFETY: the operation is under way, and the sink is called by one thread at a time.
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
                // SAFETY: constant while the operation is under way.
                callback: unsafe { (*entry).callback },
                plugin_callback: Some(release_message),
                plugin_callback_args: ptr::null_mut(),
                entry: ptr::null_mut(),
            },
            ends: if last { op } else { ptr::null_mut() },
        }));
        // SAFETY: just made.
        unsafe {
            (*message).completion.plugin_callback_args = message.cast();
            &raw mut (*message).completion
        }
    } else {
        info.received = received;
        info.ret = ret;
        entry
    };
    // SAFETY: the context is the library's, and stays, see above; the entry stays until the library
    // calls its plugin callback.
    unsafe { class.completion_add()(library_context, entry) };
    context.completed();
}

/// An operation has ended, and its callback is called next: it may be used again in that.
unsafe extern "C" fn release(op: *mut c_void) {
    let op: *mut Op = op.cast();
    // SAFETY: the library hands back what it was given, once for each end of an operation, which
    // is not freed before.
    let op_ref = unsafe { &*op };
    let context = op_ref.context.load(Ordering::Relaxed);
    let mut spins = 0;
    let before = loop {
        // SYNC: Acquire, with the Release in `start`: whoever begins it next must not have its
        // number overwritten.
        match op_ref
            .state
            .compare_exchange_weak(ACTIVE, IDLE, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(before) => break before,
            // Another thread is just about to return from the call that has begun it.
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
        // SAFETY: its user has given it up, and this was the last that was left of it.
        drop(unsafe { Box::from_raw(op) });
    }
    // SAFETY: a context stays as long as operations are under way in it, as is this one so far.
    unsafe { &*context }.ended();
}

unsafe extern "C" fn release_message(message: *mut c_void) {
    // SAFETY: made by `complete`, and handed back once.
    let message = unsafe { Box::from_raw(message.cast::<Message>()) };
    if !message.ends.is_null() {
        // SAFETY: the operation's only end.
        unsafe { release(message.ends.cast()) };
    }
}

// ---- the table's ----

pub(crate) unsafe extern "C" fn op_create(class: *mut na_class, _flags: c_ulong) -> *mut Op {
    let create = || -> Result<*mut Op> {
        // SAFETY: the library's class.
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
        // SAFETY: just made, and known to nobody yet.
        unsafe { (*(*op).completion.get()).plugin_callback_args = op.cast() };
        Ok(op)
    };
    create().unwrap_or_else(|failure| {
        report(Outlet::Operation, c"op_create", Err(failure));
        ptr::null_mut()
    })
}

pub(crate) unsafe extern "C" fn op_destroy(class: *mut na_class, op: *mut Op) {
    // SAFETY: null, or an operation that was created and is destroyed now.
    let Some(op_ref) = (unsafe { op.as_ref() }) else {
        return;
    };
    match op_ref.give_up() {
        Ok(id) => {
            log::write(
                Outlet::Operation,
                Level::Warning,
                c"op_destroy",
                "the operation has not ended: it is canceled, and freed after that",
            );
            // SAFETY: the library's class.
            if let Ok(class) = unsafe { class_of(class) } {
                class.class().cancel(id);
            }
        }
        Err(IDLE) => {
            // SAFETY: created by `op_create`, and nothing is under way.
            drop(unsafe { Box::from_raw(op) });
        }
        // Misused: leaking it is the only harmless answer.
        Err(_) => {
            let text = "the operation is destroyed already, or is just begun by another thread";
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
        // SAFETY: the library's class, and an operation of the user's, or null.
        let (class, op) = unsafe {
            let class = class_of(class)?;
            (class, op_of(class, op)?)
        };
        // SYNC: Acquire, so that its number is seen.
        if op.state.load(Ordering::Acquire) == ACTIVE {
            let id = OperationId::of_u64(op.id.load(Ordering::Relaxed));
            class.class().cancel(id);
        }
        Ok(())
    };
    report(Outlet::Operation, c"cancel", cancel())
}
