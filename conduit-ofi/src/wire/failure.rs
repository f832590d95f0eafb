//! Texts of failures: why a peer, or every peer, can't be reached any more, and what can be done.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use conduit_portals::transport::fragment::Failure;
use libfabric_sys::{
    FI_EBADF, FI_ENETDOWN, FI_ENODEV, FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_ETIMEDOUT,
};

use crate::provider::Offer;

/// What can be set when a device has failed.
const OTHER_DEVICE: &str = "settings CONDUIT_OFI_PROVIDER and CONDUIT_OFI_DOMAIN choose another";
/// What can be set when a provider doesn't do what it says.
const OTHER_ATOMICS: &str = "with CONDUIT_OFI_ATOMICS=0 processors do the atomics";

/// Whether an error number, negated or not, is about this rank's own device and not about a peer.
pub(crate) fn is_own(error: i64) -> bool {
    let own = [FI_ENODEV, FI_ENETDOWN, FI_EBADF, FI_EOPBADSTATE];
    own.iter().any(|own| i64::from(*own) == error.abs())
}

/// A text that lives as long as the process. There are at most as many as pairs of library call and
/// error number.
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

/// The failure of a peer for which a call or an operation failed.
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

/// The failure of a peer that never answered.
pub(crate) fn unanswered(milliseconds: u64) -> Failure {
    Failure::Network(kept(format!(
        "it has not answered once for {milliseconds} ms (setting CONDUIT_OFI_DEAD_TIME)"
    )))
}

/// The failure of all peers, because this process's own endpoint has failed; `owner`: whose it is.
pub(crate) fn of_all(offer: &Offer, owner: &str, operation: &str, error: i64) -> Failure {
    let words = match error.abs() == i64::from(FI_ETIMEDOUT) {
        true => "what is under way to a peer that has failed does not end".to_owned(),
        false => format!("{operation}: {}", words(offer, error)),
    };
    Failure::Network(kept(format!(
        "{owner} own endpoint ({offer:?}) has failed: {words} ({OTHER_DEVICE})"
    )))
}
