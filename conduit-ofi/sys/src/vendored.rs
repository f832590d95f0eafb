//! The libfabric that was built into this program.

use std::ffi::{c_char, c_int, c_void};

use crate::load::Functions;
use crate::{fi_fabric_attr, fi_info, fi_type, fid_fabric};

#[link(name = "fabric", kind = "static")]
unsafe extern "C" {
    #[link_name = "fi_version"]
    fn version() -> u32;
    fn fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int;
    fn fi_freeinfo(info: *mut fi_info);
    fn fi_dupinfo(info: *const fi_info) -> *mut fi_info;
    fn fi_fabric(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int;
    fn fi_strerror(errnum: c_int) -> *const c_char;
    fn fi_tostr(data: *const c_void, datatype: fi_type) -> *mut c_char;
}

pub(crate) const FUNCTIONS: Functions = Functions {
    version,
    getinfo: fi_getinfo,
    freeinfo: fi_freeinfo,
    dupinfo: fi_dupinfo,
    fabric: fi_fabric,
    strerror: fi_strerror,
    tostr: fi_tostr,
};
