//! Loads libdragon at run time.

use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::fs;
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::Error;
use libloading::os::unix;

use super::{Functions, Library};

/// The library loaded by default. Dragon starts its transport agents with an `LD_LIBRARY_PATH`
/// under which this name finds the copy in its Python package.
const FILE: &str = "libdragon.so";

/// The versions whose functions and structures this crate declares. This check is the only
/// protection: libdragon changes both between versions, and its functions do not validate their
/// arguments.
pub const VERSIONS: [&str; 1] = ["0.15.0"];

/// Why libdragon cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The dynamic loader failed, usually because the library does not exist.
    #[error(
        "cannot load libdragon from {library} (searched for in LD_LIBRARY_PATH unless it is a path): {reason}"
    )]
    NotLoaded {
        /// The name or path that was given.
        library: String,
        /// The loader's message.
        reason: String,
    },
    /// The loaded library is not libdragon.
    #[error("{library} is not libdragon: function `{function}` is missing")]
    NoFunction {
        /// The loaded library.
        library: String,
        /// The missing function.
        function: String,
    },
    /// No Python package states the library's version.
    #[error(
        "cannot determine the version of {library}: expected exactly one `dragonhpc-<version>.dist-info` beside its package"
    )]
    NoVersion {
        /// The loaded library.
        library: String,
    },
    /// This crate does not support the library's version.
    #[error("{library} is of dragonhpc {version}; accepted: {}", VERSIONS.join(", "))]
    Version {
        /// The loaded library.
        library: String,
        /// The library's version.
        version: String,
    },
}

impl Library {
    /// Loads libdragon and never unloads it. `path` is a file, or a name that the dynamic loader
    /// searches for; `None` stands for `libdragon.so`.
    ///
    /// A process must load only one copy. The package has two, with the same code but separate
    /// state.
    ///
    /// # Errors
    /// Returns an error if the library cannot be loaded or its version is not supported.
    pub fn load(path: Option<&Path>) -> Result<Self, LoadError> {
        let path = path.unwrap_or(Path::new(FILE));
        // SAFETY: running the library's constructors is as safe as linking to it.
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
            // SAFETY: takes the symbol's address without reading from it.
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

/// Returns the version of the package that contains a library. Wheels have libraries in
/// `<site>/dragon/lib` and `<site>/dragonhpc.libs`.
fn version(library: &Path) -> Option<String> {
    let library = fs::canonicalize(library).ok()?;
    library.ancestors().skip(2).take(2).find_map(|folder| {
        let mut versions = fs::read_dir(folder).ok()?.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let version = name.to_str()?.strip_prefix("dragonhpc-")?;
            Some(version.strip_suffix(".dist-info")?.to_owned())
        });
        // Two versions indicate a broken installation.
        versions.next().filter(|_| versions.next().is_none())
    })
}

/// Copies a C string; null gives an empty one.
///
/// # Safety
/// `text` is null or ends in a zero byte.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the file that contains a loaded function.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: zero is valid for its integers and pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address is a valid argument.
    let known = unsafe { libc::dladdr(function, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as the library.
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
