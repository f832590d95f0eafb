//! A wrapper that makes any network as weak as the contract allows.
//!
//! [`Chaos`] wraps one rank's end of a network. Driven by a seed, it refuses submissions for which
//! there is room, submits accepted operations to the network later and in another order, withholds
//! and reorders events between polls, answers "in use" although nothing is in flight, and can hide
//! windows and inject. It keeps the contract's guarantees: no message is lost or duplicated, an
//! entry becomes free only after its last message, and a submission that is repeated is accepted
//! eventually. Code that works on a network and fails under chaos relies on more than the contract
//! guarantees.

mod deferred;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use conduit_core::ni::{
    Atomic, Capabilities, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError,
    PtIndex, Put, Rank, Reach, Region, RegionId, Submit, Unlink, Window,
};

use crate::held::Held;
use deferred::{Deferred, Operation};
use waiting::Waiting;

/// How much disorder [`Chaos`] adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disorder {
    /// The seed of the random choices. The same seed gives the same disorder if calls come in the
    /// same order.
    pub seed: u64,
    /// The percentage of submissions refused with [`Submit::Again`] although there is room. Must be
    /// below 100.
    pub again: u8,
    /// The percentage of unlinks and releases answered with [`Unlink::InUse`] although nothing is
    /// in flight. Must be below 100.
    pub in_use: u8,
    /// The percentage of submissions that reach the inner network later.
    pub defer: u8,
    /// The maximum number of polls for which an event is withheld. The number is drawn for each
    /// event. Even if it is 0, the events of one poll are reordered.
    pub withhold: u32,
    /// Whether peers' windows may be used.
    pub windows: bool,
    /// Whether inject may be used.
    pub inject: bool,
}

impl Disorder {
    /// Returns a moderate amount of every kind of disorder, drawn from this seed.
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            again: 25,
            in_use: 30,
            defer: 30,
            withhold: 6,
            windows: true,
            inject: true,
        }
    }
}

#[derive(Debug)]
struct State {
    random: fastrand::Rng,
    queues: HashMap<u8, Waiting>,
    deferred: Vec<Deferred>,
    /// The length of each descriptor's memory in bytes, to check an operation before deferring it.
    mds: HashMap<MdId, usize>,
    /// The entries that their owner has not unlinked.
    entries: HashSet<MeId>,
    /// Whether operations on callers' memory have been abandoned.
    abandoned: bool,
}

/// One rank's end of a network, weakened as the [module](self) describes.
#[derive(Debug)]
pub struct Chaos<N> {
    inner: N,
    disorder: Disorder,
    /// One reach per rank, and a last one for ranks outside the job.
    reaches: Vec<Reach>,
    state: Mutex<State>,
}

impl<N: Ni> Chaos<N> {
    /// Wraps one rank's end of a network. The ranks of a job may share a seed, because each rank
    /// draws its own numbers from it.
    pub fn new(inner: N, disorder: Disorder) -> Self {
        let reaches = (0..=inner.size())
            .map(|peer| {
                let mut reach = *inner.reach(peer);
                if !disorder.windows {
                    reach.capabilities.remove(Capabilities::WINDOW);
                }
                if !disorder.inject {
                    reach.inject_size = 0;
                }
                reach
            })
            .collect();
        let seed = disorder
            .seed
            .wrapping_mul(0x9E37_79B9)
            .wrapping_add(inner.rank().into());
        Self {
            inner,
            disorder,
            reaches,
            state: Mutex::new(State {
                random: fastrand::Rng::with_seed(seed),
                queues: HashMap::new(),
                deferred: Vec::new(),
                mds: HashMap::new(),
                entries: HashSet::new(),
                abandoned: false,
            }),
        }
    }

    /// Wraps the ends of all ranks of a job.
    pub fn job(ranks: Vec<N>, disorder: Disorder) -> Vec<Self> {
        ranks
            .into_iter()
            .map(|inner| Self::new(inner, disorder))
            .collect()
    }

    /// Locks the state. The lock is never held while a sink runs or the inner network is polled.
    fn state(&self) -> MutexGuard<'_, State> {
        // Ignores poisoning, because a panic in a failing case must not be hidden by a second one.
        self.state.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Refuses, defers or submits an operation.
    fn submit(&self, operation: Operation) -> Result<Submit, NiError> {
        let mut state = self.state();
        state.flush(&self.inner);
        let right = self.is_right(&state, &operation);
        if !right {
            // The inner network reports what is wrong with the operation.
            return operation.submit(&self.inner);
        }
        if state.draw(self.disorder.again) {
            return Ok(Submit::Again);
        }
        let defers = state.draw(self.disorder.defer) && state.may_keep(&operation);
        if defers && state.has_room_for(operation.target()) {
            state.defer(operation);
            return Ok(Submit::Posted);
        }
        operation.submit(&self.inner)
    }

    /// Returns whether the inner network is certain to accept the operation eventually. Only such
    /// operations may be deferred.
    fn is_right(&self, state: &State, operation: &Operation) -> bool {
        let (target, index) = (operation.target(), operation.index());
        if target >= self.inner.size() || index.0 >= self.inner.limits().pt_indices {
            return false;
        }
        let reach = self.reach(target);
        let in_descriptor = |md: MdId, offset: usize, length: usize| {
            length <= reach.max_message
                && (state.mds.get(&md))
                    .is_some_and(|len| offset.checked_add(length).is_some_and(|end| end <= *len))
        };
        match operation {
            Operation::Put(put) => in_descriptor(put.md, put.local_offset, put.length),
            Operation::Get(get) => in_descriptor(get.md, get.local_offset, get.length),
            Operation::Atomic(atomic) => state.queues.contains_key(&atomic.eq.0),
            Operation::Inject { head, body, .. } => {
                head.len() + body.len() <= reach.inject_size
                    && (body.is_empty() || head.len().is_multiple_of(16))
            }
        }
    }
}

impl State {
    /// Returns true with this probability in percent.
    fn draw(&mut self, percent: u8) -> bool {
        self.random.u8(0..100) < percent
    }
}

impl<N: Ni> Ni for Chaos<N> {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }
    fn size(&self) -> u32 {
        self.inner.size()
    }
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn reach(&self, peer: Rank) -> &Reach {
        &self.reaches[peer.min(self.inner.size()) as usize]
    }
    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        self.inner.region_create(len)
    }
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        if self.disorder.windows {
            self.inner.window(peer, region)
        } else {
            None
        }
    }

    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        let eq = self.inner.eq_create(slots)?;
        self.state().queues.insert(eq.0, Waiting::default());
        Ok(eq)
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        self.inner.pt_open(index, eq)
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        let me = self.inner.me_append(index, entry)?;
        self.state().entries.insert(me);
        Ok(me)
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        let mut state = self.state();
        if state.entries.contains(&me) && state.draw(self.disorder.in_use) {
            return Ok(Unlink::InUse);
        }
        let answer = self.inner.me_unlink(me);
        if answer != Ok(Unlink::InUse) {
            state.entries.remove(&me);
        }
        answer
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        // SAFETY: the caller guarantees what the inner call requires. The descriptor can't be
        // released while a deferred operation uses it.
        let md = unsafe { self.inner.md_bind(base, len, eq) }?;
        self.state().mds.insert(md, len);
        Ok(md)
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        let mut state = self.state();
        state.flush(&self.inner);
        let known = state.mds.contains_key(&md);
        if known && (state.defers(md) || state.draw(self.disorder.in_use)) {
            return Ok(Unlink::InUse);
        }
        let answer = self.inner.md_release(md);
        if answer == Ok(Unlink::Done) {
            state.mds.remove(&md);
        }
        answer
    }

    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        self.submit(Operation::Put(*put))
    }
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        let length = inject.head.len() + inject.body.len();
        if !self.disorder.inject && inject.target < self.size() && length > 0 {
            return Err(NiError::OverLimit {
                operation: "inject",
                what: "length",
                value: length as u64,
                limit: 0,
            });
        }
        self.submit(Operation::inject(inject))
    }
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        self.submit(Operation::Get(*get))
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.submit(Operation::Atomic(*atomic))
    }
    fn abandon(&self) {
        self.state().forget_operations_with_memory();
        self.inner.abandon();
    }

    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, mut sink: S) -> u32 {
        let most = {
            let mut state = self.state();
            state.flush(&self.inner);
            match state.queues.get_mut(&eq.0) {
                Some(waiting) => match waiting.begin() {
                    Some(most) => most,
                    None => return 0,
                },
                None => return 0,
            }
        };
        let mut fresh = Vec::new();
        self.inner
            .poll(eq, most, |event| fresh.push(Held::of(event)));
        self.state().keep(eq, fresh, self.disorder.withhold);
        let mut count = 0;
        while count < limit {
            let Some(held) = self.state().take(eq) else {
                break;
            };
            sink(held.event());
            count += 1;
        }
        if let Some(waiting) = self.state().queues.get_mut(&eq.0) {
            waiting.end();
        }
        count
    }
    fn progress(&self) {
        self.state().flush(&self.inner);
        self.inner.progress();
    }
    fn wait(&self, limit: Duration) {
        let idle = {
            let state = self.state();
            state.deferred.is_empty() && state.queues.values().all(Waiting::is_empty)
        };
        if idle {
            self.inner.wait(limit);
        }
    }
    fn notify(&self, peer: Rank) {
        self.inner.notify(peer);
    }
    fn failed_peer(&self) -> Option<Rank> {
        self.inner.failed_peer()
    }
    fn failure(&self, peer: Rank) -> String {
        self.inner.failure(peer)
    }
}
