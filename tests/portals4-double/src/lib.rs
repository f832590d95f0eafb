//! A libportals for tests, between processes of one host, or copies of it in one process.
//!
//! It is a shared library with the functions that `portals4-sys` loads, so a job takes it by
//! `CONDUIT_PORTALS4_LIBRARY`. It does what Conduit's network over Portals 4 needs, plainly, and
//! misbehaves on the way as the reference library was seen to: words in the name of its file, behind
//! a [`MARK`], say how ([`Faults`]).
//!
//! It has one interface. Several ranks within a process take copies of the file, each of which is a
//! library of its own ([`copies`]).

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

/// Between the name of the library's file and its faults.
pub const MARK: char = '!';

/// Copies of a library in this folder, with these faults.
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

/// The faults that the name of this library's file says.
fn own_faults() -> Result<Faults, String> {
    // SAFETY: integers and pointers only.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: fn() -> Result<Faults, String> = own_faults;
    // SAFETY: any address may be asked for.
    let known = unsafe { libc::dladdr(here as *const c_void, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return Ok(Faults::default());
    }
    // SAFETY: the loader's own string, which stays as long as the library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    Faults::named(name.split(MARK).nth(1).unwrap_or_default())
}
