//! Puts and gets of many ranges, for both interfaces: vectors, lists of addresses, and strided
//! arrays.

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

/// The first id of clients' handlers.
const FIRST_HANDLER: u8 = am::handlers::CLIENT_FIRST;

thread_local! {
    /// The handler, with its payload, that this thread's next put runs at its target on completion.
    static ARMED: Cell<Option<(u8, *const c_void, usize)>> = const { Cell::new(None) };
}

impl Ranges {
    /// Returns the ranges, relative to an address.
    ///
    /// # Safety
    /// The lists are valid for the number of entries in `self`.
    unsafe fn places<'a>(&self, call: &str, side: &str, base: usize) -> Places<'a> {
        let count = self.count;
        let list = || format!("{count} {side} ranges at {:p} are invalid", self.list);
        // Addresses are read as numbers.
        // SAFETY: the caller's promise; a range is two words.
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
/// `base` is null or valid for `count` entries, for which any bytes are valid.
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
    // SAFETY: not null, not too long; the rest is the caller's promise.
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

/// Prepares both sides of a transfer in either direction.
///
/// # Safety
/// The lists of both sides are valid.
unsafe fn sides<'a>(
    call: &str,
    rank: Rank,
    there: &Ranges,
    here: &Ranges,
) -> (&'static TheEngine, Places<'a>, Places<'a>) {
    let engine = Job::of(call).engine();
    let base = sure(call, engine.memory().segment_of(rank)).address;
    // SAFETY: the caller's promise.
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

/// Returns the result of a nonblocking form, or waits first for a blocking one.
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
/// `call` is a C string; the lists are valid for their number of entries, and all local ranges for
/// reads until the operation is complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_vis_put(
    call: *const c_char,
    rank: Rank,
    there: *const Ranges,
    here: *const Ranges,
    form: c_uint,
    flags: Flags,
) -> usize {
    // SAFETY: the caller's promise; a literal and two structures of the headers.
    let (call, there, here) = unsafe { (CStr::from_ptr(call).to_string_lossy(), &*there, &*here) };
    // SAFETY: the caller's promise.
    let (engine, there, here) = unsafe { sides(&call, rank, there, here) };
    if let Some((handler, source, bytes)) = ARMED.take() {
        // SAFETY: the caller's promise; the payload's is that of the call that set the handler.
        let put = unsafe { engine.rma().put_ranges(rank, &there, &here) };
        sure(&call, put);
        // SAFETY: as above.
        let payload = sure(&call, unsafe { payload(source, bytes) });
        sure(&call, engine.rma().complete_at_peer(rank, handler, payload));
        return 0;
    }
    let (completion, blocking) = (completion(form), flags.blocking());
    // SAFETY: the caller's promise.
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
/// As for [`conduit_gex_vis_put`], with all local ranges valid for writes and not used otherwise.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_vis_get(
    call: *const c_char,
    rank: Rank,
    there: *const Ranges,
    here: *const Ranges,
    form: c_uint,
    flags: Flags,
) -> usize {
    // SAFETY: the caller's promise; a literal and two structures of the headers.
    let (call, there, here) = unsafe { (CStr::from_ptr(call).to_string_lossy(), &*there, &*here) };
    // SAFETY: the caller's promise.
    let (engine, there, here) = unsafe { sides(&call, rank, there, here) };
    let (completion, blocking) = (completion(form), flags.blocking());
    // SAFETY: the caller's promise.
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
