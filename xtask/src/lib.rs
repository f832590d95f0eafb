//! Work on this workspace that cargo alone does not do, as `cargo xtask NAME`; tests call the same from here.
//!
//! [`Install`] builds the C library in all its variants and lays it out under a prefix: see `docs/c-interface.md`.
//! [`library()`] builds one library for the tests that load it or link it.

mod build;
mod command;
mod install;

pub use build::{Library, library};
pub use install::{Conduit, Install, Mode};
