//! Access to the library that has loaded this plugin: its symbols, its version, and its completion
//! queues.
//!
//! The plugin is not linked with the library, so that it can be loaded, and can report the error,
//! even if the library is not the expected one.

use std::ffi::{CStr, c_uint, c_void};
use std::mem::transmute;
use std::ptr;

use libloading::os::unix::Library;

use crate::abi::{MAJOR, na_cb_completion_data, na_context};
use crate::status::{Failure, Result, Return};

/// The file name of the expected version of NA's library.
const SONAME: &str = "libna.so.6";

/// `na_cb_completion_add`.
pub(crate) type CompletionAdd = unsafe extern "C" fn(*mut na_context, *mut na_cb_completion_data);
/// `NA_Version_get`.
type VersionGet = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);

/// Returns a symbol of the library that has loaded this plugin.
pub(crate) fn symbol(name: &CStr) -> Option<*mut c_void> {
    let find = |library: Library| {
        // SAFETY: this only takes the symbol's address and does not read from it.
        let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
        Some(symbol.into_raw()).filter(|symbol| !symbol.is_null())
    };
    find(Library::this()).or_else(|| {
        // This second search is needed if the loading program, such as an interpreter, does not
        // export its libraries' symbols.
        // SAFETY: this call loads no library, so it runs no code. The library remains loaded after
        // `find` has closed this handle, because the caller of this plugin keeps it open.
        let library = unsafe { Library::open(Some(SONAME), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        find(library.ok()?)
    })
}

/// Returns the function that takes completions. Fails if the library is missing or its version is
/// not the one that this plugin was made for.
pub(crate) fn completion_add() -> Result<CompletionAdd> {
    let missing = |name: &str| {
        Failure::new(
            Return::OpNotSupported,
            format!("function {name} is missing: this process has not loaded Mercury's libna"),
        )
    };
    let version = symbol(c"NA_Version_get").ok_or_else(|| missing("NA_Version_get"))?;
    // SAFETY: NA's function of this name has this type in all versions.
    let version = unsafe { transmute::<*mut c_void, VersionGet>(version) };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the two non-null pointers are valid for writes, and the function ignores the null
    // pointer.
    unsafe { version(&raw mut major, &raw mut minor, ptr::null_mut()) };
    if major != MAJOR {
        return Err(Failure::new(
            Return::ProtoNoSupport,
            format!(
                "found NA version {major}.{minor}; this plugin requires version {MAJOR} (Mercury 2.4)"
            ),
        ));
    }
    let add = symbol(c"na_cb_completion_add").ok_or_else(|| missing("na_cb_completion_add"))?;
    // SAFETY: NA's function of this name has this type in the version that was just checked.
    Ok(unsafe { transmute::<*mut c_void, CompletionAdd>(add) })
}
