//! Work on this workspace that cargo alone does not do, as `cargo xtask NAME`; tests call the same from here.
//!
//! [`Install`] builds the C library in all its variants and lays it out under a prefix: see `docs/c-interface.md`.

mod install;

pub use install::{Conduit, Install, Mode};
