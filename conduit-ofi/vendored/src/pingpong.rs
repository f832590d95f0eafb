//! libfabric's own `fi_pingpong`, built with the copy in this program and using it.

use std::ffi::{CString, c_char, c_int};
use std::process::exit;
use std::ptr;

unsafe extern "C" {
    fn conduit_fi_pingpong(count: c_int, arguments: *mut *mut c_char) -> c_int;
}

/// Becomes `fi_pingpong` with these arguments, the program's name first: see fi_pingpong(1). It ends the process.
pub fn pingpong(arguments: Vec<CString>) -> ! {
    // Fits: the system allows for fewer.
    let count = arguments.len() as c_int;
    let mut pointers: Vec<_> = arguments.into_iter().map(CString::into_raw).collect();
    pointers.push(ptr::null_mut());
    // SAFETY: what a C program's main gets: strings that may be written, as many as said, and a null pointer. They stay, as does
    // the list of them, because the process ends with it.
    exit(unsafe { conduit_fi_pingpong(count, pointers.as_mut_ptr()) })
}
