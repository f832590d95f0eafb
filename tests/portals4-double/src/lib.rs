//! A libportals for tests, between processes of one host, or between copies of it in one process.
//!
//! It is a shared library with the functions that `portals4-sys` loads, so
//! `CONDUIT_PORTALS4_LIBRARY` selects it for a job. It implements what Conduit's network over
//! Portals 4 needs in a simple way, with faults that were observed in the reference library: words
//! in its file name, behind a [`MARK`], select them ([`Faults`]).
//!
//! It has one interface. Several ranks within a process load copies of the file, each of which is a
//! separate library ([`copies`]).

mod arithmetic;
mod calls;
mod faults;
mod queue;
mod target;
mod wire;
mod world;

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::{fs, io};

pub use faults::{Faults, WORDS};

/// The separator between the library's file name and its faults.
pub const MARK: char = '!';

/// Writes copies of a library with these faults to this folder.
///
/// # Errors
/// They can't be written.
pub fn copies(
    library: &Path,
    folder: &Path,
    faults: &str,
    count: usize,
) -> io::Result<Vec<PathBuf>> {
    (0..count)
        .map(|number| {
            let copy = folder.join(format!("libportals-{number}{MARK}{faults}{MARK}.so"));
            fs::copy(library, &copy)?;
            Ok(copy)
        })
        .collect()
}

/// Returns the faults that this library's file name selects.
fn own_faults() -> Result<Faults, String> {
    // SAFETY: the structure has only integers and pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: fn() -> Result<Faults, String> = own_faults;
    // SAFETY: any address is accepted.
    let known = unsafe { libc::dladdr(here as *const c_void, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return Ok(Faults::default());
    }
    // SAFETY: the loader's own string, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    Faults::named(name.split(MARK).nth(1).unwrap_or_default())
}
