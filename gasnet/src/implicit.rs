//! Implicit operations: those of a thread, waited for together, and access regions.

use std::ffi::c_int;

use crate::abi::Categories;
use crate::event::{event, ready};
use crate::fault::sure;
use crate::job::Job;

/// Puts and gets of a set of categories. Active messages are over locally when they have been sent, and what is read and
/// written at once counts as a put. A put's local completion has no end of its own here.
fn classes(categories: Categories) -> (bool, bool) {
    let puts = Categories::PUT | Categories::LC | Categories::RMW;
    (
        categories.intersects(puts),
        categories.intersects(Categories::GET),
    )
}

/// Have this thread's implicit operations of these categories ended? Does not poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_test(categories: Categories, _flags: u32) -> c_int {
    const CALL: &str = "gex_NBI_Test";
    let (puts, gets) = classes(categories);
    ready(sure(CALL, Job::of(CALL).engine().test_implicit(puts, gets)))
}

/// Waits for this thread's implicit operations of these categories, after a poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_wait(categories: Categories, _flags: u32) {
    const CALL: &str = "gex_NBI_Wait";
    let engine = Job::of(CALL).engine();
    let (puts, gets) = classes(categories);
    if !sure(CALL, engine.try_implicit(puts, gets)) {
        sure(CALL, engine.wait_implicit(puts, gets));
    }
}

/// From here on, this thread's implicit operations belong to an access region.
#[unsafe(no_mangle)]
extern "C" fn gex_NBI_BeginAccessRegion(_flags: u32) {
    const CALL: &str = "gex_NBI_BeginAccessRegion";
    sure(CALL, Job::of(CALL).engine().begin_region());
}

/// Ends the access region: one event for all its operations.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_end_region(_flags: u32) -> usize {
    const CALL: &str = "gex_NBI_EndAccessRegion";
    event(Some(sure(CALL, Job::of(CALL).engine().end_region())))
}
