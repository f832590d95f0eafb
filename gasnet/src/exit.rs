//! The end of a job.
//!
//! A job ends for all ranks when one calls `gasnet_exit`, returns from `main`, or calls `exit`. The
//! rank that ends it tells the others. Those may end by themselves for a second if the code is 0
//! (`CONDUIT_EXIT_GRACE`). Then they get `SIGQUIT` if the client catches it, and end, whatever code
//! the client's handler gives to `gasnet_exit`: the job's code is that of the rank that ended it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use crate::job::Job;
use crate::output::Flush;
use crate::signals;

/// The thread that ends this process; 0 before the end.
static ENDING: AtomicU64 = AtomicU64::new(0);
/// The code with which it ends.
static CODE: AtomicI32 = AtomicI32::new(0);
/// Another rank ends the job, and gives its code to the launcher.
static TOLD: AtomicBool = AtomicBool::new(false);

/// How long another thread waits for the one that ends the process, which itself waits for a bounded time.
const LONGEST_END: Duration = Duration::from_secs(600);

/// A number of this thread, not 0.
fn thread() -> u64 {
    // SAFETY: `pthread_self` has no precondition. Its value is an address on Linux: never 0, and unique among threads.
    unsafe { libc::pthread_self() }
}

/// Begins the end, unless it has begun.
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

/// A launcher that hears of the end from another rank must not cut off what this one has still to write. It knows how to
/// end one that doesn't.
pub(crate) fn ignore_launcher() {
    // SAFETY: ignores a valid signal.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Ends this process at once, but with its output written. Handlers of `atexit` are not run: that is GASNet's rule.
fn end_process() -> ! {
    begin_output().into_iter().for_each(Flush::finish);
    // The rank that ends the job is the one to fail: see `Member::ended_by`, which has taken leave for this one.
    let code = if TOLD.load(Acquire) {
        0
    } else {
        CODE.load(Acquire)
    };
    // SAFETY: ends the process.
    unsafe { libc::_exit(conduit::process_code(code)) }
}

/// Begins to flush C's streams. A child (`fork`) must not: its buffers are copies of the rank's.
fn begin_output() -> Option<Flush> {
    (!Job::is_in_child()).then(Flush::begin)
}

/// The end has begun: on another thread, which will finish it, or below this call, in a handler of `SIGQUIT`.
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

/// Another rank has ended the job: so this process ends. The client may have something to say to it.
pub(crate) fn leave(code: c_int) -> ! {
    if !first(code) {
        join_the_end();
    }
    TOLD.store(true, Release);
    signals::tell_client();
    end_process()
}

/// Ends the whole job with this code. Does not return, and runs no handlers of `atexit`. In a child of the rank's process (`fork`)
/// it ends the child alone.
#[unsafe(no_mangle)]
extern "C" fn gasnet_exit(code: c_int) -> ! {
    end_job(code)
}

unsafe extern "C" {
    /// glibc's `atexit` with the exit code.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The process ends without `gasnet_exit`: by returning from `main`, or by `exit`.
extern "C" fn exiting(code: c_int, catch: *mut c_void) {
    // A child that ends so is no rank.
    if Job::is_in_child() || !first(code) {
        return;
    }
    // C's `exit` keeps eight bits.
    let code = code & 0xff;
    if let Some(job) = Job::get() {
        if catch.is_null() {
            job.member.leave();
        } else {
            job.member.end(code, || ());
        }
    }
}

/// From now on, `exit` and returning from `main` end the job. `GASNET_CATCH_EXIT=0`: only this rank.
pub(crate) fn catch_exit(catch: bool) {
    let argument = std::ptr::without_provenance_mut(catch.into());
    // SAFETY: the function lives as long as the process, the argument is only a flag. It can fail for want of memory only;
    // the launcher then finds a rank that has ended without a word.
    let _ = unsafe { on_exit(exiting, argument) };
}
