//! Calls found only in GASNet-1: attach with handlers, wait modes, and nonblocking gets of values.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use conduit::{Handle, Rank};
use conduit_core::kernel::{Blocking, Completion};

use crate::abi::{self, Flags, LegacyEntry};
use crate::fault::{Refusal, code, fatal, refuse, started, sure};
use crate::handlers::{arguments, payload, register_legacy, table};
use crate::job::Job;
use crate::request::{long_offset, offset};
use crate::segment::attach;

/// Whether the client has joined the job with `gasnet_init`.
pub(crate) static IS_CLIENT: AtomicBool = AtomicBool::new(false);

/// Returns the name by which a GASNet-1 client knows this GASNet-EX call, for error messages. A
/// bulk call is given the name of the plain call. A call that concerns only gets or only puts is
/// given the name of the call that concerns both.
pub(crate) fn called_as(call: &str) -> Option<&'static str> {
    if !IS_CLIENT.load(Relaxed) {
        return None;
    }
    Some(match call {
        "gex_RMA_PutBlocking" => "gasnet_put",
        "gex_RMA_GetBlocking" => "gasnet_get",
        "gex_RMA_PutBlockingVal" => "gasnet_put_val",
        "gex_RMA_GetBlockingVal" => "gasnet_get_val",
        "gex_RMA_PutNB" => "gasnet_put_nb",
        "gex_RMA_GetNB" => "gasnet_get_nb",
        "gex_RMA_PutNBVal" => "gasnet_put_nb_val",
        "gex_RMA_PutNBI" => "gasnet_put_nbi",
        "gex_RMA_GetNBI" => "gasnet_get_nbi",
        "gex_RMA_PutNBIVal" => "gasnet_put_nbi_val",
        "gex_Event_Test" => "gasnet_try_syncnb",
        "gex_Event_TestSome" => "gasnet_try_syncnb_some",
        "gex_Event_TestAll" => "gasnet_try_syncnb_all",
        "gex_Event_Wait" => "gasnet_wait_syncnb",
        "gex_Event_WaitSome" => "gasnet_wait_syncnb_some",
        "gex_Event_WaitAll" => "gasnet_wait_syncnb_all",
        "gex_NBI_Test" => "gasnet_try_syncnbi_all",
        "gex_NBI_Wait" => "gasnet_wait_syncnbi_all",
        "gex_NBI_BeginAccessRegion" => "gasnet_begin_nbi_accessregion",
        "gex_NBI_EndAccessRegion" => "gasnet_end_nbi_accessregion",
        _ => return None,
    })
}

/// Registers handlers and attaches a segment. Collective.
///
/// # Safety
/// `entries` must be null or valid for reads and writes of `count` entries, whose functions must be
/// handlers.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_attach(
    entries: *mut LegacyEntry,
    count: c_int,
    bytes: usize,
    _least_heap_offset: usize,
) -> c_int {
    const CALL: &str = "gasnet_attach";
    let attached = Job::or_refusal().and_then(|job| {
        let count = usize::try_from(count)
            .map_err(|_| Refusal::bad(format_args!("a table of {count} handlers is not valid")))?;
        // SAFETY: the caller guarantees that `entries` is null or valid for `count` entries.
        register_legacy(job, unsafe { table(entries, count) }?)?;
        // `attach` requires a positive size, whereas GASNet-1 also allows 0.
        let bytes = if bytes == 0 {
            rustix::param::page_size()
        } else {
            bytes
        };
        attach(CALL, job, bytes)
    });
    code(CALL, attached)
}

/// Sets how blocking calls should wait (`GASNET_WAIT_*`). The mode is only a hint and is ignored:
/// the engine always spins, yields and sleeps as suits the host.
#[unsafe(no_mangle)]
extern "C" fn gasnet_set_waitmode(mode: c_int) -> c_int {
    if !(0..=2).contains(&mode) {
        let refusal = Refusal::bad(format_args!("wait mode {mode} is not one of GASNET_WAIT_*"));
        return refuse("gasnet_set_waitmode", &refusal);
    }
    abi::OK
}

/// `gasnet_AMRequestLongAsyncN`.
///
/// # Safety
/// `words` must be valid for reads of `count` words, and `count` must be at most 16. `source` must
/// be null or valid for reads of `bytes` bytes, which must not be written until the reply.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gasnet_request_long_async(
    rank: Rank,
    handler: u8,
    source: *const c_void,
    bytes: usize,
    destination: *mut c_void,
    count: u32,
    words: *const u32,
) -> c_int {
    const CALL: &str = "gasnet_AMRequestLongAsync";
    // SAFETY: the caller guarantees that `words` is valid for `count` words and `source` for
    // `bytes` bytes.
    let (words, payload) = unsafe { (arguments(count, words), payload(source, bytes)) };
    let engine = Job::of(CALL).engine();
    let sent = payload.and_then(|payload| {
        let offset = long_offset(engine, rank, destination, bytes)?;
        let source = (payload.as_ptr(), bytes);
        // SAFETY: the caller guarantees that the payload is not written until the reply.
        Ok(unsafe {
            engine.messages().request_long_async(
                rank,
                handler,
                words,
                source,
                offset,
                Blocking::Wait,
            )?
        })
    });
    started(CALL, Flags::RETURN_ERRORS, sent)
}

/// `gasnet_valget_handle_t`.
#[repr(C)]
pub(crate) struct ValueHandle {
    /// The value, if the get is already complete.
    value: u64,
    /// The state of the unfinished get, or null if the get is complete.
    pending: *mut PendingValue,
}

/// An unfinished get of a value.
pub(crate) struct PendingValue {
    handle: Handle,
    /// The value. The network writes its low-order bytes until the handle is complete.
    value: UnsafeCell<u64>,
}

/// `gasnet_get_nb_val`: returns the value if the get is already complete, and otherwise the state
/// of the unfinished get.
#[unsafe(no_mangle)]
extern "C" fn conduit_gasnet_get_nb_val(
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
) -> ValueHandle {
    const CALL: &str = "gasnet_get_nb_val";
    let engine = Job::of(CALL).engine();
    if bytes == 0 || bytes > size_of::<u64>() {
        fatal(
            CALL,
            &format_args!("{bytes} bytes do not fit a register value (1 to 8)"),
        );
    }
    let offset = sure(CALL, offset(engine, rank, remote));
    let mut pending = Box::new(PendingValue {
        handle: Handle::DONE,
        value: UnsafeCell::new(0),
    });
    let place = pending.value.get().cast::<u8>();
    let skipped = if cfg!(target_endian = "little") {
        0
    } else {
        size_of::<u64>() - bytes
    };
    // SAFETY: the destination is `bytes` bytes of the boxed word, which is not accessed until the
    // handle is complete. The box lives until then.
    let got = unsafe {
        engine.rma().get_nb(
            place.add(skipped),
            rank,
            offset,
            bytes,
            Completion::Handle,
            Blocking::Wait,
        )
    };
    pending.handle = sure(CALL, got).unwrap_or(Handle::DONE);
    if pending.handle.is_done() {
        return ValueHandle {
            value: pending.value.into_inner(),
            pending: std::ptr::null_mut(),
        };
    }
    ValueHandle {
        value: 0,
        pending: Box::into_raw(pending),
    }
}

/// `gasnet_wait_syncnb_valget` for a get that was under way.
///
/// # Safety
/// `pending` must come from a handle returned by `gasnet_get_nb_val`, and must be passed to this
/// call only once.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gasnet_wait_valget(pending: *mut PendingValue) -> u64 {
    const CALL: &str = "gasnet_wait_syncnb_valget";
    // SAFETY: the caller guarantees that `pending` comes from `Box::into_raw` in
    // `gasnet_get_nb_val`, and that it is passed only once.
    let pending = unsafe { Box::from_raw(pending) };
    let PendingValue { handle, value } = &*pending;
    let engine = Job::of(CALL).engine();
    sure(
        CALL,
        engine.wait_until_in(CALL, || engine.rma().has_ended(handle)),
    );
    // SAFETY: the operation is complete, so only this thread uses the word.
    let value = unsafe { *value.get() };
    let PendingValue { handle, .. } = *pending;
    sure(CALL, engine.rma().wait(handle));
    value
}
