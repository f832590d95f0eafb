//! A watch over library calls that do not return.
//!
//! A provider that shares memory between processes (`shm`) keeps locks there, and a rank that is
//! killed may leave one held. The next rank to take it waits inside the library, and its other
//! threads, the progress thread among them, wait for that call. So one more thread, which never
//! calls the library, looks at the call under way now and then, and ends the process when it is
//! the same one for half of the dead time. The other half is for this rank's last line: afterwards
//! the peers give it up for dead without knowing why.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_core::{signals, stderr};

use crate::wire::neighbours::Neighbours;

/// Looks at the call under way until it is taken for one that hangs. They are counted, not timed:
/// while the process is stopped, or gets no processor, there are none.
const LOOKS: u32 = 8;

/// The purpose of a library call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// It sends to a peer, or accesses its memory.
    Peer(Rank),
    /// It reads the completion queue, or posts receives.
    Queue,
    /// It closes the endpoint.
    Close,
}

impl Call {
    /// How many looks it may last. Closing releases all registered memory, which may take seconds.
    fn patience(self) -> u32 {
        match self {
            Self::Peer(_) | Self::Queue => LOOKS,
            Self::Close => 8 * LOOKS,
        }
    }
}

/// The library call that a rank is in.
///
/// The upper half counts calls, and the lower half is the code of the one under way, 0 without
/// any. The caller writes it, with the portals' lock held; the watch only reads.
#[derive(Debug, Default)]
pub(crate) struct Calls(AtomicU64);

impl Calls {
    /// Codes of calls that concern no peer, and the first of those that do.
    const QUEUE: u64 = 1;
    const CLOSE: u64 = 2;
    const PEERS: u64 = 3;
    const CODE: u64 = u32::MAX as u64;

    /// A call begins.
    #[inline(always)]
    pub(crate) fn begin(&self, call: Call) {
        let code = match call {
            Call::Queue => Self::QUEUE,
            Call::Close => Self::CLOSE,
            // Wraps only for ranks that no job has.
            Call::Peer(rank) => (Self::PEERS + u64::from(rank)) & Self::CODE,
        };
        let count = (self.0.load(Relaxed) | Self::CODE).wrapping_add(1);
        self.0.store(count | code, Relaxed);
    }

    /// The call has returned.
    #[inline(always)]
    pub(crate) fn end(&self) {
        self.0.store(self.0.load(Relaxed) & !Self::CODE, Relaxed);
    }

    /// Makes a call.
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
            // Fits: of 32 bits.
            code => Some(Call::Peer((code - Self::PEERS) as Rank)),
        }
    }
}

/// The rank that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) rank: Rank,
    pub(crate) provider: String,
    pub(crate) neighbours: Neighbours,
    pub(crate) dead_time: Duration,
}

impl Watched {
    /// The time between two looks.
    fn pause(&self) -> Duration {
        self.dead_time / 2 / LOOKS
    }

    /// Says why this rank ends.
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
            "rank {rank}: a libfabric call {what} (provider {provider}) has not returned for \
             {seconds:.1} s (setting CONDUIT_OFI_DEAD_TIME){gone}"
        )
    }
}

/// The thread that watches. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Watch {
    thread: Option<JoinHandle<()>>,
    /// Of the process that has the thread: a child has not.
    process: u32,
    /// Closed by dropping it.
    end: Option<Sender<()>>,
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    /// The system has no thread left.
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
                        // SAFETY: ends the process at once. What runs at a proper exit may wait
                        // for the same lock.
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

/// The last looks.
#[derive(Debug, Default)]
struct Looks {
    seen: u64,
    same: u32,
}

impl Looks {
    /// A look. Returns a call that hangs.
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
                // The same, but another one.
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
            "rank 2: a libfabric call to rank 0 (provider shm) has not returned for 5.0 s (setting \
             CONDUIT_OFI_DEAD_TIME)"
        );
    }
}
