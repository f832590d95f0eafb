//! The interface for C, which the Python package uses: `libconduit_channels.so`.
//!
//! A function that may fail returns a [`Code`]'s number, 0 for success. Times are nanoseconds: 0, tried once; negative,
//! for ever. A descriptor has [`DESCRIPTOR`] bytes. A client can be used by several threads.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent::Code;

use crate::client::{Channel, Client, Options, Sender, Timeout};
use crate::descriptor::{DESCRIPTOR, Descriptor};
use crate::wire::{FrameKind, mode_of};

/// A message that was received.
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
/// `client` is from [`conduit_channels_open`] and not closed; there is a descriptor's room at `descriptor`.
unsafe fn channel(client: *const Client, descriptor: *const u8) -> Result<Channel, Code> {
    // SAFETY: the caller's promise.
    let (client, bytes) = unsafe { (&*client, std::slice::from_raw_parts(descriptor, DESCRIPTOR)) };
    let descriptor = Descriptor::from_bytes(bytes).map_err(|_| Code::INVALID_ARGUMENT)?;
    Ok(client.attach(descriptor))
}

/// Writes a text and a final zero, cut off where there is no more room.
///
/// # Safety
/// There are so many bytes at `into`.
unsafe fn write(text: &str, into: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1) else {
        return;
    };
    let length = text.len().min(most);
    // SAFETY: the caller's promise; `length` is less than `room`.
    unsafe {
        into.cast::<u8>().copy_from(text.as_ptr(), length);
        into.add(length).write(0);
    }
}

/// Connects to the agent of this name; null: the one that the environment names. Null, and a text at `error`: there is
/// none.
///
/// # Safety
/// `name` is null or a string; there are `room` bytes at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_open(
    name: *const c_char,
    error: *mut c_char,
    room: usize,
) -> *mut Client {
    let opened = match name.is_null() {
        true => Client::open(),
        // SAFETY: the caller's promise.
        false => Client::to(&unsafe { CStr::from_ptr(name) }.to_string_lossy()),
    };
    match opened {
        Ok(client) => Box::into_raw(Box::new(client)),
        Err(why) => {
            // SAFETY: the caller's promise.
            unsafe { write(&why.to_string(), error, room) };
            ptr::null_mut()
        }
    }
}

/// Waits, up to ten seconds, until the agent has taken what was sent without waiting.
///
/// # Safety
/// As for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_settle(client: *const Client) {
    // SAFETY: the caller's promise.
    unsafe { &*client }.settle();
}

/// Ends a client.
///
/// # Safety
/// It is from [`conduit_channels_open`], and used no more.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_close(client: *mut Client) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(client) });
}

/// What a code means.
///
/// # Safety
/// There are `room` bytes at `text`.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_describe(code: u32, text: *mut c_char, room: usize) {
    // SAFETY: the caller's promise.
    unsafe { write(&Code(code).to_string(), text, room) }
}

/// Makes a channel, and writes its descriptor.
///
/// # Safety
/// As for [`channel`].
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
    // SAFETY: the caller's promise.
    code(unsafe { &*client }.create(&options).map(|channel| {
        let bytes = channel.descriptor().to_bytes();
        // SAFETY: the caller's promise.
        unsafe { descriptor.copy_from(bytes.as_ptr(), bytes.len()) };
    }))
}

/// Destroys a channel.
///
/// # Safety
/// As for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_destroy(client: *const Client, descriptor: *const u8) -> u32 {
    // SAFETY: the caller's promise.
    code(unsafe { channel(client, descriptor) }.and_then(|channel| channel.destroy()))
}

/// A number for sends that are to stay in order.
///
/// # Safety
/// As for [`channel`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_handle(client: *const Client) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*client }.1.fetch_add(1, Ordering::Relaxed)
}

/// Sends a message. Modes: 0 immediately, 1 buffered, 2 deposited, 3 received, 4 none.
///
/// # Safety
/// As for [`channel`]; there are `length` bytes at `bytes`.
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
    // SAFETY: the caller's promise.
    let channel = unsafe { channel(client, descriptor) };
    let bytes = match length {
        0 => &[][..],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(bytes, length) },
    };
    code(channel.and_then(|channel| {
        let mode = mode_of(mode).ok_or(Code::INVALID_ARGUMENT)?;
        Sender { channel, handle }.send_with(bytes, hints, mode, timeout(time))
    }))
}

/// Takes the next message, which is to be [freed](conduit_channels_free).
///
/// # Safety
/// As for [`channel`]; `message` is valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_receive(
    client: *const Client,
    descriptor: *const u8,
    time: i64,
    message: *mut CMessage,
) -> u32 {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel(client, descriptor) };
    let received = channel.and_then(|channel| channel.receive(timeout(time)));
    code(received.map(|received| {
        let bytes = Box::into_raw(received.bytes.into_boxed_slice());
        // SAFETY: the caller's promise.
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
/// They are from [`conduit_channels_receive`], and used no more.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_free(bytes: *mut u8, length: usize) {
    // SAFETY: the caller's promise; so they were made.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(bytes, length)) });
}

/// Waits for a state, by its number: 1 in, 2 out, 3 either, 4 empty, 5 full, 6 size, 8 capacity.
///
/// # Safety
/// As for [`channel`]; `value` is valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_channels_poll(
    client: *const Client,
    descriptor: *const u8,
    state: u16,
    time: i64,
    value: *mut u64,
) -> u32 {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel(client, descriptor) };
    let kind = FrameKind::Poll { mask: state };
    let polled = channel.and_then(|channel| {
        (channel.start(kind, timeout(time), None, |ended| ended.value))?.wait()
    });
    // SAFETY: the caller's promise.
    code(polled.map(|polled| unsafe { value.write(polled) }))
}
