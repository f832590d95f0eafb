//! The libraries that this crate's tests run over.

use crate::library::Which;

/// The system's libfabric and the vendored one. Prints why one of them is left out.
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
