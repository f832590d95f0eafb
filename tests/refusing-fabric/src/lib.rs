//! A libfabric for tests: it forwards all calls to a real one, and adds refusals, failures and
//! requirements of providers that we can't run.
//!
//! It is a shared library with the functions that `libfabric-sys` loads, so `CONDUIT_OFI_LIBRARY`
//! selects it for a job. Behind it is the libfabric that [`BEHIND`] names. Each domain of a
//! provider of that library is offered unchanged, and once more for each word of [`FAULTS`], with
//! that word behind its name: `CONDUIT_OFI_DOMAIN=lo!vanish=2000` is the interface `lo`, which
//! vanishes after 2000 operations. The words are described at [`Faults`]. A domain with a provider
//! of its own is offered if that provider or none is named.
//!
//! It has only the functions that `conduit-ofi` calls. If a call violates the rules of its man
//! page, it prints that to standard error and returns `-FI_EINVAL`.

/// Makes a table of the given operations, by the names of their functions; the others are null.
macro_rules! operations {
    ($table:ident { $($name:ident),* }) => {
        $table {
            size: size_of::<$table>(),
            $($name: Some($name),)*
            // SAFETY: the rest are pointers to functions, which may be null.
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

/// The variable that names the faults to offer, as words separated by spaces.
pub const FAULTS: &str = "REFUSING_FABRIC";
/// The variable that names the libfabric behind this one: a file, or `system`; the default is
/// `vendored`.
pub const BEHIND: &str = "REFUSING_FABRIC_BEHIND";
/// The separator between a domain's own name and its faults.
pub const MARK: char = '!';

/// Returns the part that all objects begin with.
fn object(fclass: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid {
        fclass,
        context,
        ops: std::ptr::from_ref(ops).cast_mut(),
    }
}
