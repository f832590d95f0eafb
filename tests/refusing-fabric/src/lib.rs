//! A libfabric for tests: it hands everything on to a real one, and refuses, fails and demands on the way what no provider does that
//! runs on any machine.
//!
//! It is a shared library with the functions that `libfabric-sys` loads, so a job takes it by `CONDUIT_OFI_LIBRARY`. Behind it is
//! the libfabric that [`BEHIND`] names. Each domain that a provider of that has is offered as it is, and once more for each word of
//! [`FAULTS`], with that word behind its name: `CONDUIT_OFI_DOMAIN=lo!vanish=2000` is the interface `lo`, which vanishes after 2000
//! operations. What a word means is said at [`Faults`]. One with a provider of its own is offered where that is named, or none.
//!
//! Only what `conduit-ofi` calls is there. What a user of the library does against the rules of its man pages is said on standard
//! error, and the call answers `-FI_EINVAL`.

/// A table of those operations that are there, by the names of their functions; the others are null.
macro_rules! operations {
    ($table:ident { $($name:ident),* }) => {
        $table {
            size: size_of::<$table>(),
            $($name: Some($name),)*
            // SAFETY: the rest are pointers to functions that may be null.
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

/// The variable that names the faults to be offered, words with spaces between them.
pub const FAULTS: &str = "REFUSING_FABRIC";
/// The variable that names the libfabric behind this one: a file, or `system`; `vendored` if it is not set.
pub const BEHIND: &str = "REFUSING_FABRIC_BEHIND";
/// Between a domain's own name and its faults.
pub const MARK: char = '!';

/// The part that all objects begin with.
fn object(fclass: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid {
        fclass,
        context,
        ops: std::ptr::from_ref(ops).cast_mut(),
    }
}
