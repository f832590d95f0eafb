//! The C interface, `libconduit_channels.so`, which the Python package uses.
//!
//! Functions that can fail return the number of a [`Code`], 0 for success. Times are in
//! nanoseconds; 0 tries once, and negative times are unlimited. A descriptor has [`DESCRIPTOR`]
//! bytes. Several threads may share a client.

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
/// `client` is from [`conduit_channels_open`] and not closed, and `descriptor` points to
/// [`DESCRIPTOR`] bytes.
unsafe fn channel(client: *const Client, descriptor: *const u8) -> Result<Channel, Code> {
    // SAFETY: guaranteed by the caller.
    let (client, bytes) = unsafe { (&*client, std::slice::from_raw_parts(descriptor, DESCRIPTOR)) };
    let descriptor = Descriptor::from_bytes(bytes).map_err(|_| Code::INVALID_ARGUMENT)?;
    Ok(client.attach(descriptor))
}

/// Writes a text with a terminating zero, truncated to `room` bytes.
///
/// # Safety
/// `into` points to `room` bytes.
unsafe fn write(text: &str, into: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1) else {
        return;
    };
    let length = text.len().min(most);
    // SAFETY: guaranteed by the caller; `length` is less than `room`.
    unsafe {
        into.cast::<u8>().copy_from(text.as_ptr(), length);
        into.add(length).write(0);
    }
}

/// Connects to the agent of this name, or, if `name` is null, to the one that the environment
/// names. Returns null on failure, with a message in `error`.
///
/// # Safety
/// `name` is null or a C string, and `error` points to `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_open(
    name: *const c_char,
    error: *mut c_char,
    room: usize,
) -> *mut Client {
    let opened = match name.is_null() {
        true => Client::open(),
        // SAFETY: guaranteed by the caller.
        false => Client::to(&unsafe { CStr::from_ptr(name) }.to_string_lossy()),
    };
    match opened {
        Ok(client) => Box::into_raw(Box::new(client)),
        Err(why) => {
            // SAFETY: guaranteed by the caller.
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
    // SAFETY: guaranteed by the caller.
    unsafe { &*client }.settle();
}

/// Closes a client.
///
/// # Safety
/// `client` is from [`conduit_channels_open`] and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_close(client: *mut Client) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(client) });
}

/// Writes the description of a code.
///
/// # Safety
/// `text` points to `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_describe(code: u32, text: *mut c_char, room: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { write(&Code(code).to_string(), text, room) }
}

/// Creates a channel and writes its descriptor.
///
/// # Safety
/// The same as for [`channel`].
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
    // SAFETY: guaranteed by the caller.
    code(unsafe { &*client }.create(&options).map(|channel| {
        let bytes = channel.descriptor().to_bytes();
        // SAFETY: guaranteed by the caller.
        unsafe { descriptor.copy_from(bytes.as_ptr(), bytes.len()) };
    }))
}

/// Destroys a channel.
///
/// # Safety
/// The same as for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_destroy(client: *const Client, descriptor: *const u8) -> u32 {
    // SAFETY: guaranteed by the caller.
    code(unsafe { channel(client, descriptor) }.and_then(|channel| channel.destroy()))
}

/// Returns a new handle; sends with the same handle stay in order.
///
/// # Safety
/// The same as for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_handle(client: *const Client) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { &*client }.1.fetch_add(1, Ordering::Relaxed)
}

/// Sends a message. Modes: 0 immediately, 1 buffered, 2 deposited, 3 received, 4 none.
///
/// # Safety
/// The same as for [`channel`]; `bytes` points to `length` bytes.
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
    // SAFETY: guaranteed by the caller.
    let channel = unsafe { channel(client, descriptor) };
    let bytes = match length {
        0 => &[][..],
        // SAFETY: guaranteed by the caller.
        _ => unsafe { std::slice::from_raw_parts(bytes, length) },
    };
    code(channel.and_then(|channel| {
        let mode = mode_of(mode).ok_or(Code::INVALID_ARGUMENT)?;
        Sender { channel, handle }.send_with(bytes, hints, mode, timeout(time))
    }))
}

/// Takes the next message, whose bytes the caller has to [free](conduit_channels_free).
///
/// # Safety
/// The same as for [`channel`]; `message` is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_receive(
    client: *const Client,
    descriptor: *const u8,
    time: i64,
    message: *mut CMessage,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    let channel = unsafe { channel(client, descriptor) };
    let received = channel.and_then(|channel| channel.receive(timeout(time)));
    code(received.map(|received| {
        let bytes = Box::into_raw(received.bytes.into_boxed_slice());
        // SAFETY: guaranteed by the caller.
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
/// `bytes` and `length` are from [`conduit_channels_receive`], and are not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_free(bytes: *mut u8, length: usize) {
    // SAFETY: guaranteed by the caller; `conduit_channels_receive` allocated them as a boxed slice.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(bytes, length)) });
}

/// Waits for a state, given by its number: 1 in, 2 out, 3 either, 4 empty, 5 full, 6 size, 8
/// capacity.
///
/// # Safety
/// The same as for [`channel`]; `value` is valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_poll(
    client: *const Client,
    descriptor: *const u8,
    state: u16,
    time: i64,
    value: *mut u64,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    let channel = unsafe { channel(client, descriptor) };
    let kind = FrameKind::Poll { mask: state };
    let polled = channel.and_then(|channel| {
        (channel.start(kind, timeout(time), None, |ended| ended.value))?.wait()
    });
    // SAFETY: guaranteed by the caller.
    code(polled.map(|polled| unsafe { value.write(polled) }))
}
