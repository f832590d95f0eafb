//! Requests of a fixed payload.

use std::ffi::{c_int, c_void};

use conduit::Rank;
use conduit_core::kernel::Error as EngineError;

use crate::abi::{self, Flags, events};
use crate::fault::{Refusal, fatal, started};
use crate::handlers::{arguments, payload};
use crate::job::{Job, TheEngine};

/// A handler's number in messages of the call: GASNet-EX's name of the request or GASNet-1's.
const SHORT: &str = "gex_AM_RequestShort";
const MEDIUM: &str = "gex_AM_RequestMedium";
const LONG: &str = "gex_AM_RequestLong";

/// `gex_AM_RequestShortN`.
///
/// # Safety
/// `words` is valid for `count` words, at most 16.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_request_short(
    rank: Rank,
    handler: u8,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let words = unsafe { arguments(count, words) };
    let engine = Job::of(SHORT).engine();
    let sent = engine
        .messages()
        .request_short(rank, handler, words, flags.blocking());
    requested(SHORT, flags, engine, rank, sent)
}

/// `gex_AM_RequestMediumN`.
///
/// # Safety
/// As for [`conduit_gex_request_short`]; `source` is valid for `bytes` bytes; `local` is one of the constants or valid for
/// a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_request_medium(
    rank: Rank,
    handler: u8,
    source: *const c_void,
    bytes: usize,
    local: *mut usize,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let (words, payload) = unsafe { (arguments(count, words), payload(source, bytes)) };
    let engine = Job::of(MEDIUM).engine();
    check_option(MEDIUM, local, true);
    // Refused here, so that what the engine says is not brought together with it: that goes through memory.
    let payload = match payload {
        Ok(payload) => payload,
        Err(refusal) => return started(MEDIUM, flags, Err(refusal)),
    };
    let sent = engine
        .messages()
        .request_medium(rank, handler, words, payload, flags.blocking());
    // SAFETY: the caller's promise.
    unsafe { finished_locally(&sent, local) };
    requested(MEDIUM, flags, engine, rank, sent)
}

/// `gex_AM_RequestLongN`.
///
/// # Safety
/// As for [`conduit_gex_request_medium`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_request_long(
    rank: Rank,
    handler: u8,
    source: *const c_void,
    bytes: usize,
    destination: *mut c_void,
    local: *mut usize,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let (words, payload) = unsafe { (arguments(count, words), payload(source, bytes)) };
    let engine = Job::of(LONG).engine();
    check_option(LONG, local, true);
    let placed =
        payload.and_then(|payload| Ok((payload, long_offset(engine, rank, destination, bytes)?)));
    // As above.
    let (payload, offset) = match placed {
        Ok(placed) => placed,
        Err(refusal) => return started(LONG, flags, Err(refusal)),
    };
    let sent =
        engine
            .messages()
            .request_long(rank, handler, words, payload, offset, flags.blocking());
    // SAFETY: the caller's promise.
    unsafe { finished_locally(&sent, local) };
    requested(LONG, flags, engine, rank, sent)
}

/// The result of a request: at once where it went to another rank, without a second copy of what the engine has said.
#[inline(always)]
pub(crate) fn requested<E: From<EngineError> + Into<Refusal>>(
    call: &str,
    flags: Flags,
    engine: &TheEngine,
    rank: Rank,
    sent: Result<bool, E>,
) -> c_int {
    if rank != engine.rank() && matches!(sent, Ok(true)) {
        return abi::OK;
    }
    started(call, flags, handled_here(engine, rank, sent))
}

/// Most polls after a request to oneself.
const POLLS: u32 = 64;

/// A request to oneself is handled before its call returns, as in GASNet, where it never travels: clients have nobody else
/// who polls for it. Should very many messages be before it, later polls come to it.
///
/// By itself, as it is rare and its polls would be in every request.
#[inline(never)]
pub(crate) fn handled_here<E: From<EngineError>>(
    engine: &TheEngine,
    rank: Rank,
    sent: Result<bool, E>,
) -> Result<bool, E> {
    if rank == engine.rank() && matches!(sent, Ok(true)) {
        for _ in 0..POLLS {
            if !engine.poll_some()? {
                break;
            }
        }
    }
    sent
}

/// Where in a rank's segment an address of that rank is. An address below gives a number that no segment holds.
#[inline]
pub(crate) fn offset(
    engine: &TheEngine,
    rank: Rank,
    address: *const c_void,
) -> Result<usize, EngineError> {
    let base = engine.memory().segment_of(rank)?.address;
    Ok(address.addr().wrapping_sub(base as usize))
}

/// The same for a long's destination; that of an empty one travels as it is, and needs no segment.
pub(crate) fn long_offset(
    engine: &TheEngine,
    rank: Rank,
    destination: *const c_void,
    bytes: usize,
) -> Result<usize, Refusal> {
    if bytes == 0 {
        Ok(destination.addr())
    } else {
        Ok(offset(engine, rank, destination)?)
    }
}

/// Checks the `lc_opt` of a message with payload (debug builds): `GEX_EVENT_NOW`, a place for an event, and for requests
/// `GEX_EVENT_GROUP`.
#[inline]
pub(crate) fn check_option(call: &str, local: *mut usize, group: bool) {
    if cfg!(debug_assertions) {
        match local.addr() {
            events::NOW => {}
            events::GROUP if group => {}
            address if address > events::GROUP => {}
            other => fatal(
                call,
                &format_args!("lc_opt {other:#x} is not one of this call's"),
            ),
        }
    }
}

/// A payload may be reused when the call returns, so an event that was asked for has ended.
///
/// # Safety
/// `local` is one of the constants or valid for a write.
#[inline]
pub(crate) unsafe fn finished_locally<E>(sent: &Result<bool, E>, local: *mut usize) {
    if matches!(sent, Ok(true)) && local.addr() > events::GROUP {
        // SAFETY: not one of the constants, so valid for a write.
        unsafe { local.write(events::INVALID) };
    }
}
