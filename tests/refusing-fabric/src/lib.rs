//! A libfabric for tests. It forwards all calls to a real libfabric and adds refusals, failures and
//! requirements of providers that we can't run.
//!
//! This library is a shared library with the functions that `libfabric-sys` loads, so the setting
//! `CONDUIT_OFI_LIBRARY` selects it for a job. The libfabric behind it is the one that [`BEHIND`]
//! names. Each domain of a provider of that libfabric is offered unchanged, and once more for each
//! word of [`FAULTS`], with the word added to its name. For example,
//! `CONDUIT_OFI_DOMAIN=lo!vanish=2000` selects the interface `lo`, which vanishes at operation
//! 2000. [`Faults`] describes the words. A domain with a provider of its own is offered if the user
//! names that provider or none.
//!
//! Only the functions that `conduit-ofi` calls exist. If a call violates the rules of its man page,
//! the library prints that to standard error, and the call returns `-FI_EINVAL`.

/// Makes a table of operations that has the given functions. All other operations are null.
macro_rules! operations {
    ($table:ident { $($name:ident),* }) => {
        $table {
            size: size_of::<$table>(),
            $($name: Some($name),)*
            // SAFETY: the other fields are pointers to functions, which may be null, and a size.
            ..unsafe { std::mem::zeroed() }
        }
    };
}

mod behind;
mod device;
mod domain;
mod endpoint;
mod fabric;
mod faults;
mod memory;
mod queue;

use std::ffi::c_void;

use libfabric_sys::{fi_ops, fid};

pub use faults::Faults;

/// The environment variable that names the faults to offer, as words separated by spaces.
pub const FAULTS: &str = "REFUSING_FABRIC";
/// The environment variable that names the libfabric behind this one. Its value is `system`,
/// `vendored`, which is the default, or the path of a file.
pub const BEHIND: &str = "REFUSING_FABRIC_BEHIND";
/// The separator between a domain's own name and its faults.
pub const MARK: char = '!';

/// Returns the part with which all objects begin.
fn object(fclass: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid {
        fclass,
        context,
        ops: std::ptr::from_ref(ops).cast_mut(),
    }
}
