//! Loading libfabric when a program runs.

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

/// What is loaded if nothing else is named: all versions from 1.0 to 2.x have this name.
const SONAME: &str = "libfabric.so.1";

/// The functions that libfabric exports and this crate uses, each as its man page describes it.
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

/// Why libfabric can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The system's loader refuses it; mostly, there is none.
    #[error("libfabric can't be loaded from {library}: {reason}")]
    NotLoaded {
        /// What was looked for.
        library: String,
        /// The loader's own words.
        reason: String,
    },
    /// It can be loaded, but is something else.
    #[error("{library} is no libfabric: it has no function `{function}`")]
    NoFunction {
        /// What was loaded.
        library: String,
        /// What it lacks.
        function: &'static str,
    },
    /// It is older than the API that this crate describes.
    #[error(
        "{library} is libfabric {major}.{minor}, which is too old: version {}.{} or newer is needed",
        fi_major(API_VERSION),
        fi_minor(API_VERSION)
    )]
    TooOld {
        /// What was loaded.
        library: String,
        /// Its version.
        major: u16,
        /// Its version.
        minor: u16,
    },
}

/// The functions of the program's own libfabric.
static VENDORED: OnceLock<Functions> = OnceLock::new();

/// A libfabric that can be used.
///
/// It is never unloaded: objects, offers and helper threads of providers live in it.
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
    /// Loads libfabric: `path` is a file, or a name for the system's loader to look for; `None` is `libfabric.so.1`.
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

    /// The libfabric that the program was linked with, if it has provided one.
    pub fn vendored() -> Option<Self> {
        VENDORED.get().map(|&functions| Self {
            functions,
            path: None,
        })
    }

    /// The file that was loaded; `None` for the library that was built in.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The library's version: `fi_version`.
    pub fn version(&self) -> u32 {
        // SAFETY: no arguments.
        unsafe { (self.functions.version)() }
    }

    /// Asks for what providers offer: `fi_getinfo`. The list at `info` is given back by [`Library::freeinfo`].
    ///
    /// # Safety
    ///
    /// As fi_getinfo(3) demands; `hints` is null or from [`Library::allocinfo`], [`Library::dupinfo`] or this function, of
    /// this library.
    pub unsafe fn getinfo(
        &self,
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int {
        // SAFETY: the caller's word.
        unsafe { (self.functions.getinfo)(version, node, service, flags, hints, info) }
    }

    /// Gives back a list of offers: `fi_freeinfo`.
    ///
    /// # Safety
    ///
    /// `info` is null or from this library, and isn't used any more.
    pub unsafe fn freeinfo(&self, info: *mut fi_info) {
        // SAFETY: the caller's word. Null is allowed by all versions.
        unsafe { (self.functions.freeinfo)(info) }
    }

    /// A copy of the first offer of a list: `fi_dupinfo`. Null if memory has run out.
    ///
    /// # Safety
    ///
    /// `info` is null, which gives an empty offer, or from this library.
    pub unsafe fn dupinfo(&self, info: *const fi_info) -> *mut fi_info {
        // SAFETY: the caller's word.
        unsafe { (self.functions.dupinfo)(info) }
    }

    /// An empty offer, to be filled in as hints: `fi_allocinfo`. Null if memory has run out. Strings that are put into it
    /// have to be of C's `malloc`, because [`Library::freeinfo`] frees them.
    pub fn allocinfo(&self) -> *mut fi_info {
        // SAFETY: null is the documented way to ask for an empty one.
        unsafe { (self.functions.dupinfo)(ptr::null()) }
    }

    /// Opens a fabric: `fi_fabric`.
    ///
    /// # Safety
    ///
    /// As fi_fabric(3) demands; `attr` is part of an offer of this library.
    pub unsafe fn fabric(
        &self,
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's word.
        unsafe { (self.functions.fabric)(attr, fabric, context) }
    }

    /// What an error number means, negated or not: `fi_strerror`.
    pub fn strerror(&self, errnum: c_int) -> String {
        // SAFETY: any number may be given; the answer is a string that stays until the next call of this thread.
        unsafe { text((self.functions.strerror)(errnum.saturating_abs())) }
    }

    /// An object as text: `fi_tostr`.
    ///
    /// # Safety
    ///
    /// `data` points to what `datatype` says.
    pub unsafe fn tostr(&self, data: *const c_void, datatype: fi_type) -> String {
        // SAFETY: the caller's word; the answer is a string that stays until the next call of this thread.
        unsafe { text((self.functions.tostr)(data, datatype)) }
    }
}

/// A copy of a C string.
///
/// # Safety
///
/// `text` is null or ends in a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// What the process does with each signal; dropped, it is so again. libinfinipath, which Debian's libfabric loads, takes
/// over SIGTERM and others in its constructor, ignored or not, and ends the process by `exit(1)` when one comes.
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
                // SAFETY: the process had this disposition when the library was not loaded, so nothing in it is the
                // library's.
                unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
            }
        }
    }
}

fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut found = MaybeUninit::uninit();
    // SAFETY: only asks; `found` is written where 0 is returned.
    unsafe {
        (libc::sigaction(signal, ptr::null(), found.as_mut_ptr()) == 0).then(|| found.assume_init())
    }
}

/// A loaded library, which is unloaded unless it is kept.
struct Handle<'a> {
    library: unix::Library,
    /// What `dlvsym` knows it by.
    raw: *mut c_void,
    path: &'a Path,
}

impl<'a> Handle<'a> {
    fn open(path: &'a Path) -> Result<Self, LoadError> {
        let _restored = Dispositions::of_now();
        // SAFETY: what the library's constructors do is its own affair, as with every library that is linked; nothing of it
        // is in use when it is unloaded.
        let opened = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let raw = opened
            .map_err(|error| LoadError::NotLoaded {
                library: path.display().to_string(),
                reason: match error {
                    Error::InteriorZeroElements => "its name has a zero byte".to_owned(),
                    error => error.source().unwrap_or(&error).to_string(),
                },
            })?
            .into_raw();
        // SAFETY: just opened, and closed by this alone.
        let library = unsafe { unix::Library::from_raw(raw) };
        Ok(Self { library, raw, path })
    }

    /// The functions, in the versions that a program gets which is linked with libfabric 1.15. Newer libraries keep those,
    /// and they take hints that are as short as 1.15 knew them. A library without versions of symbols has just one of each.
    fn functions(&self) -> Result<Functions, LoadError> {
        /// A function of the type that the place for it has.
        macro_rules! function {
            ($name:literal, $version:literal) => {{
                let symbol = self.symbol($name, $version)?;
                // SAFETY: this is the function of that name, and fabric.h declares it with the type that it gets here.
                #[allow(clippy::missing_transmute_annotations)]
                unsafe {
                    std::mem::transmute(symbol)
                }
            }};
        }
        // First of all, because an older library may lack the others.
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
        // SAFETY: `fi_version` has no arguments and needs no preparation.
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

    /// The function `name` in this version, or the library's only one. Never null.
    fn symbol(&self, name: &'static CStr, version: &CStr) -> Result<*mut c_void, LoadError> {
        let mut symbol = self.versioned(name, version);
        if symbol.is_null() {
            // SAFETY: only an address, which nothing is read from here.
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
        // SAFETY: an open library and two strings.
        unsafe { libc::dlvsym(self.raw, name.as_ptr(), version.as_ptr()) }
    }

    /// Other loaders know no versions of symbols.
    #[cfg(not(target_env = "gnu"))]
    fn versioned(&self, _name: &CStr, _version: &CStr) -> *mut c_void {
        ptr::null_mut()
    }
}

/// The file that a loaded function is in.
fn file_of(function: unsafe extern "C" fn() -> u32) -> Option<PathBuf> {
    // SAFETY: integers and pointers only.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let known = unsafe { libc::dladdr(function as *const c_void, &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which stays as long as the library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
