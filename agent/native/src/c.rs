//! The C interface, `libconduit_channels.so`, which the Python package uses.
//!
//! Functions that can fail return the number of a [`Code`], which is 0 for success, except for
//! [`conduit_channels_open`]. Time limits are in nanoseconds: 0 means to try once, and a negative
//! number means no limit. A descriptor has [`DESCRIPTOR`] bytes. Several threads may share a
//! client.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent::Code;

use crate::client::{Channel, Client, Options, Sender, Timeout};
use crate::descriptor::{DESCRIPTOR, Descriptor};
use crate::wire::{FrameKind, mode_of};

/// A received message.
#[repr(C)]
struct CMessage {
    bytes: *mut u8,
    length: usize,
    hints: u64,
    sender: u64,
}

fn timeout(nanoseconds: i64) -> Timeout {
    match u64::try_from(nanoseconds) {
        Ok(0) => Timeout::Once,
        Ok(time) => Timeout::After(Duration::from_nanos(time)),
        Err(_) => Timeout::Never,
    }
}

fn code(result: Result<(), Code>) -> u32 {
    result.err().unwrap_or(Code::SUCCESS).0
}

/// # Safety
/// `client` must be from [`conduit_channels_open`] and not be closed, and `descriptor` must point
/// to [`DESCRIPTOR`] bytes.
unsafe fn channel(client: *const Client, descriptor: *const u8) -> Result<Channel, Code> {
    // SAFETY: the caller guarantees that `client` is open and that `descriptor` points to
    // `DESCRIPTOR` bytes.
    let (client, bytes) = unsafe { (&*client, std::slice::from_raw_parts(descriptor, DESCRIPTOR)) };
    let descriptor = Descriptor::from_bytes(bytes).map_err(|_| Code::INVALID_ARGUMENT)?;
    Ok(client.attach(descriptor))
}

/// Writes a text with a terminating zero. The text is truncated so that both fit into `room` bytes.
///
/// # Safety
/// `into` must point to `room` bytes that are valid for writes.
unsafe fn write(text: &str, into: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1) else {
        return;
    };
    let length = text.len().min(most);
    // SAFETY: the caller guarantees that `into` points to `room` writable bytes, and `length` is
    // less than `room`.
    unsafe {
        into.cast::<u8>().copy_from(text.as_ptr(), length);
        into.add(length).write(0);
    }
}

/// Connects to the agent named `name`, or, if `name` is null, to the agent that the environment
/// names. On failure, returns null and writes a message to `error`.
///
/// # Safety
/// `name` must be null or a C string, and `error` must point to `room` bytes that are valid for
/// writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_open(
    name: *const c_char,
    error: *mut c_char,
    room: usize,
) -> *mut Client {
    let opened = match name.is_null() {
        true => Client::open(),
        // SAFETY: the caller guarantees that `name` is a C string if it is not null.
        false => Client::to(&unsafe { CStr::from_ptr(name) }.to_string_lossy()),
    };
    match opened {
        Ok(client) => Box::into_raw(Box::new(client)),
        Err(why) => {
            // SAFETY: the caller guarantees that `error` points to `room` writable bytes.
            unsafe { write(&why.to_string(), error, room) };
            ptr::null_mut()
        }
    }
}

/// Waits, for at most ten seconds, until the agent has taken the messages that were sent without
/// waiting.
///
/// # Safety
/// The same as for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_settle(client: *const Client) {
    // SAFETY: the caller guarantees that `client` is open.
    unsafe { &*client }.settle();
}

/// Closes a client.
///
/// # Safety
/// `client` must be from [`conduit_channels_open`] and must not be used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_close(client: *mut Client) {
    // SAFETY: the caller guarantees that `client` is from `conduit_channels_open`, which uses
    // `Box::into_raw`, and that `client` is not used again.
    drop(unsafe { Box::from_raw(client) });
}

/// Writes the description of a code to `text`.
///
/// # Safety
/// `text` must point to `room` bytes that are valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_describe(code: u32, text: *mut c_char, room: usize) {
    // SAFETY: the caller guarantees that `text` points to `room` writable bytes.
    unsafe { write(&Code(code).to_string(), text, room) }
}

/// Creates a channel and writes its descriptor to `descriptor`.
///
/// # Safety
/// The same as for [`channel`]. In addition, `descriptor` must be valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_create(
    client: *const Client,
    capacity: u32,
    block: u32,
    outlives: bool,
    descriptor: *mut u8,
) -> u32 {
    let options = Options {
        capacity,
        block,
        outlives,
    };
    // SAFETY: the caller guarantees that `client` is open.
    code(unsafe { &*client }.create(&options).map(|channel| {
        let bytes = channel.descriptor().to_bytes();
        // SAFETY: the caller guarantees that `descriptor` points to `DESCRIPTOR` writable bytes.
        unsafe { descriptor.copy_from(bytes.as_ptr(), bytes.len()) };
    }))
}

/// Destroys a channel.
///
/// # Safety
/// The same as for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_destroy(client: *const Client, descriptor: *const u8) -> u32 {
    // SAFETY: the caller gives the guarantees that `channel` requires.
    code(unsafe { channel(client, descriptor) }.and_then(|channel| channel.destroy()))
}

/// Returns a new handle; sends with the same handle stay in order.
///
/// # Safety
/// The same as for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_handle(client: *const Client) -> u64 {
    // SAFETY: the caller guarantees that `client` is open.
    unsafe { &*client }.1.fetch_add(1, Ordering::Relaxed)
}

/// Sends a message. `mode` is the number of a [`ReturnMode`](crate::ReturnMode): 0 for
/// `Immediately`, 1 for `Buffered`, 2 for `Deposited`, 3 for `Received`, 4 for `None`.
///
/// # Safety
/// The same as for [`channel`]. In addition, `bytes` must point to `length` bytes, unless `length`
/// is 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_send(
    client: *const Client,
    descriptor: *const u8,
    handle: u64,
    bytes: *const u8,
    length: usize,
    hints: u64,
    mode: u8,
    time: i64,
) -> u32 {
    // SAFETY: the caller gives the guarantees that `channel` requires.
    let channel = unsafe { channel(client, descriptor) };
    let bytes = match length {
        0 => &[][..],
        // SAFETY: the caller guarantees that `bytes` points to `length` bytes.
        _ => unsafe { std::slice::from_raw_parts(bytes, length) },
    };
    code(channel.and_then(|channel| {
        let mode = mode_of(mode).ok_or(Code::INVALID_ARGUMENT)?;
        Sender { channel, handle }.send_with(bytes, hints, mode, timeout(time))
    }))
}

/// Takes the next message from the channel. The caller has to [free](conduit_channels_free) the
/// message's bytes.
///
/// # Safety
/// The same as for [`channel`]. In addition, `message` must be valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_receive(
    client: *const Client,
    descriptor: *const u8,
    time: i64,
    message: *mut CMessage,
) -> u32 {
    // SAFETY: the caller gives the guarantees that `channel` requires.
    let channel = unsafe { channel(client, descriptor) };
    let received = channel.and_then(|channel| channel.receive(timeout(time)));
    code(received.map(|received| {
        let bytes = Box::into_raw(received.bytes.into_boxed_slice());
        // SAFETY: the caller guarantees that `message` is valid for writes.
        unsafe {
            message.write(CMessage {
                length: bytes.len(),
                bytes: bytes.cast(),
                hints: received.hints,
                sender: received.sender,
            });
        }
    }))
}

/// Frees the bytes of a message.
///
/// # Safety
/// `bytes` and `length` must be from one message of [`conduit_channels_receive`], and must not be
/// used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_free(bytes: *mut u8, length: usize) {
    // SAFETY: the caller guarantees that `bytes` and `length` are from `conduit_channels_receive`,
    // which allocated them as a boxed slice, and that they are not used again.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(bytes, length)) });
}

/// Waits for a state of the channel and writes its value to `value`. `state` is the number of a
/// [`Poll`](crate::Poll): 1 for `In`, 2 for `Out`, 3 for `InOrOut`, 4 for `Empty`, 5 for `Full`, 6
/// for `Size`, 8 for `Capacity`.
///
/// # Safety
/// The same as for [`channel`]. In addition, `value` must be valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_poll(
    client: *const Client,
    descriptor: *const u8,
    state: u16,
    time: i64,
    value: *mut u64,
) -> u32 {
    // SAFETY: the caller gives the guarantees that `channel` requires.
    let channel = unsafe { channel(client, descriptor) };
    let kind = FrameKind::Poll { mask: state };
    let polled = channel.and_then(|channel| {
        (channel.start(kind, timeout(time), None, |ended| ended.value))?.wait()
    });
    // SAFETY: the caller guarantees that `value` is valid for writes.
    code(polled.map(|polled| unsafe { value.write(polled) }))
}
