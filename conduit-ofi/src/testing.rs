//! The libraries used by this crate's tests.

use crate::library::Which;

/// Returns the system's libfabric and the vendored one. Prints the reason if one is omitted.
pub(crate) fn libraries() -> Vec<Which> {
    libfabric_vendored::provide();
    let all = [Which::System, Which::Vendored];
    all.into_iter()
        .filter(|which| match which.load() {
            Ok(_) => true,
            Err(reason) => {
                eprintln!("not tested with {which:?}: {reason}");
                false
            }
        })
        .collect()
}
