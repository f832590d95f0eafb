//! Implicit operations: those of a thread, waited for together, and access regions.

use std::ffi::c_int;

use conduit_core::rma::Class;

use crate::abi::Categories;
use crate::event::{event, ready};
use crate::fault::sure;
use crate::job::Job;

/// The operations of a set of categories. Active messages are over locally when they have been sent. A put's local
/// completion has no end of its own here.
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

/// Have this thread's implicit operations of these categories ended? Does not poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_test(categories: Categories, _flags: u32) -> c_int {
    const CALL: &str = "gex_NBI_Test";
    let test = Job::of(CALL)
        .engine()
        .rma()
        .test_implicit(classes(categories));
    ready(sure(CALL, test))
}

/// Waits for this thread's implicit operations of these categories, after a poll.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_wait(categories: Categories, _flags: u32) {
    const CALL: &str = "gex_NBI_Wait";
    let engine = Job::of(CALL).engine();
    let classes = classes(categories);
    if !sure(CALL, engine.rma().try_implicit(classes)) {
        sure(CALL, engine.rma().wait_implicit(classes));
    }
}

/// From here on, this thread's implicit operations belong to an access region.
#[unsafe(no_mangle)]
extern "C" fn gex_NBI_BeginAccessRegion(_flags: u32) {
    const CALL: &str = "gex_NBI_BeginAccessRegion";
    sure(CALL, Job::of(CALL).engine().rma().begin_region());
}

/// Ends the access region: one event for all its operations.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_nbi_end_region(_flags: u32) -> usize {
    const CALL: &str = "gex_NBI_EndAccessRegion";
    event(Some(sure(CALL, Job::of(CALL).engine().rma().end_region())))
}
