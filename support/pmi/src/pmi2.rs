//! PMI-2 through the client library `libpmi2.so.0`, which is loaded at run time. Cray's PALS, whose
//! own protocol is not published, and Slurm provide such a library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;

use libloading::os::unix::{Library, Symbol};

use crate::bootstrap::{Bootstrap, BootstrapError};
use crate::values;

/// The library loaded by default.
const SONAME: &str = "libpmi2.so.0";
/// The maximum length of a value, with its terminating zero (`PMI2_MAX_VALLEN`).
const MAX_VALUE: usize = 1024;
/// The maximum length of the values that this module puts. Some launchers cut values that are
/// shorter than `MAX_VALUE`.
const LONGEST: usize = 900;
/// The maximum length of a job's name, with its terminating zero.
const MAX_JOB: usize = 256;
/// The rank that stands for an unknown owner of a key (`PMI2_ID_NULL`).
const UNKNOWN: c_int = -1;

type Init = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char) -> c_int;
type JobGetId = unsafe extern "C" fn(*mut c_char, c_int) -> c_int;
type KvsPut = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
type KvsFence = unsafe extern "C" fn() -> c_int;
type KvsGet = unsafe extern "C" fn(
    *const c_char,
    c_int,
    *const c_char,
    *mut c_char,
    c_int,
    *mut c_int,
) -> c_int;

/// A connection to a PMI-2 server.
#[derive(Debug)]
pub struct Connection {
    functions: Functions,
    job: CString,
    rank: u32,
    size: u32,
    fences: u64,
}

/// The functions of the library, which is never unloaded.
#[derive(Debug)]
struct Functions {
    init: Symbol<Init>,
    finalize: Symbol<Finalize>,
    abort: Symbol<Abort>,
    job_get_id: Symbol<JobGetId>,
    kvs_put: Symbol<KvsPut>,
    kvs_fence: Symbol<KvsFence>,
    kvs_get: Symbol<KvsGet>,
}

/// The reason why PMI-2 is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client library cannot be loaded, or lacks a function.
    #[error("cannot load {library}: {reason} (setting CONDUIT_PMI2_LIBRARY)")]
    Library {
        /// The file or name that was looked up.
        library: String,
        /// The reason.
        reason: String,
    },
    /// A call of the library failed.
    #[error("{call} returned {code}")]
    Call {
        /// The function.
        call: &'static str,
        /// The code that it returned.
        code: i32,
    },
    /// The library states a rank that is not below the job's size.
    #[error("PMI2_Init returned rank {rank} of {size}")]
    Rank {
        /// The rank.
        rank: i32,
        /// The size.
        size: i32,
    },
}

impl Functions {
    fn load(path: Option<&Path>) -> Result<Self, Error> {
        let path = path.unwrap_or(Path::new(SONAME));
        let refused = |error: libloading::Error| Error::Library {
            library: path.display().to_string(),
            reason: reason(&error),
        };
        // SAFETY: the initialisers of libpmi2 need nothing that this process has to prepare. If the
        // user names another library, its initialisers are the user's responsibility.
        let library = unsafe { Library::new(path) }.map_err(refused)?;
        // SAFETY: the types are those that the headers of PMI-2 give these functions.
        let functions = unsafe {
            Self {
                init: library.get(b"PMI2_Init\0").map_err(refused)?,
                finalize: library.get(b"PMI2_Finalize\0").map_err(refused)?,
                abort: library.get(b"PMI2_Abort\0").map_err(refused)?,
                job_get_id: library.get(b"PMI2_Job_GetId\0").map_err(refused)?,
                kvs_put: library.get(b"PMI2_KVS_Put\0").map_err(refused)?,
                kvs_fence: library.get(b"PMI2_KVS_Fence\0").map_err(refused)?,
                kvs_get: library.get(b"PMI2_KVS_Get\0").map_err(refused)?,
            }
        };
        std::mem::forget(library);
        Ok(functions)
    }
}

/// Returns what the system's loader said, which the error itself does not.
pub(crate) fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn check(call: &'static str, code: c_int) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        code => Err(Error::Call { call, code }),
    }
}

impl Connection {
    /// Connects to the launcher. `library` is a file, or a name that the system's loader looks up;
    /// by default `libpmi2.so.0`.
    ///
    /// # Errors
    /// The library cannot be loaded, or finds no launcher.
    pub fn from_env(library: Option<&Path>) -> Result<Self, Error> {
        let functions = Functions::load(library)?;
        let (mut spawned, mut size, mut rank, mut number) = (0, 0, 0, 0);
        // SAFETY: the four pointers are valid for writes.
        let code = unsafe {
            (functions.init)(
                &raw mut spawned,
                &raw mut size,
                &raw mut rank,
                &raw mut number,
            )
        };
        check("PMI2_Init", code)?;
        if !(0..size).contains(&rank) {
            return Err(Error::Rank { rank, size });
        }
        let mut job = [0u8; MAX_JOB];
        // SAFETY: the buffer has the length that is passed.
        let code = unsafe { (functions.job_get_id)(job.as_mut_ptr().cast(), MAX_JOB as c_int) };
        check("PMI2_Job_GetId", code)?;
        let job = CStr::from_bytes_until_nul(&job)
            .unwrap_or_default()
            .to_owned();
        Ok(Self {
            functions,
            job,
            rank: rank.cast_unsigned(),
            size: size.cast_unsigned(),
            fences: 0,
        })
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Error) -> BootstrapError {
        let rank = self.rank;
        move |error| BootstrapError {
            rank,
            operation,
            reason: error.to_string(),
        }
    }
}

/// Returns a C string. Keys and values contain no zero bytes.
fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

impl Bootstrap for Connection {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        values::put(self.rank, key, bytes, LONGEST, |key, value| {
            let (key, value) = (c_string(key), c_string(value));
            // SAFETY: both are C strings, which the library only reads.
            let code = unsafe { (self.functions.kvs_put)(key.as_ptr(), value.as_ptr()) };
            check("PMI2_KVS_Put", code)
        })
    }

    fn get(&mut self, peer: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        values::get(self.rank, peer, key, |key| {
            let key = c_string(key);
            let (mut value, mut length) = ([0u8; MAX_VALUE], 0);
            // SAFETY: the texts are C strings, the buffer has the length that is passed, and
            // `length` is valid for writes.
            let code = unsafe {
                (self.functions.kvs_get)(
                    self.job.as_ptr(),
                    UNKNOWN,
                    key.as_ptr(),
                    value.as_mut_ptr().cast(),
                    MAX_VALUE as c_int,
                    &raw mut length,
                )
            };
            check("PMI2_KVS_Get", code)?;
            let value = CStr::from_bytes_until_nul(&value).unwrap_or_default();
            Ok::<_, Error>(value.to_string_lossy().into_owned())
        })
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        // SAFETY: the library has been initialised.
        let code = unsafe { (self.functions.kvs_fence)() };
        check("PMI2_KVS_Fence", code).map_err(self.failed("fence"))?;
        self.fences += 1;
        Ok(())
    }

    fn fences(&self) -> u64 {
        self.fences
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        // SAFETY: the library has been initialised.
        let code = unsafe { (self.functions.finalize)() };
        check("PMI2_Finalize", code).map_err(self.failed("finalize"))
    }

    fn abort(&mut self, _code: i32, reason: &str) {
        let reason = c_string(&reason.replace('\0', " "));
        // SAFETY: the text is a C string. The flag asks for the end of the whole job.
        let _ = unsafe { (self.functions.abort)(1, reason.as_ptr()) };
    }
}
