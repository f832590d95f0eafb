//! Raw bindings to Portals 4, which load the library at run time.
//!
//! This crate builds without Portals: [`Library::load`] loads `libportals.so.4` when a program
//! runs. The functions are methods of [`Library`], under their C names.
//!
//! # Supported libraries
//!
//! The types are those of the reference library (github.com/sandialabs/portals4), on systems with
//! 64-bit pointers. Portals 4.3 renumbered return codes and options without renaming the library,
//! so there are two groups of constants:
//!
//! - the constants in this crate's root have the same value in all versions;
//! - the constants in [`Constants`] depend on the version; [`Library::constants`] returns those of
//!   the loaded library.
//!
//! [`Library::version`] distinguishes the versions by the function `PtlAbort`, which is new in 4.3.
//! This is correct for libraries built from sources up to September 2023 or from September 2024 on.
//! In between, the numbers had already changed, but `PtlAbort` was missing; it is still missing
//! from the client of the library's processing engine (`--enable-ppe`). Such a library is mistaken
//! for an older one. [`Library::self_test`] detects this mistake once an interface is open.
//!
//! BXI's libraries have the same functions, but different numbers, and handles and structures of
//! different sizes. They are refused.
//!
//! # Safety
//!
//! This crate is the raw interface, so the caller is responsible for everything behind a pointer.
//! The crate has no policy and no state. Types, constants and functions have the names of the
//! specification, which documents them.

#![allow(non_camel_case_types)]
#![allow(non_snake_case)]
// Fields and constants have the names of the specification, which documents them.
#![allow(missing_docs)]
// The specification of Portals determines the numbers of arguments.
#![allow(clippy::too_many_arguments)]

// Other pointer widths have other layouts, which were not verified here.
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
