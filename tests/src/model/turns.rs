//! Ranks as threads that take turns: one runs at a time, and a seeded draw says who is next. So a schedule of blocking
//! calls runs the same way each time, and a job that can't go on is found by counting turns instead of by a clock.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use conduit_core::bootstrap::{Bootstrap, BootstrapError};
use conduit_core::ni::{
    Atomic, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError, PtIndex, Put,
    Rank, Reach, Region, RegionId, Submit, Unlink, Window,
};

/// Who runs, and what they tell each other while they start.
#[derive(Debug)]
pub struct Turns {
    state: Mutex<State>,
    changed: Vec<Condvar>,
    limit: u64,
}

#[derive(Debug)]
struct State {
    turn: usize,
    running: Vec<bool>,
    random: fastrand::Rng,
    taken: u64,
    failure: Option<String>,
    /// For each collective call of the start: what the ranks have brought.
    board: Vec<Vec<Option<Vec<u8>>>>,
}

/// Unwinds a rank because another has failed.
struct Abandoned;

impl Turns {
    /// For `ranks`, which may take `limit` turns together.
    pub fn new(ranks: u32, seed: u64, limit: u64) -> Self {
        Self {
            state: Mutex::new(State {
                turn: 0,
                running: vec![true; ranks as usize],
                random: fastrand::Rng::with_seed(seed),
                taken: 0,
                failure: None,
                board: Vec::new(),
            }),
            changed: (0..ranks).map(|_| Condvar::new()).collect(),
            limit,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A rank's panic is reported by itself, not by a poisoned lock.
        self.state.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Lets another rank run, perhaps; returns when it is this one's turn again.
    pub fn pass(&self, rank: Rank) {
        let mut state = self.state();
        state.taken += 1;
        if state.taken > self.limit && state.failure.is_none() {
            state.failure = Some(format!("no end after {} turns", self.limit));
        }
        self.choose(&mut state);
        self.await_turn(state, rank);
    }

    fn choose(&self, state: &mut State) {
        let running: Vec<_> = (0..state.running.len())
            .filter(|&rank| state.running[rank])
            .collect();
        if let Some(&next) = state.random.choice(&running) {
            state.turn = next;
            self.changed[next].notify_one();
        }
    }

    fn await_turn(&self, mut state: MutexGuard<'_, State>, rank: Rank) {
        while state.turn != rank as usize {
            state = self.changed[rank as usize]
                .wait(state)
                .unwrap_or_else(|held| held.into_inner());
        }
        if state.failure.is_some() {
            drop(state);
            panic_any(Abandoned);
        }
    }

    /// Runs `rank` on this thread, from its first turn to its end.
    fn run<R>(&self, rank: Rank, f: impl FnOnce() -> Result<R, String>) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.await_turn(self.state(), rank);
            f()
        }));
        let mut state = self.state();
        let (value, failure) = match result {
            Ok(Ok(value)) => (Some(value), None),
            Ok(Err(reason)) => (None, Some(reason)),
            Err(panic) => (None, what(&*panic)),
        };
        if let Some(reason) = failure {
            state
                .failure
                .get_or_insert(format!("rank {rank}: {reason}"));
        }
        state.running[rank as usize] = false;
        self.choose(&mut state);
        value
    }
}

/// What a panic says, unless it is the echo of another rank's failure.
fn what(panic: &(dyn std::any::Any + Send)) -> Option<String> {
    if panic.is::<Abandoned>() {
        return None;
    }
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(text.unwrap_or_else(|| "a panic without words".to_owned()))
}

/// Runs `f` once for each rank's end of a network; all results, or the first failure.
pub fn run<N: Ni + Send, R: Send>(
    turns: &Arc<Turns>,
    ends: Vec<N>,
    f: impl Fn(InTurn<N>, Meeting<'_>) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let results = std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..)
            .zip(ends)
            .map(|(rank, inner)| {
                scope.spawn(move || {
                    turns.run(rank, || {
                        let meeting = Meeting {
                            turns,
                            rank,
                            round: 0,
                        };
                        let turns = turns.clone();
                        f(InTurn { inner, turns }, meeting)
                    })
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().ok());
        results.map(Option::flatten).collect::<Option<Vec<_>>>()
    });
    match (turns.state().failure.take(), results) {
        (Some(failure), _) => Err(failure),
        (None, Some(results)) => Ok(results),
        (None, None) => Err("a rank ended without a word".to_owned()),
    }
}

/// Job start among ranks that take turns.
#[derive(Debug)]
pub struct Meeting<'a> {
    turns: &'a Turns,
    rank: Rank,
    round: usize,
}

impl Bootstrap for Meeting<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.turns.changed.len() as u32
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let round = self.round;
        self.round += 1;
        let size = self.size() as usize;
        {
            let mut state = self.turns.state();
            if state.board.len() == round {
                state.board.push(vec![None; size]);
            }
            state.board[round][self.rank as usize] = Some(bytes.to_vec());
        }
        loop {
            let all = self.turns.state().board[round].iter().cloned().collect();
            if let Some(all) = all {
                return Ok(all);
            }
            self.turns.pass(self.rank);
        }
    }
    fn barrier(&mut self) -> Result<(), BootstrapError> {
        self.allgather(&[]).map(drop)
    }
}

/// A rank's end of a network that passes the turn with each poll.
#[derive(Debug)]
pub struct InTurn<N> {
    inner: N,
    turns: Arc<Turns>,
}

impl<N: Ni> Ni for InTurn<N> {
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
        self.inner.reach(peer)
    }
    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        self.inner.region_create(len)
    }
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        self.inner.window(peer, region)
    }
    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        self.inner.eq_create(slots)
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        self.inner.pt_open(index, eq)
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        self.inner.me_append(index, entry)
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        self.inner.me_unlink(me)
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.md_bind(base, len, eq) }
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        self.inner.md_release(md)
    }
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.put(put) }
    }
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        self.inner.inject(inject)
    }
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.get(get) }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.inner.atomic(atomic)
    }
    fn is_idle(&self) -> bool {
        // The engine asks with each poll.
        self.turns.pass(self.inner.rank());
        self.inner.is_idle()
    }
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        self.inner.poll(eq, limit, sink)
    }
    fn progress(&self) {
        self.inner.progress();
    }
    fn wait(&self, _limit: Duration) {
        self.turns.pass(self.inner.rank());
    }
    fn notify(&self, peer: Rank) {
        self.inner.notify(peer);
    }
    fn failed_peer(&self) -> Option<Rank> {
        self.inner.failed_peer()
    }
}
