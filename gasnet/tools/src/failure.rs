//! Errors that end the process, and waiting for a debugger.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use crate::edge::text_or_null;
use crate::{backtrace, environment, job, signal, streams, system};

/// Ends the process with an error: prints the message with this process's rank, then pauses for a
/// debugger and prints a backtrace if the environment requests them, then aborts.
pub fn fatal(message: &str) -> ! {
    fatal_at(None, message)
}

/// A location in a source file.
struct Location<'a> {
    function: &'a str,
    file: &'a str,
    line: c_int,
}

fn fatal_at(location: Option<Location<'_>>, message: &str) -> ! {
    let mut line = String::from("*** FATAL ERROR");
    if let Some(place) = job::place() {
        let _ = write!(line, " (rank {} of {})", place.rank, place.ranks);
    }
    if let Some(Location {
        function,
        file,
        line: number,
    }) = location
    {
        let _ = write!(line, ": in {function}() at {file}:{number}");
    }
    let _ = writeln!(line, ": {}", message.trim_end_matches('\n'));
    // Write once, so that the lines of several ranks are not mixed, and write first, because the
    // following steps may hang.
    let _ = std::io::stderr().write_all(line.as_bytes());
    end()
}

/// Ends a process whose error has been printed.
fn end() -> ! {
    /// The thread that ends the process, or 0 if there is none yet.
    static ENDING: AtomicI32 = AtomicI32::new(0);
    let this = rustix::thread::gettid().as_raw_nonzero().get();
    match ENDING.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            look_at_error();
            streams::flush();
            job::before_abort();
        }
        // An error that occurs while the process ends, for example in a setting, must not start
        // these steps again.
        Err(first) if first == this => {}
        // Another thread's error came first. Leave that thread time for the debugger and the
        // backtrace.
        Err(_) => loop {
            std::thread::park();
        },
    }
    std::process::abort()
}

/// Whether an error of this process is being examined or has been examined.
static LOOKED_AT: AtomicBool = AtomicBool::new(false);

/// Performs the steps that follow the message of every fatal error, if the environment requests
/// them: waits for a debugger and writes a backtrace. Code that ends the process without [`fatal`]
/// calls this function.
pub fn look_at_error() {
    LOOKED_AT.store(true, Ordering::Relaxed);
    freeze_on_error();
    backtrace::print_if_enabled(libc::STDERR_FILENO);
}

/// Returns whether the environment requests any step of [`look_at_error`].
pub fn looks_at_errors() -> bool {
    environment::yes_no(c"GASNET_FREEZE_ON_ERROR", false) || backtrace::is_enabled()
}

/// Calls [`look_at_error`] in a handler of a fault's signal, such as SIGSEGV or SIGABRT, unless the
/// signal results from an error that has already been examined.
///
/// This function allocates memory and takes locks, which is not safe in a signal handler, so it may
/// hang. Call it only if [`looks_at_errors`] has returned `true`.
pub fn look_at_fault() {
    if !LOOKED_AT.swap(true, Ordering::Relaxed) {
        look_at_error();
    }
}

/// Performs the debugging steps that the environment requests for the start of a job: installs the
/// handlers of the signals that request a backtrace or a pause, and waits for a debugger.
pub fn prepare_debugging() {
    signal::watch_settings();
    if environment::yes_no(c"GASNET_FREEZE", false) {
        freeze_now();
    }
}

/// The variable that a debugger sets to 0 if the caller provides no variable of its own.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static conduit_tools_frozen: AtomicI32 = AtomicI32::new(0);

fn freeze_on_error() {
    if environment::yes_no(c"GASNET_FREEZE_ON_ERROR", false) {
        freeze(&conduit_tools_frozen, "conduit_tools_frozen");
    }
}

/// Waits for a debugger, even if the environment does not request it.
pub(crate) fn freeze_now() {
    freeze(&conduit_tools_frozen, "conduit_tools_frozen");
}

/// Waits until a debugger sets `flag` to 0.
fn freeze(flag: &AtomicI32, name: &str) {
    flag.store(1, Ordering::SeqCst);
    let rank = job::place()
        .map(|place| format!(" (rank {})", place.rank))
        .unwrap_or_default();
    let message = format!(
        "*** Frozen for a debugger{rank}: host {}, pid {}, program {}. Attach, set the variable {name} to 0 (it is an int \
         at {:p}), and continue.\n",
        system::hostname().to_string_lossy(),
        std::process::id(),
        system::executable().to_string_lossy(),
        flag.as_ptr(),
    );
    let _ = std::io::stderr().write_all(message.as_bytes());
    while flag.load(Ordering::SeqCst) != 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

// ---- The edge to C ----

/// # Safety
/// The pointers must be null or C strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_fatal(
    function: *const c_char,
    file: *const c_char,
    line: c_int,
    message: *const c_char,
) -> ! {
    // SAFETY: the caller guarantees that the pointers are null or C strings.
    let (function, file, message) = unsafe {
        (
            text_or_null(function),
            text_or_null(file),
            text_or_null(message),
        )
    };
    let (function, file) = (
        function.map(CStr::to_string_lossy),
        file.map(CStr::to_string_lossy),
    );
    let location = match (&function, &file) {
        (Some(function), Some(file)) => Some(Location {
            function,
            file,
            line,
        }),
        _ => None,
    };
    fatal_at(
        location,
        &message.map_or("(no message)".into(), CStr::to_string_lossy),
    )
}

/// # Safety
/// The pointers must be null or C strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_location(
    function: *const c_char,
    file: *const c_char,
    line: c_int,
) -> *mut c_char {
    // SAFETY: the caller guarantees that the pointers are null or C strings.
    let (function, file) = unsafe { (text_or_null(function), text_or_null(file)) };
    let name = |text: Option<&CStr>| {
        text.map_or_else(
            || "?".to_owned(),
            |text| text.to_string_lossy().into_owned(),
        )
    };
    let text = format!("{}() at {}:{line}", name(function), name(file));
    // SAFETY: `malloc` accepts any size, and the result is checked.
    let buffer = unsafe { libc::malloc(text.len() + 1) }.cast::<c_char>();
    if buffer.is_null() {
        fatal("cannot allocate the text of a source location");
    }
    // SAFETY: `buffer` was allocated with `text.len() + 1` bytes.
    unsafe { crate::edge::write_text(buffer, text.len() + 1, text.as_bytes()) };
    buffer
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_killmyprocess(exitcode: c_int) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(exitcode) }
}

/// # Safety
/// `flag` must be null or point to an int that lives as long as the process is frozen.
/// `flagsymname` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_freezeForDebuggerNow(flag: *mut c_int, flagsymname: *const c_char) {
    // SAFETY: the caller guarantees that `flagsymname` is null or a C string.
    let name = unsafe { text_or_null(flagsymname) }.map_or("flag".into(), CStr::to_string_lossy);
    if flag.is_null() {
        return freeze_now();
    }
    // SAFETY: the caller guarantees that the integer lives as long as the process is frozen. An
    // atomic integer has the layout of a plain one.
    freeze(unsafe { AtomicI32::from_ptr(flag) }, &name);
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_freezeForDebuggerErr() {
    freeze_on_error();
}
