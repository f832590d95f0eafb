//! The functions of `libpmix.so.2` and their types.
//!
//! The layout of the types is the same in all releases from 3.2 to 7.0, on 64-bit Linux. Releases
//! promise compatibility only within a series, so this module uses only what has not changed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::ptr::{self, NonNull};

use libloading::os::unix::{self, Symbol};

use crate::pmi2::reason;

/// The library loaded by default: all releases since 3.2 have this name.
const SONAME: &str = "libpmix.so.2";
/// The rank that stands for all ranks of a namespace (`PMIX_RANK_WILDCARD`).
const WILDCARD: u32 = u32::MAX - 1;
/// The scope of data that all ranks can get (`PMIX_GLOBAL`).
const GLOBAL: u8 = 3;
/// The types of values that this module uses (`PMIX_BOOL`, `PMIX_UINT32`, `PMIX_BYTE_OBJECT`).
const BOOL: u16 = 1;
const UINT32: u16 = 14;
const BYTE_OBJECT: u16 = 27;
/// Tells a fence to collect the data that ranks have committed (`PMIX_COLLECT_DATA`).
const COLLECT_DATA: &[u8] = b"pmix.collect";
/// The number of ranks in a namespace (`PMIX_JOB_SIZE`).
const JOB_SIZE: &CStr = c"pmix.job.size";

/// `pmix_proc_t`: a rank of a namespace.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Process {
    namespace: [c_char; 256],
    rank: u32,
}

impl Process {
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns another rank of the same namespace.
    pub(super) fn peer(&self, rank: u32) -> Self {
        Self { rank, ..*self }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({})", self.rank)
    }
}

/// `pmix_byte_object_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ByteObject {
    bytes: *mut u8,
    size: usize,
}

#[derive(Clone, Copy)]
#[repr(C)]
union Data {
    flag: bool,
    uint32: u32,
    object: ByteObject,
    /// The size of the largest member in C.
    size: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [u8; 512],
    flags: u32,
    value: Value,
}

const _: () = assert!(size_of::<Process>() == 260);
const _: () = assert!(size_of::<Value>() == 32);
const _: () = assert!(size_of::<Info>() == 552);

type Init = unsafe extern "C" fn(*mut Process, *mut Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Process, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Process,
    *const c_char,
    *const Info,
    usize,
    *mut *mut Value,
) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The loaded library, which is never unloaded, because it has threads.
#[derive(Debug)]
pub(super) struct Library {
    init: Symbol<Init>,
    finalize: Symbol<Finalize>,
    abort: Symbol<Abort>,
    put: Symbol<Put>,
    commit: Symbol<Commit>,
    fence: Symbol<Fence>,
    get: Symbol<Get>,
    error_string: Symbol<ErrorString>,
}

/// The reason why PMIx is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client library cannot be loaded, or lacks a function.
    #[error("cannot load {library}: {reason} (setting CONDUIT_PMIX_LIBRARY)")]
    Library {
        /// The file or name that was looked up.
        library: String,
        /// The reason.
        reason: String,
    },
    /// A call of the library failed.
    #[error("{call}: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// The library's description of the failure.
        reason: String,
    },
}

/// A call that failed: the function, and the library's text about the status that it returned.
#[derive(Debug)]
pub(super) struct Status {
    call: &'static str,
    reason: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.reason)
    }
}

impl From<Status> for Error {
    fn from(Status { call, reason }: Status) -> Self {
        Error::Call { call, reason }
    }
}

impl Library {
    pub(super) fn load(path: Option<&Path>) -> Result<Self, Error> {
        let path = path.unwrap_or(Path::new(SONAME));
        let refused = |error: libloading::Error| Error::Library {
            library: path.display().to_string(),
            reason: reason(&error),
        };
        // SAFETY: the initialisers of libpmix need nothing that this process has to prepare. If the
        // user names another library, its initialisers are the user's responsibility.
        let library =
            unsafe { unix::Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        let library = library.map_err(refused)?;
        // SAFETY: the types are those that PMIx's standard gives these functions.
        let functions = unsafe {
            Self {
                init: library.get(b"PMIx_Init\0").map_err(refused)?,
                finalize: library.get(b"PMIx_Finalize\0").map_err(refused)?,
                abort: library.get(b"PMIx_Abort\0").map_err(refused)?,
                put: library.get(b"PMIx_Put\0").map_err(refused)?,
                commit: library.get(b"PMIx_Commit\0").map_err(refused)?,
                fence: library.get(b"PMIx_Fence\0").map_err(refused)?,
                get: library.get(b"PMIx_Get\0").map_err(refused)?,
                error_string: library.get(b"PMIx_Error_string\0").map_err(refused)?,
            }
        };
        std::mem::forget(library);
        Ok(functions)
    }

    /// Connects to the server and returns this process.
    pub(super) fn init(&self) -> Result<Process, Status> {
        let mut process = Process {
            namespace: [0; 256],
            rank: 0,
        };
        // SAFETY: `process` is valid for writes, and there are no infos.
        let status = unsafe { (self.init)(&raw mut process, ptr::null_mut(), 0) };
        self.check("PMIx_Init", status)?;
        Ok(process)
    }

    /// Returns the number of ranks of a process's namespace.
    pub(super) fn job_size(&self, process: &Process) -> Result<u32, Status> {
        let value = self.value(&process.peer(WILDCARD), JOB_SIZE)?;
        // SAFETY: the type of the value says which member of the union is set.
        match unsafe { (value.kind, value.data.uint32) } {
            (UINT32, size) => Ok(size),
            (kind, _) => Err(wrong_type(kind)),
        }
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Result<(), Status> {
        let key = c_string("PMIx_Put", key)?;
        let object = ByteObject {
            bytes: bytes.as_ptr().cast_mut(),
            size: bytes.len(),
        };
        let mut value = Value {
            kind: BYTE_OBJECT,
            data: Data { object },
        };
        // SAFETY: the key is a C string; the value points to `bytes`, which the library copies.
        let status = unsafe { (self.put)(GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)
    }

    pub(super) fn commit(&self) -> Result<(), Status> {
        // SAFETY: the library has been initialised.
        self.check("PMIx_Commit", unsafe { (self.commit)() })
    }

    /// Waits for all ranks of a process's namespace, and collects their data.
    pub(super) fn fence(&self, process: &Process) -> Result<(), Status> {
        let all = process.peer(WILDCARD);
        let mut collect = Info {
            key: [0; 512],
            flags: 0,
            value: Value {
                kind: BOOL,
                data: Data { size: [0; 3] },
            },
        };
        collect.key[..COLLECT_DATA.len()].copy_from_slice(COLLECT_DATA);
        collect.value.data.flag = true;
        // SAFETY: both pointers are valid for one element each.
        let status = unsafe { (self.fence)(&raw const all, 1, &raw const collect, 1) };
        self.check("PMIx_Fence", status)
    }

    pub(super) fn get(&self, process: &Process, key: &str) -> Result<Vec<u8>, Status> {
        let key = c_string("PMIx_Get", key)?;
        let value = self.value(process, &key)?;
        // SAFETY: the type of the value says which member of the union is set; a byte object of a
        // value that the library has returned points to `size` bytes.
        unsafe {
            if value.kind != BYTE_OBJECT {
                return Err(wrong_type(value.kind));
            }
            let ByteObject { bytes, size } = value.data.object;
            Ok(match bytes.is_null() {
                true => Vec::new(),
                false => std::slice::from_raw_parts(bytes, size).to_vec(),
            })
        }
    }

    pub(super) fn finalize(&self) -> Result<(), Status> {
        // SAFETY: the library has been initialised, and there are no infos.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }

    pub(super) fn abort(&self, code: i32, reason: &str) -> Result<(), Status> {
        let reason = c_string("PMIx_Abort", reason)?;
        // SAFETY: the library has been initialised. No processes are named, which stands for all.
        let status = unsafe { (self.abort)(code, reason.as_ptr(), ptr::null_mut(), 0) };
        self.check("PMIx_Abort", status)
    }

    fn value(&self, process: &Process, key: &CStr) -> Result<Owned, Status> {
        let mut value = ptr::null_mut();
        // SAFETY: `process` and `key` are valid; there are no infos; `value` is valid for writes.
        let status = unsafe {
            (self.get)(
                ptr::from_ref(process),
                key.as_ptr(),
                ptr::null(),
                0,
                &raw mut value,
            )
        };
        self.check("PMIx_Get", status)?;
        NonNull::new(value).map(Owned).ok_or_else(|| Status {
            call: "PMIx_Get",
            reason: "no value".to_owned(),
        })
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), Status> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function accepts every status.
        let text = unsafe { (self.error_string)(status) };
        let text = match text.is_null() {
            true => "unknown".into(),
            // SAFETY: the library returns a constant C string.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
        };
        let reason = format!("{text} ({status})");
        Err(Status { call, reason })
    }
}

/// A value that the library has allocated.
struct Owned(NonNull<Value>);

impl Deref for Owned {
    type Target = Value;

    fn deref(&self) -> &Value {
        // SAFETY: the library has allocated the value for this `Owned` alone, and it is freed only
        // when the `Owned` is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the library has allocated the value, and the bytes of a byte object, by `malloc`
        // and left both to the caller. The other types that this module gets own no memory.
        unsafe {
            if self.0.as_ref().kind == BYTE_OBJECT {
                libc::free(self.0.as_ref().data.object.bytes.cast::<c_void>());
            }
            libc::free(self.0.as_ptr().cast::<c_void>());
        }
    }
}

fn c_string(call: &'static str, text: &str) -> Result<CString, Status> {
    CString::new(text).map_err(|_| Status {
        call,
        reason: format!("{text:?} contains a zero byte"),
    })
}

fn wrong_type(kind: u16) -> Status {
    Status {
        call: "PMIx_Get",
        reason: format!("the value has the unexpected type {kind}"),
    }
}
