//! Loading libdragon when a program runs.

use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::fs;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::Error;
use libloading::os::unix;

use super::{Functions, Library};

/// What is loaded if nothing else is named. Dragon starts its transport agents with an `LD_LIBRARY_PATH` that finds the
/// copy in its Python package.
const FILE: &str = "libdragon.so";

/// The versions whose functions and structures this crate describes. There is no other protection: libdragon changes
/// both between versions, and its functions don't check what they get.
pub const VERSIONS: [&str; 1] = ["0.15.0"];

/// Why libdragon can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The system's loader refuses it; mostly, there is none.
    #[error(
        "libdragon can't be loaded from {library} (looked for in LD_LIBRARY_PATH unless it is a path): {reason}"
    )]
    NotLoaded {
        /// What was looked for.
        library: String,
        /// The loader's own words.
        reason: String,
    },
    /// It can be loaded, but is something else.
    #[error("{library} is no libdragon: it has no function `{function}`")]
    NoFunction {
        /// What was loaded.
        library: String,
        /// What it lacks.
        function: String,
    },
    /// It is in no Python package that says its version.
    #[error(
        "the version of {library} is unknown: there is no one `dragonhpc-<version>.dist-info` beside its package"
    )]
    NoVersion {
        /// What was loaded.
        library: String,
    },
    /// Its version is not one that this crate describes.
    #[error("{library} is of dragonhpc {version}; accepted: {}", VERSIONS.join(", "))]
    Version {
        /// What was loaded.
        library: String,
        /// Its version.
        version: String,
    },
}

impl Library {
    /// Loads libdragon: `path` is a file, or a name for the system's loader to look for; `None` is `libdragon.so`. It is
    /// never unloaded.
    ///
    /// A process must load one copy only. The package has two, of the same code but with state of their own.
    ///
    /// # Errors
    /// There is none, or it is not of a version that this crate knows.
    pub fn load(path: Option<&Path>) -> Result<Self, LoadError> {
        let path = path.unwrap_or(Path::new(FILE));
        // SAFETY: what the library's constructors do is its own affair, as with every library that is linked.
        let opened = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let library = opened.map_err(|error| LoadError::NotLoaded {
            library: path.display().to_string(),
            reason: match error {
                Error::InteriorZeroElements => "its name has a zero byte".to_owned(),
                error => error.source().unwrap_or(&error).to_string(),
            },
        })?;
        let library = ManuallyDrop::new(library);
        let functions = Functions::find(|function| {
            // SAFETY: only an address, which nothing is read from here.
            let symbol = unsafe { library.get::<*mut c_void>(function) };
            let symbol = symbol.map(unix::Symbol::into_raw).ok();
            symbol
                .filter(|symbol| !symbol.is_null())
                .ok_or_else(|| LoadError::NoFunction {
                    library: path.display().to_string(),
                    function: function.to_string_lossy().into_owned(),
                })
        })?;
        let file = file_of(functions.dragon_channel_attach as *const c_void)
            .unwrap_or_else(|| path.to_owned());
        let library = file.display().to_string();
        match version(&file) {
            None => Err(LoadError::NoVersion { library }),
            Some(version) if !VERSIONS.contains(&version.as_str()) => {
                Err(LoadError::Version { library, version })
            }
            Some(_) => Ok(Self(Box::leak(Box::new(functions)))),
        }
    }
}

/// The version of the package that a library is of. Wheels have it in `<site>/dragon/lib` and in `<site>/dragonhpc.libs`.
fn version(library: &Path) -> Option<String> {
    let library = fs::canonicalize(library).ok()?;
    library.ancestors().skip(2).take(2).find_map(|folder| {
        let mut versions = fs::read_dir(folder).ok()?.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let version = name.to_str()?.strip_prefix("dragonhpc-")?;
            Some(version.strip_suffix(".dist-info")?.to_owned())
        });
        // Two of them are an installation that went wrong.
        versions.next().filter(|_| versions.next().is_none())
    })
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `text` is null or ends in a zero byte.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// The file that a loaded function is in.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: integers and pointers only.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let known = unsafe { libc::dladdr(function, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which stays as long as the library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_libdragon_is_refused_by_name() {
        let said = |path: &str| {
            Library::load(Some(Path::new(path)))
                .unwrap_err()
                .to_string()
        };
        assert!(said("/nowhere/libdragon.so").contains("/nowhere/libdragon.so"));
        assert!(said("libc.so.6").contains("dragon_"));
    }
}
