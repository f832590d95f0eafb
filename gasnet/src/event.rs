//! Events, which are numbers that stand for operations under way. A client waits for events one by
//! one or in arrays.
//!
//! An event is a pointer in C but a number here: 0 if nothing is under way, otherwise an
//! operation's number with a tag. The tag marks the event as a root, whose completion ends the
//! operation, or as a leaf of a root (local completion, or a part of an access region). A leaf
//! completes together with its root: the engine either copies the data before the call returns or
//! uses it until the operation is complete, so no leaf can complete earlier. Leaves hold no
//! resources and may be abandoned.

use std::ffi::c_int;

use conduit_core::kernel::Handle;

use crate::abi::{self, events};
use crate::barrier;
use crate::fault::{fatal, sure};
use crate::job::Job;

/// The tag of a root. A tag is the value of an event's lowest three bits.
const ROOT: usize = 4;
/// The tag of a leaf.
const LEAF: usize = 6;
/// The mask of the tag.
pub(crate) const TAG: usize = 7;
/// The position of the operation's number above the tag.
pub(crate) const SHIFT: u32 = 3;

/// Returns the event of a started operation. If `handle` is `None`, the call started nothing
/// because it would have blocked, and the event is `GEX_EVENT_NO_OP`.
#[inline]
pub(crate) fn event(handle: Option<Handle>) -> usize {
    match handle {
        None => events::NO_OP,
        Some(handle) if handle.is_done() => events::INVALID,
        Some(handle) => (handle.into_bits() as usize) << SHIFT | ROOT,
    }
}

/// Returns the leaf of a root, or `GEX_EVENT_INVALID` if `root` is not a root.
#[inline]
pub(crate) fn leaf(root: usize) -> usize {
    if root & TAG == ROOT {
        root & !TAG | LEAF
    } else {
        events::INVALID
    }
}

/// Returns an event's operation, and whether the event is a leaf. Ends the job if the event is not
/// valid.
fn operation(call: &str, event: usize) -> (Handle, bool) {
    match (event & TAG, u32::try_from(event >> SHIFT)) {
        (ROOT, Ok(bits)) => (Handle::from_bits(bits), false),
        (LEAF, Ok(bits)) => (Handle::from_bits(bits), true),
        _ => fatal(call, &format_args!("{event:#x} is not a valid event")),
    }
}

/// Returns whether an event is complete, and frees it if it is a root.
fn is_over(call: &str, job: &Job, event: usize) -> bool {
    if event & TAG == barrier::EVENT {
        return barrier::is_over(call, job, event);
    }
    let (handle, leaf) = operation(call, event);
    if leaf {
        job.engine().rma().has_ended(&handle)
    } else {
        sure(call, job.engine().rma().test(handle)).is_none()
    }
}

/// `gex_Event_Test`. The headers handle `GEX_EVENT_INVALID` themselves and do not pass it on. Does
/// not poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_event_test(event: usize) -> c_int {
    const CALL: &str = "gex_Event_Test";
    ready(event == events::INVALID || is_over(CALL, Job::of(CALL), event))
}

/// `gex_Event_Wait`. The headers handle `GEX_EVENT_INVALID` themselves and do not pass it on.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_event_wait(event: usize) {
    wait_for("gex_Event_Wait", event);
}

/// Waits for an event as part of the call named `call`.
pub(crate) fn wait_for(call: &'static str, event: usize) {
    let job = Job::of(call);
    wait(call, job, || {
        event == events::INVALID || is_over(call, job, event)
    });
}

pub(crate) fn ready(over: bool) -> c_int {
    if over { abi::OK } else { abi::NOT_READY }
}

pub(crate) fn wait(call: &'static str, job: &Job, over: impl FnMut() -> bool) {
    sure(call, job.engine().wait_until_in(call, over));
}

/// Returns an array from C as a slice.
///
/// # Safety
/// `events` must be null or valid for reads and writes of `count` events, which must not be used
/// otherwise while the slice is in use.
unsafe fn array<'a>(call: &str, events: *mut usize, count: usize) -> &'a mut [usize] {
    if count == 0 {
        return &mut [];
    }
    if events.is_null() || count > isize::MAX as usize / size_of::<usize>() {
        fatal(
            call,
            &format_args!("an array of {count} events at {events:p} is not valid"),
        );
    }
    // SAFETY: `events` is neither null nor too long, so the caller guarantees that it is valid for
    // `count` events.
    unsafe { std::slice::from_raw_parts_mut(events, count) }
}

/// Sets completed events to `GEX_EVENT_INVALID`. Returns the number of events that this call
/// completed, and whether all events of the array are complete now.
///
/// Leaves are tested before roots, because completing a root frees its number, which another
/// operation may then reuse.
fn sweep(call: &str, job: &Job, array: &mut [usize]) -> (usize, bool) {
    let mut ended = 0;
    for leaves in [true, false] {
        for event in &mut *array {
            let is_leaf = *event & TAG == LEAF;
            if *event != events::INVALID && is_leaf == leaves && is_over(call, job, *event) {
                *event = events::INVALID;
                ended += 1;
            }
        }
    }
    (ended, array.iter().all(|&event| event == events::INVALID))
}

/// `gex_Event_TestSome`: succeeds if at least one event is complete or none was under way. Does not
/// poll.
///
/// # Safety
/// `events` must be null or valid for reads and writes of `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_test_some(events: *mut usize, count: usize) -> c_int {
    const CALL: &str = "gex_Event_TestSome";
    // SAFETY: the caller guarantees that `events` is null or valid for `count` events.
    let array = unsafe { array(CALL, events, count) };
    let (ended, all) = sweep(CALL, Job::of(CALL), array);
    ready(ended > 0 || all)
}

/// `gex_Event_TestAll`. Does not poll.
///
/// # Safety
/// `events` must be null or valid for reads and writes of `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_test_all(events: *mut usize, count: usize) -> c_int {
    const CALL: &str = "gex_Event_TestAll";
    // SAFETY: the caller guarantees that `events` is null or valid for `count` events.
    let array = unsafe { array(CALL, events, count) };
    ready(sweep(CALL, Job::of(CALL), array).1)
}

/// `gex_Event_WaitSome`.
///
/// # Safety
/// `events` must be null or valid for reads and writes of `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_wait_some(events: *mut usize, count: usize) {
    const CALL: &str = "gex_Event_WaitSome";
    // SAFETY: the caller guarantees that `events` is null or valid for `count` events.
    let array = unsafe { array(CALL, events, count) };
    let job = Job::of(CALL);
    wait(CALL, job, || {
        let (ended, all) = sweep(CALL, job, array);
        ended > 0 || all
    });
}

/// `gex_Event_WaitAll`.
///
/// # Safety
/// `events` must be null or valid for reads and writes of `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_wait_all(events: *mut usize, count: usize) {
    const CALL: &str = "gex_Event_WaitAll";
    // SAFETY: the caller guarantees that `events` is null or valid for `count` events.
    let array = unsafe { array(CALL, events, count) };
    let job = Job::of(CALL);
    wait(CALL, job, || sweep(CALL, job, array).1);
}

/// `gex_Event_QueryLeaf`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_event_leaf(root: usize) -> usize {
    const CALL: &str = "gex_Event_QueryLeaf";
    if root != events::INVALID && (root & TAG == barrier::EVENT || operation(CALL, root).1) {
        fatal(
            CALL,
            &"the event is not the root of an operation with leaves",
        );
    }
    leaf(root)
}
