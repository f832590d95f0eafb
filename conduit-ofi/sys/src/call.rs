//! Macros that declare the functions of the headers, which call through the objects' tables of
//! operations.

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::FI_ENOSYS;

/// The result of a function whose operation is missing in the object's table.
pub trait Absent {
    /// The value, which is `-FI_ENOSYS` for results, null for pointers, and 0 for counts.
    const ABSENT: Self;
}

impl Absent for c_int {
    const ABSENT: Self = -FI_ENOSYS;
}

impl Absent for isize {
    const ABSENT: Self = -(FI_ENOSYS as isize);
}

impl Absent for u64 {
    const ABSENT: Self = 0;
}

impl Absent for *const c_char {
    const ABSENT: Self = ptr::null();
}

/// Declares tables of operations. Each table begins with its size in bytes, which determines the
/// number of its entries.
macro_rules! tables {
    ($(
        $(#[$meta:meta])*
        struct $table:ident {
            $($op:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty;)*
        }
    )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $table {
            pub size: usize,
            $(pub $op: Option<unsafe extern "C" fn($($arg: $type),*) -> $ret>,)*
        }
    )*};
}

/// Declares functions that call through a table:
/// `fn name(arguments) -> type = type of the table in pointer to it => operation(arguments);`
macro_rules! calls {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty
            = $ops:ident in $table:expr => $op:ident($($given:expr),* $(,)?);
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The object must have been opened by a [`Library`](crate::Library) and must not be
        /// closed. The other arguments must satisfy the manual page, and memory passed to the
        /// operation must be valid until the operation has completed.
        #[inline]
        pub unsafe fn $name($($arg: $type),*) -> $ret {
            // SAFETY: the caller guarantees that the object is open and that the arguments satisfy
            // the manual page. An entry is read only if the table's own size covers it.
            unsafe {
                let table: *const $ops = $table;
                if table.is_null() || (*table).size <= std::mem::offset_of!($ops, $op) {
                    return <$ret as $crate::Absent>::ABSENT;
                }
                match (*table).$op {
                    Some(operation) => operation($($given),*),
                    None => <$ret as $crate::Absent>::ABSENT,
                }
            }
        }
    )*};
}

/// Implements `Default` with all zeros, which are the default values of all attributes.
macro_rules! zeroed {
    ($($name:ident),* $(,)?) => {$(
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the type has only integers and pointers, for which zeros are valid.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}
