//! Puts and gets that the headers' inline copies leave to the library: to memory that is not mapped here, with checks
//! (debug builds), or with something wrong.

use std::ffi::{c_int, c_void};

use conduit::{Handle, Rank};
use conduit_core::engine::{Blocking, Completion, value_bytes};
use conduit_core::shared;

use crate::abi::{Flags, events};
use crate::event::{event, leaf};
use crate::fault::{Refusal, fatal, started, sure};
use crate::handlers::{is_memory, payload};
use crate::job::Job;
use crate::request::offset;

/// When a put's source may be reused: the `lc_opt` of C.
enum Local {
    /// On return.
    Now,
    /// When the operation is over.
    Defer,
    /// When this event is over.
    Event(*mut usize),
}

impl Local {
    /// `group`: is the call one of those that may say `GEX_EVENT_GROUP`?
    fn of(call: &str, option: *mut usize, group: bool) -> Self {
        match option.addr() {
            events::NOW => Self::Now,
            events::DEFER => Self::Defer,
            // The group's end is not told apart from that of its operations.
            events::GROUP if group => Self::Defer,
            address if address > events::GROUP && !group => Self::Event(option),
            other => fatal(
                call,
                &format_args!("lc_opt {other:#x} is not one of this call's"),
            ),
        }
    }
}

/// A destination from C.
fn destination(base: *mut c_void, bytes: usize) -> Result<*mut u8, Refusal> {
    if !is_memory(base, bytes) {
        return Err(Refusal::bad(format_args!("{bytes} bytes at {base:p}")));
    }
    Ok(base.cast())
}

/// A remote range of no bytes is anywhere.
fn place(job: &Job, rank: Rank, address: *const c_void, bytes: usize) -> Result<usize, Refusal> {
    if bytes == 0 && rank < job.size() {
        return Ok(0);
    }
    Ok(offset(job.engine(), rank, address)?)
}

/// The headers' copy from a mapped rank, of more bytes than the C library copies best.
///
/// # Safety
/// `from` is valid for reads of `bytes` bytes, `to` for writes of as many.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_load(to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { shared::load(from.cast(), to.cast(), bytes) }
}

/// The headers' copy to a mapped rank, of more bytes than the C library copies best.
///
/// # Safety
/// As for [`conduit_gex_load`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_store(to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { shared::copy(from.cast(), to.cast(), bytes) }
}

/// `gex_RMA_PutBlocking`.
///
/// # Safety
/// `source` is valid for `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_put(
    rank: Rank,
    remote: *mut c_void,
    source: *const c_void,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutBlocking";
    let job = Job::of(CALL);
    // SAFETY: the caller's promise.
    let put = unsafe { payload(source, bytes) }.and_then(|source| {
        let offset = place(job, rank, remote, bytes)?;
        job.engine().put(rank, offset, source)?;
        Ok(true)
    });
    started(CALL, flags, put)
}

/// `gex_RMA_GetBlocking`.
///
/// # Safety
/// `local` is valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_get(
    local: *mut c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_GetBlocking";
    let job = Job::of(CALL);
    let get = destination(local, bytes).and_then(|local| {
        let offset = place(job, rank, remote, bytes)?;
        let local = if bytes == 0 {
            &mut []
        } else {
            // SAFETY: not null; the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(local, bytes) }
        };
        job.engine().get(local, rank, offset)?;
        Ok(true)
    });
    started(CALL, flags, get)
}

/// `gex_RMA_PutNB`.
///
/// # Safety
/// `source` is valid for `bytes` bytes and not written until local completion; `option` is one of the constants or valid
/// for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_put_nb(
    rank: Rank,
    remote: *mut c_void,
    source: *const c_void,
    bytes: usize,
    option: *mut usize,
    flags: Flags,
) -> usize {
    const CALL: &str = "gex_RMA_PutNB";
    let job = Job::of(CALL);
    let local = Local::of(CALL, option, false);
    // SAFETY: the caller's promise.
    let source = sure(CALL, unsafe { payload(source, bytes) });
    let offset = sure(CALL, place(job, rank, remote, bytes));
    let (engine, blocking) = (job.engine(), flags.blocking());
    let put = if let Local::Now = local {
        engine.put_nb(rank, offset, source, Completion::Handle, blocking)
    } else {
        // SAFETY: the caller's promise.
        unsafe {
            engine.put_nb_bulk(
                rank,
                offset,
                source.as_ptr(),
                bytes,
                Completion::Handle,
                blocking,
            )
        }
    };
    let root = event(sure(CALL, put));
    if let Local::Event(place) = local
        && root != events::NO_OP
    {
        // SAFETY: the caller's promise.
        unsafe { place.write(leaf(root)) };
    }
    root
}

/// `gex_RMA_GetNB`.
///
/// # Safety
/// `local` is valid for writes of `bytes` bytes, and nobody else's, until the event is over.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_get_nb(
    local: *mut c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    flags: Flags,
) -> usize {
    const CALL: &str = "gex_RMA_GetNB";
    let job = Job::of(CALL);
    let local = sure(CALL, destination(local, bytes));
    let offset = sure(CALL, place(job, rank, remote, bytes));
    // SAFETY: the caller's promise.
    let get = unsafe {
        job.engine().get_nb(
            local,
            rank,
            offset,
            bytes,
            Completion::Handle,
            flags.blocking(),
        )
    };
    event(sure(CALL, get))
}

/// `gex_RMA_PutNBI`.
///
/// # Safety
/// As for [`conduit_gex_put_nb`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_put_nbi(
    rank: Rank,
    remote: *mut c_void,
    source: *const c_void,
    bytes: usize,
    option: *mut usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutNBI";
    let job = Job::of(CALL);
    let local = Local::of(CALL, option, true);
    // SAFETY: the caller's promise.
    let put = unsafe { payload(source, bytes) }.and_then(|source| {
        let offset = place(job, rank, remote, bytes)?;
        let (engine, blocking) = (job.engine(), flags.blocking());
        let put = if let Local::Now = local {
            engine.put_nb(rank, offset, source, Completion::Implicit, blocking)?
        } else {
            // SAFETY: the caller's promise.
            unsafe {
                engine.put_nb_bulk(
                    rank,
                    offset,
                    source.as_ptr(),
                    bytes,
                    Completion::Implicit,
                    blocking,
                )?
            }
        };
        Ok(put.is_some())
    });
    started(CALL, flags, put)
}

/// `gex_RMA_GetNBI`.
///
/// # Safety
/// As for [`conduit_gex_get_nb`], until the implicit gets (or the access region) are over.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_get_nbi(
    local: *mut c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_GetNBI";
    let job = Job::of(CALL);
    let get = destination(local, bytes).and_then(|local| {
        let offset = place(job, rank, remote, bytes)?;
        // SAFETY: the caller's promise.
        Ok(unsafe {
            job.engine()
                .get_nb(
                    local,
                    rank,
                    offset,
                    bytes,
                    Completion::Implicit,
                    flags.blocking(),
                )?
                .is_some()
        })
    });
    started(CALL, flags, get)
}

/// `gex_RMA_PutBlockingVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_put_value(
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutBlockingVal";
    let job = Job::of(CALL);
    let put = place(job, rank, remote, bytes).and_then(|offset| {
        let value = value.to_ne_bytes();
        job.engine()
            .put(rank, offset, value_bytes("put_value", &value, bytes)?)?;
        Ok(true)
    });
    started(CALL, flags, put)
}

/// `gex_RMA_PutNBVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_put_value_nb(
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    flags: Flags,
) -> usize {
    const CALL: &str = "gex_RMA_PutNBVal";
    let job = Job::of(CALL);
    let put = place(job, rank, remote, bytes).and_then(|offset| {
        let value = value.to_ne_bytes();
        let value = value_bytes("put_value_nb", &value, bytes)?;
        Ok(job
            .engine()
            .put_nb(rank, offset, value, Completion::Handle, flags.blocking())?)
    });
    event(sure(CALL, put))
}

/// `gex_RMA_PutNBIVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_put_value_nbi(
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutNBIVal";
    let job = Job::of(CALL);
    let put = place(job, rank, remote, bytes).and_then(|offset| {
        let value = value.to_ne_bytes();
        let value = value_bytes("put_value_nbi", &value, bytes)?;
        Ok(job
            .engine()
            .put_nb(rank, offset, value, Completion::Implicit, flags.blocking())?
            .is_some())
    });
    started(CALL, flags, put)
}

/// `gex_RMA_GetBlockingVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_get_value(
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    _flags: Flags,
) -> u64 {
    const CALL: &str = "gex_RMA_GetBlockingVal";
    let job = Job::of(CALL);
    let got = place(job, rank, remote, bytes)
        .and_then(|offset| Ok(job.engine().get_value(rank, offset, bytes)?));
    sure(CALL, got)
}

/// `gasnet_memset`, which waits.
#[unsafe(no_mangle)]
extern "C" fn gasnet_memset(rank: Rank, remote: *mut c_void, byte: c_int, bytes: usize) {
    const CALL: &str = "gasnet_memset";
    let job = Job::of(CALL);
    let offset = sure(CALL, place(job, rank, remote, bytes));
    sure(CALL, job.engine().memset(rank, offset, byte as u8, bytes));
}

/// `gasnet_memset_nb`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_memset_nb(
    rank: Rank,
    remote: *mut c_void,
    byte: c_int,
    bytes: usize,
) -> usize {
    const CALL: &str = "gasnet_memset_nb";
    let job = Job::of(CALL);
    let offset = sure(CALL, place(job, rank, remote, bytes));
    let set = job.engine().memset_nb(
        rank,
        offset,
        byte as u8,
        bytes,
        Completion::Handle,
        Blocking::Wait,
    );
    event(Some(sure(CALL, set).unwrap_or(Handle::DONE)))
}

/// `gasnet_memset_nbi`, which counts as a put.
#[unsafe(no_mangle)]
extern "C" fn gasnet_memset_nbi(rank: Rank, remote: *mut c_void, byte: c_int, bytes: usize) {
    const CALL: &str = "gasnet_memset_nbi";
    let job = Job::of(CALL);
    let offset = sure(CALL, place(job, rank, remote, bytes));
    let set = job.engine().memset_nb(
        rank,
        offset,
        byte as u8,
        bytes,
        Completion::Implicit,
        Blocking::Wait,
    );
    sure(CALL, set);
}
