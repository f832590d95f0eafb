//! A client's connection to its agent, including the requests that wait for replies.
//!
//! One of the waiting threads makes progress for all of them. When its own reply has arrived, it
//! hands this task to another thread. If the thread with the task sleeps while another thread makes
//! a request that the rings cannot take at once, the latter rings a doorbell to wake the former.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use agent::Code;
use agent::driver::now;
use agent::host::{Limit, Nanos};
use conduit_core::fork::Standing;
use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, timespec};
use conduit_shm::peers::{Local, LocalConfig, LocalError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use slab::Slab;
use zerocopy::FromBytes;

use crate::descriptor::Descriptor;
use crate::sessions::MAX_OPEN;
use crate::wire::{FrameKind, REQUEST, Reply, Request};

/// The size of the rings between client and agent, in bytes.
const RING: usize = 128 << 10;
/// The maximum number of requests that wait for room in the rings.
const MAX_QUEUE: usize = 64;
/// The time for which a waiting thread polls before it sleeps.
const SPIN: Nanos = 20_000;
/// The time that an agent may take for its first response.
const CONNECT: Nanos = 10_000_000_000;
/// The time that an agent may take to report that a request has timed out. An agent that a signal
/// has stopped never reports it.
const ANSWER: Nanos = 1_000_000_000;
/// The time that the agent may take to accept the last messages of an ending client.
const LINGER: Nanos = 10_000_000_000;

/// The reason why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The agent's name is invalid.
    #[error("invalid agent name {name:?}: {source}")]
    Name {
        /// The name.
        name: String,
        /// The cause.
        source: ConnectError,
    },
    /// The system refuses shared memory or a socket.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The system refuses a file descriptor.
    #[error("cannot connect to the agent: {0}")]
    System(#[from] std::io::Error),
    /// No agent of this name responds.
    #[error("this user has no agent named {name:?} on this host")]
    NoAgent {
        /// The name.
        name: String,
    },
}

/// The progress of a request.
#[derive(Debug)]
enum ConnectionState {
    Open,
    /// No thread waits for the reply any more.
    Abandoned,
    Ended(Result<Ended, Code>),
}

/// A reply and the bytes that came with it.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) value: u64,
    pub(crate) second: u64,
    pub(crate) node: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
struct Queued {
    id: u32,
    header: [u8; REQUEST],
    /// The message, if the request is a send.
    bytes: Option<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Requests {
    agent: Rank,
    next: u32,
    states: HashMap<u32, ConnectionState>,
    queue: VecDeque<Queued>,
    /// The messages that have not been completely copied to the rings, by token.
    sending: Slab<Box<[u8]>>,
    arriving: Slab<(Reply, Vec<u8>)>,
}

struct Inner {
    local: Local,
    requests: Requests,
    /// Whether a thread is making progress for all threads.
    is_driven: bool,
    /// Whether that thread sleeps.
    is_asleep: bool,
}

/// A connection to an agent; see the [module](self).
pub(crate) struct Connection {
    inner: Mutex<Inner>,
    ended: Condvar,
    bell: OwnedFd,
    standing: Standing,
}

impl Connection {
    /// Connects to the agent named `name`.
    pub(crate) fn open(name: &str) -> Result<Self, OpenError> {
        let mut local = Local::start(&LocalConfig {
            ring: RING,
            max_peers: 1,
            copy: false,
            ..LocalConfig::default()
        })?;
        let named = |source| OpenError::Name {
            name: name.to_owned(),
            source,
        };
        // The agent's address differs from this process's own only in the name, because host and
        // user are the same.
        let own = local.address_to_text(local.address()).unwrap_or_default();
        let place = own.split_once('.').map_or("", |(place, _)| place);
        let address = local.address_of_text(&format!("{place}.{name}"));
        let agent = local.connect(&address.map_err(named)?).map_err(named)?;
        let connection = Self {
            inner: Mutex::new(Inner {
                local,
                requests: Requests {
                    agent,
                    ..Requests::default()
                },
                is_driven: false,
                is_asleep: false,
            }),
            ended: Condvar::new(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(std::io::Error::from)?,
            standing: Standing::new(),
        };
        // The reply to any request, even an invalid one, shows that there is an agent.
        let none = Descriptor {
            node: 0,
            epoch: 0,
            number: 0,
        };
        let limit = Limit::At(now() + CONNECT);
        let id = connection.ask(FrameKind::Destroy, limit, none, None);
        match id.and_then(|id| connection.wait(id, limit)) {
            Err(Code::FAILURE | Code::TIMEOUT) => Err(OpenError::NoAgent {
                name: name.to_owned(),
            }),
            _ => Ok(connection),
        }
    }

    /// Makes a request and returns its number. If there is no room for the request, waits for room
    /// until `limit`, or fails at once if `limit` is [`Limit::Once`].
    pub(crate) fn ask(
        &self,
        kind: FrameKind,
        limit: Limit,
        channel: Descriptor,
        bytes: Option<Box<[u8]>>,
    ) -> Result<u32, Code> {
        if self.standing.is_child() {
            return Err(Code::FAILURE);
        }
        if bytes
            .as_ref()
            .is_some_and(|bytes| u32::try_from(bytes.len()).is_err())
        {
            return Err(Code::OUT_OF_SPACE);
        }
        let mut inner = self.inner.lock();
        inner.flush();
        let has_room = |inner: &mut Inner| {
            inner.requests.queue.len() < MAX_QUEUE && inner.requests.states.len() < MAX_OPEN
        };
        if !has_room(&mut inner) {
            match limit {
                Limit::Once => return Err(Code::GATEWAY_FULL),
                _ => self.drive(&mut inner, limit, |inner| has_room(inner).then_some(())),
            }
            .ok_or(Code::GATEWAY_FULL)?;
        }
        let requests = &mut inner.requests;
        let id = requests.number();
        let request = Request {
            id,
            kind,
            limit,
            channel,
        };
        if kind.is_awaited() {
            requests.states.insert(id, ConnectionState::Open);
        }
        requests.queue.push_back(Queued {
            id,
            header: request.encode(),
            bytes,
        });
        self.flush(&mut inner);
        Ok(id)
    }

    /// Waits for the reply to a request. `limit` must be the limit with which the request was made;
    /// the agent enforces it.
    pub(crate) fn wait(&self, id: u32, limit: Limit) -> Result<Ended, Code> {
        let mut inner = self.inner.lock();
        let ended = self.drive(&mut inner, limit, |inner| inner.requests.take(id));
        ended.unwrap_or_else(|| {
            // The agent reports the timeout of a request that it has received. If the request is
            // still in this queue, end it here.
            let requests = &mut inner.requests;
            let before = requests.queue.len();
            requests.queue.retain(|queued| queued.id != id);
            if requests.queue.len() < before {
                requests.states.remove(&id);
                return Err(Code::TIMEOUT);
            }
            let limit = match limit {
                Limit::At(_) => Limit::At(now() + ANSWER),
                other => other,
            };
            let ended = self.drive(&mut inner, limit, |inner| inner.requests.take(id));
            ended.unwrap_or_else(|| {
                drop(inner);
                self.abandon(id);
                Err(Code::TIMEOUT)
            })
        })
    }

    /// Returns whether a request has ended, after making progress if no other thread does.
    pub(crate) fn has_ended(&self, id: u32) -> bool {
        let mut inner = self.inner.lock();
        if !inner.is_driven {
            inner.progress();
        }
        matches!(
            inner.requests.states.get(&id),
            None | Some(ConnectionState::Ended(_))
        )
    }

    /// Gives up waiting for a reply.
    pub(crate) fn abandon(&self, id: u32) {
        if self.standing.is_child() {
            return;
        }
        let mut inner = self.inner.lock();
        let requests = &mut inner.requests;
        let Some(ConnectionState::Open) = requests.states.get(&id) else {
            requests.states.remove(&id);
            return;
        };
        let before = requests.queue.len();
        requests.queue.retain(|queued| queued.id != id);
        if requests.queue.len() < before {
            requests.states.remove(&id);
            return;
        }
        requests.states.insert(id, ConnectionState::Abandoned);
        let request = Request {
            id,
            kind: FrameKind::Abandon,
            limit: Limit::Never,
            channel: Descriptor {
                node: 0,
                epoch: 0,
                number: 0,
            },
        };
        requests.queue.push_back(Queued {
            id,
            header: request.encode(),
            bytes: None,
        });
        self.flush(&mut inner);
    }

    /// Waits until the agent has taken all messages, for at most [`LINGER`]. A process that ends
    /// without closing the connection calls this.
    pub(crate) fn settle(&self) {
        if !self.standing.is_child() {
            self.inner.lock().settle();
        }
    }

    /// Hands queued requests to the rings without receiving replies. If some remain and the thread
    /// that makes progress sleeps, rings the doorbell.
    fn flush(&self, inner: &mut Inner) {
        inner.flush();
        if inner.is_asleep && inner.has_more() {
            ring(&self.bell);
        }
    }

    /// Makes progress, or lets another thread do so, until `find` returns a result or the limit
    /// passes.
    fn drive<T>(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        limit: Limit,
        find: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Option<T> {
        let found = self.drive_until(inner, limit, find);
        // Let another waiting thread take over the task of making progress.
        self.ended.notify_one();
        found
    }

    fn drive_until<T>(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        limit: Limit,
        mut find: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Option<T> {
        let mut quiet_since = now();
        loop {
            if let Some(found) = find(inner) {
                return Some(found);
            }
            let time = now();
            let left = match limit {
                Limit::At(at) if at <= time => return None,
                Limit::At(at) => Some(Duration::from_nanos(at - time)),
                // `Once` limits the agent's attempts, not this wait.
                Limit::Once | Limit::Never => None,
            };
            if inner.is_driven {
                match left {
                    None => self.ended.wait(inner),
                    Some(left) => drop(self.ended.wait_for(inner, left)),
                }
                continue;
            }
            if inner.progress() {
                quiet_since = time;
                self.ended.notify_all();
                continue;
            }
            inner.is_driven = true;
            if time - quiet_since < SPIN {
                MutexGuard::unlocked(inner, std::thread::yield_now);
            } else {
                self.sleep(inner, left);
            }
            inner.is_driven = false;
        }
    }

    /// Sleeps until there is input, the doorbell rings or the time `left` has passed.
    fn sleep(&self, inner: &mut MutexGuard<'_, Inner>, left: Option<Duration>) {
        if !inner.local.prepare_sleep() {
            return;
        }
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        inner.local.descriptors(&mut descriptors);
        let Some(readable) = descriptors.pop() else {
            return;
        };
        // The duplicate can be polled without a borrow of `inner`, which is unlocked during the
        // sleep.
        let Ok(readable) = rustix::io::fcntl_dupfd_cloexec(readable, 0) else {
            return std::thread::yield_now();
        };
        let limit = [left, inner.local.timeout()].into_iter().flatten().min();
        inner.is_asleep = true;
        MutexGuard::unlocked(inner, || {
            let mut waited = [&readable, &self.bell].map(|fd| PollFd::new(fd, PollFlags::IN));
            // A signal may end the sleep early, which is harmless.
            let _ = poll(&mut waited, limit.map(timespec).as_ref());
        });
        inner.is_asleep = false;
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.standing.is_child() {
            return;
        }
        let inner = self.inner.get_mut();
        inner.settle();
        inner.local.leave();
    }
}

fn ring(bell: &OwnedFd) {
    // If the counter is full, the doorbell has already been rung.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

impl Inner {
    /// Receives replies and hands queued requests to the rings. Returns whether anything has
    /// arrived.
    fn progress(&mut self) -> bool {
        let any = self.local.receive(&mut self.requests);
        self.flush();
        any
    }

    /// Waits until the agent has taken everything that was sent, for at most [`LINGER`]. What it
    /// has not taken by then may be lost when the session ends.
    fn settle(&mut self) {
        let end = now() + LINGER;
        let is_taken =
            |inner: &Self| !inner.has_more() && inner.local.outstanding(inner.requests.agent) == 0;
        while !is_taken(self) && now() < end {
            self.progress();
            std::thread::yield_now();
        }
    }

    /// Returns whether data waits for room in the rings.
    fn has_more(&self) -> bool {
        !(self.requests.queue.is_empty() && self.requests.sending.is_empty())
    }

    fn flush(&mut self) {
        let Self {
            local, requests, ..
        } = self;
        while let Some(queued) = requests.queue.pop_front() {
            let payload = match &queued.bytes {
                None => Payload::Copied(&[]),
                Some(bytes) => Payload::Read {
                    token: requests.sending.vacant_key() as u64,
                    // The cast is lossless: `ask` has checked the length.
                    length: bytes.len() as u32,
                },
            };
            let fragment = Fragment {
                header: &queued.header,
                payload,
            };
            match local.send(requests.agent, &fragment) {
                Ok(()) => {
                    if let Some(bytes) = queued.bytes {
                        requests.sending.insert(bytes);
                    }
                }
                Err(Refused::Full) => {
                    requests.queue.push_front(queued);
                    break;
                }
                Err(_) => requests.end(queued.id, Err(Code::FAILURE)),
            }
        }
        local.transmit(requests);
    }
}

impl Requests {
    fn number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.states.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    fn take(&mut self, id: u32) -> Option<Result<Ended, Code>> {
        match self.states.remove(&id) {
            Some(ConnectionState::Ended(ended)) => Some(ended),
            Some(other) => {
                self.states.insert(id, other);
                None
            }
            None => Some(Err(Code::FAILURE)),
        }
    }

    fn end(&mut self, id: u32, ended: Result<Ended, Code>) {
        match self.states.get_mut(&id) {
            Some(state @ ConnectionState::Open) => *state = ConnectionState::Ended(ended),
            Some(ConnectionState::Abandoned) => drop(self.states.remove(&id)),
            // The request has ended already, or its reply was never awaited.
            _ => {}
        }
    }

    fn on_reply(&mut self, reply: Reply, bytes: Vec<u8>) {
        let ended = Ended {
            value: reply.value,
            second: reply.second,
            node: reply.node,
            bytes,
        };
        let ended = match Code(reply.code) {
            Code::SUCCESS => Ok(ended),
            code => Err(code),
        };
        self.end(reply.id, ended);
    }
}

impl FragmentHandler for Requests {
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        if let Some(bytes) = self.sending.get(token as usize) {
            into.copy_from_slice(&bytes[offset..][..into.len()]);
        }
    }

    fn sent(&mut self, _: Rank, token: u64) {
        self.sending.try_remove(token as usize);
    }

    fn fragment(&mut self, _: Rank, header: &[u8], payload: &[u8]) -> bool {
        match Reply::read_from_bytes(header) {
            Ok(reply) => self.on_reply(reply, payload.to_vec()),
            Err(_) => tracing::warn!("the agent sent a malformed reply"),
        }
        true
    }

    fn begin(&mut self, _: Rank, header: &[u8], length: usize) -> Option<u64> {
        // A malformed reply gets id 0 and a failure code. The number 0 is used only after 2³²
        // requests, so the reply is ignored.
        let none = Reply {
            id: 0,
            code: Code::FAILURE.0,
            value: 0,
            second: 0,
            node: 0,
        };
        let reply = Reply::read_from_bytes(header).unwrap_or(none);
        Some(self.arriving.insert((reply, vec![0; length])) as u64)
    }

    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        if let Some((_, into)) = self.arriving.get_mut(id as usize) {
            into[offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn end(&mut self, id: u64) {
        if let Some((reply, bytes)) = self.arriving.try_remove(id as usize) {
            self.on_reply(reply, bytes);
        }
    }

    fn failed(&mut self, _: Rank, failure: Failure) {
        tracing::debug!("the agent {failure}");
        self.queue.clear();
        self.sending.clear();
        self.arriving.clear();
        self.states.retain(|_, state| match state {
            ConnectionState::Open => {
                *state = ConnectionState::Ended(Err(Code::FAILURE));
                true
            }
            ConnectionState::Abandoned => false,
            ConnectionState::Ended(_) => true,
        });
    }

    fn room(&self) -> usize {
        1 << 30
    }
}
