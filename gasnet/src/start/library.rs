//! The symbols by which the linker distinguishes the libraries of the threading modes and builds.
//!
//! The headers refer to the symbol of the library that the client is compiled for, so that linking
//! the client with a different library fails.

use std::ffi::c_int;

macro_rules! library {
    ($($name:ident if $condition:meta;)*) => {$(
        #[cfg($condition)]
        #[unsafe(no_mangle)]
        static $name: c_int = 1;
    )*};
}

library! {
    conduit_gex_library_seq_ndebug
        if all(not(feature = "par"), not(feature = "parsync"), not(debug_assertions));
    conduit_gex_library_seq_debug
        if all(not(feature = "par"), not(feature = "parsync"), debug_assertions);
    conduit_gex_library_parsync_ndebug
        if all(not(feature = "par"), feature = "parsync", not(debug_assertions));
    conduit_gex_library_parsync_debug
        if all(not(feature = "par"), feature = "parsync", debug_assertions);
    conduit_gex_library_par_ndebug if all(feature = "par", not(debug_assertions));
    conduit_gex_library_par_debug if all(feature = "par", debug_assertions);
}

/// Reports a failure of the mutex behind a handler-safe lock, and ends the job.
///
/// # Safety
/// `call` must be a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_hsl_failed(call: *const std::ffi::c_char, error: c_int) -> ! {
    // SAFETY: the caller guarantees that `call` is a C string: the headers pass a literal.
    let call = unsafe { std::ffi::CStr::from_ptr(call) }.to_string_lossy();
    crate::fault::fatal(&call, &std::io::Error::from_raw_os_error(error))
}
