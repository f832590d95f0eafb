//! A copy of libfabric 1.22 inside the program, with the providers that need no hardware.
//!
//! [`provide`] makes it the library that `libfabric_sys::Library::vendored` returns. Its functions
//! have names of their own (`build.rs`), so that the program can load another libfabric as well.

use std::ffi::{c_char, c_int, c_void};

use libfabric_sys::{Functions, Library, fi_fabric_attr, fi_info, fi_type, fid_fabric};

mod pingpong;

pub use pingpong::pingpong;

/// The folder of the copy's C headers on the host that compiled it.
pub const INCLUDE: &str = env!("VENDORED_INCLUDE");

/// Makes this copy the process's vendored libfabric. Calling it again changes nothing.
pub fn provide() {
    Library::provide_vendored(FUNCTIONS);
}

#[link(name = "fabric", kind = "static")]
unsafe extern "C" {
    #[link_name = "conduit_fi_version"]
    fn version() -> u32;
    #[link_name = "conduit_fi_getinfo"]
    fn getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int;
    #[link_name = "conduit_fi_freeinfo"]
    fn freeinfo(info: *mut fi_info);
    #[link_name = "conduit_fi_dupinfo"]
    fn dupinfo(info: *const fi_info) -> *mut fi_info;
    #[link_name = "conduit_fi_fabric"]
    fn fabric(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int;
    #[link_name = "conduit_fi_strerror"]
    fn strerror(errnum: c_int) -> *const c_char;
    #[link_name = "conduit_fi_tostr"]
    fn tostr(data: *const c_void, datatype: fi_type) -> *mut c_char;
}

const FUNCTIONS: Functions = Functions {
    version,
    getinfo,
    freeinfo,
    dupinfo,
    fabric,
    strerror,
    tostr,
};
