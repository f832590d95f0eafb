//! Puts and gets of many ranges (vectors, lists of addresses and strided arrays) for GASNet-EX and
//! GASNet-1.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_uint, c_void};

use conduit::Rank;
use conduit_core::kernel::{Completion, Handle};
use conduit_core::rma::vis::{Places, Shape};

use crate::abi::{Flags, events};
use crate::event::event;
use crate::fault::{fatal, sure};
use crate::handlers::{is_memory, payload};
use crate::job::{Job, TheEngine};

/// `conduit_gex_ranges_t`.
#[repr(C)]
pub(crate) struct Ranges {
    shape: c_uint,
    count: usize,
    list: *const c_void,
    counts: *const usize,
    bytes: usize,
    address: *mut c_void,
}

/// `CONDUIT_GEX_VECTOR` and related constants.
mod shapes {
    pub(super) const VECTOR: u32 = 0;
    pub(super) const INDEXED: u32 = 1;
}

/// `CONDUIT_GEX_NB` and related constants.
mod forms {
    pub(super) const NB: u32 = 0;
    pub(super) const NBI: u32 = 1;
}

/// `GEX_VIS_MAX_PEERCOMPLETION`.
const MOST_PAYLOAD: usize = 512;

/// The lowest id that a client's handler can have.
const FIRST_HANDLER: u8 = am::handlers::CLIENT_FIRST;

thread_local! {
    /// The handler that this thread's next put of ranges runs at its target on completion, and the
    /// address and length of the handler's payload.
    static ARMED: Cell<Option<(u8, *const c_void, usize)>> = const { Cell::new(None) };
}

impl Ranges {
    /// Returns the ranges, with addresses relative to `base`.
    ///
    /// # Safety
    /// Each list must be null or valid for reads of the number of entries that `self` gives.
    unsafe fn places<'a>(&self, call: &str, side: &str, base: usize) -> Places<'a> {
        let count = self.count;
        let list = || format!("{count} {side} ranges at {:p} are invalid", self.list);
        // The lists contain addresses, which are read as numbers.
        // SAFETY: the caller guarantees that each list is null or valid for its number of entries.
        // An entry of a vector consists of two words, an address and a length.
        let (start, shape) = unsafe {
            match self.shape {
                shapes::VECTOR => (0, Shape::Vector(array(call, self.list, count, list))),
                shapes::INDEXED => {
                    let starts = array(call, self.list, count, list);
                    let len = self.bytes;
                    (0, Shape::Indexed { starts, len })
                }
                _ => {
                    let what = |what, at: *const c_void| {
                        move || format!("{count} {side} {what} at {at:p} are not valid memory")
                    };
                    let (strides, counts) = (self.list, self.counts.cast());
                    let shape = Shape::Strided {
                        strides: array(call, strides, count, what("strides", strides)),
                        counts: array(call, counts, count, what("counts", counts)),
                        element: self.bytes,
                    };
                    (self.address.expose_provenance(), shape)
                }
            }
        };
        Places {
            origin: start.wrapping_sub(base),
            unit: 1,
            shape,
        }
    }
}

/// Returns an array from C as a slice.
///
/// # Safety
/// `base` must be null or valid for reads of `count` entries, and every bit pattern must be a valid
/// `T`.
unsafe fn array<'a, T>(
    call: &str,
    base: *const c_void,
    count: usize,
    what: impl FnOnce() -> String,
) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    if !is_memory(base, count.saturating_mul(size_of::<T>())) {
        fatal(call, &what());
    }
    // SAFETY: `base` is not null and the array is not too long, so the caller guarantees that it is
    // valid for `count` entries.
    unsafe { std::slice::from_raw_parts(base.cast(), count) }
}

/// Ends the job if a local range cannot be memory.
fn check_here(call: &str, here: &Places<'_>) {
    let refuse = |start: usize, len: usize| fatal(call, &format_args!("{len} bytes at {start:#x}"));
    if let Err(outside) = here.check(isize::MAX as usize) {
        refuse(outside.start, outside.len);
    }
    match here.shape {
        Shape::Vector(blocks) => {
            if let Some(block) = blocks
                .iter()
                .find(|block| block.start == 0 && block.len > 0)
            {
                refuse(0, block.len);
            }
        }
        Shape::Indexed { starts, len } => {
            if len > 0 && starts.contains(&0) {
                refuse(0, len);
            }
        }
        Shape::Strided { element, .. } => {
            if here.origin == 0 && here.bytes().is_some_and(|bytes| bytes > 0) {
                refuse(0, element);
            }
        }
    }
}

/// Prepares the two sides of a transfer in either direction.
///
/// # Safety
/// Each list of the two sides must be null or valid for reads of its number of entries.
unsafe fn sides<'a>(
    call: &str,
    rank: Rank,
    there: &Ranges,
    here: &Ranges,
) -> (&'static TheEngine, Places<'a>, Places<'a>) {
    let engine = Job::of(call).engine();
    let base = sure(call, engine.memory().segment_of(rank)).address;
    // SAFETY: the caller guarantees that each list of the two sides is null or valid for its number
    // of entries.
    let (there, here) = unsafe {
        (
            there.places(call, "remote", base as usize),
            here.places(call, "local", 0),
        )
    };
    check_here(call, &here);
    (engine, there, here)
}

fn completion(form: c_uint) -> Completion {
    match form {
        forms::NBI => Completion::Implicit,
        _ => Completion::Handle,
    }
}

/// Returns the result of the call. For a blocking call, waits for the operation first.
fn result(
    call: &str,
    engine: &TheEngine,
    form: c_uint,
    started: Result<Option<Handle>, conduit_core::kernel::Error>,
) -> usize {
    let started = sure(call, started);
    match (form, started) {
        (forms::NB, started) => event(started),
        (_, None) => events::NO_OP,
        (forms::NBI, Some(_)) => 0,
        (_, Some(handle)) => {
            sure(call, engine.rma().wait(handle));
            0
        }
    }
}

/// `gex_VIS_*Put*` and `gasnet_put?_*bulk`.
///
/// # Safety
/// `call` must be a C string. The lists must be null or valid for their numbers of entries, and all
/// local ranges must be valid for reads until the operation is complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_vis_put(
    call: *const c_char,
    rank: Rank,
    there: *const Ranges,
    here: *const Ranges,
    form: c_uint,
    flags: Flags,
) -> usize {
    // SAFETY: the caller guarantees that `call` is a C string and that `there` and `here` point to
    // structures; the headers pass a literal and two variables.
    let (call, there, here) = unsafe { (CStr::from_ptr(call).to_string_lossy(), &*there, &*here) };
    // SAFETY: the caller guarantees that each list of the two sides is null or valid for its number
    // of entries.
    let (engine, there, here) = unsafe { sides(&call, rank, there, here) };
    if let Some((handler, source, bytes)) = ARMED.take() {
        // SAFETY: the caller guarantees that all local ranges are valid, and this call waits for
        // the put.
        let put = unsafe { engine.rma().put_ranges(rank, &there, &here) };
        sure(&call, put);
        // SAFETY: the client guaranteed to `gex_VIS_SetPeerCompletionHandler` that the payload is
        // valid until this put.
        let payload = sure(&call, unsafe { payload(source, bytes) });
        sure(&call, engine.rma().complete_at_peer(rank, handler, payload));
        return 0;
    }
    let (completion, blocking) = (completion(form), flags.blocking());
    // SAFETY: the caller guarantees that all local ranges are valid until the operation is
    // complete.
    let started = unsafe {
        engine
            .rma()
            .put_ranges_nb(rank, &there, &here, completion, blocking)
    };
    result(&call, engine, form, started)
}

/// `gex_VIS_*Get*` and `gasnet_get?_*bulk`.
///
/// # Safety
/// Same as [`conduit_gex_vis_put`], except that all local ranges must be valid for writes and must
/// not be used otherwise until the operation is complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_vis_get(
    call: *const c_char,
    rank: Rank,
    there: *const Ranges,
    here: *const Ranges,
    form: c_uint,
    flags: Flags,
) -> usize {
    // SAFETY: the caller guarantees that `call` is a C string and that `there` and `here` point to
    // structures; the headers pass a literal and two variables.
    let (call, there, here) = unsafe { (CStr::from_ptr(call).to_string_lossy(), &*there, &*here) };
    // SAFETY: the caller guarantees that each list of the two sides is null or valid for its number
    // of entries.
    let (engine, there, here) = unsafe { sides(&call, rank, there, here) };
    let (completion, blocking) = (completion(form), flags.blocking());
    // SAFETY: the caller guarantees that all local ranges are valid until the operation is
    // complete.
    let started = unsafe {
        engine
            .rma()
            .get_ranges_nb(&here, rank, &there, completion, blocking)
    };
    result(&call, engine, form, started)
}

/// Makes the next put of ranges by this thread run a client's handler at its target.
#[unsafe(no_mangle)]
extern "C" fn gex_VIS_SetPeerCompletionHandler(
    handler: u8,
    source: *const c_void,
    bytes: usize,
    flags: Flags,
) {
    const CALL: &str = "gex_VIS_SetPeerCompletionHandler";
    if handler != 0 && handler < FIRST_HANDLER {
        fatal(
            CALL,
            &format_args!("handler {handler} is not a client handler"),
        );
    }
    if bytes > MOST_PAYLOAD {
        fatal(
            CALL,
            &format_args!("a payload of {bytes} bytes exceeds the limit of {MOST_PAYLOAD}"),
        );
    }
    if handler != 0 && !is_memory(source, bytes) {
        fatal(
            CALL,
            &format_args!("a payload of {bytes} bytes at {source:p} is not valid memory"),
        );
    }
    if flags.bits() != 0 {
        fatal(
            CALL,
            &format_args!(
                "flags {:#x} given, but this call accepts none",
                flags.bits()
            ),
        );
    }
    ARMED.set((handler != 0).then_some((handler, source, bytes)));
}
