//! The table's operations on messages, and the buffers for messages.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_ulong, c_void};
use std::ptr;

use na::raw::Target;

use crate::abi::{CallbackType, na_cb_t, na_class, na_context};
use crate::address::{Address, address_of};
use crate::class::class_of;
use crate::log::Outlet;
use crate::operation::{self, Begin, Op};
use crate::report;
use crate::status::{Failure, Result, Return};

/// The alignment of buffers, which is the size of a page.
const PAGE: usize = 4096;

/// Refuses a null buffer with a non-zero length.
fn check(buffer: *const c_void, length: usize) -> Result {
    match buffer.is_null() && length > 0 {
        true => Err(Failure::invalid("no buffer given")),
        false => Ok(()),
    }
}

fn layout(size: usize) -> Result<Layout> {
    Layout::from_size_align(size.max(1), PAGE)
        .map_err(|_| Failure::invalid(format!("invalid buffer size {size}")))
}

// ---- entries of the table ----

pub(crate) unsafe extern "C" fn msg_buf_alloc(
    _class: *mut na_class,
    size: usize,
    _flags: c_ulong,
    plugin_data: *mut *mut c_void,
) -> *mut c_void {
    let allocate = || -> Result<*mut c_void> {
        if plugin_data.is_null() {
            return Err(Failure::invalid("the output plugin data is null"));
        }
        // SAFETY: `layout` returns only layouts of non-zero size.
        let buffer = unsafe { alloc_zeroed(layout(size)?) };
        if buffer.is_null() {
            let reason = format!("out of memory for a buffer of {size} bytes");
            return Err(Failure::new(Return::NoMemory, reason));
        }
        // SAFETY: `plugin_data` is not null, so the library guarantees that it is valid for a
        // write. The data is the size, which is needed to free the buffer.
        unsafe { *plugin_data = ptr::without_provenance_mut(size) };
        Ok(buffer.cast())
    };
    allocate().unwrap_or_else(|failure| {
        report(Outlet::Message, c"msg_buf_alloc", Err(failure));
        ptr::null_mut()
    })
}

pub(crate) unsafe extern "C" fn msg_buf_free(
    _class: *mut na_class,
    buffer: *mut c_void,
    plugin_data: *mut c_void,
) {
    if !buffer.is_null()
        && let Ok(layout) = layout(plugin_data.addr())
    {
        // SAFETY: `msg_buf_alloc` allocated the buffer with this layout and set the plugin data,
        // and the user frees the buffer only once.
        unsafe { dealloc(buffer.cast(), layout) };
    }
}

/// Does nothing, because the plugin reserves no part of a buffer.
pub(crate) unsafe extern "C" fn msg_init(
    _class: *mut na_class,
    _buffer: *mut c_void,
    _size: usize,
) -> Return {
    Return::Success
}

/// Defines the table's operation that sends a kind of message.
macro_rules! send {
    ($name:ident, $text:literal, $kind:ident, $send:ident) => {
        pub(crate) unsafe extern "C" fn $name(
            class: *mut na_class,
            context: *mut na_context,
            callback: na_cb_t,
            arg: *mut c_void,
            buffer: *const c_void,
            length: usize,
            _plugin_data: *mut c_void,
            address: *mut Address,
            target: u8,
            tag: u32,
            op: *mut Op,
        ) -> Return {
            let send = || -> Result {
                check(buffer, length)?;
                // SAFETY: the library passes its class and the user's address, which was not freed.
                let (class, address) = unsafe {
                    let class = class_of(class)?;
                    (class, address_of(class, address)?)
                };
                let target = Target {
                    address: address.addr(),
                    context: target,
                };
                let begin = Begin {
                    callback,
                    arg,
                    kind: CallbackType::$kind,
                    buffer: ptr::null_mut(),
                };
                // SAFETY: the library passes its context and an operation that is null or not
                // destroyed. The user does not change the buffer until the callback is called.
                unsafe {
                    operation::start(class, context, op, begin, |context, cookie| {
                        let message = (buffer.cast(), length);
                        class.class().$send(context, cookie, message, &target, tag)
                    })
                }
            };
            report(Outlet::Message, $text, send())
        }
    };
}

send!(
    msg_send_unexpected,
    c"msg_send_unexpected",
    SendUnexpected,
    send_unexpected
);
send!(
    msg_send_expected,
    c"msg_send_expected",
    SendExpected,
    send_expected
);

/// Defines the table's operation that receives one or several unexpected messages.
macro_rules! receive_unexpected {
    ($name:ident, $text:literal, $kind:ident, $several:literal) => {
        pub(crate) unsafe extern "C" fn $name(
            class: *mut na_class,
            context: *mut na_context,
            callback: na_cb_t,
            arg: *mut c_void,
            buffer: *mut c_void,
            length: usize,
            _plugin_data: *mut c_void,
            op: *mut Op,
        ) -> Return {
            let receive = || -> Result {
                check(buffer, length)?;
                // SAFETY: the library passes its class.
                let class = unsafe { class_of(class) }?;
                let begin = Begin {
                    callback,
                    arg,
                    kind: CallbackType::$kind,
                    buffer,
                };
                // SAFETY: the library passes its context and an operation that is null or not
                // destroyed. The user does not access the buffer until the callback is called.
                unsafe {
                    operation::start(class, context, op, begin, |context, cookie| {
                        let room = (buffer.cast(), length);
                        class
                            .class()
                            .receive_unexpected(context, cookie, room, $several)
                    })
                }
            };
            report(Outlet::Message, $text, receive())
        }
    };
}

receive_unexpected!(
    msg_recv_unexpected,
    c"msg_recv_unexpected",
    RecvUnexpected,
    false
);
receive_unexpected!(
    msg_multi_recv_unexpected,
    c"msg_multi_recv_unexpected",
    MultiRecvUnexpected,
    true
);

pub(crate) unsafe extern "C" fn msg_recv_expected(
    class: *mut na_class,
    context: *mut na_context,
    callback: na_cb_t,
    arg: *mut c_void,
    buffer: *mut c_void,
    length: usize,
    _plugin_data: *mut c_void,
    address: *mut Address,
    source: u8,
    tag: u32,
    op: *mut Op,
) -> Return {
    let receive = || -> Result {
        check(buffer, length)?;
        // SAFETY: the library passes its class and the user's address, which was not freed.
        let (class, address) = unsafe {
            let class = class_of(class)?;
            (class, address_of(class, address)?)
        };
        let from = Target {
            address: address.addr(),
            context: source,
        };
        let begin = Begin {
            callback,
            arg,
            kind: CallbackType::RecvExpected,
            buffer: ptr::null_mut(),
        };
        // SAFETY: the library passes its context and an operation that is null or not destroyed.
        // The user does not access the buffer until the callback is called.
        unsafe {
            operation::start(class, context, op, begin, |context, cookie| {
                let room = (buffer.cast(), length);
                class
                    .class()
                    .receive_expected(context, cookie, room, &from, tag)
            })
        }
    };
    report(Outlet::Message, c"msg_recv_expected", receive())
}
