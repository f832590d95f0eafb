//! The end of a job.
//!
//! A job ends for all ranks as soon as one calls `gasnet_exit`, returns from `main`, or calls `exit`. The rank that ends it
//! tells the others. Those get `SIGQUIT` if the client catches it, and end with the same code.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use crate::job::Job;

/// The end of this process has begun. Whoever comes second waits for it.
static ENDING: AtomicBool = AtomicBool::new(false);

fn first() -> bool {
    !ENDING.swap(true, AcqRel)
}

/// Ends this process at once, but with its output written. Handlers of `atexit` are not run: that is GASNet's rule.
fn end_process(code: c_int) -> ! {
    // SAFETY: `fflush` of all streams has no precondition; `_exit` ends the process.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(code)
    }
}

/// For a second thread, or a signal handler on the thread that ends the job: nothing to do but to be ended.
fn wait_for_the_end(code: c_int) -> ! {
    std::thread::sleep(std::time::Duration::from_secs(10));
    end_process(code)
}

/// Ends the job with this code.
pub(crate) fn end_job(code: c_int) -> ! {
    if !first() {
        wait_for_the_end(code);
    }
    if let Some(job) = Job::get() {
        job.member.end(code);
    }
    end_process(code)
}

/// Another rank has ended the job: so this process ends. The client may have something to say to it.
pub(crate) fn leave(code: c_int) -> ! {
    if caught(libc::SIGQUIT) {
        // SAFETY: raising a signal that the client catches; its handler may end the job, which is then over anyway.
        unsafe { libc::raise(libc::SIGQUIT) };
    }
    if !first() {
        wait_for_the_end(code);
    }
    end_process(code)
}

fn caught(signal: c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the action of a valid signal; `action` is valid for a write and zeroed, which is a value of it.
    let found = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 };
    // SAFETY: as above: initialised in either case.
    let handler = unsafe { action.assume_init() }.sa_sigaction;
    found && handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// Ends the whole job with this code. Does not return, and runs no handlers of `atexit`.
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
    if !first() {
        return;
    }
    if let Some(job) = Job::get() {
        if catch.is_null() {
            job.member.leave();
        } else {
            job.member.end(code);
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
