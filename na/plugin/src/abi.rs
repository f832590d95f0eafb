//! The types that Mercury and a plugin exchange, with the layout of NA version [`MAJOR`].

#![allow(non_camel_case_types, reason = "the names used in NA's documentation")]

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use crate::address::Address;
use crate::memory::MemHandle;
use crate::operation::Op;
use crate::status::Return;

/// NA's major version to which these types belong.
pub(crate) const MAJOR: c_uint = 6;

/// The address is behind a firewall.
pub(crate) const ADDR_FIREWALL: u64 = 1 << 0;

/// The feature that an operation can receive several unexpected messages.
pub(crate) const OPT_MULTI_RECV: c_ulong = 1 << 0;

/// A flag of `progress_mode`: waiting threads poll instead of sleeping.
pub(crate) const NO_BLOCK: u8 = 1 << 0;
/// A flag of `progress_mode`: data that the network does not accept at once is not sent again.
pub(crate) const NO_RETRY: u8 = 1 << 1;
/// The two flags of `thread_mode`, combined.
pub(crate) const THREAD_MODE_SINGLE: u8 = 3;
/// The traffic class with the highest number.
pub(crate) const TRAFFIC_NETWORK_CONTROL: c_uint = 6;

/// Rights to memory that allow peers to get from it.
pub(crate) const MEM_READ_ONLY: c_ulong = 1;
/// Rights to memory that allow peers to put to it.
pub(crate) const MEM_WRITE_ONLY: c_ulong = 2;
/// Rights to memory that allow peers to get from it and to put to it.
pub(crate) const MEM_READWRITE: c_ulong = 3;

/// `enum na_addr_format`.
pub(crate) mod addr_format {
    use std::ffi::c_uint;

    pub(crate) const UNSPEC: c_uint = 0;
    pub(crate) const IPV4: c_uint = 1;
    pub(crate) const IPV6: c_uint = 2;
    pub(crate) const NATIVE: c_uint = 3;
}

/// `enum na_mem_type`.
pub(crate) mod mem_type {
    use std::ffi::c_uint;

    pub(crate) const HOST: c_uint = 0;
    pub(crate) const NAMES: [&str; 4] = ["host", "CUDA", "ROCm", "Level Zero"];
    pub(crate) const UNKNOWN: c_uint = 4;
}

/// `enum na_cb_type`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallbackType {
    SendUnexpected,
    RecvUnexpected,
    MultiRecvUnexpected,
    SendExpected,
    RecvExpected,
    Put,
    Get,
}

/// The options that a user requests for a class.
#[repr(C)]
pub(crate) struct na_init_info {
    pub(crate) ip_subnet: *const c_char,
    pub(crate) auth_key: *const c_char,
    pub(crate) max_unexpected_size: usize,
    pub(crate) max_expected_size: usize,
    pub(crate) progress_mode: u8,
    pub(crate) addr_format: c_uint,
    pub(crate) max_contexts: u8,
    pub(crate) thread_mode: u8,
    pub(crate) request_mem_device: u8,
    pub(crate) traffic_class: c_uint,
}

/// The parts of an info string, and the options of the class to be created.
#[repr(C)]
pub(crate) struct na_info {
    pub(crate) protocol_name: *const c_char,
    pub(crate) host_name: *const c_char,
    pub(crate) init: na_init_info,
}

/// A class. The plugin owns only `plugin_class`.
#[repr(C)]
pub(crate) struct na_class {
    pub(crate) ops: *const na_class_ops,
    pub(crate) plugin_class: *mut c_void,
    pub(crate) protocol_name: *mut c_char,
    pub(crate) progress_mode: u8,
    pub(crate) listen: u8,
}

/// A context, of which only the member that a plugin uses is declared.
#[repr(C)]
pub(crate) struct na_context {
    pub(crate) plugin_context: *mut c_void,
}

/// A contiguous part of memory.
#[repr(C)]
pub(crate) struct na_segment {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

/// An entry of the list of protocols. Mercury frees it and its strings with `free`.
#[repr(C)]
pub(crate) struct na_protocol_info {
    pub(crate) next: *mut na_protocol_info,
    pub(crate) class_name: *mut c_char,
    pub(crate) protocol_name: *mut c_char,
    pub(crate) device_name: *mut c_char,
}

/// The result of an operation, which in C is a union whose members begin with the same fields.
/// Expected receives use only the size. Only receives of several unexpected messages use the last
/// two fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Received {
    pub(crate) actual_buf_size: usize,
    pub(crate) source: *mut Address,
    pub(crate) tag: u32,
    pub(crate) actual_buf: *mut c_void,
    pub(crate) last: bool,
}

/// The argument of a user's callback.
#[repr(C)]
pub(crate) struct na_cb_info {
    pub(crate) received: Received,
    pub(crate) arg: *mut c_void,
    pub(crate) kind: CallbackType,
    pub(crate) ret: Return,
}

pub(crate) type na_cb_t = Option<unsafe extern "C" fn(*const na_cb_info)>;
pub(crate) type na_plugin_cb_t = Option<unsafe extern "C" fn(*mut c_void)>;

/// An entry of a completion queue. The library owns the entry from `na_cb_completion_add` until it
/// calls `plugin_callback`.
#[repr(C)]
pub(crate) struct na_cb_completion_data {
    pub(crate) callback_info: na_cb_info,
    pub(crate) callback: na_cb_t,
    pub(crate) plugin_callback: na_plugin_cb_t,
    pub(crate) plugin_callback_args: *mut c_void,
    /// The library's own link in its queue, which the plugin does not use.
    pub(crate) entry: *mut c_void,
}

type Class = *mut na_class;
type Context = *mut na_context;

/// The table of operations. Optional operations may be `None`.
#[repr(C)]
pub(crate) struct na_class_ops {
    pub(crate) class_name: *const c_char,
    pub(crate) get_protocol_info:
        Option<unsafe extern "C" fn(*const na_info, *mut *mut na_protocol_info) -> Return>,
    pub(crate) check_protocol: Option<unsafe extern "C" fn(*const c_char) -> bool>,
    pub(crate) initialize: Option<unsafe extern "C" fn(Class, *const na_info, bool) -> Return>,
    pub(crate) finalize: Option<unsafe extern "C" fn(Class) -> Return>,
    pub(crate) cleanup: Option<unsafe extern "C" fn()>,
    pub(crate) has_opt_feature: Option<unsafe extern "C" fn(Class, c_ulong) -> bool>,
    pub(crate) context_create:
        Option<unsafe extern "C" fn(Class, Context, *mut *mut c_void, u8) -> Return>,
    pub(crate) context_destroy: Option<unsafe extern "C" fn(Class, *mut c_void) -> Return>,
    pub(crate) op_create: Option<unsafe extern "C" fn(Class, c_ulong) -> *mut Op>,
    pub(crate) op_destroy: Option<unsafe extern "C" fn(Class, *mut Op)>,
    pub(crate) addr_lookup:
        Option<unsafe extern "C" fn(Class, *const c_char, *mut *mut Address) -> Return>,
    pub(crate) addr_free: Option<unsafe extern "C" fn(Class, *mut Address)>,
    pub(crate) addr_set_remove: Option<unsafe extern "C" fn(Class, *mut Address) -> Return>,
    pub(crate) addr_self: Option<unsafe extern "C" fn(Class, *mut *mut Address) -> Return>,
    pub(crate) addr_dup:
        Option<unsafe extern "C" fn(Class, *mut Address, *mut *mut Address) -> Return>,
    pub(crate) addr_cmp: Option<unsafe extern "C" fn(Class, *mut Address, *mut Address) -> bool>,
    pub(crate) addr_is_self: Option<unsafe extern "C" fn(Class, *mut Address) -> bool>,
    pub(crate) addr_to_string:
        Option<unsafe extern "C" fn(Class, *mut c_char, *mut usize, *mut Address) -> Return>,
    pub(crate) addr_get_serialize_size: Option<unsafe extern "C" fn(Class, *mut Address) -> usize>,
    pub(crate) addr_serialize:
        Option<unsafe extern "C" fn(Class, *mut c_void, usize, *mut Address) -> Return>,
    pub(crate) addr_deserialize:
        Option<unsafe extern "C" fn(Class, *mut *mut Address, *const c_void, usize, u64) -> Return>,
    pub(crate) msg_get_max_unexpected_size: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) msg_get_max_expected_size: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) msg_get_unexpected_header_size:
        Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) msg_get_expected_header_size: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) msg_get_max_tag: Option<unsafe extern "C" fn(*const na_class) -> u32>,
    pub(crate) msg_buf_alloc:
        Option<unsafe extern "C" fn(Class, usize, c_ulong, *mut *mut c_void) -> *mut c_void>,
    pub(crate) msg_buf_free: Option<unsafe extern "C" fn(Class, *mut c_void, *mut c_void)>,
    pub(crate) msg_init_unexpected: Option<InitMessage>,
    pub(crate) msg_send_unexpected: Option<Send>,
    pub(crate) msg_recv_unexpected: Option<ReceiveUnexpected>,
    pub(crate) msg_multi_recv_unexpected: Option<ReceiveUnexpected>,
    pub(crate) msg_init_expected: Option<InitMessage>,
    pub(crate) msg_send_expected: Option<Send>,
    pub(crate) msg_recv_expected: Option<ReceiveExpected>,
    pub(crate) mem_handle_create: Option<
        unsafe extern "C" fn(Class, *mut c_void, usize, c_ulong, *mut *mut MemHandle) -> Return,
    >,
    pub(crate) mem_handle_create_segments: Option<
        unsafe extern "C" fn(Class, *mut na_segment, usize, c_ulong, *mut *mut MemHandle) -> Return,
    >,
    pub(crate) mem_handle_free: Option<unsafe extern "C" fn(Class, *mut MemHandle)>,
    pub(crate) mem_handle_get_max_segments: Option<unsafe extern "C" fn(*const na_class) -> usize>,
    pub(crate) mem_register:
        Option<unsafe extern "C" fn(Class, *mut MemHandle, c_uint, u64) -> Return>,
    pub(crate) mem_deregister: Option<unsafe extern "C" fn(Class, *mut MemHandle) -> Return>,
    pub(crate) mem_handle_get_serialize_size:
        Option<unsafe extern "C" fn(Class, *mut MemHandle) -> usize>,
    pub(crate) mem_handle_serialize:
        Option<unsafe extern "C" fn(Class, *mut c_void, usize, *mut MemHandle) -> Return>,
    pub(crate) mem_handle_deserialize:
        Option<unsafe extern "C" fn(Class, *mut *mut MemHandle, *const c_void, usize) -> Return>,
    pub(crate) put: Option<Transfer>,
    pub(crate) get: Option<Transfer>,
    pub(crate) poll_get_fd: Option<unsafe extern "C" fn(Class, Context) -> c_int>,
    pub(crate) poll_try_wait: Option<unsafe extern "C" fn(Class, Context) -> bool>,
    pub(crate) poll: Option<unsafe extern "C" fn(Class, Context, *mut c_uint) -> Return>,
    pub(crate) poll_wait:
        Option<unsafe extern "C" fn(Class, Context, c_uint, *mut c_uint) -> Return>,
    pub(crate) cancel: Option<unsafe extern "C" fn(Class, Context, *mut Op) -> Return>,
}

// SAFETY: the table contains only function pointers and a pointer to a constant string.
unsafe impl Sync for na_class_ops {}

type InitMessage = unsafe extern "C" fn(Class, *mut c_void, usize) -> Return;
type Send = unsafe extern "C" fn(
    Class,
    Context,
    na_cb_t,
    *mut c_void,
    *const c_void,
    usize,
    *mut c_void,
    *mut Address,
    u8,
    u32,
    *mut Op,
) -> Return;
type ReceiveUnexpected = unsafe extern "C" fn(
    Class,
    Context,
    na_cb_t,
    *mut c_void,
    *mut c_void,
    usize,
    *mut c_void,
    *mut Op,
) -> Return;
type ReceiveExpected = unsafe extern "C" fn(
    Class,
    Context,
    na_cb_t,
    *mut c_void,
    *mut c_void,
    usize,
    *mut c_void,
    *mut Address,
    u8,
    u32,
    *mut Op,
) -> Return;
type Transfer = unsafe extern "C" fn(
    Class,
    Context,
    na_cb_t,
    *mut c_void,
    *mut MemHandle,
    u64,
    *mut MemHandle,
    u64,
    usize,
    *mut Address,
    u8,
    *mut Op,
) -> Return;

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// These sizes and offsets were computed by a C compiler from NA's own headers.
    #[test]
    fn types_lie_in_memory_as_in_c() {
        assert_eq!(size_of::<na_init_info>(), 48);
        assert_eq!(offset_of!(na_init_info, max_expected_size), 24);
        assert_eq!(offset_of!(na_init_info, progress_mode), 32);
        assert_eq!(offset_of!(na_init_info, addr_format), 36);
        assert_eq!(offset_of!(na_init_info, max_contexts), 40);
        assert_eq!(offset_of!(na_init_info, thread_mode), 41);
        assert_eq!(offset_of!(na_init_info, request_mem_device), 42);
        assert_eq!(offset_of!(na_init_info, traffic_class), 44);
        assert_eq!(size_of::<na_info>(), 64);
        assert_eq!(offset_of!(na_info, init), 16);
        assert_eq!(size_of::<na_class>(), 32);
        assert_eq!(offset_of!(na_class, plugin_class), 8);
        assert_eq!(offset_of!(na_class, listen), 25);
        assert_eq!(size_of::<na_context>(), 8);
        assert_eq!(size_of::<na_segment>(), 16);
        assert_eq!(size_of::<na_protocol_info>(), 32);
        assert_eq!(offset_of!(Received, source), 8);
        assert_eq!(offset_of!(Received, tag), 16);
        assert_eq!(offset_of!(Received, actual_buf), 24);
        assert_eq!(offset_of!(Received, last), 32);
        assert_eq!(size_of::<na_cb_info>(), 56);
        assert_eq!(offset_of!(na_cb_info, arg), 40);
        assert_eq!(offset_of!(na_cb_info, kind), 48);
        assert_eq!(offset_of!(na_cb_info, ret), 52);
        assert_eq!(size_of::<na_cb_completion_data>(), 88);
        assert_eq!(offset_of!(na_cb_completion_data, callback), 56);
        assert_eq!(offset_of!(na_cb_completion_data, plugin_callback), 64);
        assert_eq!(offset_of!(na_cb_completion_data, plugin_callback_args), 72);
        assert_eq!(offset_of!(na_cb_completion_data, entry), 80);
    }

    #[test]
    fn the_table_has_52_entries_in_order() {
        assert_eq!(size_of::<na_class_ops>(), 416);
        assert_eq!(offset_of!(na_class_ops, check_protocol), 16);
        assert_eq!(offset_of!(na_class_ops, context_create), 56);
        assert_eq!(offset_of!(na_class_ops, addr_lookup), 88);
        assert_eq!(offset_of!(na_class_ops, msg_buf_alloc), 216);
        assert_eq!(offset_of!(na_class_ops, mem_register), 320);
        assert_eq!(offset_of!(na_class_ops, put), 360);
        assert_eq!(offset_of!(na_class_ops, cancel), 408);
    }
}
