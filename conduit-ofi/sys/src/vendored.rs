//! The libfabric that was built into this program. Its functions have names of their own there, see `build.rs`.

use std::ffi::{c_char, c_int, c_void};

use crate::load::Functions;
use crate::{fi_fabric_attr, fi_info, fi_type, fid_fabric};

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

pub(crate) const FUNCTIONS: Functions = Functions {
    version,
    getinfo,
    freeinfo,
    dupinfo,
    fabric,
    strerror,
    tostr,
};
