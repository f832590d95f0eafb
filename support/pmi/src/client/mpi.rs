//! MPI in the same process, which may share the connection to the launcher.

use std::ffi::{CStr, c_int};

use libloading::os::unix::{Library, Symbol};

/// Whether this process uses MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mpi {
    /// The process has no MPI library, or has not initialised it.
    Unused,
    /// The process has called `MPI_Init`, but not `MPI_Finalize`.
    InUse,
    /// The process has called `MPI_Finalize`.
    Finalized,
}

impl Mpi {
    /// Asks the MPI library that this process has loaded, whichever it is.
    pub(super) fn of_process() -> Self {
        if flag(c"MPI_Finalized") {
            Mpi::Finalized
        } else if flag(c"MPI_Initialized") {
            Mpi::InUse
        } else {
            Mpi::Unused
        }
    }
}

/// Returns the flag that a function of MPI sets; `false` if there is no such function.
fn flag(name: &CStr) -> bool {
    type Function = unsafe extern "C" fn(*mut c_int) -> c_int;
    let library = Library::this();
    // SAFETY: the MPI standard gives both functions this type.
    let symbol: Result<Symbol<Function>, _> = unsafe { library.get(name.to_bytes_with_nul()) };
    let Ok(function) = symbol else {
        return false;
    };
    let mut flag = 0;
    // SAFETY: both functions may be called at any time by any thread, and `flag` is valid for
    // writes.
    unsafe { function(&raw mut flag) == 0 && flag != 0 }
}
