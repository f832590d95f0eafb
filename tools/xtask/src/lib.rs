//! Tasks of this workspace that cargo alone does not do. Users run them as `cargo xtask NAME`, and
//! tests call the same functions.
//!
//! [`Install`] builds the C library in all its variants and installs it under a prefix (see
//! `docs/c-interface.md`). [`Quick`] and [`Full`] are the checks that a change has to pass, and
//! [`Nightly`] runs searches that take longer (see `CONTRIBUTING.md`). [`Budgets`] counts the
//! instructions of each hot path. [`Book`] builds the book from the pages in `docs`. [`library()`]
//! builds a library for tests.

mod book;
mod budgets;
mod build;
mod checks;
mod command;
mod install;

pub use book::Book;
pub use budgets::Budgets;
pub use build::{Library, Mode, library};
pub use checks::{Full, Nightly, Quick};
pub use install::{Conduit, Install};
