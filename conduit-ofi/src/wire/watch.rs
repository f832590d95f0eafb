//! A watchdog for library calls that hang.
//!
//! A provider that shares memory between processes (`shm`) keeps locks there, and a rank that is
//! killed may leave a lock held. The next rank that takes the lock hangs inside the library, and
//! the rank's other threads, including the progress thread, wait for its call to return. Therefore
//! another thread, which never calls the library, samples the current call. It ends the process if
//! the call does not change for half of the dead time. The other half leaves time for this rank's
//! last message: after the dead time, the peers would report the rank as dead without knowing why.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_core::{signals, stderr};

use crate::wire::neighbours::Neighbours;

/// The number of samples of the same call after which the call counts as hanging. Samples are
/// counted rather than timed, because a process that is stopped or gets no processor takes no
/// samples.
const LOOKS: u32 = 8;

/// The purpose of a library call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The call sends to a peer or accesses the peer's memory.
    Peer(Rank),
    /// The call reads the completion queue or posts receives.
    Queue,
    /// The call closes the endpoint.
    Close,
}

impl Call {
    /// Returns the number of consecutive samples after which a call hangs. A call that closes the
    /// endpoint gets more samples, because it releases all registered memory, which may take
    /// seconds.
    fn patience(self) -> u32 {
        match self {
            Self::Peer(_) | Self::Queue => LOOKS,
            Self::Close => 8 * LOOKS,
        }
    }
}

/// The library call in progress.
///
/// The upper half counts calls. The lower half is the code of the current call, or 0 if there is
/// none. The caller writes the value while it holds the portals' lock, and the watchdog only reads
/// it.
#[derive(Debug, Default)]
pub(crate) struct Calls(AtomicU64);

impl Calls {
    /// The code of calls that read the completion queue or post receives.
    const QUEUE: u64 = 1;
    /// The code of the call that closes the endpoint.
    const CLOSE: u64 = 2;
    /// The code of calls that concern rank 0. Those of the other ranks follow.
    const PEERS: u64 = 3;
    /// The mask of the code.
    const CODE: u64 = u32::MAX as u64;

    /// Records the beginning of a call.
    #[inline(always)]
    pub(crate) fn begin(&self, call: Call) {
        let code = match call {
            Call::Queue => Self::QUEUE,
            Call::Close => Self::CLOSE,
            // The mask has an effect only on ranks beyond the size of any job.
            Call::Peer(rank) => (Self::PEERS + u64::from(rank)) & Self::CODE,
        };
        let count = (self.0.load(Relaxed) | Self::CODE).wrapping_add(1);
        self.0.store(count | code, Relaxed);
    }

    /// Records that the call has returned.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.0.store(self.0.load(Relaxed) & !Self::CODE, Relaxed);
    }

    /// Makes a call and records it.
    #[inline(always)]
    pub(crate) fn make<T>(&self, call: Call, act: impl FnOnce() -> T) -> T {
        self.begin(call);
        let result = act();
        self.end();
        result
    }

    fn under_way(word: u64) -> Option<Call> {
        match word & Self::CODE {
            0 => None,
            Self::QUEUE => Some(Call::Queue),
            Self::CLOSE => Some(Call::Close),
            // The cast is lossless, because the code has 32 bits.
            code => Some(Call::Peer((code - Self::PEERS) as Rank)),
        }
    }
}

/// The watched rank.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) rank: Rank,
    pub(crate) provider: String,
    pub(crate) neighbours: Neighbours,
    pub(crate) dead_time: Duration,
}

impl Watched {
    /// Returns the time between two samples.
    fn pause(&self) -> Duration {
        self.dead_time / 2 / LOOKS
    }

    /// Returns the message that says why this rank ends.
    fn message(&self, call: Call) -> String {
        let what = match call {
            Call::Peer(peer) => format!("to rank {peer}"),
            Call::Queue => "for completions".to_owned(),
            Call::Close => "to close the endpoint".to_owned(),
        };
        let Self { rank, provider, .. } = self;
        let seconds = (self.pause() * call.patience()).as_secs_f32();
        let gone = self.neighbours.gone();
        format!(
            "rank {rank}: a libfabric call {what} (provider {provider}) has hung for \
             {seconds:.1} s (setting CONDUIT_OFI_DEAD_TIME){gone}"
        )
    }
}

/// The watchdog's thread, which ends when this handle is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. A forked child process has no such thread.
    process: u32,
    /// The channel that is closed when this handle is dropped, which ends the thread.
    end: Option<Sender<()>>,
}

impl Watch {
    /// Starts the watchdog.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub(crate) fn start(calls: Arc<Calls>, watched: Watched) -> io::Result<Self> {
        let (end, ended) = channel();
        let pause = watched.pause();
        let thread = std::thread::Builder::new()
            .name(format!("conduit watch {}", watched.rank))
            .stack_size(128 << 10)
            .spawn(move || {
                signals::block();
                let mut looks = Looks::default();
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(pause) {
                    if let Some(call) = looks.look(calls.0.load(Relaxed)) {
                        stderr::write_line(watched.message(call));
                        // SAFETY: the call ends the process at once and accesses no memory. A
                        // normal exit would run exit handlers, which may wait for the lock that the
                        // hanging call holds.
                        unsafe { libc::_exit(1) };
                    }
                }
            })?;
        Ok(Self {
            thread: Some(thread),
            process: std::process::id(),
            end: Some(end),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.process == std::process::id()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// The most recent samples.
#[derive(Debug, Default)]
struct Looks {
    seen: u64,
    same: u32,
}

impl Looks {
    /// Evaluates a sample. Returns the call if the call hangs.
    fn look(&mut self, word: u64) -> Option<Call> {
        let call = Calls::under_way(word)?;
        match self.seen == word {
            true => self.same += 1,
            false => {
                *self = Self {
                    seen: word,
                    same: 0,
                }
            }
        }
        (self.same >= call.patience()).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(looks: &mut Looks, calls: &Calls, count: u32) -> Option<Call> {
        (0..count).find_map(|_| looks.look(calls.0.load(Relaxed)))
    }

    #[test]
    fn only_a_call_that_lasts_for_all_looks_hangs() {
        let (mut seen, calls) = (Looks::default(), Calls::default());
        assert_eq!(looks(&mut seen, &calls, 100), None);
        for peer in [0, 7, Rank::MAX - 3] {
            for call in [Call::Peer(peer), Call::Queue, Call::Close] {
                calls.begin(call);
                assert_eq!(looks(&mut seen, &calls, call.patience()), None);
                calls.end();
                assert_eq!(looks(&mut seen, &calls, 100), None);
                // A new call of the same kind.
                calls.begin(call);
                assert_eq!(looks(&mut seen, &calls, call.patience()), None);
                assert_eq!(looks(&mut seen, &calls, 1), Some(call));
                calls.end();
            }
        }
    }

    #[test]
    fn the_call_is_named() {
        let watched = Watched {
            rank: 2,
            provider: "shm".to_owned(),
            neighbours: Neighbours::default(),
            dead_time: Duration::from_secs(10),
        };
        assert_eq!(
            watched.message(Call::Peer(0)),
            "rank 2: a libfabric call to rank 0 (provider shm) has hung for 5.0 s (setting \
             CONDUIT_OFI_DEAD_TIME)"
        );
    }
}
