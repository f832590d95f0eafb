//! Loads libfabric at run time.

use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use libloading::Error;
use libloading::os::unix;

use crate::{API_VERSION, fi_fabric_attr, fi_info, fi_major, fi_minor, fi_type, fid_fabric};

/// The library that is loaded by default. All versions from 1.0 to 2.x have this name.
const SONAME: &str = "libfabric.so.1";

/// The functions that libfabric exports and this crate uses. Their manual pages document them.
#[derive(Clone, Copy)]
pub struct Functions {
    pub version: unsafe extern "C" fn() -> u32,
    pub getinfo: unsafe extern "C" fn(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int,
    pub freeinfo: unsafe extern "C" fn(info: *mut fi_info),
    pub dupinfo: unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info,
    pub fabric: unsafe extern "C" fn(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int,
    pub strerror: unsafe extern "C" fn(errnum: c_int) -> *const c_char,
    pub tostr: unsafe extern "C" fn(data: *const c_void, datatype: fi_type) -> *mut c_char,
}

/// The reason why libfabric is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The system's loader refused the library, which usually does not exist.
    #[error("cannot load libfabric from {library}: {reason}")]
    NotLoaded {
        /// The requested library.
        library: String,
        /// The loader's error text.
        reason: String,
    },
    /// The loaded file is not libfabric.
    #[error("{library} is not libfabric: it lacks the function `{function}`")]
    NoFunction {
        /// The loaded file.
        library: String,
        /// The missing function.
        function: &'static str,
    },
    /// The library is older than the API of these bindings.
    #[error(
        "{library} is libfabric {major}.{minor}, must be {}.{} or newer",
        fi_major(API_VERSION),
        fi_minor(API_VERSION)
    )]
    TooOld {
        /// The loaded file.
        library: String,
        /// The major part of the library's version.
        major: u16,
        /// The minor part of the library's version.
        minor: u16,
    },
}

/// The functions of the vendored libfabric.
static VENDORED: OnceLock<Functions> = OnceLock::new();

/// A usable libfabric.
///
/// The library is never unloaded, because objects, offers and helper threads of providers depend on
/// it.
#[derive(Clone)]
pub struct Library {
    functions: Functions,
    path: Option<PathBuf>,
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
    /// Loads libfabric. `path` is a file, or a name that the system's loader looks up. If `path` is
    /// `None`, the name is `libfabric.so.1`.
    pub fn load(path: Option<&Path>) -> Result<Self, LoadError> {
        let path = path.unwrap_or(Path::new(SONAME));
        let handle = Handle::open(path)?;
        let functions = handle.functions()?;
        let path = file_of(functions.version).unwrap_or_else(|| path.to_owned());
        std::mem::forget(handle);
        Ok(Self {
            functions,
            path: Some(path),
        })
    }

    /// Sets the libfabric that [`Library::vendored`] returns. Only the first call has an effect.
    pub fn provide_vendored(functions: Functions) {
        let _ = VENDORED.set(functions);
    }

    /// Returns the libfabric linked into the program, if the program has provided one.
    pub fn vendored() -> Option<Self> {
        VENDORED.get().map(|&functions| Self {
            functions,
            path: None,
        })
    }

    /// Returns the loaded file, or `None` for the vendored library.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the library's version (`fi_version`).
    pub fn version(&self) -> u32 {
        // SAFETY: the function has no arguments and no preconditions.
        unsafe { (self.functions.version)() }
    }

    /// Requests the providers' offers (`fi_getinfo`). The list at `info` must be freed with
    /// [`Library::freeinfo`].
    ///
    /// # Safety
    ///
    /// The arguments must satisfy fi_getinfo(3). `hints` must be null or come from
    /// [`Library::allocinfo`], [`Library::dupinfo`] or this function of the same library.
    pub unsafe fn getinfo(
        &self,
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int {
        // SAFETY: the caller guarantees what the library's function requires.
        unsafe { (self.functions.getinfo)(version, node, service, flags, hints, info) }
    }

    /// Frees a list of offers (`fi_freeinfo`).
    ///
    /// # Safety
    ///
    /// `info` must be null or come from this library, and must not be used any more.
    pub unsafe fn freeinfo(&self, info: *mut fi_info) {
        // SAFETY: the caller guarantees that `info` is null, which all versions accept, or
        // comes from this library and is not used any more.
        unsafe { (self.functions.freeinfo)(info) }
    }

    /// Copies the first offer of a list (`fi_dupinfo`). Returns null if memory is exhausted.
    ///
    /// # Safety
    ///
    /// `info` must be null, in which case the result is an empty offer, or come from this library.
    pub unsafe fn dupinfo(&self, info: *const fi_info) -> *mut fi_info {
        // SAFETY: the caller guarantees that `info` is null or comes from this library.
        unsafe { (self.functions.dupinfo)(info) }
    }

    /// Returns an empty offer that can be filled in as hints (`fi_allocinfo`). Returns null if
    /// memory is exhausted. Strings stored in the offer must come from C's `malloc`, because
    /// [`Library::freeinfo`] frees them.
    pub fn allocinfo(&self) -> *mut fi_info {
        // SAFETY: null is the documented way to request an empty offer.
        unsafe { (self.functions.dupinfo)(ptr::null()) }
    }

    /// Opens a fabric (`fi_fabric`).
    ///
    /// # Safety
    ///
    /// The arguments must satisfy fi_fabric(3). `attr` must be part of an offer of this library.
    pub unsafe fn fabric(
        &self,
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller guarantees what the library's function requires.
        unsafe { (self.functions.fabric)(attr, fabric, context) }
    }

    /// Returns the text of an error number, which may be negated (`fi_strerror`).
    pub fn strerror(&self, errnum: c_int) -> String {
        // SAFETY: any number is valid, and the result is a string that is valid until this thread's
        // next call.
        unsafe { text((self.functions.strerror)(errnum.saturating_abs())) }
    }

    /// Returns an object as text (`fi_tostr`).
    ///
    /// # Safety
    ///
    /// `data` must point to an object of type `datatype`.
    pub unsafe fn tostr(&self, data: *const c_void, datatype: fi_type) -> String {
        // SAFETY: the caller guarantees that `data` points to an object of this type. The result is
        // a string that is valid until this thread's next call.
        unsafe { text((self.functions.tostr)(data, datatype)) }
    }
}

/// Copies a C string.
///
/// # Safety
///
/// `text` must be null or end in a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees that `text` is null or ends in a zero byte, and it is not null.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// The process's signal dispositions, which are restored on drop. libinfinipath, which Debian's
/// libfabric loads, takes over SIGTERM and other signals in its constructor, even if they are
/// ignored, and ends the process with `exit(1)` on such a signal.
struct Dispositions(Vec<(c_int, libc::sigaction)>);

impl Dispositions {
    fn of_now() -> Self {
        Self(
            (1..32)
                .filter_map(|signal| Some((signal, disposition(signal)?)))
                .collect(),
        )
    }
}

impl Drop for Dispositions {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            if disposition(*signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction) {
                // SAFETY: the process had this disposition before the library was loaded, so the
                // handler is not a function of the library.
                unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
            }
        }
    }
}

fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut found = MaybeUninit::uninit();
    // SAFETY: without a new disposition, the call only reads the current one. `found` is
    // initialised if the result is 0.
    unsafe {
        (libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) == 0).then(|| found.assume_init())
    }
}

/// A loaded library, which is unloaded on drop.
struct Handle<'a> {
    library: unix::Library,
    /// The handle to pass to `dlvsym`.
    raw: *mut c_void,
    path: &'a Path,
}

impl<'a> Handle<'a> {
    fn open(path: &'a Path) -> Result<Self, LoadError> {
        let _restored = Dispositions::of_now();
        // SAFETY: the library's constructors are trusted, in the same way as those of every linked
        // library. When the library is unloaded, nothing of it is in use.
        let opened = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let raw = opened
            .map_err(|error| LoadError::NotLoaded {
                library: path.display().to_string(),
                reason: match error {
                    Error::InteriorZeroElements => "the name contains a zero byte".to_owned(),
                    error => error.source().unwrap_or(&error).to_string(),
                },
            })?
            .into_raw();
        // SAFETY: the handle has just been opened, and only the value made here closes it.
        let library = unsafe { unix::Library::from_raw(raw) };
        Ok(Self { library, raw, path })
    }

    /// Returns the functions in the versions that a program linked with libfabric 1.15 gets. Newer
    /// libraries still contain these versions, which accept hints as short as those of 1.15. A
    /// library without symbol versions has only one version of each function.
    fn functions(&self) -> Result<Functions, LoadError> {
        /// Looks up a function and casts it to the expected type.
        macro_rules! function {
            ($name:literal, $version:literal) => {{
                let symbol = self.symbol($name, $version)?;
                // SAFETY: the symbol is the function of this name, which fabric.h declares with the
                // type of this field.
                #[allow(clippy::missing_transmute_annotations)]
                unsafe {
                    std::mem::transmute(symbol)
                }
            }};
        }
        // The version is checked first, because an older library may lack the other functions.
        let version = function!(c"fi_version", c"FABRIC_1.0");
        self.check_version(version)?;
        Ok(Functions {
            version,
            getinfo: function!(c"fi_getinfo", c"FABRIC_1.3"),
            freeinfo: function!(c"fi_freeinfo", c"FABRIC_1.3"),
            dupinfo: function!(c"fi_dupinfo", c"FABRIC_1.3"),
            fabric: function!(c"fi_fabric", c"FABRIC_1.1"),
            strerror: function!(c"fi_strerror", c"FABRIC_1.0"),
            tostr: function!(c"fi_tostr", c"FABRIC_1.0"),
        })
    }

    fn check_version(&self, version: unsafe extern "C" fn() -> u32) -> Result<(), LoadError> {
        let file = file_of(version);
        // SAFETY: `fi_version` has no arguments and no preconditions.
        let version = unsafe { version() };
        if version >= API_VERSION {
            return Ok(());
        }
        Err(LoadError::TooOld {
            library: file.as_deref().unwrap_or(self.path).display().to_string(),
            major: fi_major(version),
            minor: fi_minor(version),
        })
    }

    /// Returns the function `name` in this version, or in the library's only version. The returned
    /// pointer is never null.
    fn symbol(&self, name: &'static CStr, version: &CStr) -> Result<*mut c_void, LoadError> {
        let mut symbol = self.versioned(name, version);
        if symbol.is_null() {
            // SAFETY: the call only looks up an address, which is not dereferenced here.
            let only = unsafe { self.library.get(name) };
            symbol = only.map_or(symbol, unix::Symbol::<*mut c_void>::into_raw);
        }
        if symbol.is_null() {
            return Err(LoadError::NoFunction {
                library: self.path.display().to_string(),
                function: name.to_str().unwrap_or_default(),
            });
        }
        Ok(symbol)
    }

    #[cfg(target_env = "gnu")]
    fn versioned(&self, name: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: the library is open, and the two strings end in a zero byte.
        unsafe { libc::dlvsym(self.raw, name.as_ptr(), version.as_ptr()) }
    }

    /// Returns null, because other loaders do not support symbol versions.
    #[cfg(not(target_env = "gnu"))]
    fn versioned(&self, _name: &CStr, _version: &CStr) -> *mut c_void {
        ptr::null_mut()
    }
}

/// Returns the file that contains a loaded function.
fn file_of(function: unsafe extern "C" fn() -> u32) -> Option<PathBuf> {
    // SAFETY: the type has only integers and pointers, for which zeros are valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be queried, and `found` is valid for writes.
    let known = unsafe { libc::dladdr(function as *const c_void, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader owns the text, which ends in a zero byte and is valid as long as the
    // library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
