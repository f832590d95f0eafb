//! Diagnostic calls for flow control, with the names that GASNet's portals conduit gives them.

use conduit::Rank;

use crate::fault::sure;
use crate::job::Job;

/// Returns the number of credits that are available now for requests to `peer`.
#[unsafe(no_mangle)]
extern "C" fn gasnet_send_credits(peer: Rank) -> u32 {
    const CALL: &str = "gasnet_send_credits";
    sure(CALL, Job::of(CALL).engine().messages().credits(peer)).send
}

/// Returns the number of requests to `peer` that had to wait for credits.
#[unsafe(no_mangle)]
extern "C" fn gasnet_credit_stalls(peer: Rank) -> u64 {
    const CALL: &str = "gasnet_credit_stalls";
    sure(CALL, Job::of(CALL).engine().messages().credits(peer)).stalls
}

/// Returns the number of credits in this rank's bank.
#[unsafe(no_mangle)]
extern "C" fn gasnet_banked_credits() -> u32 {
    Job::of("gasnet_banked_credits")
        .engine()
        .messages()
        .banked_credits()
}

/// Returns the number of credits that `peer` has revoked from this rank.
#[unsafe(no_mangle)]
extern "C" fn gasnet_revoked_credits(peer: Rank) -> u64 {
    const CALL: &str = "gasnet_revoked_credits";
    sure(CALL, Job::of(CALL).engine().messages().credits(peer)).revoked
}
