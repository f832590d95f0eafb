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

/// The library loaded by default. Dragon sets `LD_LIBRARY_PATH` for its transport agents so that
/// the dynamic loader finds this name in Dragon's Python package.
const FILE: &str = "libdragon.so";

/// The versions of libdragon whose functions and structures this crate declares. libdragon changes
/// both between versions, and its functions do not validate their arguments, so comparing the
/// version is the only protection.
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
    #[error("{library} belongs to dragonhpc {version}; accepted: {}", VERSIONS.join(", "))]
    Version {
        /// The loaded library.
        library: String,
        /// The library's version.
        version: String,
    },
}

impl Library {
    /// Loads libdragon and never unloads it. `path` is the path of a file, or a name for which the
    /// dynamic loader searches. `None` stands for the name `libdragon.so`.
    ///
    /// A process must load only one copy of libdragon. The Python package contains two, which have
    /// the same code but separate state.
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
            // SAFETY: the symbol's address is taken, and nothing is read from it.
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

/// Returns the version of the package that contains a library, or `None` if the package is not
/// found. A wheel installs libraries in `<site>/dragon/lib` and `<site>/dragonhpc.libs`.
fn version(library: &Path) -> Option<String> {
    let library = fs::canonicalize(library).ok()?;
    library.ancestors().skip(2).take(2).find_map(|folder| {
        let mut versions = fs::read_dir(folder).ok()?.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let version = name.to_str()?.strip_prefix("dragonhpc-")?;
            Some(version.strip_suffix(".dist-info")?.to_owned())
        });
        // Refuses two versions, because they indicate a broken installation.
        versions.next().filter(|_| versions.next().is_none())
    })
}

/// Copies a C string, or returns an empty string if `text` is null.
///
/// # Safety
/// `text` must be null, or point to a string that ends in a zero byte.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees that `text`, which is not null, ends in a zero byte.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the file that contains a loaded function.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: zero is valid for the structure's integers and pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address is a valid argument, and `found` has room for the result.
    let known = unsafe { libc::dladdr(function, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is the loader's own C string, which lives as long as the library.
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
