//! Why nobody, or a peer, can be reached any more: in words that say what can be done about it.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::Failure;
use libfabric_sys::{
    FI_EBADF, FI_ENETDOWN, FI_ENODEV, FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_ETIMEDOUT,
};

use crate::provider::Offer;

/// What can be set when a device has failed.
const OTHER_DEVICE: &str = "settings CONDUIT_OFI_PROVIDER and CONDUIT_OFI_DOMAIN choose another";
/// What can be set when a provider doesn't do what it says.
const OTHER_ATOMICS: &str = "with CONDUIT_NETWORK=shm,ofi processors do the atomics";

/// A refusal, negated or not, that is this rank's own device's and not that of a peer.
pub(crate) fn is_own(error: i64) -> bool {
    let own = [FI_ENODEV, FI_ENETDOWN, FI_EBADF, FI_EOPBADSTATE];
    own.iter().any(|own| i64::from(*own) == error.abs())
}

/// A text for as long as the process runs. There are as many as calls of the library and error numbers.
fn kept(text: String) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = texts.get(text.as_str()) {
        return text;
    }
    let text = String::leak(text);
    texts.insert(text);
    text
}

fn words(offer: &Offer, error: i64) -> String {
    let error = c_int::try_from(error).unwrap_or(c_int::MIN);
    offer.library().strerror(error)
}

/// A peer that a call, or an operation, has failed for.
pub(crate) fn of_peer(offer: &Offer, operation: &str, error: i64) -> Failure {
    let words = words(offer, error);
    let is_unknown = [FI_EOPNOTSUPP, FI_ENOSYS]
        .map(i64::from)
        .contains(&error.abs());
    Failure::Network(kept(match is_unknown && operation.contains("atomic") {
        true => {
            format!("{operation}, which the provider says that it has: {words} ({OTHER_ATOMICS})")
        }
        false => format!("{operation}: {words}"),
    }))
}

/// A peer that has never answered, for so many milliseconds.
pub(crate) fn unanswered(milliseconds: u64) -> Failure {
    Failure::Network(kept(format!(
        "it has not answered once for {milliseconds} ms (setting CONDUIT_OFI_DEAD_TIME)"
    )))
}

/// Everybody: this rank's own end is gone.
pub(crate) fn of_all(offer: &Offer, rank: Rank, operation: &str, error: i64) -> Failure {
    let words = match error.abs() == i64::from(FI_ETIMEDOUT) {
        true => "what is under way to a peer that has failed does not end".to_owned(),
        false => format!("{operation}: {}", words(offer, error)),
    };
    Failure::Network(kept(format!(
        "rank {rank}'s own endpoint ({offer:?}) has failed: {words} ({OTHER_DEVICE})"
    )))
}
