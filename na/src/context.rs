//! The safe interface, in which each operation is a future and owns its buffer while it is under
//! way.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use conduit_portals::transport::open::OpenTransport;
use parking_lot::Mutex;
use slab::Slab;

use crate::address::Addr;
use crate::class::{self, Completion, Network, Outcome, Part, Target};
use crate::error::{Error, Result};
use crate::handle::{self, Handle};
use crate::machine::Counters;
use crate::machine::memory::{Rights, Segment};
use crate::machine::operation::OperationId;
use crate::options::{Options, Protocol};

/// The bytes of a vector, held by a raw pointer, because moving a vector or box invalidates raw
/// pointers to its bytes.
struct Bytes {
    start: *mut u8,
    length: usize,
    capacity: usize,
}

// SAFETY: a `Bytes` owns its bytes, so it can be sent like the vector that it was made from.
unsafe impl Send for Bytes {}
// SAFETY: a shared reference to a `Bytes` only gives access to an address, not to the bytes.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self {
            start: bytes.as_mut_ptr(),
            length: bytes.len(),
            capacity: bytes.capacity(),
        }
    }

    fn into_vec(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the parts are those of the vector that `new` took apart, and they are not used
        // again.
        unsafe { Vec::from_raw_parts(this.start, this.length, this.capacity) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the parts are those of the vector that `new` took apart. `into_vec`, which also
        // uses them, does not drop the value.
        drop(unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) });
    }
}

/// The result of an operation, with the buffer that it owned.
struct Ended<N: OpenTransport> {
    bytes: Vec<u8>,
    /// The length of the message that the operation received, if it received one.
    length: Option<usize>,
    /// The source and tag of an unexpected message.
    from: Option<(Addr<N>, u32)>,
}

enum ContextState<N: OpenTransport> {
    UnderWay(Option<Waker>),
    Ended(Result<Ended<N>>),
    Taken,
}

/// An operation that has not been triggered yet.
struct Begun<N: OpenTransport> {
    state: Arc<Mutex<ContextState<N>>>,
    bytes: Bytes,
    /// The memory of a transfer.
    memory: Option<Arc<Registered<N>>>,
}

/// The state that a class's sink shares with its contexts.
struct Table<N: OpenTransport> {
    /// The operations that have not been triggered, by cookie.
    begun: Mutex<Slab<Begun<N>>>,
    /// Completions that have not been triggered, by context.
    ended: Arc<[Mutex<VecDeque<Completion>>]>,
}

impl<N: OpenTransport> Table<N> {
    /// Removes an operation that has ended, and returns its buffers.
    fn take(&self, completion: &Completion) -> Option<Begun<N>> {
        // The cast is lossless, because the cookie is a key of the table.
        let mut begun = self.begun.lock().try_remove(completion.cookie as usize)?;
        if completion.result == Err(Error::GivenUp) {
            // The peer may still write to the memory, so it is leaked.
            std::mem::forget(begun.memory.take());
        }
        Some(begun)
    }
}

/// One process's end of NA. Clones refer to the same class.
///
/// The class [leaves](Self::leave) the network when the last clone is dropped; contexts and
/// operations count as clones.
pub struct Class<N: OpenTransport = Network>(Arc<Inner<N>>);

struct Inner<N: OpenTransport> {
    raw: class::Class<N>,
    table: Arc<Table<N>>,
}

impl<N: OpenTransport> Drop for Inner<N> {
    fn drop(&mut self) {
        self.raw.leave();
        for queue in &*self.table.ended {
            for completion in queue.lock().drain(..) {
                self.table.take(&completion);
            }
        }
    }
}

impl Class<Network> {
    /// Opens a class over the network that an info string (`[conduit+]<protocol>[://[<host>]]`)
    /// names.
    ///
    /// # Errors
    /// Returns an error if the network cannot be opened. The error's text names the part of the
    /// info string, the option or the setting that is invalid, and the reason.
    pub fn open(info: &str, options: &Options) -> Result<Self> {
        Self::with(options, |sink| class::Class::open(info, options, sink))
    }
}

impl<N: OpenTransport> Class<N> {
    /// Creates a class over an open network. `window` is the maximum number of each peer's
    /// unexpected messages that may wait here.
    ///
    /// # Errors
    /// Returns an error if an option is invalid, or the system has no file descriptors left.
    pub fn over(network: N, protocol: Protocol, options: &Options, window: u32) -> Result<Self> {
        Self::with(options, |sink| {
            class::Class::over(network, protocol, options, window, sink)
        })
    }

    fn with(
        options: &Options,
        open: impl FnOnce(Box<dyn Fn(Completion) + Send + Sync>) -> Result<class::Class<N>>,
    ) -> Result<Self> {
        let ended: Arc<[Mutex<VecDeque<Completion>>]> = (0..options.max_contexts.max(1))
            .map(|_| Mutex::default())
            .collect();
        let sink = {
            let ended = Arc::clone(&ended);
            move |completion: Completion| {
                if let Some(queue) = ended.get(usize::from(completion.context)) {
                    queue.lock().push_back(completion);
                }
            }
        };
        let raw = open(Box::new(sink))?;
        Ok(Self(Arc::new(Inner {
            raw,
            table: Arc::new(Table {
                begun: Mutex::default(),
                ended,
            }),
        })))
    }

    /// Returns the context with this number, in which operations can be begun and triggered.
    ///
    /// # Errors
    /// Returns an error if the number is not less than [`Options::max_contexts`].
    pub fn context(&self, number: u8) -> Result<Context<N>> {
        match number < self.0.raw.max_contexts() {
            true => Ok(Context {
                class: self.clone(),
                number,
            }),
            false => Err(Error::Invalid("no such context")),
        }
    }

    /// Returns the address of this process.
    pub fn own(&self) -> Addr<N> {
        self.0.raw.own()
    }

    /// Returns the address of a process. `name` must have the form that [`Addr`] prints, with or
    /// without the prefix `conduit+`.
    ///
    /// # Errors
    /// Returns an error if the address is malformed or of another protocol or host, or if too many
    /// peers are known.
    pub fn lookup(&self, name: &str) -> Result<Addr<N>> {
        self.0.raw.lookup(name)
    }

    /// Returns the address encoded by [`Addr::to_bytes`].
    ///
    /// # Errors
    /// Same as [`lookup`](Self::lookup).
    pub fn address_of_bytes(&self, bytes: &[u8]) -> Result<Addr<N>> {
        self.0.raw.address_of_bytes(bytes)
    }

    /// Registers bytes for access by peers.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers, or all handles are in use.
    pub fn register(&self, bytes: Vec<u8>, rights: Rights) -> Result<Memory<N>> {
        let bytes = Bytes::new(bytes);
        let segment = Segment {
            base: bytes.start,
            length: bytes.length,
        };
        // SAFETY: `Registered` keeps the bytes until the memory is deregistered, each transfer
        // keeps its `Registered` until it has ended, and there are no references to the bytes while
        // the `Registered` exists.
        let mut raw = unsafe { self.0.raw.memory(&[segment], rights)? };
        raw.register()?;
        Ok(Memory(Arc::new(Registered {
            raw: Mutex::new(raw),
            bytes,
        })))
    }

    /// Leaves the network: cancels all operations, waits until the peers have received what was
    /// sent to them or a time limit has passed without progress, and notifies the peers. Nothing
    /// can be sent afterwards.
    pub fn leave(&self) {
        self.0.raw.leave();
    }

    /// Returns the maximum length of an unexpected message in bytes.
    pub fn max_unexpected_size(&self) -> usize {
        self.0.raw.max_unexpected_size()
    }

    /// Returns the maximum length of an expected message in bytes.
    pub fn max_expected_size(&self) -> usize {
        self.0.raw.max_expected_size()
    }

    /// Returns the number of known peers, and the number of operations that have not ended.
    pub fn counts(&self) -> (usize, usize) {
        self.0.raw.counts()
    }

    /// Returns the event counters since the class was opened.
    pub fn counters(&self) -> Counters {
        self.0.raw.counters()
    }
}

impl<N: OpenTransport> Clone for Class<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<N: OpenTransport> fmt::Debug for Class<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.raw.fmt(f)
    }
}

/// Registered bytes, and their registration.
struct Registered<N: OpenTransport> {
    /// The registration. It is declared before the bytes, so that dropping deregisters the memory
    /// before freeing the bytes.
    raw: Mutex<handle::Memory<N>>,
    bytes: Bytes,
}

/// Registered bytes. They are the local side of this process's transfers, and peers that have the
/// [handle](Self::handle) can put to them and get from them.
pub struct Memory<N: OpenTransport = Network>(Arc<Registered<N>>);

impl<N: OpenTransport> Memory<N> {
    /// Returns the description that a peer needs for access to the memory, and that the caller
    /// sends to the peer.
    ///
    /// # Errors
    /// Never fails, because this memory is always registered.
    pub fn handle(&self) -> Result<Handle> {
        self.0.raw.lock().handle()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes.length
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn check(&self, offset: usize, length: usize) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.len() => Ok(()),
            end => Err(Error::OutOfBounds {
                offset: offset as u64,
                end: end.unwrap_or(usize::MAX) as u64,
                length: self.len() as u64,
            }),
        }
    }

    /// Copies bytes out of the memory. Bytes that a transfer is writing may be partly old and
    /// partly new.
    ///
    /// # Errors
    /// Returns an error if the range exceeds the memory.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        let (length, into) = (into.len(), into.as_mut_ptr());
        // SAFETY: the range was just checked to be within the bytes, to which there are no
        // references. The engine's lock is held, as in all accesses to the bytes by this process.
        self.0.raw.lock().with_lock(|| unsafe {
            std::ptr::copy_nonoverlapping(self.0.bytes.start.add(offset), into, length);
        });
        Ok(())
    }

    /// Copies bytes into the memory. Bytes that a transfer is reading may be partly old and partly
    /// new.
    ///
    /// # Errors
    /// Returns an error if the range exceeds the memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range was just checked to be within the bytes, to which there are no
        // references. The engine's lock is held, as in all accesses to the bytes by this process.
        self.0.raw.lock().with_lock(|| unsafe {
            let at = self.0.bytes.start.add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
        });
        Ok(())
    }

    /// Deregisters the memory and returns its bytes.
    ///
    /// # Errors
    /// Returns the memory itself if a transfer of this process uses it and has not ended.
    pub fn into_vec(self) -> std::result::Result<Vec<u8>, Self> {
        let Registered { raw, bytes } = Arc::try_unwrap(self.0).map_err(Self)?;
        drop(raw);
        Ok(bytes.into_vec())
    }
}

impl<N: OpenTransport> fmt::Debug for Memory<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.raw.lock().fmt(f)
    }
}

/// An unexpected message.
#[derive(Debug)]
pub struct Message<N: OpenTransport = Network> {
    /// The sender.
    pub source: Addr<N>,
    /// The message's tag.
    pub tag: u32,
    /// The message's content.
    pub bytes: Vec<u8>,
}

/// A context, in which operations begin and end.
pub struct Context<N: OpenTransport = Network> {
    class: Class<N>,
    number: u8,
}

impl<N: OpenTransport> Context<N> {
    /// Returns the context's class.
    pub fn class(&self) -> &Class<N> {
        &self.class
    }

    /// Sends an unexpected message to a context of another process. The operation's result is the
    /// buffer.
    ///
    /// # Errors
    /// Returns an error if the message is too long. If the peer is unreachable, the operation
    /// itself fails.
    pub fn send_unexpected(
        &self,
        bytes: Vec<u8>,
        to: (&Addr<N>, u8),
        tag: u32,
    ) -> Result<Pending<Vec<u8>, N>> {
        let to = target(to);
        self.begin(bytes, None, bytes_of, |raw, context, cookie, bytes| {
            let bytes = (bytes.start.cast_const(), bytes.length);
            // SAFETY: the operation owns the bytes until it is triggered, and it is triggered only
            // after it has ended.
            unsafe { raw.send_unexpected(context, cookie, bytes, &to, tag) }
        })
    }

    /// Sends an expected message to a context of another process, which has posted, or is going to
    /// post, a receive for it. The operation's result is the buffer.
    ///
    /// # Errors
    /// Returns an error if the message is too long. If the peer is unreachable, the operation
    /// itself fails.
    pub fn send_expected(
        &self,
        bytes: Vec<u8>,
        to: (&Addr<N>, u8),
        tag: u32,
    ) -> Result<Pending<Vec<u8>, N>> {
        let to = target(to);
        self.begin(bytes, None, bytes_of, |raw, context, cookie, bytes| {
            let bytes = (bytes.start.cast_const(), bytes.length);
            // SAFETY: the operation owns the bytes until it is triggered, and it is triggered only
            // after it has ended.
            unsafe { raw.send_expected(context, cookie, bytes, &to, tag) }
        })
    }

    /// Receives an unexpected message from any source.
    ///
    /// # Errors
    /// Never fails at present.
    pub fn receive_unexpected(&self) -> Result<Pending<Message<N>, N>> {
        let buffer = vec![0; self.class.0.raw.max_unexpected_size()];
        self.begin(buffer, None, message_of, |raw, context, cookie, bytes| {
            let bytes = (bytes.start, bytes.length);
            // SAFETY: the operation owns the bytes until it is triggered, and it is triggered only
            // after it has ended.
            unsafe { raw.receive_unexpected(context, cookie, bytes, false) }
        })
    }

    /// Receives an expected message with this tag from a context of another process.
    ///
    /// # Errors
    /// Never fails at present.
    pub fn receive_expected(&self, from: (&Addr<N>, u8), tag: u32) -> Result<Pending<Vec<u8>, N>> {
        let from = target(from);
        let buffer = vec![0; self.class.0.raw.max_expected_size()];
        self.begin(buffer, None, bytes_of, |raw, context, cookie, bytes| {
            let bytes = (bytes.start, bytes.length);
            // SAFETY: the operation owns the bytes until it is triggered, and it is triggered only
            // after it has ended.
            unsafe { raw.receive_expected(context, cookie, bytes, &from, tag) }
        })
    }

    /// Copies `length` bytes of `local` to memory of a process. The operation ends when the bytes
    /// are in that memory.
    ///
    /// # Errors
    /// Returns an error if the transfer is out of bounds on either side, or not allowed.
    pub fn put(
        &self,
        local: Part<&Memory<N>>,
        remote: Part<&Handle>,
        length: u64,
        to: &Addr<N>,
    ) -> Result<Pending<(), N>> {
        self.transfer(local, remote, length, to, true)
    }

    /// Copies `length` bytes of a process's memory to `local`.
    ///
    /// # Errors
    /// Returns an error if the transfer is out of bounds on either side, or not allowed.
    pub fn get(
        &self,
        local: Part<&Memory<N>>,
        remote: Part<&Handle>,
        length: u64,
        from: &Addr<N>,
    ) -> Result<Pending<(), N>> {
        self.transfer(local, remote, length, from, false)
    }

    fn transfer(
        &self,
        local: Part<&Memory<N>>,
        remote: Part<&Handle>,
        length: u64,
        peer: &Addr<N>,
        is_put: bool,
    ) -> Result<Pending<(), N>> {
        let memory = Arc::clone(&local.memory.0);
        let kept = Some(Arc::clone(&memory));
        self.begin(
            Vec::new(),
            kept,
            |_| Ok(()),
            |raw, context, cookie, _| {
                let memory = &*memory.raw.lock();
                let local = Part {
                    memory,
                    offset: local.offset,
                };
                // SAFETY: the operation keeps the local memory until it has ended, and there are no
                // references to the bytes of that memory.
                unsafe {
                    match is_put {
                        true => raw.put(context, cookie, local, remote, length, peer),
                        false => raw.get(context, cookie, local, remote, length, peer),
                    }
                }
            },
        )
    }

    fn begin<T>(
        &self,
        bytes: Vec<u8>,
        memory: Option<Arc<Registered<N>>>,
        value: fn(Ended<N>) -> Result<T>,
        begin: impl FnOnce(&class::Class<N>, u8, u64, &Bytes) -> Result<OperationId>,
    ) -> Result<Pending<T, N>> {
        let state = Arc::new(Mutex::new(ContextState::UnderWay(None)));
        let (cookie, address) = {
            let bytes = Bytes::new(bytes);
            let address = Bytes {
                start: bytes.start,
                length: bytes.length,
                capacity: 0,
            };
            let begun = Begun {
                state: Arc::clone(&state),
                bytes,
                memory,
            };
            (
                self.class.0.table.begun.lock().insert(begun),
                // `begun` owns the bytes, so this copy of their address must not drop them.
                ManuallyDrop::new(address),
            )
        };
        match begin(&self.class.0.raw, self.number, cookie as u64, &address) {
            Ok(id) => Ok(Pending {
                class: self.class.clone(),
                context: self.number,
                id,
                state,
                value,
            }),
            Err(error) => {
                self.class.0.table.begun.lock().remove(cookie);
                Err(error)
            }
        }
    }

    /// Makes progress, and sleeps for at most `limit` while there is nothing to
    /// [trigger](Self::trigger). Returns whether there is something to trigger.
    pub fn progress(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        let queue = &self.class.0.table.ended[usize::from(self.number)];
        loop {
            self.class.0.raw.progress(self.number);
            if !queue.lock().is_empty() {
                return true;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            self.class.0.raw.sleep(self.number, left);
        }
    }

    /// Returns a descriptor, for other event loops, that becomes readable when this context needs
    /// progress. The caller must call [`prepare_sleep`](Self::prepare_sleep) before each sleep.
    /// Returns `None` if the class is busy.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.class.0.raw.descriptor(self.number)
    }

    /// Returns whether a thread may sleep now until the [descriptor](Self::descriptor) is readable.
    /// If this call returns `false`, [make progress](Self::progress) first.
    pub fn prepare_sleep(&self) -> bool {
        self.class.0.raw.prepare_sleep(self.number)
    }

    /// Completes at most `most` operations of this context that have ended, and wakes the tasks
    /// that wait for them. Returns the number of completed operations.
    pub fn trigger(&self, most: usize) -> usize {
        let queue = &self.class.0.table.ended[usize::from(self.number)];
        let mut count = 0;
        while count < most
            && let Some(completion) = { queue.lock().pop_front() }
        {
            self.complete(completion);
            count += 1;
        }
        count
    }

    fn complete(&self, completion: Completion) {
        let Some(begun) = self.class.0.table.take(&completion) else {
            return;
        };
        let Begun { state, bytes, .. } = begun;
        let bytes = bytes.into_vec();
        let result = completion.result.map(|outcome| match outcome {
            Outcome::Done => Ended {
                bytes,
                length: None,
                from: None,
            },
            Outcome::Received(length) => Ended {
                bytes,
                length: Some(length),
                from: None,
            },
            Outcome::Unexpected {
                source,
                tag,
                length,
                ..
            } => Ended {
                bytes,
                length: Some(length),
                from: Some((self.class.0.raw.source(source), tag)),
            },
        });
        let before = std::mem::replace(&mut *state.lock(), ContextState::Ended(result));
        if let ContextState::UnderWay(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<N: OpenTransport> fmt::Debug for Context<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("class", &self.class)
            .field("number", &self.number)
            .finish()
    }
}

fn target<'a, N: OpenTransport>((address, context): (&'a Addr<N>, u8)) -> Target<'a, N> {
    Target { address, context }
}

/// Returns the buffer of a sent message, or the bytes of a received message.
fn bytes_of<N: OpenTransport>(ended: Ended<N>) -> Result<Vec<u8>> {
    let mut bytes = ended.bytes;
    if let Some(length) = ended.length {
        bytes.truncate(length);
    }
    Ok(bytes)
}

fn message_of<N: OpenTransport>(mut ended: Ended<N>) -> Result<Message<N>> {
    // A receive for an unexpected message always ends with a message.
    let (source, tag) = ended
        .from
        .take()
        .ok_or(Error::Invalid("the operation received no message"))?;
    Ok(Message {
        source,
        tag,
        bytes: bytes_of(ended)?,
    })
}

/// A pending operation, which is a future of the operation's result. Dropping a `Pending` does not
/// cancel the operation.
#[must_use = "the result tells whether the operation succeeded"]
pub struct Pending<T, N: OpenTransport = Network> {
    class: Class<N>,
    context: u8,
    id: OperationId,
    state: Arc<Mutex<ContextState<N>>>,
    value: fn(Ended<N>) -> Result<T>,
}

impl<T, N: OpenTransport> Pending<T, N> {
    /// Cancels the operation. The operation ends with [`Error::Canceled`], either at once or as
    /// soon as its memory is no longer accessed. Has no effect if the operation has ended.
    pub fn cancel(&self) {
        self.class.0.raw.cancel(self.id);
    }

    /// Returns whether the operation has been triggered, so that its result is available.
    pub fn is_done(&self) -> bool {
        !matches!(*self.state.lock(), ContextState::UnderWay(_))
    }

    fn take(&self) -> Option<Result<T>> {
        let mut state = self.state.lock();
        if matches!(*state, ContextState::UnderWay(_)) {
            return None;
        }
        let ContextState::Ended(result) = std::mem::replace(&mut *state, ContextState::Taken)
        else {
            return Some(Err(Error::Invalid("the result was already taken")));
        };
        drop(state);
        Some(result.and_then(self.value))
    }

    /// Makes progress and triggers completions of the operation's context until the operation is
    /// done.
    ///
    /// # Errors
    /// Returns the operation's error.
    pub fn wait(self) -> Result<T> {
        /// The interval at which this thread checks whether another thread has triggered the
        /// operation, which no event reports.
        const LOOK: Duration = Duration::from_millis(10);
        let context = Context {
            class: self.class.clone(),
            number: self.context,
        };
        loop {
            if let Some(result) = self.take() {
                return result;
            }
            context.progress(LOOK);
            context.trigger(usize::MAX);
        }
    }
}

/// The future is ready once a thread has [triggered](Context::trigger) the operation.
impl<T, N: OpenTransport> Future for Pending<T, N> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Result<T>> {
        if let ContextState::UnderWay(waker) = &mut *self.state.lock() {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match self.take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl<T, N: OpenTransport> fmt::Debug for Pending<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("id", &self.id)
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}
