//! Loading of libportals at run time.

use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::Error;
use libloading::os::unix;

use crate::functions::Functions;
use crate::{Constants, Version};

/// The default library.
const SONAME: &str = "libportals.so.4";

/// A function of the known versions of BXI's library that the reference library lacks.
const OF_BXI: &str = "PtlToStr";

/// The reason why libportals can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The system's loader can't load the library, usually because the library does not exist.
    #[error("libportals can't be loaded from {library}: {reason}")]
    NotLoaded {
        /// The name of the library.
        library: String,
        /// The loader's error text.
        reason: String,
    },
    /// The library can be loaded, but is not libportals.
    #[error("{library} is not libportals of Portals 4: it lacks the function `{function}`")]
    NoFunction {
        /// The loaded library.
        library: String,
        /// The missing function.
        function: &'static str,
    },
    /// The library is BXI's, whose handles and structures have other sizes.
    #[error(
        "{library} is BXI's libportals (it has the function `{OF_BXI}`), which is not supported; the \
         reference library of Portals 4 is required"
    )]
    Bxi {
        /// The loaded library.
        library: String,
    },
}

/// A usable libportals.
///
/// The library is never unloaded, because its own threads run in it.
#[derive(Clone)]
pub struct Library {
    pub(crate) functions: Functions,
    path: PathBuf,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("path", &self.path)
            .field("version", &self.version())
            .finish()
    }
}

impl Library {
    /// Loads libportals. `path` is a file, or a name for the system's loader to look for; `None`
    /// stands for `libportals.so.4`. This call calls none of the library's functions.
    ///
    /// # Errors
    ///
    /// The library does not exist, or is a different one.
    pub fn load(path: Option<&Path>) -> Result<Self, LoadError> {
        let path = path.unwrap_or(Path::new(SONAME));
        let handle = Handle::open(path)?;
        let functions = handle.functions()?;
        let path = handle.file().unwrap_or_else(|| path.to_owned());
        std::mem::forget(handle);
        Ok(Self { functions, path })
    }

    /// Returns the file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the library's version as derived from its functions; see the crate's page.
    pub fn version(&self) -> Version {
        if self.functions.PtlAbort.is_some() {
            Version::V4_3
        } else {
            Version::V4_0
        }
    }

    /// Returns the constants of the library's version.
    pub fn constants(&self) -> &'static Constants {
        self.version().constants()
    }
}

/// A loaded library, which is unloaded unless it is forgotten.
struct Handle<'a> {
    library: unix::Library,
    path: &'a Path,
}

impl<'a> Handle<'a> {
    fn open(path: &'a Path) -> Result<Self, LoadError> {
        // SAFETY: loading runs the library's constructors, for which the library is responsible, as
        // every linked library is. Nothing of the library is in use when it is unloaded.
        let opened = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let library = opened.map_err(|error| LoadError::NotLoaded {
            library: path.display().to_string(),
            reason: match error {
                Error::InteriorZeroElements => "its name has a zero byte".to_owned(),
                error => error.source().unwrap_or(&error).to_string(),
            },
        })?;
        Ok(Self { library, path })
    }

    fn functions(&self) -> Result<Functions, LoadError> {
        if self.symbol(OF_BXI).is_ok() {
            return Err(LoadError::Bxi {
                library: self.path.display().to_string(),
            });
        }
        // SAFETY: `symbol` returns the addresses of the functions with these names. A library that
        // has all of them, but no function of BXI's, is the reference library or compatible with
        // it, so the functions have the declared types.
        unsafe { Functions::find(|name| self.symbol(name)) }
    }

    fn symbol(&self, name: &'static str) -> Result<NonNull<c_void>, LoadError> {
        let no_function = || LoadError::NoFunction {
            library: self.path.display().to_string(),
            function: name,
        };
        // SAFETY: the symbol is used only as an address, which is not read here.
        let symbol = unsafe { self.library.get::<*mut c_void>(name) };
        NonNull::new(symbol.map_err(|_| no_function())?.into_raw()).ok_or_else(no_function)
    }

    /// Returns the file that the library was loaded from.
    fn file(&self) -> Option<PathBuf> {
        let symbol = self.symbol("PtlInit").ok()?;
        // SAFETY: the structure contains only integers and pointers, for which zero bytes are
        // valid.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: `dladdr` accepts any address, and `found` is a live local variable.
        let known = unsafe { libc::dladdr(symbol.as_ptr(), &mut found) } != 0;
        if !known || found.dli_fname.is_null() {
            return None;
        }
        // SAFETY: `dli_fname` is a string of the loader that lives as long as the library.
        let name = unsafe { CStr::from_ptr(found.dli_fname) };
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}
