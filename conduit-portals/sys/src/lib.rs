//! Raw bindings to Portals 4, and the loading of the library.
//!
//! Nothing is needed to build this crate: [`Library::load`] loads `libportals.so.4` when a program
//! runs. The functions are methods of [`Library`], under their C names.
//!
//! # Which libraries
//!
//! The types are those of the reference library (github.com/sandialabs/portals4), on systems with
//! 64-bit pointers. Portals 4.3 renumbered return codes and options without a new name for the
//! library, so constants come in two groups:
//!
//! - those of this crate's root have the same value in all versions;
//! - those of [`Constants`] have not. [`Library::constants`] gives the right ones.
//!
//! [`Library::version`] tells the versions apart by `PtlAbort`, which is new in 4.3. That is right
//! for libraries built from the source until September 2023, or as of September 2024. In between,
//! numbers had changed already and `PtlAbort` was missing, as it still is from the client of the
//! library's processing engine (`--enable-ppe`). Such a library is taken for an older one.
//! [`Library::self_test`] finds out, once an interface is open.
//!
//! BXI's libraries have the same functions, but other numbers, and handles and structures of other
//! sizes. They are refused.
//!
//! # Safety
//!
//! This crate is the raw interface: everything behind a pointer is the caller's word. It holds no
//! policy and keeps no state. Types, constants and functions have the names of the specification,
//! which is their documentation.

#![allow(non_camel_case_types)]
#![allow(non_snake_case)]
// Fields and constants have the names of the specification, which documents them.
#![allow(missing_docs)]
// As Portals has them.
#![allow(clippy::too_many_arguments)]

// Another width of pointers has other layouts, against which nothing here was compared.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("Portals 4 is described for 64-bit systems only");

mod constants;
mod functions;
mod load;
mod return_code;
mod self_test;
mod types;
mod versions;

pub use constants::*;
pub use load::{Library, LoadError};
pub use return_code::ReturnCode;
pub use self_test::SelfTestError;
pub use types::*;
pub use versions::{Constants, Version};
