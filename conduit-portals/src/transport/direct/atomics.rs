//! Atomics that the network performs.
//!
//! A network's atomics are not atomic with respect to those of a processor, so all atomics on one
//! word have to be performed in the same way. With
//! [`PortalsConfig::native_atomics`](crate::transport::PortalsConfig::native_atomics) the network
//! performs those on exportable entries, for integers of a *native* size: the transport has a
//! fetching compare-and-swap for all types of that size. Which atomics a transport has does not
//! depend on the rank, so all ranks agree on the native sizes.
//!
//! | atomic | performed by |
//! |---|---|
//! | on an imported entry | the initiator's network |
//! | received by message, or on the rank's own memory | the target's network, on its own memory; the response is as usual |
//! | that the network lacks (a product, the smaller float) | compare-and-swap in a loop |
//! | outside of the entry, misaligned, or without a match | none |
//!
//! Therefore it does not matter when an initiator imports an entry or stops using a withdrawn
//! entry. An entry stays in use while this rank's network performs an atomic on it.

use std::collections::VecDeque;

use conduit_core::ni::{
    Atomic, AtomicOp, AtomicType, MeId, MeOptions, Outcome, Rank, atomic_result,
};
use slab::Slab;

use super::imported::Request;
use crate::matching::{EntryId, Hit};
use crate::transport::Inner;
use crate::transport::fragment::Refused;
use crate::transport::interface::{NativeAtomic, Remote, Transport};
use crate::transport::operation::{Completion, End, Operation, OperationKind};
use crate::transport::send::SubmitError;
use crate::transport::state::Portals;
use crate::transport::window::Cost;
use crate::transport::wire;

/// Marks a transport's token as that of a task, as opposed to an operation of this rank.
const TASK: u64 = 1 << 32;

/// The method by which an atomic is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// The network's own operation. The value is `true` for the fetching variant.
    Native(bool),
    /// A loop of compare-and-swap operations.
    CasLoop,
}

/// The methods of one type, by operation and whether the old value is requested.
type Methods = [[Method; 2]; AtomicOp::ALL.len()];

/// An atomic that this rank's network is performing.
#[derive(Debug)]
struct Task {
    peer: Rank,
    remote: Remote,
    op: AtomicOp,
    ty: AtomicType,
    operand: u64,
    comparand: u64,
    method: Method,
    /// In a [loop](Method::CasLoop), the comparand of the next step.
    expected: u64,
    origin: Origin,
}

/// The owner of the operation that a task performs.
#[derive(Debug)]
enum Origin {
    /// This rank's own operation.
    Own(u32),
    /// A peer's operation, received by message.
    Peer {
        to: Rank,
        operation: u32,
        index: u8,
        entry: EntryId,
    },
}

/// The state of atomics that the network performs.
#[derive(Debug, Default)]
pub(crate) struct Native {
    /// For each type, the methods by which the network performs its atomics, or `None` if the
    /// target's processor performs them.
    methods: [Option<Methods>; AtomicType::ALL.len()],
    tasks: Slab<Task>,
    /// Tasks whose next step the transport has not accepted yet.
    pub(crate) waiting: VecDeque<usize>,
}

impl Native {
    /// Chooses the methods for a network that has these operations.
    pub(crate) fn new(has: impl Fn(AtomicOp, AtomicType, bool) -> bool) -> Self {
        let mut native = Self::default();
        for (place, ty) in native.methods.iter_mut().zip(AtomicType::ALL) {
            let all = AtomicType::ALL.into_iter();
            let mut of_size = all.filter(|other| other.size() == ty.size());
            if !of_size.all(|ty| has(AtomicOp::CompareSwap, ty, true)) {
                continue;
            }
            *place = Some(AtomicOp::ALL.map(|op| {
                [false, true].map(|fetch| match (has(op, ty, fetch), has(op, ty, true)) {
                    (true, _) => Method::Native(fetch),
                    (false, true) => Method::Native(true),
                    (false, false) => Method::CasLoop,
                })
            }));
        }
        native
    }

    #[inline]
    fn method(&self, op: AtomicOp, ty: AtomicType, fetch: bool) -> Option<Method> {
        let methods = self.methods[ty as usize].as_ref()?;
        Some(methods[op as usize][usize::from(fetch)])
    }

    /// Returns whether integers of a type are native.
    pub(crate) fn has(&self, ty: AtomicType) -> bool {
        self.methods[ty as usize].is_some()
    }

    /// Returns whether integers of any type are native.
    pub(crate) fn has_any(&self) -> bool {
        AtomicType::ALL.iter().any(|&ty| self.has(ty))
    }

    /// Returns the number of tasks in progress.
    pub(crate) fn under_way(&self) -> usize {
        self.tasks.len()
    }

    /// Drops the tasks on a peer's memory.
    pub(crate) fn forget(&mut self, peer: Rank) {
        self.tasks.retain(|_, task| task.peer != peer);
        let tasks = &self.tasks;
        self.waiting.retain(|&at| tasks.contains(at));
    }
}

impl Task {
    /// Returns the task's next step in the transport's form.
    fn step(&self, at: usize) -> NativeAtomic {
        let (op, ty, token) = (self.op, self.ty, TASK | at as u64);
        match self.method {
            Method::Native(fetch) => NativeAtomic {
                op,
                ty,
                operand: self.operand,
                comparand: self.comparand,
                fetch,
                token,
            },
            Method::CasLoop => NativeAtomic {
                op: AtomicOp::CompareSwap,
                ty,
                operand: self.new_value(self.expected),
                comparand: self.expected,
                fetch: true,
                token,
            },
        }
    }

    fn new_value(&self, old: u64) -> u64 {
        atomic_result(self.op, self.ty, self.operand, self.comparand, old)
    }
}

/// Converts a fetched value to the zero-extended form that headers use.
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
    /// Makes the network perform a peer's atomic that has matched an entry here; returns `false` if
    /// the processor has to perform it.
    pub(crate) fn native_atomic(&mut self, source: Rank, atomic: &wire::Atomic, hit: &Hit) -> bool {
        // The fetching variant is used, because responses always carry the old value.
        let Some(method) = self.native.method(atomic.op, atomic.ty, true) else {
            return false;
        };
        let Some(exported) = self.exported(hit.id.me(atomic.index)) else {
            return false;
        };
        let direct = &exported.advertisement;
        let remote = Remote {
            key: direct.remote.key,
            // The address lies within the entry, because the message has matched.
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
            method,
            expected: 0,
            origin: Origin::Peer {
                to: source,
                operation: atomic.operation,
                index: atomic.index,
                entry: hit.id,
            },
        });
        self.native.waiting.push_back(at);
        true
    }

    /// Handles the end of a direct operation; returns `true` if it was a step of a task.
    pub(crate) fn task_done(&mut self, peer: Rank, token: u64, value: u64) -> bool {
        if token & TASK == 0 {
            return false;
        }
        let at = token as u32 as usize;
        let Some(task) = self.native.tasks.get_mut(at).filter(|t| t.peer == peer) else {
            return true;
        };
        let found = zero_extended(value, task.ty);
        // If the new value equals the old one, nothing has to be written.
        if task.method == Method::CasLoop
            && found != task.expected
            && task.new_value(found) != found
        {
            task.expected = found;
            self.native.waiting.push_back(at);
            return true;
        }
        let Task { ty, origin, .. } = self.native.tasks.remove(at);
        // The cast is lossless: the size is 4 or 8.
        let length = ty.size() as u32;
        match origin {
            Origin::Own(id) => {
                if let Some(operation) = self.operations.get(id) {
                    operation.completion = Some(Completion {
                        outcome: Outcome::Done,
                        length,
                        value: found,
                    });
                    self.end_operation(id);
                }
            }
            Origin::Peer {
                to,
                operation,
                index,
                entry,
            } => {
                self.end_use(index, entry);
                self.consumed(to, Cost::of_header(index));
                let result = self.respond(to, operation, Outcome::Done, length, found);
                debug_assert!(result.is_ok(), "this rank violated its own protocol");
            }
        }
        true
    }
}

impl<T: Transport> Inner<T> {
    /// Submits an atomic to the network; returns `None` if the atomic has to be sent as a message.
    pub(crate) fn atomic_direct(&mut self, atomic: &Atomic) -> Option<Result<(), SubmitError>> {
        let method = self
            .portals
            .native
            .method(atomic.op, atomic.ty, atomic.fetch)?;
        let request = Request {
            peer: atomic.target,
            index: atomic.index.0,
            option: MeOptions::ATOMIC,
            match_bits: atomic.match_bits,
            offset: atomic.remote_offset,
            length: atomic.ty.size(),
        };
        let (entry, remote) = self.portals.direct.find(&request)?;
        if !is_aligned(remote, atomic.ty) {
            return None;
        }
        let Some(id) = self.begin_atomic(atomic, entry) else {
            self.portals.counters.waited_for_room += 1;
            return Some(Err(SubmitError::Again));
        };
        let at = self.portals.native.tasks.insert(Task {
            peer: atomic.target,
            remote,
            op: atomic.op,
            ty: atomic.ty,
            operand: atomic.operand,
            comparand: atomic.comparand,
            method,
            expected: 0,
            origin: Origin::Own(id),
        });
        let Err(refused) = self.step(at) else {
            self.portals.counters.direct += 1;
            return Some(Ok(()));
        };
        self.portals.native.tasks.remove(at);
        self.undo(id);
        self.direct_refused("atomic", atomic.target, refused)
    }

    fn begin_atomic(&mut self, atomic: &Atomic, entry: MeId) -> Option<u32> {
        let end = match atomic.fetch {
            true => End::Reply,
            false => End::Ack,
        };
        let kind = OperationKind::Direct(end, entry);
        let operation = Operation::new(kind, atomic.token, atomic.target, atomic.eq);
        let id = self.portals.operations.add(operation)?;
        self.portals.direct.begin(atomic.target, entry);
        Some(id)
    }

    /// Hands a task's next step to the transport.
    fn step(&mut self, at: usize) -> Result<(), Refused> {
        let Some(task) = self.portals.native.tasks.get(at) else {
            return Ok(());
        };
        let (peer, remote) = (task.peer, task.remote);
        self.transport.atomic(peer, remote, &task.step(at))
    }

    /// Hands the next steps of waiting tasks to the transport.
    #[cold]
    pub(crate) fn resume_tasks(&mut self) {
        while let Some(at) = self.portals.native.waiting.pop_front() {
            // Any other refusal means that the peer has failed; the task is dropped when the
            // transport reports the failure.
            match self.step(at) {
                Err(Refused::Full) => {
                    self.portals.native.waiting.push_front(at);
                    return;
                }
                refused => {
                    debug_assert_ne!(refused, Err(Refused::TooLong), "`has_atomic` was true")
                }
            }
        }
    }
}
