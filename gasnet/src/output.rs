//! Flushes C's streams at the end of the process.
//!
//! A thread blocked in `fgets(stdin)` holds the stream's lock, and `fflush` waits for that lock.
//! Therefore a separate thread flushes the streams. If that thread waits for locks for longer than
//! [`LONGEST_WAIT`], the process ends without waiting further. Time spent waiting for a slow reader
//! of the output does not count.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use conduit_core::signals;

/// The longest time to wait for locks that other threads hold.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The interval between checks of the flushing thread.
const PAUSE: Duration = Duration::from_millis(20);

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// The id of the flushing thread, or 0 before that thread runs.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// A flush under way. Dropping it does not wait.
pub(crate) struct Flush(Receiver<()>);

impl Flush {
    /// Starts flushing all streams.
    pub(crate) fn begin() -> Self {
        let (ended, end) = channel();
        let thread = std::thread::Builder::new()
            .name("conduit-flush".to_owned())
            .spawn(move || {
                signals::block();
                // SAFETY: `gettid` has no precondition.
                THREAD.store(unsafe { libc::gettid() }, Relaxed);
                flush();
                drop(ended);
            });
        if thread.is_err() {
            flush();
        }
        Self(end)
    }

    /// Waits until all output is written, or until the flushing thread has waited for locks for
    /// [`LONGEST_WAIT`].
    pub(crate) fn finish(self) {
        let mut waited = Duration::ZERO;
        while let Err(RecvTimeoutError::Timeout) = self.0.recv_timeout(PAUSE) {
            if waits_for_lock() {
                waited += PAUSE;
                if waited >= LONGEST_WAIT {
                    return;
                }
            }
        }
    }
}

/// Flushes all streams. The standard streams come first, so that they are written even if another
/// stream's lock is held.
fn flush() {
    // SAFETY: the standard streams are valid, and `fflush` accepts null, which means all streams.
    unsafe {
        for stream in [stdout, stderr, std::ptr::null_mut()] {
            libc::fflush(stream);
        }
    }
}

/// Returns whether the flushing thread waits for a lock, or cannot be inspected.
fn waits_for_lock() -> bool {
    let thread = THREAD.load(Relaxed);
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    call.map_or(true, |call| {
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        number == Some(libc::SYS_futex)
    })
}
