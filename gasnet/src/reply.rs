//! Replies with a fixed payload.

use std::ffi::{c_int, c_void};

use crate::abi::Flags;
use crate::fault::started;
use crate::handlers::{arguments, payload, token};
use crate::request::{check_option, finished_locally, long_offset};

const SHORT: &str = "gex_AM_ReplyShort";
const MEDIUM: &str = "gex_AM_ReplyMedium";
const LONG: &str = "gex_AM_ReplyLong";

/// `gex_AM_ReplyShortN`. A reply never waits, so it is sent even with [`Flags::IMMEDIATE`].
///
/// # Safety
/// `handle` must be null or the token of the running handler. `words` must be valid for reads of
/// `count` words, and `count` must be at most 16.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_reply_short(
    handle: *const c_void,
    handler: u8,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller guarantees that `handle` is the running handler's token and that `words`
    // is valid for `count` words.
    let (token, words) = unsafe { (token(SHORT, handle), arguments(count, words)) };
    started(
        SHORT,
        flags,
        token.message.reply_short(handler, words).map(|()| true),
    )
}

/// `gex_AM_ReplyMediumN`.
///
/// # Safety
/// Same as [`conduit_gex_reply_short`]. In addition, `source` must be null or valid for reads of
/// `bytes` bytes, and `local` must be one of the constants or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_reply_medium(
    handle: *const c_void,
    handler: u8,
    source: *const c_void,
    bytes: usize,
    local: *mut usize,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller guarantees that `handle` is the running handler's token, and that `words`
    // and `source` are valid for `count` words and `bytes` bytes, respectively.
    let (token, words, payload) = unsafe {
        (
            token(MEDIUM, handle),
            arguments(count, words),
            payload(source, bytes),
        )
    };
    check_option(MEDIUM, local, false);
    let sent = payload.and_then(|payload| {
        token.message.reply_medium(handler, words, payload)?;
        Ok(true)
    });
    // SAFETY: the caller guarantees that `local` is one of the constants or valid for a write.
    unsafe { finished_locally(&sent, local) };
    started(MEDIUM, flags, sent)
}

/// `gex_AM_ReplyLongN`.
///
/// # Safety
/// Same as [`conduit_gex_reply_medium`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_reply_long(
    handle: *const c_void,
    handler: u8,
    source: *const c_void,
    bytes: usize,
    destination: *mut c_void,
    local: *mut usize,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller guarantees that `handle` is the running handler's token, and that `words`
    // and `source` are valid for `count` words and `bytes` bytes, respectively.
    let (token, words, payload) = unsafe {
        (
            token(LONG, handle),
            arguments(count, words),
            payload(source, bytes),
        )
    };
    check_option(LONG, local, false);
    let message = token.message;
    let sent = payload.and_then(|payload| {
        let offset = long_offset(message.engine(), message.source(), destination, bytes)?;
        message.reply_long(handler, words, payload, offset)?;
        Ok(true)
    });
    // SAFETY: the caller guarantees that `local` is one of the constants or valid for a write.
    unsafe { finished_locally(&sent, local) };
    started(LONG, flags, sent)
}
