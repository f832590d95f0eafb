//! Puts and gets that the headers do not perform inline: those to memory that is not mapped here,
//! those that name a team other than the job's, those with invalid arguments, and all of them in
//! debug builds.

use std::ffi::{c_int, c_void};

use conduit::{Handle, Rank};
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::rma::value_bytes;
use conduit_core::shared;

use crate::abi::{Flags, events};
use crate::event::{event, leaf};
use crate::fault::{Refusal, fatal, started, sure};
use crate::handlers::{is_memory, payload};
use crate::job::Job;
use crate::request::offset;
use crate::team::target;

/// C's `lc_opt`: the time from which a put's source may be reused.
enum Local {
    /// When the call returns.
    Now,
    /// When the operation is complete.
    Defer,
    /// When this event is complete.
    Event(*mut usize),
}

impl Local {
    /// Reads C's option. `group` is whether the call accepts `GEX_EVENT_GROUP`, which only implicit
    /// puts do; those in turn accept no event.
    fn of(call: &str, option: *mut usize, group: bool) -> Self {
        match option.addr() {
            events::NOW => Self::Now,
            events::DEFER => Self::Defer,
            // The group completes together with its operations.
            events::GROUP if group => Self::Defer,
            address if address > events::GROUP && !group => Self::Event(option),
            other => fatal(
                call,
                &format_args!("lc_opt {other:#x} is not accepted by this call"),
            ),
        }
    }
}

/// Returns a get's local destination from C, or an error if the range cannot be memory.
fn destination(base: *mut c_void, bytes: usize) -> Result<*mut u8, Refusal> {
    if !is_memory(base, bytes) {
        return Err(Refusal::bad(format_args!(
            "{bytes} bytes at {base:p} are not valid memory"
        )));
    }
    Ok(base.cast())
}

/// The location of a remote range.
enum Place {
    /// At this offset in the rank's segment. If the offset is outside the segment, the engine
    /// reports an error.
    Segment(usize),
    /// In the segment bound to the endpoint with this index.
    Bound(u16),
}

/// Locates a remote range. A range of zero bytes is valid anywhere.
fn place(job: &Job, rank: Rank, address: *const c_void, bytes: usize) -> Result<Place, Refusal> {
    if bytes == 0 && rank < job.size() {
        return Ok(Place::Segment(0));
    }
    let engine = job.engine();
    // A rank without an attached segment may still have segments bound to other endpoints.
    let segment = engine.memory().segment_of(rank);
    if let Ok(segment) = segment {
        let len = segment.len;
        let offset = address.addr().wrapping_sub(segment.address as usize);
        if bytes <= len && offset <= len - bytes {
            return Ok(Place::Segment(offset));
        }
    }
    match engine.memory().bound_at(rank, address.addr() as u64, bytes) {
        Some(bound) => Ok(Place::Bound(bound.index)),
        None => Ok(Place::Segment(offset(engine, rank, address)?)),
    }
}

/// Locates a remote range for calls that only reach the first endpoint's segment.
fn segment_place(
    job: &Job,
    rank: Rank,
    address: *const c_void,
    bytes: usize,
) -> Result<usize, Refusal> {
    match place(job, rank, address, bytes)? {
        Place::Segment(offset) => Ok(offset),
        Place::Bound(_) => Err(Refusal::bad("memory can be set in attached segments only")),
    }
}

/// The way in which an operation is started.
#[derive(Clone, Copy)]
struct How {
    completion: Completion,
    blocking: Blocking,
}

/// Starts a put. If `reusable` is true, the source may be reused once this call returns.
///
/// # Safety
/// If `reusable` is false, `source` must stay valid and must not be written until the operation is
/// complete.
unsafe fn start_put(
    job: &Job,
    rank: Rank,
    remote: *mut c_void,
    source: &[u8],
    reusable: bool,
    how: How,
) -> Result<Option<Handle>, Refusal> {
    let How {
        completion,
        blocking,
    } = how;
    let (engine, from, len) = (job.engine(), source.as_ptr(), source.len());
    Ok(match place(job, rank, remote, len)? {
        Place::Segment(offset) if reusable => engine
            .rma()
            .put_nb(rank, offset, source, completion, blocking)?,
        // SAFETY: the caller guarantees that the source is valid until the operation is complete.
        Place::Segment(offset) => unsafe {
            engine
                .rma()
                .put_nb_bulk(rank, offset, from, len, completion, blocking)?
        },
        // SAFETY: the caller guarantees that, unless `reusable` is true, the source is valid until
        // the operation is complete.
        Place::Bound(index) => unsafe {
            let address = remote.addr() as u64;
            let to = (rank, index);
            engine
                .memory()
                .bound_put_nb(to, address, from, len, reusable, completion, blocking)?
        },
    })
}

/// Starts a get.
///
/// # Safety
/// `local` must be valid for writes of `bytes` bytes and must not be used otherwise until the
/// operation is complete.
unsafe fn start_get(
    job: &Job,
    local: *mut u8,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    how: How,
) -> Result<Option<Handle>, Refusal> {
    let How {
        completion,
        blocking,
    } = how;
    let engine = job.engine();
    let place = place(job, rank, remote, bytes)?;
    // SAFETY: the caller guarantees that `local` is valid until the operation is complete.
    Ok(unsafe {
        match place {
            Place::Segment(offset) => engine
                .rma()
                .get_nb(local, rank, offset, bytes, completion, blocking)?,
            Place::Bound(index) => {
                let address = remote.addr() as u64;
                engine.memory().bound_get_nb(
                    local,
                    (rank, index),
                    address,
                    bytes,
                    completion,
                    blocking,
                )?
            }
        }
    })
}

/// How a blocking call starts its operation. The start waits for resources, and the call then waits
/// for the operation's handle.
const WAITING: How = How {
    completion: Completion::Handle,
    blocking: Blocking::Wait,
};

fn explicit(flags: Flags) -> How {
    How {
        completion: Completion::Handle,
        blocking: flags.blocking(),
    }
}

fn implicit(flags: Flags) -> How {
    How {
        completion: Completion::Implicit,
        blocking: flags.blocking(),
    }
}

/// Waits for an operation started with [`WAITING`].
fn finish(job: &Job, started: Option<Handle>) -> Result<bool, Refusal> {
    job.engine().rma().wait(started.unwrap_or(Handle::DONE))?;
    Ok(true)
}

/// Copies from a mapped rank's memory. The headers call this for lengths at which it is faster than
/// the C library.
///
/// # Safety
/// `from` must be valid for reads of `bytes` bytes, and `to` for writes of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_load(to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: the caller guarantees that `from` and `to` are valid for `bytes` bytes.
    unsafe { shared::load(from.cast(), to.cast(), bytes) }
}

/// Copies to a mapped rank's memory. The headers call this for lengths at which it is faster than
/// the C library.
///
/// # Safety
/// Same as [`conduit_gex_load`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_store(to: *mut c_void, from: *const c_void, bytes: usize) {
    // SAFETY: the caller guarantees that `from` and `to` are valid for `bytes` bytes.
    unsafe { shared::copy(from.cast(), to.cast(), bytes) }
}

/// `gex_RMA_PutBlocking`.
///
/// # Safety
/// `source` must be null or valid for reads of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_put(
    team: *const c_void,
    rank: Rank,
    remote: *mut c_void,
    source: *const c_void,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutBlocking";
    let (job, rank) = target(CALL, team, rank);
    // SAFETY: the caller guarantees that `source` is null or valid for `bytes` bytes.
    let put = unsafe { payload(source, bytes) }.and_then(|source| {
        // SAFETY: the caller guarantees that the source is valid during the call, and this call
        // waits for the put.
        let put = unsafe { start_put(job, rank, remote, source, false, WAITING)? };
        finish(job, put)
    });
    started(CALL, flags, put)
}

/// `gex_RMA_GetBlocking`.
///
/// # Safety
/// `local` must be null or valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_get(
    team: *const c_void,
    local: *mut c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_GetBlocking";
    let (job, rank) = target(CALL, team, rank);
    let get = destination(local, bytes).and_then(|local| {
        // SAFETY: the caller guarantees that `local` is valid during the call, and this call waits
        // for the get.
        let get = unsafe { start_get(job, local, rank, remote, bytes, WAITING)? };
        finish(job, get)
    });
    started(CALL, flags, get)
}

/// `gex_RMA_PutNB`.
///
/// # Safety
/// `source` must be null or valid for reads of `bytes` bytes, which must not be written until local
/// completion. `option` must be one of the constants or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_put_nb(
    team: *const c_void,
    rank: Rank,
    remote: *mut c_void,
    source: *const c_void,
    bytes: usize,
    option: *mut usize,
    flags: Flags,
) -> usize {
    const CALL: &str = "gex_RMA_PutNB";
    let (job, rank) = target(CALL, team, rank);
    let local = Local::of(CALL, option, false);
    // SAFETY: the caller guarantees that `source` is null or valid for `bytes` bytes.
    let source = sure(CALL, unsafe { payload(source, bytes) });
    let reusable = matches!(local, Local::Now);
    // SAFETY: the caller guarantees that the source is not written until local completion.
    let put = unsafe { start_put(job, rank, remote, source, reusable, explicit(flags)) };
    let root = event(sure(CALL, put));
    if let Local::Event(place) = local
        && root != events::NO_OP
    {
        // SAFETY: `option` is not one of the constants, so the caller guarantees that it is valid
        // for a write.
        unsafe { place.write(leaf(root)) };
    }
    root
}

/// `gex_RMA_GetNB`.
///
/// # Safety
/// `local` must be null or valid for writes of `bytes` bytes, and must not be used otherwise until
/// the event is complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_get_nb(
    team: *const c_void,
    local: *mut c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    flags: Flags,
) -> usize {
    const CALL: &str = "gex_RMA_GetNB";
    let (job, rank) = target(CALL, team, rank);
    let local = sure(CALL, destination(local, bytes));
    // SAFETY: the caller guarantees that `local` is valid until the event is complete.
    let get = unsafe { start_get(job, local, rank, remote, bytes, explicit(flags)) };
    event(sure(CALL, get))
}

/// `gex_RMA_PutNBI`.
///
/// # Safety
/// Same as [`conduit_gex_put_nb`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_put_nbi(
    team: *const c_void,
    rank: Rank,
    remote: *mut c_void,
    source: *const c_void,
    bytes: usize,
    option: *mut usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutNBI";
    let (job, rank) = target(CALL, team, rank);
    let local = Local::of(CALL, option, true);
    // SAFETY: the caller guarantees that `source` is null or valid for `bytes` bytes.
    let put = unsafe { payload(source, bytes) }.and_then(|source| {
        let reusable = matches!(local, Local::Now);
        // SAFETY: the caller guarantees that the source is valid until local completion.
        let put = unsafe { start_put(job, rank, remote, source, reusable, implicit(flags))? };
        Ok(put.is_some())
    });
    started(CALL, flags, put)
}

/// `gex_RMA_GetNBI`.
///
/// # Safety
/// Same as [`conduit_gex_get_nb`], except that `local` must not be used otherwise until this
/// thread's implicit gets are complete or, within an access region, until the region's event is
/// complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_get_nbi(
    team: *const c_void,
    local: *mut c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_GetNBI";
    let (job, rank) = target(CALL, team, rank);
    let get = destination(local, bytes).and_then(|local| {
        // SAFETY: the caller guarantees that `local` is valid until the operation is complete.
        let get = unsafe { start_get(job, local, rank, remote, bytes, implicit(flags))? };
        Ok(get.is_some())
    });
    started(CALL, flags, get)
}

/// Puts the low-order bytes of a value.
fn put_value(
    job: &Job,
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    how: How,
) -> Result<Option<Handle>, Refusal> {
    let value = value.to_ne_bytes();
    let value = value_bytes("put_value", &value, bytes)?;
    // SAFETY: the put is `reusable`, so the value is not used after `start_put` returns.
    unsafe { start_put(job, rank, remote, value, true, how) }
}

/// Gets the low-order bytes of a value.
fn get_value(job: &Job, rank: Rank, remote: *const c_void, bytes: usize) -> Result<u64, Refusal> {
    let mut value = [0; 8];
    let start = value_bytes("get_value", &value, bytes)?
        .as_ptr()
        .addr()
        .wrapping_sub(value.as_ptr().addr());
    let local = value[start..].as_mut_ptr();
    // SAFETY: `local` points to the `bytes` low-order bytes of `value`, and this call waits for the
    // get.
    let get = unsafe { start_get(job, local, rank, remote, bytes, WAITING)? };
    finish(job, get)?;
    Ok(u64::from_ne_bytes(value))
}

/// `gex_RMA_PutBlockingVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_put_value(
    team: *const c_void,
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutBlockingVal";
    let (job, rank) = target(CALL, team, rank);
    let put = put_value(job, rank, remote, value, bytes, WAITING);
    let put = put.and_then(|put| finish(job, put));
    started(CALL, flags, put)
}

/// `gex_RMA_PutNBVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_put_value_nb(
    team: *const c_void,
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    flags: Flags,
) -> usize {
    const CALL: &str = "gex_RMA_PutNBVal";
    let (job, rank) = target(CALL, team, rank);
    let put = put_value(job, rank, remote, value, bytes, explicit(flags));
    event(sure(CALL, put))
}

/// `gex_RMA_PutNBIVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_put_value_nbi(
    team: *const c_void,
    rank: Rank,
    remote: *mut c_void,
    value: u64,
    bytes: usize,
    flags: Flags,
) -> c_int {
    const CALL: &str = "gex_RMA_PutNBIVal";
    let (job, rank) = target(CALL, team, rank);
    let put = put_value(job, rank, remote, value, bytes, implicit(flags));
    let put = put.map(|put| put.is_some());
    started(CALL, flags, put)
}

/// `gex_RMA_GetBlockingVal`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_get_value(
    team: *const c_void,
    rank: Rank,
    remote: *const c_void,
    bytes: usize,
    _flags: Flags,
) -> u64 {
    const CALL: &str = "gex_RMA_GetBlockingVal";
    let (job, rank) = target(CALL, team, rank);
    let got = get_value(job, rank, remote, bytes);
    sure(CALL, got)
}

/// `gasnet_memset`: waits until the memory has been set.
#[unsafe(no_mangle)]
extern "C" fn gasnet_memset(rank: Rank, remote: *mut c_void, byte: c_int, bytes: usize) {
    const CALL: &str = "gasnet_memset";
    let job = Job::of(CALL);
    let offset = sure(CALL, segment_place(job, rank, remote, bytes));
    sure(
        CALL,
        job.engine().rma().memset(rank, offset, byte as u8, bytes),
    );
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
    let offset = sure(CALL, segment_place(job, rank, remote, bytes));
    let set = job.engine().rma().memset_nb(
        rank,
        offset,
        byte as u8,
        bytes,
        Completion::Handle,
        Blocking::Wait,
    );
    event(Some(sure(CALL, set).unwrap_or(Handle::DONE)))
}

/// `gasnet_memset_nbi`: the operation counts as an implicit put.
#[unsafe(no_mangle)]
extern "C" fn gasnet_memset_nbi(rank: Rank, remote: *mut c_void, byte: c_int, bytes: usize) {
    const CALL: &str = "gasnet_memset_nbi";
    let job = Job::of(CALL);
    let offset = sure(CALL, segment_place(job, rank, remote, bytes));
    let set = job.engine().rma().memset_nb(
        rank,
        offset,
        byte as u8,
        bytes,
        Completion::Implicit,
        Blocking::Wait,
    );
    sure(CALL, set);
}
