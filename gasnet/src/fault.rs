//! Errors. A call returns an error code where GASNet defines one; any other error ends the job.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use conduit::NetworkError;
use conduit_core::kernel::Error as EngineError;
use conduit_core::stderr::write_line;

use crate::abi::{self, Flags};
use crate::job::{Job, rank_if_known};
use crate::legacy;

/// Whether errors with a code are printed: see `gex_System_SetVerboseErrors`.
static VERBOSE: AtomicBool = AtomicBool::new(true);

/// The exit code of a job that ends with a fatal error.
const FATAL: c_int = 1;

/// The refusal of a call: the reason, and the error code that the call returns.
pub(crate) struct Refusal {
    pub(crate) code: c_int,
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn bad(reason: impl Display) -> Self {
        Self {
            code: abi::BAD_ARG,
            reason: reason.to_string(),
        }
    }

    pub(crate) fn of(code: c_int, reason: impl Display) -> Self {
        Self {
            code,
            reason: reason.to_string(),
        }
    }
}

impl From<conduit::Error> for Refusal {
    fn from(error: conduit::Error) -> Self {
        match error {
            conduit::Error::Engine { error, .. } => error.into(),
            conduit::Error::BarrierMismatch { .. } => Self::of(abi::BARRIER_MISMATCH, error),
            conduit::Error::Network {
                error: NetworkError::NoNetwork { .. } | NetworkError::Ofi(_),
                ..
            } => Self::bad(error),
            conduit::Error::Start { .. } | conduit::Error::Network { .. } => {
                Self::of(abi::RESOURCE, error)
            }
            other => Self::bad(other),
        }
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        if let EngineError::Exited { .. } = error {
            crate::exit::ignore_launcher();
        }
        if let Some(job) = Job::get()
            && let Some(code) = job.member.ended_by(&error)
        {
            crate::exit::leave(code);
        }
        let code = match error {
            EngineError::NotAttached { .. }
            | EngineError::AlreadyAttached { .. }
            | EngineError::Forked { .. } => abi::NOT_INIT,
            EngineError::Exhausted { .. } => abi::RESOURCE,
            // These errors end the job, whichever call reports them.
            EngineError::BadMessage { .. }
            | EngineError::HandlerPanicked { .. }
            | EngineError::Panicked { .. }
            | EngineError::WaitRefused { .. }
            | EngineError::Protocol { .. }
            | EngineError::CatchBasin { .. }
            | EngineError::PeerFailed { .. }
            | EngineError::Network(_)
            | EngineError::Bootstrap(_) => fatal("the job", &error),
            _ => abi::BAD_ARG,
        };
        match error {
            // Report addresses, because the client does not know offsets.
            EngineError::OutOfSegment {
                rank,
                offset,
                length,
                segment,
                ..
            } => {
                let base = base_of(rank);
                let address = base.wrapping_add(offset as u64);
                Self::of(
                    code,
                    format_args!(
                        "{length} bytes at {address:#x} do not lie in the segment of rank {rank} ({segment} bytes at {base:#x})"
                    ),
                )
            }
            EngineError::Misaligned {
                rank, offset, size, ..
            } => {
                let address = base_of(rank).wrapping_add(offset as u64);
                Self::of(
                    code,
                    format_args!("{address:#x} on rank {rank} is not a multiple of {size}"),
                )
            }
            error => Self::of(code, error),
        }
    }
}

/// Returns the address of a rank's segment, or 0 if it has none.
fn base_of(rank: conduit::Rank) -> u64 {
    let segment = Job::get().and_then(|job| job.engine().memory().segment_of(rank).ok());
    segment.map_or(0, |segment| segment.address)
}

/// Prints one message and ends the job.
#[cold]
pub(crate) fn fatal(call: &str, reason: &dyn Display) -> ! {
    complain("FATAL ERROR: ", call, reason);
    crate::tools::look_at_error();
    crate::exit::end_job(FATAL)
}

fn complain(kind: &str, call: &str, reason: &dyn Display) {
    let call = legacy::called_as(call).unwrap_or(call);
    match rank_if_known() {
        Some(rank) => write_line(format_args!("*** {kind}{call} on rank {rank}: {reason}")),
        None => write_line(format_args!("*** {kind}{call}: {reason}")),
    }
}

/// Returns the value of a result, or ends the job if it is an error.
#[inline]
pub(crate) fn sure<T, E: Into<Refusal>>(call: &str, result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fatal(call, &error.into().reason),
    }
}

/// Prints the refusal to standard error, unless printing is switched off, and returns its error
/// code. A refusal with the code `NOT_READY` is never printed.
#[cold]
pub(crate) fn refuse(call: &str, refusal: &Refusal) -> c_int {
    if VERBOSE.load(Relaxed) && refusal.code != abi::NOT_READY {
        complain("", call, &refusal.reason);
    }
    refusal.code
}

/// Translates a result to `GASNET_OK` or the refusal's code.
#[inline]
pub(crate) fn code<E: Into<Refusal>>(call: &str, result: Result<(), E>) -> c_int {
    match result {
        Ok(()) => abi::OK,
        Err(error) => refuse(call, &error.into()),
    }
}

/// Returns the result of a call that starts an operation: 0 if the operation was started,
/// [`abi::NO_OP`] if it was not. Errors are fatal, except in GASNet-1 calls, which return an error
/// code.
#[inline]
pub(crate) fn started<E: Into<Refusal>>(
    call: &str,
    flags: Flags,
    result: Result<bool, E>,
) -> c_int {
    match result {
        Ok(true) => abi::OK,
        Ok(false) => abi::NO_OP,
        Err(error) => {
            let refusal = error.into();
            if flags.contains(Flags::RETURN_ERRORS) {
                // Use GASNet-1's name for the call.
                refuse(&call.replacen("gex_AM_", "gasnet_AM", 1), &refusal)
            } else {
                fatal(call, &refusal.reason)
            }
        }
    }
}

/// Returns whether errors with a code are printed to standard error.
#[unsafe(no_mangle)]
extern "C" fn gex_System_GetVerboseErrors() -> c_int {
    VERBOSE.load(Relaxed).into()
}

/// Sets whether errors with a code are printed to standard error.
#[unsafe(no_mangle)]
extern "C" fn gex_System_SetVerboseErrors(enable: c_int) {
    VERBOSE.store(enable != 0, Relaxed);
}

fn text(code: c_int) -> (&'static CStr, &'static CStr) {
    match code {
        abi::OK => (c"GASNET_OK", c"no error"),
        abi::NOT_INIT => (
            c"GASNET_ERR_NOT_INIT",
            c"the call requires a joined job, and possibly an attached segment",
        ),
        abi::RESOURCE => (
            c"GASNET_ERR_RESOURCE",
            c"a resource is exhausted or missing",
        ),
        abi::BAD_ARG => (c"GASNET_ERR_BAD_ARG", c"an argument is not valid"),
        abi::NOT_READY => (c"GASNET_ERR_NOT_READY", c"not finished yet"),
        abi::BARRIER_MISMATCH => (c"GASNET_ERR_BARRIER_MISMATCH", c"barrier ids do not match"),
        _ => (c"*unknown*", c"not a GASNet error code"),
    }
}

/// Returns the name of an error code.
#[unsafe(no_mangle)]
extern "C" fn gasnet_ErrorName(code: c_int) -> *const c_char {
    text(code).0.as_ptr()
}

/// Returns the meaning of an error code.
#[unsafe(no_mangle)]
extern "C" fn gasnet_ErrorDesc(code: c_int) -> *const c_char {
    text(code).1.as_ptr()
}
