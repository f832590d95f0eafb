//! Ranks that take turns on one thread. Each rank is a coroutine, and a seeded random choice
//! selects the one that runs next. A schedule of blocking calls therefore runs the same way each
//! time, and a deadlock is found by counting turns instead of measuring time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use conduit_core::ni::{
    Atomic, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError, PtIndex, Put,
    Rank, Reach, Ready, Region, RegionId, Submit, Unlink, Window,
};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use pmi::bootstrap::{Bootstrap, BootstrapError};

use crate::any::AnyNi;

/// The contributions of each rank to each collective call of job start.
type Board = Rc<RefCell<Vec<Vec<Option<Vec<u8>>>>>>;

/// A description of each rank's current action.
type Doing = Rc<RefCell<Vec<String>>>;

/// The access of a rank's coroutine to its turns.
#[derive(Debug, Clone, Copy)]
struct Seat {
    yielder: *const Yielder<(), ()>,
}

impl Seat {
    /// Ends this rank's turn, so that another rank may run. Returns at this rank's next turn.
    fn pass(self) {
        // SAFETY: the yielder lives while its coroutine's body runs, and a seat is used only within
        // that body. `run` passes the seat only to the body, as a part of the arguments `InTurn`
        // and `Meeting`, and neither of those can leave the body because they are not `Send`.
        unsafe { (*self.yielder).suspend(()) };
    }
}

/// Runs `f` once for each rank's end of a network. The ranks take turns, at most `limit` turns
/// altogether. The ends live until all ranks are done, because a rank may still send to one that is
/// done.
///
/// # Errors
/// The failure of the first rank that fails, or a message that `limit` was exceeded. The other
/// ranks are then unwound.
pub fn run<N: Ni + 'static>(
    ends: Vec<N>,
    seed: u64,
    limit: u64,
    f: impl Fn(InTurn, Meeting) -> Result<(), String> + 'static,
) -> Result<(), String> {
    let (size, f, board) = (ends.len() as u32, Rc::new(f), Board::default());
    let doing = Doing::new(RefCell::new(vec![String::new(); ends.len()]));
    let ends: Vec<_> = ends
        .into_iter()
        .map(|end| Rc::new(AnyNi::new(end)))
        .collect();
    let mut running: Vec<_> = (0..)
        .zip(ends.iter().cloned())
        .map(|(rank, inner)| {
            let (f, board, doing) = (f.clone(), board.clone(), doing.clone());
            let body = move |yielder: &Yielder<(), ()>, ()| {
                let seat = Seat { yielder };
                let meeting = Meeting {
                    board,
                    rank,
                    size,
                    round: 0,
                    put: Vec::new(),
                    seat,
                };
                f(InTurn { inner, seat, doing }, meeting)
            };
            (rank, Coroutine::<(), (), Result<(), String>>::new(body))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..limit {
        if running.is_empty() {
            return Ok(());
        }
        let next = random.usize(..running.len());
        let (rank, coroutine) = &mut running[next];
        match coroutine.resume(()) {
            CoroutineResult::Yield(()) => {}
            CoroutineResult::Return(Ok(())) => {
                running.swap_remove(next);
            }
            CoroutineResult::Return(Err(reason)) => return Err(format!("rank {rank}: {reason}")),
        }
    }
    let ranks: Vec<_> = running
        .iter()
        .map(|(rank, _)| format!("rank {rank} in {}", doing.borrow()[*rank as usize]))
        .collect();
    Err(format!(
        "some ranks have not finished after {limit} turns: {}",
        ranks.join("; ")
    ))
}

/// The collective calls of job start, for ranks that take turns.
#[derive(Debug)]
pub struct Meeting {
    board: Board,
    rank: Rank,
    size: u32,
    round: usize,
    /// The bytes that this rank has put since the last fence.
    put: Vec<u8>,
    seat: Seat,
}

impl Bootstrap for Meeting {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn put(&mut self, _: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        self.put = bytes.to_vec();
        Ok(())
    }
    /// Returns what the rank has put before the last fence, under whichever key.
    fn get(&mut self, rank: Rank, _: &str) -> Result<Vec<u8>, BootstrapError> {
        let board = self.board.borrow();
        Ok(board[self.round - 1][rank as usize]
            .clone()
            .unwrap_or_default())
    }
    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.meet(|seat| seat.pass());
        Ok(())
    }
    fn fences(&self) -> u64 {
        self.round as u64
    }
}

impl Meeting {
    /// Returns when all ranks have called `leave`. `poll` must poll the network, because other
    /// ranks may need messages that this rank has yet to forward.
    pub fn leave(&mut self, mut poll: impl FnMut()) {
        self.meet(|_| poll());
    }

    fn meet(&mut self, mut idle: impl FnMut(Seat)) {
        let round = self.round;
        self.round += 1;
        {
            let mut board = self.board.borrow_mut();
            if board.len() == round {
                board.push(vec![None; self.size as usize]);
            }
            board[round][self.rank as usize] = Some(std::mem::take(&mut self.put));
        }
        while self.board.borrow()[round].iter().any(Option::is_none) {
            idle(self.seat);
        }
    }
}

/// A rank's end of a network. Each poll of it ends the rank's turn.
pub struct InTurn {
    inner: Rc<AnyNi>,
    seat: Seat,
    doing: Doing,
}

impl InTurn {
    /// Returns the network that this value wraps.
    pub fn inner(&self) -> &AnyNi {
        &self.inner
    }

    /// Describes this rank's current action. The description appears in the error message if the
    /// job doesn't finish.
    pub fn note(&self, what: String) {
        self.doing.borrow_mut()[self.inner.rank() as usize] = what;
    }
}

impl Ni for InTurn {
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
        // SAFETY: this method and the inner call have the same contract, so the caller guarantees
        // what the inner call requires.
        unsafe { self.inner.md_bind(base, len, eq) }
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        self.inner.md_release(md)
    }
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        // SAFETY: this method and the inner call have the same contract, so the caller guarantees
        // what the inner call requires.
        unsafe { self.inner.put(put) }
    }
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        self.inner.inject(inject)
    }
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        // SAFETY: this method and the inner call have the same contract, so the caller guarantees
        // what the inner call requires.
        unsafe { self.inner.get(get) }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.inner.atomic(atomic)
    }
    fn abandon(&self) {
        self.inner.abandon();
    }
    fn ready(&self) -> Ready {
        // The turn passes here because the engine calls `ready` with each poll.
        self.seat.pass();
        self.inner.ready()
    }
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        self.inner.poll(eq, limit, sink)
    }
    fn progress(&self) {
        self.inner.progress();
    }
    fn wait(&self, _limit: Duration) {
        self.seat.pass();
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
