//! Raw bindings to libfabric, as of its API version 1.15, and the loading of the library.
//!
//! Nothing is needed to build this crate: [`Library::load`] loads `libfabric.so.1` when a program runs, any version from
//! 1.15 up to 2.x. A program may also bring a libfabric of its own, as the crate `libfabric-vendored`
//! does: it hands its functions to [`Library::provide_vendored`].
//!
//! libfabric exports about a dozen functions. All others are inline functions of its headers, which call through tables of
//! operations in the objects; they are the functions of this crate, under their names. Where a table is missing, or too
//! short for an operation because the library is older, they answer `-FI_ENOSYS` (functions that have no error to
//! return say what they answer instead).
//!
//! What providers were found to do, and what to beware of, is told in `PROVIDERS.md` beside this crate.
//!
//! # One version of the API
//!
//! Later versions of libfabric have longer structures, never other ones: a field keeps its place (the test `layout`
//! compares them with C headers). So this crate asks for [`API_VERSION`] always, reads no field that is younger, and stands by three rules:
//!
//! - `fi_info` and the attributes in it are made by the library only ([`Library::allocinfo`], [`Library::getinfo`],
//!   [`Library::dupinfo`]), because its own may be longer;
//! - structures that a user makes end in room for what was added later (`later`), which stays zero;
//! - objects (`fid_ep` and so on) are used behind pointers only.
//!
//! # Safety
//!
//! This crate is the raw interface: everything behind a pointer is the caller's word. It holds no policy and keeps no
//! state. Types and constants have libfabric's names, and libfabric's man pages are their documentation.

#![allow(non_camel_case_types)]
// Fields and constants have the names of the man pages, which document them.
#![allow(missing_docs)]
// As libfabric has them.
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

/// A version number as libfabric writes it: `FI_VERSION`.
pub const fn fi_version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// The major part of a version number: `FI_MAJOR`.
pub const fn fi_major(version: u32) -> u16 {
    (version >> 16) as u16
}

/// The minor part of a version number: `FI_MINOR`.
pub const fn fi_minor(version: u32) -> u16 {
    version as u16
}

/// The version of the API that is described here, to be asked for in [`Library::getinfo`].
pub const API_VERSION: u32 = fi_version(1, 15);

/// Where a node's address counts bits for receive contexts: the handle of one of them. See fi_av(3).
pub const fn fi_rx_addr(fi_addr: fi_addr_t, rx_index: u64, rx_ctx_bits: u32) -> fi_addr_t {
    rx_index << (64 - rx_ctx_bits) | fi_addr
}

/// Types that are used as pointers only.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: not described here.")]
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

/// A collective operation: not described here.
pub type fi_collective_op = std::ffi::c_uint;
