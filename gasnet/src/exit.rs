//! The end of a job.
//!
//! A job ends for all ranks when one calls `gasnet_exit`, returns from `main`, or calls `exit`.
//! That rank notifies the others. With code 0, the others may end by themselves for a second
//! (`CONDUIT_EXIT_GRACE`). Then each gets `SIGQUIT` if its client catches it, and ends, whatever
//! code the client's handler passes to `gasnet_exit`: the job's code is that of the rank that ended
//! it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use crate::job::Job;
use crate::output::Flush;
use crate::signals;

/// The thread that ends this process; 0 before the end.
static ENDING: AtomicU64 = AtomicU64::new(0);
/// The process's exit code.
static CODE: AtomicI32 = AtomicI32::new(0);
/// Whether another rank ends the job and reports its code to the launcher.
static TOLD: AtomicBool = AtomicBool::new(false);

/// The time that other threads wait for the thread that ends the process. That thread's own waits
/// are bounded.
const LONGEST_END: Duration = Duration::from_secs(600);

/// Returns a nonzero number that identifies this thread.
fn thread() -> u64 {
    // SAFETY: `pthread_self` has no precondition. Its value is an address on Linux: never 0, and
    // unique among threads.
    unsafe { libc::pthread_self() }
}

/// Claims the end for this thread; false if it has begun already.
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

/// Ignores `SIGTERM`. A launcher that learns of the end from another rank must not cut off the
/// output of this one. It ends ranks that do not react by other means.
pub(crate) fn ignore_launcher() {
    // SAFETY: ignores a valid signal.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Ends this process at once after writing its output. Does not run `atexit` handlers: GASNet's
/// rule.
fn end_process() -> ! {
    begin_output().into_iter().for_each(Flush::finish);
    // Only the rank that ends the job may fail: see `Member::ended_by`, which has already left the
    // job for this rank.
    let code = if TOLD.load(Acquire) {
        0
    } else {
        CODE.load(Acquire)
    };
    // SAFETY: ends the process.
    unsafe { libc::_exit(conduit::process_code(code)) }
}

/// Starts flushing C's streams. A child (`fork`) must not do so: its buffers are copies of the
/// rank's.
fn begin_output() -> Option<Flush> {
    (!Job::is_in_child()).then(Flush::begin)
}

/// Handles an end that has already begun: on another thread, which will finish it, or further up
/// this thread's stack, in a handler of `SIGQUIT`.
fn join_the_end() -> ! {
    if ENDING.load(Relaxed) != thread() {
        std::thread::sleep(LONGEST_END);
    }
    end_process()
}

/// Ends the job with this code.
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

/// Ends this process because another rank has ended the job. The client's `SIGQUIT` handler runs
/// first.
pub(crate) fn leave(code: c_int) -> ! {
    if !first(code) {
        join_the_end();
    }
    TOLD.store(true, Release);
    signals::tell_client();
    end_process()
}

/// Ends the whole job with this code. Does not return, and runs no `atexit` handlers. In a child of
/// the rank's process (`fork`), ends only the child.
#[unsafe(no_mangle)]
extern "C" fn gasnet_exit(code: c_int) -> ! {
    end_job(code)
}

unsafe extern "C" {
    /// glibc's `atexit` with the exit code.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Handles an end without `gasnet_exit`: a return from `main`, or `exit`.
extern "C" fn exiting(code: c_int, catch: *mut c_void) {
    // A child that ends in this way is not a rank.
    if Job::is_in_child() || !first(code) {
        return;
    }
    // C's `exit` keeps only eight bits.
    let code = code & 0xff;
    if let Some(job) = Job::get() {
        if catch.is_null() {
            job.member.leave();
        } else {
            job.member.end(code, || ());
        }
    }
}

/// Makes `exit` and a return from `main` end the job from now on. With `GASNET_CATCH_EXIT=0`, they
/// end only this rank.
pub(crate) fn catch_exit(catch: bool) {
    let argument = std::ptr::without_provenance_mut(catch.into());
    // SAFETY: the function lives as long as the process, and the argument is only a flag. The call
    // fails only for lack of memory; the launcher then finds a rank that has ended without
    // reporting it.
    let _ = unsafe { on_exit(exiting, argument) };
}
