//! A libportals for tests. It connects processes of one host, or copies of itself in one process.
//!
//! The double is a shared library with the functions that `portals4-sys` loads, so the setting
//! `CONDUIT_PORTALS4_LIBRARY` selects it for a job. In a simple way, it implements what Conduit's
//! network over Portals 4 needs, with faults that were observed in the reference library. Words in
//! its file name that follow a [`MARK`] select those [`Faults`].
//!
//! The double has only one interface. Several ranks within a process therefore load [`copies`] of
//! the file, each of which is a separate library.

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

/// Writes `count` copies of a library to `folder`. The names of the copies select these faults.
///
/// # Errors
/// The copies can't be written.
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
    // SAFETY: the structure has only integers and pointers, for which zero bytes are valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: fn() -> Result<Faults, String> = own_faults;
    // SAFETY: `dladdr` accepts any address, and `found` is valid for writes.
    let known = unsafe { libc::dladdr(here as *const c_void, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return Ok(Faults::default());
    }
    // SAFETY: the loader owns the string, which ends with a zero byte and lives as long as the
    // library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    Faults::named(name.split(MARK).nth(1).unwrap_or_default())
}
