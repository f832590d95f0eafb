//! Backtraces. This library and the C library can write a backtrace of the calling thread, and a
//! debugger can write one of all threads. A client may provide a function of its own.
//!
//! `GASNET_BACKTRACE_TYPE` lists the mechanisms in the order in which they are tried. The default
//! lists all of them, with the client's first. If `GASNET_BACKTRACE_MT` is set, the mechanisms that
//! cover all threads come first.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;
use std::os::fd::{BorrowedFd, FromRawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

use crate::edge::text_or_null;
use crate::{environment, job, signal, system};

/// A way of writing a backtrace to a file descriptor.
struct Mechanism {
    /// The name in `GASNET_BACKTRACE_TYPE`.
    name: String,
    /// Whether the backtrace covers all threads.
    sees_all_threads: bool,
    /// Writes a backtrace, and returns whether it succeeded.
    write: Box<dyn Fn(c_int) -> bool>,
}

/// `gasnett_backtrace_type_t`: the client's mechanism.
#[repr(C)]
struct BacktraceType {
    name: *const c_char,
    function: Option<unsafe extern "C" fn(c_int) -> c_int>,
    sees_all_threads: c_int,
}

// `gasnett_backtrace_user` is a variable that only clients define. Stable Rust cannot refer to a
// symbol that may be missing. The assembler can: its weak reference is null if the symbol is
// missing.
#[cfg(target_pointer_width = "64")]
std::arch::global_asm!(
    ".weak gasnett_backtrace_user",
    ".section .data.rel.ro.conduit_tools_backtrace_user, \"aw\"",
    ".balign 8",
    ".globl conduit_tools_backtrace_user",
    ".hidden conduit_tools_backtrace_user",
    "conduit_tools_backtrace_user:",
    ".quad gasnett_backtrace_user",
    ".text",
);

unsafe extern "C" {
    static conduit_tools_backtrace_user: *const BacktraceType;
}

/// Returns the client's mechanism, if it has one.
fn client_mechanism() -> Option<Mechanism> {
    // SAFETY: `conduit_tools_backtrace_user` is never written to. The volatile read hides its value
    // from the compiler, which assumes that the address of a variable is never null.
    let client = unsafe { std::ptr::read_volatile(&raw const conduit_tools_backtrace_user) };
    // SAFETY: the pointer is null or refers to the client's variable, which has this type and lives
    // as long as the process.
    let client = unsafe { client.as_ref() }?;
    let function = client.function?;
    // SAFETY: `client.name` is null or a C string, because the client provides it as such.
    let name = unsafe { text_or_null(client.name) }
        .map_or("USER".into(), |name| name.to_string_lossy().into_owned());
    // SAFETY: the client provides the function to be called with a descriptor.
    let write = move |fd| unsafe { function(fd) == 0 };
    Some(Mechanism {
        name,
        sees_all_threads: client.sees_all_threads != 0,
        write: Box::new(write),
    })
}

/// Returns all mechanisms in their default order.
fn mechanisms(all_threads: bool) -> Vec<Mechanism> {
    let own = |name: &str, sees_all_threads, write: fn(c_int) -> bool| Mechanism {
        name: name.to_owned(),
        sees_all_threads,
        write: Box::new(write),
    };
    let mut list: Vec<_> = client_mechanism().into_iter().collect();
    list.push(own("INTERNAL", false, write_internal));
    list.push(own("EXECINFO", false, write_execinfo));
    list.push(own("GDB", true, write_gdb));
    if all_threads {
        list.sort_by_key(|mechanism| !mechanism.sees_all_threads);
    }
    list
}

/// Writes a backtrace with Rust's library. The backtrace names functions, files and lines if the
/// program contains that information.
fn write_internal(fd: c_int) -> bool {
    let backtrace = std::backtrace::Backtrace::force_capture();
    if backtrace.status() != std::backtrace::BacktraceStatus::Captured {
        return false;
    }
    write_all(fd, format!("{backtrace}\n").as_bytes())
}

/// Writes a backtrace with the C library. The backtrace consists of addresses and the names of
/// exported functions. Allocates no memory.
fn write_execinfo(fd: c_int) -> bool {
    let mut frames = [std::ptr::null_mut::<c_void>(); 128];
    // SAFETY: the array has room for the `frames.len()` frames that are requested, and its first
    // `count` entries are frames when they are written out.
    unsafe {
        let count = libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int);
        if count <= 0 {
            return false;
        }
        libc::backtrace_symbols_fd(frames.as_ptr(), count, fd);
    }
    true
}

/// Writes a backtrace with gdb, if gdb is installed and may attach to this process.
fn write_gdb(fd: c_int) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: the descriptor is not negative. It is only used to clone it, which fails if it is not
    // open.
    let Ok(output) = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned() else {
        return false;
    };
    let _open = OpenToChildren::begin();
    let status = Command::new("gdb")
        .args([
            "-nx",
            "-batch",
            "-ex",
            "thread apply all backtrace 50",
            "-p",
        ])
        .arg(std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// While this value lives, this process's children may trace the process. This is needed on systems
/// that allow only a process's ancestors to trace it.
///
/// A process has only one such exception, which cannot be queried. An exception that the client has
/// already made is therefore lost.
struct OpenToChildren;

impl OpenToChildren {
    fn begin() -> Self {
        // An exception for a process covers its children, whose ids are unknown before they run.
        except(std::process::id().into());
        OpenToChildren
    }
}

impl Drop for OpenToChildren {
    fn drop(&mut self) {
        except(0);
    }
}

/// Lets the given process and its children trace this process, in place of any earlier exception.
/// With 0, withdraws the exception. Fails harmlessly on systems without such rules.
fn except(process: libc::c_ulong) {
    // SAFETY: neither argument refers to memory.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, process) };
}

fn write_all(fd: c_int, text: &[u8]) -> bool {
    // SAFETY: the caller owns the descriptor. The `File` is never dropped, so the descriptor is not
    // closed.
    let mut file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    file.write_all(text).is_ok()
}

/// The right to write a backtrace. Only one thread has it at a time, because several may fail at
/// once. A thread that has the right cannot take it again, because writing a backtrace may itself
/// fail or be interrupted by a signal that requests a backtrace.
struct Printing;

/// The thread that writes a backtrace, or 0.
static PRINTING: AtomicI32 = AtomicI32::new(0);

impl Printing {
    fn begin() -> Option<Self> {
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        loop {
            match PRINTING.compare_exchange(0, this, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Printing),
                Err(other) if other == this => return None,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Printing {
    fn drop(&mut self) {
        PRINTING.store(0, Ordering::Release);
    }
}

/// Writes a backtrace with the first mechanism that succeeds. Returns whether one has succeeded.
pub(crate) fn print_now(fd: c_int) -> bool {
    let Some(_printing) = Printing::begin() else {
        return false;
    };
    let mechanisms = mechanisms(environment::yes_no(c"GASNET_BACKTRACE_MT", false));
    let names: Vec<&str> = mechanisms
        .iter()
        .map(|mechanism| mechanism.name.as_str())
        .collect();
    let wanted = environment::setting(c"GASNET_BACKTRACE_TYPE").unwrap_or_else(|| names.join(","));
    for name in wanted.split(',').map(str::trim) {
        let Some(mechanism) = mechanisms
            .iter()
            .find(|mechanism| mechanism.name.eq_ignore_ascii_case(name))
        else {
            let note = format!(
                "GASNET_BACKTRACE_TYPE: '{name}' is not available, only {}\n",
                names.join(", ")
            );
            let _ = std::io::stderr().write_all(note.as_bytes());
            continue;
        };
        if (mechanism.write)(fd) {
            return true;
        }
    }
    false
}

/// Returns whether the environment requests backtraces of errors on this rank.
pub(crate) fn is_enabled() -> bool {
    if !environment::yes_no(c"GASNET_BACKTRACE", false) {
        return false;
    }
    let nodes = environment::setting(c"GASNET_BACKTRACE_NODES").unwrap_or_default();
    job::place().is_none_or(|place| job::names_rank(&nodes, place.rank))
}

/// Calls the function that `gasnett_print_backtrace_ifenabled` points to.
pub(crate) fn print_if_enabled(fd: c_int) {
    let function = gasnett_print_backtrace_ifenabled.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: the pointer holds this module's function or the client's, and both have this type.
    let function =
        unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(c_int) -> c_int>(function) };
    // SAFETY: both functions accept any descriptor.
    unsafe { function(fd) };
}

// ---- The edge to C ----

extern "C" fn print_backtrace_if_enabled(fd: c_int) -> c_int {
    if is_enabled() {
        gasnett_print_backtrace(fd)
    } else {
        1
    }
}

/// A C function pointer that clients may set. It is atomic, because an error on any thread reads
/// it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static gasnett_print_backtrace_ifenabled: AtomicPtr<()> =
    AtomicPtr::new(print_backtrace_if_enabled as *mut ());

#[unsafe(no_mangle)]
extern "C" fn gasnett_print_backtrace(fd: c_int) -> c_int {
    c_int::from(!print_now(fd))
}

/// # Safety
/// `exename` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_backtrace_init(exename: *const c_char) {
    // SAFETY: the caller guarantees that `exename` is null or a C string.
    let name = unsafe { text_or_null(exename) }.filter(|name| !name.is_empty());
    system::set_executable(name.map(CString::from));
    let enabled = environment::yes_no(c"GASNET_BACKTRACE", false);
    environment::report_text(
        c"GASNET_BACKTRACE",
        if enabled { "YES" } else { "NO" },
        environment::getenv(c"GASNET_BACKTRACE").is_none(),
    );
    let names: Vec<String> = mechanisms(false)
        .into_iter()
        .map(|mechanism| mechanism.name)
        .collect();
    let wanted = environment::setting(c"GASNET_BACKTRACE_TYPE");
    environment::report_text(
        c"GASNET_BACKTRACE_TYPE",
        wanted.as_deref().unwrap_or(&names.join(",")),
        wanted.is_none(),
    );
    signal::watch_settings();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_client_there_are_three_mechanisms_and_the_order_depends_on_threads() {
        let names = |all_threads| {
            mechanisms(all_threads)
                .into_iter()
                .map(|m| m.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["INTERNAL", "EXECINFO", "GDB"]);
        assert_eq!(names(true), ["GDB", "INTERNAL", "EXECINFO"]);
    }

    #[test]
    fn no_backtrace_is_written_within_another_of_the_same_thread() {
        let outer = Printing::begin();
        assert!(outer.is_some());
        assert!(!print_now(libc::STDERR_FILENO));
        drop(outer);
        assert!(Printing::begin().is_some());
    }

    #[test]
    fn the_own_ones_write_this_function() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(write_internal(fd));
        assert!(write_execinfo(fd));
        use std::io::{Read, Seek};
        let mut text = String::new();
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .expect("what was written");
        assert!(text.contains("the_own_ones_write_this_function"), "{text}");
    }
}
