//! Implicit operations, which a thread waits for together, and access regions.

use std::ffi::c_int;

use conduit_core::rma::Class;

use crate::abi::Categories;
use crate::event::{event, ready};
use crate::fault::sure;
use crate::job::Job;

/// Returns the engine's classes of operations for a set of categories. `AM` has no class, because
/// an active message is locally complete when its call returns. `LC` maps to puts, because a put's
/// local completion is not tracked separately.
fn classes(categories: Categories) -> Class {
    let puts = Categories::PUT | Categories::LC;
    [
        (puts, Class::PUTS),
        (Categories::GET, Class::GETS),
        (Categories::RMW, Class::ATOMICS),
    ]
    .into_iter()
    .filter(|(of, _)| categories.intersects(*of))
    .map(|(_, class)| class)
    .collect()
}

/// Returns whether this thread's implicit operations of these categories are complete. Does not
/// poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_test(categories: Categories, _flags: u32) -> c_int {
    const CALL: &str = "gex_NBI_Test";
    let test = Job::of(CALL)
        .engine()
        .rma()
        .test_implicit(classes(categories));
    ready(sure(CALL, test))
}

/// Polls, then waits for this thread's implicit operations of these categories.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_wait(categories: Categories, _flags: u32) {
    const CALL: &str = "gex_NBI_Wait";
    let engine = Job::of(CALL).engine();
    let classes = classes(categories);
    if !sure(CALL, engine.rma().try_implicit(classes)) {
        sure(CALL, engine.rma().wait_implicit(classes));
    }
}

/// Opens an access region, which collects this thread's implicit operations from here on.
#[unsafe(no_mangle)]
extern "C" fn gex_NBI_BeginAccessRegion(_flags: u32) {
    const CALL: &str = "gex_NBI_BeginAccessRegion";
    sure(CALL, Job::of(CALL).engine().rma().begin_region());
}

/// Closes the access region and returns one event for all its operations.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_end_region(_flags: u32) -> usize {
    const CALL: &str = "gex_NBI_EndAccessRegion";
    event(Some(sure(CALL, Job::of(CALL).engine().rma().end_region())))
}
