//! The Ni contract over libfabric: not there yet.
//!
//! This crate holds the network's place in the workspace and the answer to who asks for it. It has no network type, so
//! nothing can pretend to run on it.

/// Why libfabric can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// This version of Conduit has no code for it.
    #[error("this version has no network over libfabric yet")]
    NotImplemented,
}

/// Can jobs run over libfabric? Always [`Unavailable::NotImplemented`] in this version.
pub fn availability() -> Result<(), Unavailable> {
    Err(Unavailable::NotImplemented)
}
