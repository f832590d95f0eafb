//! Requests with a fixed payload.

use std::ffi::{c_int, c_void};

use conduit::Rank;
use conduit_core::kernel::Error as EngineError;

use crate::abi::{self, Flags, events};
use crate::fault::{Refusal, fatal, started};
use crate::handlers::{arguments, payload};
use crate::job::{Job, TheEngine};

/// The names of the calls for error messages. These are GASNet-EX's names, from which GASNet-1's
/// are derived.
const SHORT: &str = "gex_AM_RequestShort";
const MEDIUM: &str = "gex_AM_RequestMedium";
const LONG: &str = "gex_AM_RequestLong";

/// `gex_AM_RequestShortN`.
///
/// # Safety
/// `words` must be valid for reads of `count` words, and `count` must be at most 16.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_request_short(
    rank: Rank,
    handler: u8,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    // SAFETY: the caller guarantees that `words` is valid for `count` words.
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
/// Same as [`conduit_gex_request_short`]. In addition, `source` must be null or valid for reads of
/// `bytes` bytes, and `local` must be one of the constants or valid for a write.
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
    // SAFETY: the caller guarantees that `words` is valid for `count` words and `source` for
    // `bytes` bytes.
    let (words, payload) = unsafe { (arguments(count, words), payload(source, bytes)) };
    let engine = Job::of(MEDIUM).engine();
    check_option(MEDIUM, local, true);
    // Return the refusal here. Merging it with the engine's result would make that result pass
    // through memory instead of registers.
    let payload = match payload {
        Ok(payload) => payload,
        Err(refusal) => return started(MEDIUM, flags, Err(refusal)),
    };
    let sent = engine
        .messages()
        .request_medium(rank, handler, words, payload, flags.blocking());
    // SAFETY: the caller guarantees that `local` is one of the constants or valid for a write.
    unsafe { finished_locally(&sent, local) };
    requested(MEDIUM, flags, engine, rank, sent)
}

/// `gex_AM_RequestLongN`.
///
/// # Safety
/// Same as [`conduit_gex_request_medium`].
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
    // SAFETY: the caller guarantees that `words` is valid for `count` words and `source` for
    // `bytes` bytes.
    let (words, payload) = unsafe { (arguments(count, words), payload(source, bytes)) };
    let engine = Job::of(LONG).engine();
    check_option(LONG, local, true);
    let placed =
        payload.and_then(|payload| Ok((payload, long_offset(engine, rank, destination, bytes)?)));
    // Return the refusal here, for the same reason as in `conduit_gex_request_medium`.
    let (payload, offset) = match placed {
        Ok(placed) => placed,
        Err(refusal) => return started(LONG, flags, Err(refusal)),
    };
    let sent =
        engine
            .messages()
            .request_long(rank, handler, words, payload, offset, flags.blocking());
    // SAFETY: the caller guarantees that `local` is one of the constants or valid for a write.
    unsafe { finished_locally(&sent, local) };
    requested(LONG, flags, engine, rank, sent)
}

/// Returns the code for a request's result. If the request went to another rank, returns at once,
/// so that the engine's result is not copied again.
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

/// The maximum number of polls after a request to this rank itself.
const POLLS: u32 = 64;

/// Polls after a request to this rank itself, so that its handler runs before the call returns, as
/// in GASNet. A client that does not poll otherwise relies on this. If very many messages precede
/// the request, a later poll handles it.
///
/// This function is not inlined, because such requests are rare and the polls would be inlined into
/// every request.
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

/// Translates an address on a rank to an offset in that rank's segment. For an address below the
/// segment, the offset wraps and lies outside every segment.
#[inline]
pub(crate) fn offset(
    engine: &TheEngine,
    rank: Rank,
    address: *const c_void,
) -> Result<usize, EngineError> {
    let base = engine.memory().segment_of(rank)?.address;
    Ok(address.addr().wrapping_sub(base as usize))
}

/// Returns the offset of a long's destination. For an empty long, returns the address itself, which
/// is sent unchanged and needs no segment.
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

/// In debug builds, checks the `lc_opt` that a client passes for a message with payload. Accepts
/// `GEX_EVENT_NOW`, a pointer to an event and, if `group` is true (for requests),
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
                &format_args!("lc_opt {other:#x} is not accepted by this call"),
            ),
        }
    }
}

/// Marks a requested local-completion event as complete, because the payload may be reused once the
/// call returns.
///
/// # Safety
/// `local` must be one of the constants or valid for a write.
#[inline]
pub(crate) unsafe fn finished_locally<E>(sent: &Result<bool, E>, local: *mut usize) {
    if matches!(sent, Ok(true)) && local.addr() > events::GROUP {
        // SAFETY: `local` is not one of the constants, so the caller guarantees that it is valid
        // for a write.
        unsafe { local.write(events::INVALID) };
    }
}
