//! Atomics by the network.
//!
//! A network's atomics are not atomic towards the processor's: what is done on one word must all be done in one way. With
//! [`PortalsConfig::native_atomics`](crate::transport::PortalsConfig::native_atomics) that way is the network's, for every atomic on a plain
//! entry and every integer of a size that is *native*: for both types of that size the transport has a fetching compare-and-swap.
//! That says nothing of the rank, so all ranks have the same sizes.
//!
//! | atomic | done by |
//! |---|---|
//! | on an entry that a peer has told of | the initiator's network |
//! | that came by message, or is one on oneself | the target's network, on its own memory; then it is answered as any |
//! | that the network lacks (a product) | compare-and-swap, again until nobody came between |
//! | outside of the entry, misaligned, matching nothing | nobody |
//!
//! So it does not matter when an initiator is told of an entry, or has to give it back. An entry stays in use while an atomic on it is
//! under way here.

use std::collections::VecDeque;

use conduit_core::ni::{
    Atomic, AtomicOp, AtomicType, MeId, MeOptions, Outcome, Rank, apply_atomic,
};
use slab::Slab;

use super::known::Wanted;
use crate::matching::{EntryId, Hit};
use crate::transport::Inner;
use crate::transport::fragment::Refused;
use crate::transport::interface::{NativeAtomic, Remote, Transport};
use crate::transport::operation::{Answer, End, Kind, Operation};
use crate::transport::state::Portals;
use crate::transport::submit::Not;
use crate::transport::window::Cost;
use crate::transport::wire;

/// Of the names that the transport has for what it does: a task, not an operation of this rank's own.
const TASK: u64 = 1 << 32;

/// How an atomic is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the network's own operation; whether by the one that fetches.
    Itself(bool),
    /// By compare-and-swap.
    Loop,
}

/// The ways of one type, by operation and whether the old value is wanted.
type Ways = [[Way; 2]; AtomicOp::ALL.len()];

/// An atomic that this rank has its network do.
#[derive(Debug)]
struct Task {
    peer: Rank,
    remote: Remote,
    op: AtomicOp,
    ty: AtomicType,
    operand: u64,
    comparand: u64,
    way: Way,
    /// In a [loop](Way::Loop): what the word should be.
    expected: u64,
    then: Then,
}

/// What follows on its end.
#[derive(Debug)]
enum Then {
    /// The end of this rank's own operation.
    Own(u32),
    /// The answer to a message.
    Answer {
        to: Rank,
        operation: u32,
        index: u8,
        entry: EntryId,
    },
}

/// Atomics by the network.
#[derive(Debug, Default)]
pub(crate) struct Native {
    /// By type; none: by the target's processor.
    ways: [Option<Ways>; AtomicType::ALL.len()],
    tasks: Slab<Task>,
    /// Those that the transport is to take next.
    pub(crate) waiting: VecDeque<usize>,
}

impl Native {
    /// On a network that has these operations.
    pub(crate) fn new(has: impl Fn(AtomicOp, AtomicType, bool) -> bool) -> Self {
        let mut native = Self::default();
        for (place, ty) in native.ways.iter_mut().zip(AtomicType::ALL) {
            let all = AtomicType::ALL.into_iter();
            let mut of_size = all.filter(|other| other.size() == ty.size());
            if !of_size.all(|ty| has(AtomicOp::CompareSwap, ty, true)) {
                continue;
            }
            *place = Some(AtomicOp::ALL.map(|op| {
                [false, true].map(|fetch| match (has(op, ty, fetch), has(op, ty, true)) {
                    (true, _) => Way::Itself(fetch),
                    (false, true) => Way::Itself(true),
                    (false, false) => Way::Loop,
                })
            }));
        }
        native
    }

    #[inline]
    fn way(&self, op: AtomicOp, ty: AtomicType, fetch: bool) -> Option<Way> {
        let ways = self.ways[ty as usize].as_ref()?;
        Some(ways[op as usize][usize::from(fetch)])
    }

    /// Whether integers of a type are native.
    pub(crate) fn has(&self, ty: AtomicType) -> bool {
        self.ways[ty as usize].is_some()
    }

    /// Whether those of some type are.
    pub(crate) fn has_any(&self) -> bool {
        AtomicType::ALL.iter().any(|&ty| self.has(ty))
    }

    /// Those under way.
    pub(crate) fn under_way(&self) -> usize {
        self.tasks.len()
    }

    /// Forgets what was to be done at a peer.
    pub(crate) fn forget(&mut self, peer: Rank) {
        self.tasks.retain(|_, task| task.peer != peer);
        let tasks = &self.tasks;
        self.waiting.retain(|&at| tasks.contains(at));
    }
}

impl Task {
    /// What the transport is asked for.
    fn step(&self, at: usize) -> NativeAtomic {
        let (op, ty, token) = (self.op, self.ty, TASK | at as u64);
        match self.way {
            Way::Itself(fetch) => NativeAtomic {
                op,
                ty,
                operand: self.operand,
                comparand: self.comparand,
                fetch,
                token,
            },
            Way::Loop => NativeAtomic {
                op: AtomicOp::CompareSwap,
                ty,
                operand: self.new_value(self.expected),
                comparand: self.expected,
                fetch: true,
                token,
            },
        }
    }

    /// What the operation makes of an old value.
    fn new_value(&self, old: u64) -> u64 {
        result_of(self.op, self.ty, self.operand, self.comparand, old)
    }
}

/// What an atomic makes of an old value.
pub(crate) fn result_of(
    op: AtomicOp,
    ty: AtomicType,
    operand: u64,
    comparand: u64,
    old: u64,
) -> u64 {
    let (mut short, mut long) = (old as u32, old);
    let word: *mut u8 = match ty.size() {
        4 => (&raw mut short).cast(),
        _ => (&raw mut long).cast(),
    };
    // SAFETY: a variable of the type's size, which nobody else sees.
    unsafe { apply_atomic(word, op, ty, operand, comparand) };
    match ty.size() {
        4 => short.into(),
        _ => long,
    }
}

/// As a fetched value travels.
fn zero_extended(value: u64, ty: AtomicType) -> u64 {
    match ty.size() {
        4 => u64::from(value as u32),
        _ => value,
    }
}

fn is_aligned(remote: Remote, ty: AtomicType) -> bool {
    remote.address.is_multiple_of(ty.size() as u64)
}

impl Portals {
    /// Has the network do an atomic that has matched an entry here, where that is its way. False: the processor does it.
    pub(crate) fn atomic_natively(
        &mut self,
        source: Rank,
        atomic: &wire::Atomic,
        hit: &Hit,
    ) -> bool {
        // It is answered with the old value in any case.
        let Some(way) = self.native.way(atomic.op, atomic.ty, true) else {
            return false;
        };
        let Some(plain) = self.plain(hit.id.me(atomic.index)) else {
            return false;
        };
        let direct = &plain.direct;
        let remote = Remote {
            key: direct.remote.key,
            // Within the entry: the message has matched.
            address: direct.remote.address.wrapping_add(hit.offset),
        };
        if hit.outcome != Outcome::Done || !is_aligned(remote, atomic.ty) {
            return false;
        }
        self.begin_use(atomic.index, hit.id);
        self.counters.native_for_peers += 1;
        let at = self.native.tasks.insert(Task {
            peer: self.rank,
            remote,
            op: atomic.op,
            ty: atomic.ty,
            operand: atomic.operand,
            comparand: atomic.comparand,
            way,
            expected: 0,
            then: Then::Answer {
                to: source,
                operation: atomic.operation,
                index: atomic.index,
                entry: hit.id,
            },
        });
        self.native.waiting.push_back(at);
        true
    }

    /// The transport has done an operation; true if that was a step of a task.
    pub(crate) fn task_done(&mut self, peer: Rank, token: u64, value: u64) -> bool {
        if token & TASK == 0 {
            return false;
        }
        let at = token as u32 as usize;
        let Some(task) = self.native.tasks.get_mut(at).filter(|t| t.peer == peer) else {
            return true;
        };
        let found = zero_extended(value, task.ty);
        // A word that stays what it was needs no writing.
        if task.way == Way::Loop && found != task.expected && task.new_value(found) != found {
            task.expected = found;
            self.native.waiting.push_back(at);
            return true;
        }
        let Task { ty, then, .. } = self.native.tasks.remove(at);
        // Fits: 4 or 8.
        let length = ty.size() as u32;
        match then {
            Then::Own(name) => {
                if let Some(operation) = self.operations.get(name) {
                    operation.answer = Some(Answer {
                        outcome: Outcome::Done,
                        length,
                        value: found,
                    });
                    self.ended(name);
                }
            }
            Then::Answer {
                to,
                operation,
                index,
                entry,
            } => {
                self.end_use(index, entry);
                self.consumed(to, Cost::of_header(index));
                let answered = self.respond(to, operation, Outcome::Done, length, found);
                debug_assert!(answered.is_ok(), "this rank's own");
            }
        }
        true
    }
}

impl<T: Transport> Inner<T> {
    /// Does an atomic directly. `None`: it has to go by message.
    pub(crate) fn atomic_directly(&mut self, atomic: &Atomic) -> Option<Result<(), Not>> {
        let way = self
            .portals
            .native
            .way(atomic.op, atomic.ty, atomic.fetch)?;
        let wanted = Wanted {
            peer: atomic.target,
            index: atomic.index.0,
            option: MeOptions::ATOMIC,
            match_bits: atomic.match_bits,
            offset: atomic.remote_offset,
            length: atomic.ty.size(),
        };
        let (entry, remote) = self.portals.direct.find(&wanted)?;
        if !is_aligned(remote, atomic.ty) {
            return None;
        }
        let Some(name) = self.begin_atomic(atomic, entry) else {
            self.portals.counters.waited_for_room += 1;
            return Some(Err(Not::Again));
        };
        let at = self.portals.native.tasks.insert(Task {
            peer: atomic.target,
            remote,
            op: atomic.op,
            ty: atomic.ty,
            operand: atomic.operand,
            comparand: atomic.comparand,
            way,
            expected: 0,
            then: Then::Own(name),
        });
        let Err(refused) = self.step(at) else {
            self.portals.counters.direct += 1;
            return Some(Ok(()));
        };
        self.portals.native.tasks.remove(at);
        self.undo(name);
        self.not_taken("atomic", atomic.target, refused)
    }

    fn begin_atomic(&mut self, atomic: &Atomic, entry: MeId) -> Option<u32> {
        let end = match atomic.fetch {
            true => End::Reply,
            false => End::Ack,
        };
        let name = self.portals.operations.add(Operation {
            kind: Kind::Direct(end, entry),
            token: atomic.token,
            target: atomic.target,
            md: None,
            eq: atomic.eq,
            memory: std::ptr::null_mut(),
            length: 0,
            unsent: false,
            answer: None,
            abandoned: false,
        })?;
        self.portals.direct.begin(atomic.target, entry);
        Some(name)
    }

    /// Hands a task's next step to the transport.
    fn step(&mut self, at: usize) -> Result<(), Refused> {
        let Some(task) = self.portals.native.tasks.get(at) else {
            return Ok(());
        };
        let (peer, remote) = (task.peer, task.remote);
        self.transport.atomic(peer, remote, &task.step(at))
    }

    /// Goes on with the tasks that wait for the transport.
    #[cold]
    pub(crate) fn go_on(&mut self) {
        while let Some(at) = self.portals.native.waiting.pop_front() {
            // Another refusal is that of a peer which has failed: the transport will tell, and the task goes then.
            match self.step(at) {
                Err(Refused::Full) => {
                    self.portals.native.waiting.push_front(at);
                    return;
                }
                refused => debug_assert_ne!(refused, Err(Refused::TooLong), "there is this atomic"),
            }
        }
    }
}
