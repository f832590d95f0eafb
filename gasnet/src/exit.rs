//! The end of a job.
//!
//! A job ends for all ranks when one of them calls `gasnet_exit`, returns from `main`, or calls
//! `exit`. That rank notifies the others. If its exit code is 0, the others have a second
//! (`CONDUIT_EXIT_GRACE`) to end by themselves. Then each remaining rank raises `SIGQUIT` if its
//! client catches that signal, and ends. The job's exit code is that of the rank that ended the
//! job, even if the handler of another rank passes a different code to `gasnet_exit`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use crate::job::Job;
use crate::output::Flush;
use crate::signals;

/// The thread that ends this process. 0 while no thread has begun to end it.
static ENDING: AtomicU64 = AtomicU64::new(0);
/// The process's exit code.
static CODE: AtomicI32 = AtomicI32::new(0);
/// Whether another rank has ended the job. That rank reports the exit code to the launcher.
static TOLD: AtomicBool = AtomicBool::new(false);

/// The longest time that other threads wait for the thread that ends the process. It only has to
/// exceed that thread's own waits, which are bounded.
const LONGEST_END: Duration = Duration::from_secs(600);

/// Returns a nonzero number that identifies the calling thread.
fn thread() -> u64 {
    // SAFETY: `pthread_self` has no precondition. On Linux its value is an address, so it is
    // nonzero and unique among the threads.
    unsafe { libc::pthread_self() }
}

/// Makes this thread the one that ends the process. Returns `false` if a thread has already begun
/// to end it.
fn first(code: c_int) -> bool {
    let begun = ENDING
        .compare_exchange(0, thread(), AcqRel, Acquire)
        .is_ok();
    if begun {
        CODE.store(code, Release);
        ignore_launcher();
    }
    begun
}

/// Ignores `SIGTERM`. A launcher that learns of the end from another rank would otherwise cut off
/// the output of this rank. The launcher has other means to end ranks that do not react.
pub(crate) fn ignore_launcher() {
    // SAFETY: `SIGTERM` is a valid signal that may be ignored.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Writes this process's output and ends the process at once. Does not run `atexit` handlers, as
/// GASNet requires.
fn end_process() -> ! {
    begin_output().into_iter().for_each(Flush::finish);
    // If another rank has ended the job, this process must exit with 0: only the rank that ends the
    // job may report a failure. `Member::ended_by` has already made this rank leave the job.
    let code = if TOLD.load(Acquire) {
        0
    } else {
        CODE.load(Acquire)
    };
    // SAFETY: `_exit` has no precondition; it ends the process.
    unsafe { libc::_exit(conduit::process_code(code)) }
}

/// Starts flushing C's streams, except in a child (`fork`), whose buffers are copies of the rank's
/// and would be written twice.
fn begin_output() -> Option<Flush> {
    (!Job::is_in_child()).then(Flush::begin)
}

/// Handles an end that has already begun. If another thread has begun it, waits up to
/// [`LONGEST_END`] for that thread to end the process, and then ends the process itself. If this
/// thread has begun it, the call comes from a handler of `SIGQUIT`, and ends the process at once.
fn join_the_end() -> ! {
    if ENDING.load(Relaxed) != thread() {
        std::thread::sleep(LONGEST_END);
    }
    end_process()
}

/// Ends the job with the exit code `code`.
pub(crate) fn end_job(code: c_int) -> ! {
    if !first(code) {
        join_the_end();
    }
    let output = begin_output();
    if let Some(job) = Job::get() {
        job.member
            .end(code, || output.into_iter().for_each(Flush::finish));
    }
    end_process()
}

/// Ends this process because another rank has ended the job with `code`. The client's `SIGQUIT`
/// handler runs first.
pub(crate) fn leave(code: c_int) -> ! {
    if !first(code) {
        join_the_end();
    }
    TOLD.store(true, Release);
    signals::tell_client();
    end_process()
}

/// Ends the whole job with the exit code `code`. Does not return, and runs no `atexit` handlers.
/// When called in a child (`fork`) of a rank's process, ends only the child.
#[unsafe(no_mangle)]
extern "C" fn gasnet_exit(code: c_int) -> ! {
    end_job(code)
}

unsafe extern "C" {
    /// glibc's variant of `atexit` that passes the exit code to the function.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Handles the end of a process that returns from `main` or calls `exit` instead of `gasnet_exit`.
extern "C" fn exiting(code: c_int, catch: *mut c_void) {
    // A child is not a rank, so its end does not concern the job.
    if Job::is_in_child() || !first(code) {
        return;
    }
    // The system keeps only the low eight bits of the code passed to `exit`.
    let code = code & 0xff;
    if let Some(job) = Job::get() {
        if catch.is_null() {
            job.member.leave();
        } else {
            job.member.end(code, || ());
        }
    }
}

/// From now on, makes `exit` and a return from `main` end the whole job if `catch` is `true`, or
/// only this rank if `catch` is `false` (`GASNET_CATCH_EXIT=0`).
pub(crate) fn catch_exit(catch: bool) {
    let argument = std::ptr::without_provenance_mut(catch.into());
    // SAFETY: the function lives as long as the process, and the argument is only a flag. The call
    // fails only for lack of memory; the launcher then notices that a rank has ended without
    // reporting its end.
    let _ = unsafe { on_exit(exiting, argument) };
}
