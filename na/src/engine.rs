//! The engine, which holds the machine and its network behind a lock and delivers their
//! completions.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use conduit_core::ni::Rank;
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use parking_lot::Mutex;

use crate::machine::{Completion, Limits, MemoryKey, NaMachine};
use crate::waiting::Waiting;

/// The time between two sweeps for unused sessions.
const SWEEP: Duration = Duration::from_secs(60);
/// The number of passes after which a thread that never sleeps checks the time.
const CLOCK_INTERVAL: u32 = 4096;
/// The time for which deregistration waits for peers that are reading the memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time for which leaving waits for outstanding data while none of it reaches a peer.
const LINGER: Duration = Duration::from_secs(1);
/// The sleep between two checks while deregistration or leaving waits.
const PAUSE: Duration = Duration::from_millis(1);

/// The state that the lock protects.
pub(crate) struct Inner<N> {
    pub(crate) network: N,
    pub(crate) machine: NaMachine,
    /// The time between two sweeps.
    sweep_interval: Duration,
    /// The time of the last sweep.
    swept: Instant,
    /// The number of calls of [`Inner::progress`].
    passes: u32,
}

/// The function that receives completions, in order. It is called with the lock held, so it must
/// not call the engine.
pub(crate) type Sink = Box<dyn Fn(Completion) + Send + Sync>;

/// One process's end of NA.
pub(crate) struct Engine<N> {
    inner: Mutex<Inner<N>>,
    /// The contexts' descriptors for waiting, by the contexts' numbers.
    waiting: Box<[Waiting]>,
    sink: Sink,
}

impl<N: OpenTransport> Inner<N> {
    /// Hands pending data to the network.
    fn flush(&mut self) {
        if self.machine.is_waiting() {
            self.machine.flush(&mut self.network);
        }
        self.network.transmit(&mut self.machine);
        // Data that waits for room is tried again, because no event reports that there is room.
        if self.machine.is_waiting() {
            self.machine.flush(&mut self.network);
        }
    }

    /// Makes progress. Returns whether anything has arrived.
    fn progress(&mut self) -> bool {
        let arrived = self.network.receive(&mut self.machine);
        self.flush();
        self.machine.tidy(&mut self.network);
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(CLOCK_INTERVAL) {
            self.sweep(Instant::now());
        }
        arrived
    }

    fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) >= self.sweep_interval {
            self.swept = now;
            self.machine.sweep(&mut self.network, false);
        }
    }

    /// Returns a peer's number. If all numbers are in use, closes unused sessions first.
    pub(crate) fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        match self.network.connect(address) {
            Err(ConnectError::Exhausted { .. }) => {
                self.machine.sweep(&mut self.network, true);
                self.network.connect(address)
            }
            connected => connected,
        }
    }

    /// Returns the time until the next deadline of the network or of a sweep.
    fn timeout(&self) -> Option<Duration> {
        let first = self.machine.peers().next();
        let sweep = first.map(|_| self.sweep_interval.saturating_sub(self.swept.elapsed()));
        [self.network.timeout(), sweep].into_iter().flatten().min()
    }
}

impl<N: OpenTransport> Engine<N> {
    pub(crate) fn new(network: N, limits: Limits, sink: Sink) -> io::Result<Self> {
        let mut descriptors = Vec::new();
        network.descriptors(&mut descriptors);
        let waiting = (0..limits.contexts)
            .map(|_| Waiting::new(&descriptors))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            inner: Mutex::new(Inner {
                network,
                machine: NaMachine::new(limits),
                sweep_interval: SWEEP,
                swept: Instant::now(),
                passes: 0,
            }),
            waiting,
            sink,
        })
    }

    /// Calls `call` with the lock held, then sends the resulting data and delivers completions.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Inner<N>) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = call(&mut inner);
        inner.flush();
        self.hand_on(&mut inner, None);
        self.tell_sleepers(&mut inner, None);
        result
    }

    /// Calls `call` with the lock held, for calls that produce neither data nor completions.
    pub(crate) fn look<R>(&self, call: impl FnOnce(&mut Inner<N>) -> R) -> R {
        call(&mut self.inner.lock())
    }

    /// Delivers completions and returns their number. Wakes the threads that wait for them, except
    /// for the context of the calling thread.
    fn hand_on(&self, inner: &mut Inner<N>, caller: Option<u8>) -> usize {
        let ended = inner.machine.completions();
        let count = ended.len();
        for completion in ended.drain(..) {
            let context = completion.context;
            (self.sink)(completion);
            if Some(context) != caller
                && let Some(waiting) = self.waiting.get(usize::from(context))
            {
                waiting.raise();
            }
        }
        count
    }

    /// Updates the threads of other contexts that may be sleeping. They must wake at the next
    /// deadline at the latest, and at once if this call has ended the network's preparation for
    /// sleep or has left data that waits for room.
    fn tell_sleepers(&self, inner: &mut Inner<N>, caller: Option<u8>) {
        let caller = caller.map(usize::from);
        let others = self.waiting.iter().enumerate();
        let others =
            others.filter(|(number, waiting)| Some(*number) != caller && waiting.is_armed());
        let mut ready = None;
        for (_, waiting) in others {
            waiting.hasten(inner.timeout());
            let ready = ready.get_or_insert_with(|| !inner.network.prepare_sleep());
            if *ready {
                waiting.raise();
            }
        }
    }

    /// Receives, sends and delivers completions. Returns the number of completions. `context` is
    /// the context whose completions the calling thread waits for, if it waits for any.
    pub(crate) fn progress(&self, context: Option<u8>) -> usize {
        if let Some(context) = context {
            self.waiting(context).disarm();
        }
        let mut inner = self.inner.lock();
        inner.progress();
        let ended = self.hand_on(&mut inner, context);
        self.tell_sleepers(&mut inner, context);
        ended
    }

    fn waiting(&self, context: u8) -> &Waiting {
        // At least one context exists. A context that does not exist has no operations, so any
        // context may take its place.
        let waiting = self.waiting.get(usize::from(context));
        waiting.unwrap_or(&self.waiting[0])
    }

    /// Returns whether a thread may sleep on the [descriptor](Self::descriptor) now, that is,
    /// whether there is no work.
    pub(crate) fn prepare_sleep(&self, context: u8) -> bool {
        let mut inner = self.inner.lock();
        inner.sweep(Instant::now());
        let due = inner.timeout();
        if due.is_some_and(|due| due.is_zero()) {
            return false;
        }
        self.waiting(context).arm(due) && inner.network.prepare_sleep()
    }

    /// Returns a descriptor that becomes readable when a context needs progress, if
    /// [`prepare_sleep`](Self::prepare_sleep) was called before the sleep.
    pub(crate) fn descriptor(&self, context: u8) -> BorrowedFd<'_> {
        self.waiting(context).descriptor()
    }

    /// Sleeps until there is work, for at most `limit`.
    pub(crate) fn sleep(&self, context: u8, limit: Option<Duration>) {
        if self.prepare_sleep(context) {
            self.waiting(context).sleep(limit);
        }
    }

    /// Deregisters memory. No peer accesses the memory once this call has returned. Peers that are
    /// reading the memory have [`PATIENCE`] to finish before their sessions are ended.
    pub(crate) fn deregister(&self, memory: MemoryKey) {
        let begun = Instant::now();
        self.look(|inner| inner.machine.close_memory(memory));
        while self.look(|inner| inner.machine.is_read(memory)) {
            if begun.elapsed() > PATIENCE {
                self.with(|inner| {
                    inner.machine.give_up_readers(memory);
                    inner.machine.tidy(&mut inner.network);
                });
                break;
            }
            if self.progress(None) == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        self.with(|inner| inner.machine.deregister(memory));
    }

    /// Leaves the network: cancels all operations, waits until the peers have received what was
    /// sent to them or a time limit has passed without progress, and closes the sessions.
    pub(crate) fn leave(&self) {
        // This call handles the departure of peers that have left by now, so that the loop below
        // does not wait for them.
        self.progress(None);
        self.with(|inner| {
            inner.machine.cancel_all();
            for peer in inner.machine.peers().collect::<Vec<Rank>>() {
                inner.network.settle(peer);
            }
        });
        let outstanding = || {
            self.with(|inner| {
                let waiting = usize::from(inner.machine.is_waiting()) + inner.machine.copies();
                let peers = inner.machine.peers();
                let sent = peers.map(|peer| inner.network.outstanding(peer));
                waiting + sent.sum::<usize>()
            })
        };
        let mut least = usize::MAX;
        let mut since = Instant::now();
        loop {
            self.progress(None);
            let left = outstanding();
            if left == 0 {
                break;
            }
            if left < least {
                (least, since) = (left, Instant::now());
            }
            if since.elapsed() > LINGER {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.with(|inner| {
            inner.network.leave();
            inner.machine.leave();
        });
    }
}

#[cfg(test)]
mod tests {
    use conduit_portals::transport::Transport;
    use conduit_shm::peers::{Local, LocalConfig};

    use super::*;
    use crate::machine::operation::Buffer;
    use crate::machine::{MessageHeader, Outcome};

    /// Creates a process that knows at most `max_peers` peers.
    fn engine(max_peers: u32) -> (Engine<Local>, std::sync::mpsc::Receiver<Completion>) {
        let config = LocalConfig {
            max_peers,
            ..LocalConfig::default()
        };
        let (ended, completions) = std::sync::mpsc::channel();
        let limits = Limits {
            unexpected: 64,
            expected: 64,
            window: 4,
            early: 1 << 20,
            contexts: 1,
        };
        let sink = Box::new(move |completion| ended.send(completion).unwrap());
        let network = Local::start(&config).unwrap();
        (Engine::new(network, limits, sink).unwrap(), completions)
    }

    fn look_up(at: &Engine<Local>, other: &Engine<Local>) -> Result<Rank, ConnectError> {
        let address = other.look(|inner| inner.network.address().to_vec());
        at.look(|inner| {
            let peer = inner.connect(&address)?;
            inner.machine.look_up(peer);
            Ok(peer)
        })
    }

    /// Looks a peer up, sends it a message, and releases the peer. The session remains open.
    fn send_once(
        at: &Engine<Local>,
        completions: &std::sync::mpsc::Receiver<Completion>,
        other: &Engine<Local>,
    ) {
        let peer = look_up(at, other).unwrap();
        let header = MessageHeader {
            is_expected: false,
            context: 0,
            tag: 0,
        };
        at.with(|inner| inner.machine.send(0, 0, Buffer::NONE, peer, header))
            .unwrap();
        let ended = loop {
            at.progress(Some(0));
            other.progress(Some(0));
            if let Ok(completion) = completions.try_recv() {
                break completion;
            }
        };
        assert_eq!(ended.result, Ok(Outcome::Done));
        at.with(|inner| inner.machine.release(peer));
        while at.look(|inner| inner.network.outstanding(peer)) > 0 {
            other.progress(Some(0));
            at.progress(Some(0));
        }
        assert_eq!(at.look(|inner| inner.machine.peers().count()), 1);
    }

    #[test]
    fn who_never_sleeps_closes_sessions_that_nobody_uses() {
        let ((client, completions), (server, _)) = (engine(8), engine(8));
        client.look(|inner| inner.sweep_interval = Duration::ZERO);
        send_once(&client, &completions, &server);
        // The first sweep marks the session as unused.
        for _ in 0..2 * CLOCK_INTERVAL {
            client.progress(Some(0));
            server.progress(Some(0));
        }
        client.look(|inner| {
            assert_eq!(inner.machine.peers().count(), 0);
            assert!(!inner.network.has_session(0));
        });
    }

    #[test]
    fn a_session_that_nobody_uses_makes_room_for_another_peer() {
        let ((client, completions), (one, _), (other, _)) = (engine(1), engine(8), engine(8));
        send_once(&client, &completions, &one);
        // A session whose peer is held is not closed to make room.
        let held = look_up(&client, &one).unwrap();
        let exhausted = look_up(&client, &other);
        assert!(
            matches!(exhausted, Err(ConnectError::Exhausted { .. })),
            "{exhausted:?}"
        );
        client.with(|inner| inner.machine.release(held));
        send_once(&client, &completions, &other);
    }
}
