//! Makes the texts of failures. They say why a peer, or every peer, can no longer be reached, and
//! what users can do about it.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use conduit_portals::transport::fragment::Failure;
use libfabric_sys::{
    FI_EBADF, FI_ENETDOWN, FI_ENODEV, FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_ETIMEDOUT,
};

use crate::provider::Offer;

/// The advice for a failed device.
const OTHER_DEVICE: &str =
    "settings CONDUIT_OFI_PROVIDER and CONDUIT_OFI_DOMAIN select another device";
/// The advice for a provider that lacks an advertised feature.
const OTHER_ATOMICS: &str = "CONDUIT_OFI_ATOMICS=0 lets the processors perform atomics";

/// Returns whether an error number, which may be negated, concerns this rank's own device rather
/// than a peer.
pub(crate) fn is_own(error: i64) -> bool {
    let own = [FI_ENODEV, FI_ENETDOWN, FI_EBADF, FI_EOPBADSTATE];
    own.iter().any(|own| i64::from(*own) == error.abs())
}

/// Returns a copy of a text that lives as long as the process. The number of different texts is
/// bounded, because the numbers of library calls and of error numbers are bounded.
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

/// Returns the failure of a peer for which a call or an operation failed.
pub(crate) fn of_peer(offer: &Offer, operation: &str, error: i64) -> Failure {
    let words = words(offer, error);
    let is_unknown = [FI_EOPNOTSUPP, FI_ENOSYS]
        .map(i64::from)
        .contains(&error.abs());
    Failure::Network(kept(match is_unknown && operation.contains("atomic") {
        true => {
            format!(
                "{operation} failed although the provider advertises it: {words} ({OTHER_ATOMICS})"
            )
        }
        false => format!("{operation}: {words}"),
    }))
}

/// Returns the failure of a peer that has never answered.
pub(crate) fn unanswered(milliseconds: u64) -> Failure {
    Failure::Network(kept(format!(
        "no answer for {milliseconds} ms (setting CONDUIT_OFI_DEAD_TIME)"
    )))
}

/// Returns the failure of all peers that is caused by this process's own endpoint. `owner` names
/// the process.
pub(crate) fn of_all(offer: &Offer, owner: &str, operation: &str, error: i64) -> Failure {
    let words = match error.abs() == i64::from(FI_ETIMEDOUT) {
        true => "operations with a failed peer do not complete".to_owned(),
        false => format!("{operation}: {}", words(offer, error)),
    };
    Failure::Network(kept(format!(
        "{owner} own endpoint ({offer:?}) has failed: {words} ({OTHER_DEVICE})"
    )))
}
