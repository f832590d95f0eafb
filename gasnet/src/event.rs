//! Events: operations under way, waited for one by one or in arrays.
//!
//! An event is a number in place of a pointer: 0 if nothing is under way, otherwise an operation's
//! number with a tag. The tag marks it as a root, whose completion ends the operation, or as a leaf
//! of one (local completion, or part of an access region). A leaf completes with its root: the
//! engine copies data before a call returns or not at all, so a leaf has no earlier completion.
//! Leaves hold no resources and may be abandoned.

use std::ffi::c_int;

use conduit_core::kernel::Handle;

use crate::abi::{self, events};
use crate::barrier;
use crate::fault::{fatal, sure};
use crate::job::Job;

/// The lowest three bits, which distinguish events from constants.
const ROOT: usize = 4;
const LEAF: usize = 6;
pub(crate) const TAG: usize = 7;
pub(crate) const SHIFT: u32 = 3;

/// Returns the event of a started operation; `None`: the call would have blocked.
#[inline]
pub(crate) fn event(handle: Option<Handle>) -> usize {
    match handle {
        None => events::NO_OP,
        Some(handle) if handle.is_done() => events::INVALID,
        Some(handle) => (handle.into_bits() as usize) << SHIFT | ROOT,
    }
}

/// Returns the leaf of a root.
#[inline]
pub(crate) fn leaf(root: usize) -> usize {
    if root & TAG == ROOT {
        root & !TAG | LEAF
    } else {
        events::INVALID
    }
}

/// Returns an event's operation, and whether the event is a leaf.
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

/// Tests an event that is not `GEX_EVENT_INVALID`. Does not poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_event_test(event: usize) -> c_int {
    const CALL: &str = "gex_Event_Test";
    ready(event == events::INVALID || is_over(CALL, Job::of(CALL), event))
}

/// Waits for an event that is not `GEX_EVENT_INVALID`.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_event_wait(event: usize) {
    wait_for("gex_Event_Wait", event);
}

/// Waits for an event as part of a call.
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
/// `events` is valid for `count` events, which are not used otherwise meanwhile.
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
    // SAFETY: not null, not too long; the rest is the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(events, count) }
}

/// Sets completed events to `GEX_EVENT_INVALID`. Returns how many there were, and whether all
/// events are complete now.
///
/// Leaves come first: completing a root frees its number, which another operation may then reuse.
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

/// `gex_Event_TestSome`: returns whether at least one event is complete or none was under way. Does
/// not poll.
///
/// # Safety
/// `events` is valid for `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_test_some(events: *mut usize, count: usize) -> c_int {
    const CALL: &str = "gex_Event_TestSome";
    // SAFETY: the caller's promise.
    let array = unsafe { array(CALL, events, count) };
    let (ended, all) = sweep(CALL, Job::of(CALL), array);
    ready(ended > 0 || all)
}

/// `gex_Event_TestAll`. Does not poll.
///
/// # Safety
/// `events` is valid for `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_test_all(events: *mut usize, count: usize) -> c_int {
    const CALL: &str = "gex_Event_TestAll";
    // SAFETY: the caller's promise.
    let array = unsafe { array(CALL, events, count) };
    ready(sweep(CALL, Job::of(CALL), array).1)
}

/// `gex_Event_WaitSome`.
///
/// # Safety
/// `events` is valid for `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_wait_some(events: *mut usize, count: usize) {
    const CALL: &str = "gex_Event_WaitSome";
    // SAFETY: the caller's promise.
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
/// `events` is valid for `count` events.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_event_wait_all(events: *mut usize, count: usize) {
    const CALL: &str = "gex_Event_WaitAll";
    // SAFETY: the caller's promise.
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
