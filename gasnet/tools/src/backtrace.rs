//! Backtraces: of the calling thread by this library or by the C library, of all threads by a debugger, or by a function of
//! the client.
//!
//! `GASNET_BACKTRACE_TYPE` lists the mechanisms in the order in which they are tried; the default has all of them, the
//! client's first, and with `GASNET_BACKTRACE_MT` those that see all threads before the others.

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
    name: String,
    sees_all_threads: bool,
    /// Whether it has worked.
    write: Box<dyn Fn(c_int) -> bool>,
}

/// `gasnett_backtrace_type_t`.
#[repr(C)]
struct BacktraceType {
    name: *const c_char,
    function: Option<unsafe extern "C" fn(c_int) -> c_int>,
    sees_all_threads: c_int,
}

// `gasnett_backtrace_user` is a variable that only clients define. Rust has no stable way to refer to a symbol that may be
// missing, the assembler has: a weak reference is null then.
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

/// The client's mechanism, if it has one.
fn client_mechanism() -> Option<Mechanism> {
    // SAFETY: the word above is never written to. It is read in a way that the compiler can't foresee, since to it the
    // address of a variable is never null.
    let client = unsafe { std::ptr::read_volatile(&raw const conduit_tools_backtrace_user) };
    // SAFETY: null, or the client's variable, which has this type and lives as long as the process.
    let client = unsafe { client.as_ref() }?;
    let function = client.function?;
    // SAFETY: the client's text or null.
    let name = unsafe { text_or_null(client.name) }
        .map_or("USER".into(), |name| name.to_string_lossy().into_owned());
    // SAFETY: the client gave it for this.
    let write = move |fd| unsafe { function(fd) == 0 };
    Some(Mechanism {
        name,
        sees_all_threads: client.sees_all_threads != 0,
        write: Box::new(write),
    })
}

/// All mechanisms in their default order.
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

/// By Rust's library: functions, files and lines, as far as the program has them.
fn write_internal(fd: c_int) -> bool {
    let backtrace = std::backtrace::Backtrace::force_capture();
    if backtrace.status() != std::backtrace::BacktraceStatus::Captured {
        return false;
    }
    write_all(fd, format!("{backtrace}\n").as_bytes())
}

/// By the C library: addresses and the names of exported functions, without any memory allocated.
fn write_execinfo(fd: c_int) -> bool {
    let mut frames = [std::ptr::null_mut::<c_void>(); 128];
    // SAFETY: the array has room for as many frames as are asked for, and that many are written out.
    unsafe {
        let count = libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int);
        if count <= 0 {
            return false;
        }
        libc::backtrace_symbols_fd(frames.as_ptr(), count, fd);
    }
    true
}

/// By gdb, if it is installed and may look into this process.
fn write_gdb(fd: c_int) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: just a number; one that is not open has no copy.
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

/// Where the system lets only parents look into a process, this one's children may look into it as long as this lives.
///
/// There is one such exception for a process, and it can't be asked for: one that the client has made before is gone afterwards.
struct OpenToChildren;

impl OpenToChildren {
    fn begin() -> Self {
        // An exception for a process holds for its children, whose numbers are not known before they run.
        except(std::process::id().into());
        OpenToChildren
    }
}

impl Drop for OpenToChildren {
    fn drop(&mut self) {
        except(0);
    }
}

/// Lets a process and its children look into this one, instead of who might before; 0: nobody. Where the system has no such rules
/// that is an error of no matter.
fn except(process: libc::c_ulong) {
    // SAFETY: these arguments have no memory.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, process) };
}

fn write_all(fd: c_int, text: &[u8]) -> bool {
    // SAFETY: the descriptor is the caller's; it is not closed, since the file is never dropped.
    let mut file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    file.write_all(text).is_ok()
}

/// The right to write a backtrace: one thread at a time, since several may fail at once, and none within its own, since what
/// writes one may fail itself or be interrupted by a signal that asks for one.
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

/// Writes a backtrace by the first mechanism that can.
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
                "GASNET_BACKTRACE_TYPE: there is no '{name}' here, only {}\n",
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

/// Whether the environment asks for backtraces of errors on this rank.
pub(crate) fn is_enabled() -> bool {
    if !environment::yes_no(c"GASNET_BACKTRACE", false) {
        return false;
    }
    let nodes = environment::setting(c"GASNET_BACKTRACE_NODES").unwrap_or_default();
    job::place().is_none_or(|place| job::names_rank(&nodes, place.rank))
}

/// Calls what `gasnett_print_backtrace_ifenabled` points to.
pub(crate) fn print_if_enabled(fd: c_int) {
    let function = gasnett_print_backtrace_ifenabled.load(Ordering::Relaxed);
    if function.is_null() {
        return;
    }
    // SAFETY: it holds this module's function or one that the client has set, both of this type.
    let function =
        unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(c_int) -> c_int>(function) };
    // SAFETY: it is there to be called with a descriptor.
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

/// A function pointer of C that clients may set; atomic, since errors of any thread read it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static gasnett_print_backtrace_ifenabled: AtomicPtr<()> =
    AtomicPtr::new(print_backtrace_if_enabled as *mut ());

#[unsafe(no_mangle)]
extern "C" fn gasnett_print_backtrace(fd: c_int) -> c_int {
    c_int::from(!print_now(fd))
}

/// # Safety
/// `exename` is null or text.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_backtrace_init(exename: *const c_char) {
    // SAFETY: the caller's promise.
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
