//! The library that has loaded this plugin: its symbols, its version, its completion queues.
//!
//! The plugin is not linked with it, so that it can be loaded, and says what is wrong, also where
//! the library is another one than expected.

use std::ffi::{CStr, c_uint, c_void};
use std::mem::transmute;
use std::ptr;

use libloading::os::unix::Library;

use crate::abi::{MAJOR, na_cb_completion_data, na_context};
use crate::status::{Failure, Result, Return};

/// NA's library of the version that is expected.
const SONAME: &str = "libna.so.6";

/// `na_cb_completion_add`.
pub(crate) type CompletionAdd = unsafe extern "C" fn(*mut na_context, *mut na_cb_completion_data);
/// `NA_Version_get`.
type VersionGet = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);

/// A symbol of the library that has loaded this plugin.
pub(crate) fn symbol(name: &CStr) -> Option<*mut c_void> {
    let find = |library: Library| {
        // SAFETY: only an address, which nothing is read from here.
        let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
        Some(symbol.into_raw()).filter(|symbol| !symbol.is_null())
    };
    find(Library::this()).or_else(|| {
        // Loaded by something that keeps its libraries' symbols to itself, such as an interpreter.
        // SAFETY: no library is loaded by this. It stays after `find` has closed it, since whoever
        // calls this plugin has it open.
        let library = unsafe { Library::open(Some(SONAME), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        find(library.ok()?)
    })
}

/// The function by which completions are handed over, of a library whose version is the one that
/// this plugin is made for.
pub(crate) fn completion_add() -> Result<CompletionAdd> {
    let missing = |name: &str| {
        Failure::new(
            Return::OpNotSupported,
            format!("no library of this process has the function {name}: it is not Mercury's"),
        )
    };
    let version = symbol(c"NA_Version_get").ok_or_else(|| missing("NA_Version_get"))?;
    // SAFETY: NA's function of this name has this type in all versions.
    let version = unsafe { transmute::<*mut c_void, VersionGet>(version) };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes to what is not null.
    unsafe { version(&raw mut major, &raw mut minor, ptr::null_mut()) };
    if major != MAJOR {
        return Err(Failure::new(
            Return::ProtoNoSupport,
            format!(
                "NA is of version {major}.{minor} here, this plugin is made for version {MAJOR} (Mercury 2.4)"
            ),
        ));
    }
    let add = symbol(c"na_cb_completion_add").ok_or_else(|| missing("na_cb_completion_add"))?;
    // SAFETY: NA's function of this name has this type in this version.
    Ok(unsafe { transmute::<*mut c_void, CompletionAdd>(add) })
}
