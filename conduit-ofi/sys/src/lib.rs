//! Raw bindings to libfabric's API version 1.15, and functions that load the library.
//!
//! Building this crate requires no libfabric: [`Library::load`] loads `libfabric.so.1` at run time,
//! in any version from 1.15 to 2.x. A program may also contain its own libfabric, for example from
//! the crate `libfabric-vendored`, which passes its functions to [`Library::provide_vendored`].
//!
//! libfabric exports about a dozen functions. All others are inline functions of its headers, which
//! call through tables of operations in the objects. This crate provides these functions under the
//! same names. If a table is missing, or is too short for an operation because the library is
//! older, the functions return `-FI_ENOSYS`. Functions without an error result document what they
//! return in this case.
//!
//! `PROVIDERS.md` beside this crate describes the observed behaviour of providers and their
//! pitfalls.
//!
//! # One version of the API
//!
//! Later versions of libfabric extend structures but never change them, so that a field keeps its
//! place. (The test `layout` compares the structures with C headers.) This crate therefore always
//! requests [`API_VERSION`], reads no newer field, and follows three rules:
//!
//! - Only the library allocates `fi_info` and its attributes ([`Library::allocinfo`],
//!   [`Library::getinfo`], [`Library::dupinfo`]), because its own structures may be longer.
//! - Structures allocated by a user end in room for later additions (`later`), which must be zero.
//! - Objects (`fid_ep` and others) are used only behind pointers.
//!
//! # Safety
//!
//! This crate is the raw interface, in which the caller is responsible for everything behind a
//! pointer. It holds no policy and no state. Types and constants have libfabric's names, and
//! libfabric's manual pages document them.

#![allow(non_camel_case_types)]
// The manual pages document fields and constants under the same names.
#![allow(missing_docs)]
// The signatures are libfabric's.
#![allow(clippy::too_many_arguments)]

#[macro_use]
mod call;

mod atomic;
mod av;
mod cntr;
mod constants;
mod cq;
mod domain;
mod endpoint;
mod eq;
mod errno;
mod fabric;
mod load;
mod msg;
mod rma;
mod tagged;

pub use atomic::*;
pub use av::*;
pub use call::Absent;
pub use cntr::*;
pub use constants::*;
pub use cq::*;
pub use domain::*;
pub use endpoint::*;
pub use eq::*;
pub use errno::*;
pub use fabric::*;
pub use libc::iovec;
pub use load::{Functions, Library, LoadError};
pub use msg::*;
pub use rma::*;
pub use tagged::*;

/// A peer's handle in an address vector.
pub type fi_addr_t = u64;

/// Returns a version number in libfabric's format (`FI_VERSION`).
pub const fn fi_version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// Returns the major part of a version number (`FI_MAJOR`).
pub const fn fi_major(version: u32) -> u16 {
    (version >> 16) as u16
}

/// Returns the minor part of a version number (`FI_MINOR`).
pub const fn fi_minor(version: u32) -> u16 {
    version as u16
}

/// The API version of these bindings, which must be passed to [`Library::getinfo`].
pub const API_VERSION: u32 = fi_version(1, 15);

/// Returns the handle of a receive context. The node's address must reserve bits for receive
/// contexts. See fi_av(3).
pub const fn fi_rx_addr(fi_addr: fi_addr_t, rx_index: u64, rx_ctx_bits: u32) -> fi_addr_t {
    rx_index << (64 - rx_ctx_bits) | fi_addr
}

/// Declares types that are used only behind pointers.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, an opaque type.")]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            private: [u8; 0],
            marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
        }
    )*};
}

opaque! {
    fid_stx fid_mc fid_wait fid_poll fid_av_set
    fi_wait_attr fi_poll_attr fi_av_set_attr fi_collective_attr fi_ops_collective
}

/// The type of a collective operation, whose values this crate does not define.
pub type fi_collective_op = std::ffi::c_uint;
