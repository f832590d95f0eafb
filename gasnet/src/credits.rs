//! Diagnostics of flow control, named as in the portals conduit.

use conduit::Rank;

use crate::fault::sure;
use crate::job::Job;

/// Returns the credits for requests to `peer` that are available now.
#[unsafe(no_mangle)]
extern "C" fn gasnet_send_credits(peer: Rank) -> u32 {
    const CALL: &str = "gasnet_send_credits";
    sure(CALL, Job::of(CALL).engine().messages().credits(peer)).send
}

/// Returns how often a request to `peer` had to wait for credits.
#[unsafe(no_mangle)]
extern "C" fn gasnet_credit_stalls(peer: Rank) -> u64 {
    const CALL: &str = "gasnet_credit_stalls";
    sure(CALL, Job::of(CALL).engine().messages().credits(peer)).stalls
}

/// Returns the credits in this rank's bank.
#[unsafe(no_mangle)]
extern "C" fn gasnet_banked_credits() -> u32 {
    Job::of("gasnet_banked_credits")
        .engine()
        .messages()
        .banked_credits()
}

/// Returns the credits that `peer` has revoked from this rank.
#[unsafe(no_mangle)]
extern "C" fn gasnet_revoked_credits(peer: Rank) -> u64 {
    const CALL: &str = "gasnet_revoked_credits";
    sure(CALL, Job::of(CALL).engine().messages().credits(peer)).revoked
}
