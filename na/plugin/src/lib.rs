//! The plugin through which Mercury uses Conduit's networks.
//!
//! Mercury looks in a folder for `libna_plugin_conduit.so`, and in this library for the table of
//! operations (`na_conduit_class_ops_g`). The operations are thin wrappers around
//! [`na::raw::Class`]. This crate adds what C requires:
//!
//! - `abi`: the types that NA and the plugin share;
//! - `class`, `context`, `operation`, `address`, `message`, `memory`, `protocols`: the operations,
//!   by subject;
//! - `library`, `log`, `events`: access to the parts of Mercury that the plugin uses;
//! - `status`: the mapping of errors to NA's codes.
//!
//! Pointers belong to the library or its user, who must follow NA's rules and not use freed
//! objects. Calls with mistakes that can be detected at once fail with a line in the log.

mod abi;
mod address;
mod class;
mod context;
mod events;
mod library;
mod log;
mod memory;
mod message;
mod operation;
mod protocols;
mod status;

use std::ffi::CStr;

use abi::na_class_ops;
use log::{Level, Outlet};
use status::{Result, Return};

/// Converts the result of a call to a code, and logs the reason of a failure.
#[track_caller]
fn report(outlet: Outlet, call: &CStr, result: Result) -> Return {
    report_at(Level::Error, outlet, call, result)
}

#[track_caller]
fn report_at(level: Level, outlet: Outlet, call: &CStr, result: Result) -> Return {
    match result {
        Ok(()) => Return::Success,
        Err(failure) => {
            log::write(outlet, level, call, &failure.reason);
            failure.code
        }
    }
}

/// The table of operations that Mercury looks for.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "Mercury derives the name from the class's"
)]
static na_conduit_class_ops_g: na_class_ops = na_class_ops {
    class_name: protocols::CLASS.as_ptr(),
    get_protocol_info: Some(protocols::get_protocol_info),
    check_protocol: Some(protocols::check_protocol),
    initialize: Some(class::initialize),
    finalize: Some(class::finalize),
    cleanup: Some(class::cleanup),
    has_opt_feature: Some(class::has_opt_feature),
    context_create: Some(context::context_create),
    context_destroy: Some(context::context_destroy),
    op_create: Some(operation::op_create),
    op_destroy: Some(operation::op_destroy),
    addr_lookup: Some(address::addr_lookup),
    addr_free: Some(address::addr_free),
    addr_set_remove: Some(address::addr_set_remove),
    addr_self: Some(address::addr_self),
    addr_dup: Some(address::addr_dup),
    addr_cmp: Some(address::addr_cmp),
    addr_is_self: Some(address::addr_is_self),
    addr_to_string: Some(address::addr_to_string),
    addr_get_serialize_size: Some(address::addr_get_serialize_size),
    addr_serialize: Some(address::addr_serialize),
    addr_deserialize: Some(address::addr_deserialize),
    msg_get_max_unexpected_size: Some(class::msg_get_max_unexpected_size),
    msg_get_max_expected_size: Some(class::msg_get_max_expected_size),
    msg_get_unexpected_header_size: Some(class::msg_get_header_size),
    msg_get_expected_header_size: Some(class::msg_get_header_size),
    msg_get_max_tag: Some(class::msg_get_max_tag),
    msg_buf_alloc: Some(message::msg_buf_alloc),
    msg_buf_free: Some(message::msg_buf_free),
    msg_init_unexpected: Some(message::msg_init),
    msg_send_unexpected: Some(message::msg_send_unexpected),
    msg_recv_unexpected: Some(message::msg_recv_unexpected),
    msg_multi_recv_unexpected: Some(message::msg_multi_recv_unexpected),
    msg_init_expected: Some(message::msg_init),
    msg_send_expected: Some(message::msg_send_expected),
    msg_recv_expected: Some(message::msg_recv_expected),
    mem_handle_create: Some(memory::mem_handle_create),
    mem_handle_create_segments: Some(memory::mem_handle_create_segments),
    mem_handle_free: Some(memory::mem_handle_free),
    mem_handle_get_max_segments: Some(memory::mem_handle_get_max_segments),
    mem_register: Some(memory::mem_register),
    mem_deregister: Some(memory::mem_deregister),
    mem_handle_get_serialize_size: Some(memory::mem_handle_get_serialize_size),
    mem_handle_serialize: Some(memory::mem_handle_serialize),
    mem_handle_deserialize: Some(memory::mem_handle_deserialize),
    put: Some(memory::put),
    get: Some(memory::get),
    poll_get_fd: Some(context::poll_get_fd),
    poll_try_wait: Some(context::poll_try_wait),
    poll: Some(context::poll),
    poll_wait: Some(context::poll_wait),
    cancel: Some(operation::cancel),
};
