//! Broadcasts and reductions: machines of [`crate::collective`], whose messages are active messages of the library's own
//! handlers.
//!
//! What arrives is given to the machine by the handlers; what it has to send goes out in every poll, as immediate
//! requests, and stays with the machine as long as credits or the network have no room.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use am::Context;
use am::handlers::{Accepts, Entry, Registration};

use super::context;
use super::deliver::{Call, Handler};
use super::handle::OpId;
use super::message::Payload;
use super::rma::Blocking;
use super::{Engine, Error, Handle, Result};
use crate::collective::{
    DataType, Fold, Kind, Limits, Machine, Operand, Outgoing, ReduceOp, Shape, Team, Violation,
    fold,
};
use crate::ni::{Ni, Rank};
use crate::threads::{Lock, Mode};

/// Data of a part: team, part, signature, offset.
const DATA: u8 = 1;
/// A ready message: team, part, signature.
const READY: u8 = 2;
/// The reply to data whose sender is to be told that it was taken: team, part.
const TAKEN: u8 = 3;

/// The team of all ranks.
pub const JOB_TEAM: u32 = 0;

/// How elements are reduced.
pub enum Reduction {
    /// By an operation that is known here.
    Known(DataType, ReduceOp),
    /// By the caller's function.
    Custom {
        /// Bytes of an element.
        element: usize,
        /// Associative and commutative. May be called by any thread that polls, also where other calls are refused.
        function: ReduceFunction,
    },
}

/// Reduces whole elements one by one: the result replaces the second.
pub type ReduceFunction = Box<dyn Fn(&[u8], &mut [u8]) + Send>;

impl std::fmt::Debug for Reduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(ty, op) => f.debug_tuple("Known").field(ty).field(op).finish(),
            Self::Custom { element, .. } => f
                .debug_struct("Custom")
                .field("element", element)
                .finish_non_exhaustive(),
        }
    }
}

enum Reducer {
    Nothing,
    Known(Fold),
    Custom(ReduceFunction),
}

/// A caller's memory, from the start of an operation to its end.
struct Memory {
    source: *const u8,
    result: *mut u8,
    reducer: Reducer,
}

// SAFETY: the memory is the caller's, who leaves it to the operation until its end, on whatever thread that runs: the
// contract of `broadcast_nb` and `reduce_nb`. The function may be called from any thread (its type).
unsafe impl Send for Memory {}

impl Operand for Memory {
    fn source(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: asked for only where this rank gives data, within its length, and only until the operation ends; so
        // valid and left alone by the caller. In place, results are stored where operands have been sent already.
        unsafe { std::slice::from_raw_parts(self.source.add(offset), len) }
    }

    fn result(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: as above; these bytes have been stored.
        unsafe { std::slice::from_raw_parts(self.result.add(offset), len) }
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        // SAFETY: as above, valid for writes. `bytes` is memory of the machine or of a message.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.result.add(offset), bytes.len())
        };
    }

    fn copy(&mut self, offset: usize, len: usize) {
        if !std::ptr::eq(self.source, self.result) {
            // SAFETY: as above. `copy`, as a caller may break the rule that they do not overlap otherwise.
            unsafe { std::ptr::copy(self.source.add(offset), self.result.add(offset), len) };
        }
    }

    fn reduce(&mut self, left: &[u8], right: &mut [u8]) {
        match &self.reducer {
            Reducer::Nothing => {}
            Reducer::Known(fold) => fold(left, right),
            Reducer::Custom(function) => function(left, right),
        }
    }
}

/// The collective operations of a rank.
pub(super) struct Collectives<M: Mode> {
    /// A team's place is its number.
    teams: M::Lock<Vec<Machine<Memory>>>,
    /// Who sends holds it. In it, where other threads may give memory back, is a copy of what is being sent.
    sender: M::Lock<Vec<u8>>,
    /// A machine has something to send. Changed with the machines locked.
    outgoing: AtomicBool,
}

impl<M: Mode> Collectives<M> {
    pub(super) fn new(rank: Rank, size: u32, max_medium: usize) -> Self {
        let limits = Limits::with_messages_of(max_medium);
        Self {
            teams: Lock::new(vec![Machine::new(Team::of_job(rank, size), limits)]),
            sender: Lock::new(Vec::new()),
            outgoing: AtomicBool::new(false),
        }
    }

    /// Is a machine in use? Only where one thread is inside at a time: then by its function that reduces.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.teams.try_lock().is_none()
    }

    /// Is there something to send? Every poll tries then.
    #[inline]
    pub(super) fn has_outgoing(&self) -> bool {
        self.outgoing.load(Relaxed)
    }
}

/// The library's handlers. Their ids are part of the protocol.
pub(super) fn handlers<N: Ni + 'static, M: Mode>() -> [Registration<Handler<N, M>>; 3] {
    let entry = |id, name, nargs, accepts, handler: fn(&Call<'_, N, M>)| Registration {
        id,
        entry: Entry {
            handler: Arc::new(handler) as Handler<N, M>,
            accepts,
            nargs: Some(nargs),
            name: Some(name),
        },
    };
    [
        entry(
            DATA,
            "collective data",
            4,
            Accepts::MEDIUM | Accepts::REQUEST,
            on_data,
        ),
        entry(
            READY,
            "collective ready",
            3,
            Accepts::SHORT | Accepts::REQUEST,
            on_ready,
        ),
        entry(
            TAKEN,
            "collective taken",
            2,
            Accepts::SHORT | Accepts::REPLY,
            on_taken,
        ),
    ]
}

fn on_data<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    // Others do not come here: the table has checked them.
    let (&[team, part, signature, offset], Payload::Medium(payload)) =
        (call.args(), call.payload())
    else {
        return;
    };
    let (engine, source) = (call.engine(), call.source());
    let told = engine.with_machine(team, source, |machine| {
        machine.on_data(source, part, signature, offset, payload)
    });
    if told == Some(true)
        && let Err(error) = call.reply_short(TAKEN, &[team, part])
    {
        engine.job.fail(error);
    }
}

fn on_ready<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    if let &[team, part, signature] = call.args() {
        let source = call.source();
        call.engine().with_machine(team, source, |machine| {
            machine.on_ready(source, part, signature)
        });
    }
}

fn on_taken<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    if let &[team, part] = call.args() {
        let source = call.source();
        call.engine()
            .with_machine(team, source, |machine| machine.on_taken(source, part));
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Starts a broadcast: `bytes` bytes at `source` of the rank `root` of a team come to `result` of all its ranks.
    /// `source` is ignored elsewhere; at the root it may be `result`.
    ///
    /// Collective: all ranks of the team start the same operations in the same order. They go on with every poll of any
    /// rank; several may be under way.
    ///
    /// # Errors
    /// No such rank; all operation ids are in use.
    ///
    /// # Safety
    /// Until the operation has ended, `result` is valid for writes of `bytes` bytes and `source` for reads, and nobody
    /// else writes or, as for `result`, reads them. They overlap only if they are the same.
    pub unsafe fn broadcast_nb(
        &self,
        team: u32,
        root: u32,
        result: *mut u8,
        source: *const u8,
        bytes: usize,
    ) -> Result<Handle> {
        const OPERATION: &str = "broadcast_nb";
        let shape = Shape {
            kind: Kind::Broadcast { root },
            element: 1,
            count: bytes,
            meaning: 0,
        };
        let memory = Memory {
            source,
            result,
            reducer: Reducer::Nothing,
        };
        self.start_collective(OPERATION, team, root, shape, memory)
    }

    /// Starts a reduction: the elements of all ranks of a team are reduced, those of the same place with each other. The
    /// result comes to one rank of the team, or to all (`to` is `None`). `source` may be `result`, on all ranks that get
    /// the result or on none.
    ///
    /// Reducing the same data again gives the same bits, and all ranks get the same.
    ///
    /// Collective, as [`Engine::broadcast_nb`].
    ///
    /// # Errors
    /// No such rank; an operation that its type does not have; elements of no or of too many bytes; all operation ids are
    /// in use.
    ///
    /// # Safety
    /// As for [`Engine::broadcast_nb`], with `count` elements of each; `result` is ignored at ranks that get none.
    pub unsafe fn reduce_nb(
        &self,
        team: u32,
        to: Option<u32>,
        result: *mut u8,
        source: *const u8,
        count: usize,
        reduction: Reduction,
    ) -> Result<Handle> {
        const OPERATION: &str = "reduce_nb";
        let refuse = |reason: String| Error::Collective {
            operation: OPERATION,
            rank: self.job.rank,
            reason,
        };
        let (element, meaning, reducer) = match reduction {
            Reduction::Known(ty, op) => {
                let fold = fold(ty, op).ok_or_else(|| refuse(format!("{ty:?} has no {op:?}")))?;
                let meaning = 1 + (ty as u32) * 16 + op as u32;
                (ty.size(), meaning, Reducer::Known(fold))
            }
            Reduction::Custom { element, function } => {
                let checks = self.job.has_checks();
                let function: ReduceFunction = Box::new(move |left, right| {
                    // As a handler that may not reply: the machine is in use.
                    let _entered = checks.then(|| context::Entered::new(Context::ReplyHandler));
                    function(left, right);
                });
                (element, 0, Reducer::Custom(function))
            }
        };
        if element == 0 || element > Shape::MAX_ELEMENT || element.checked_mul(count).is_none() {
            return Err(refuse(format!("{count} elements of {element} bytes")));
        }
        let shape = Shape {
            kind: to.map_or(Kind::ReduceToAll, |root| Kind::ReduceToOne { root }),
            element,
            count,
            meaning,
        };
        let memory = Memory {
            source,
            result,
            reducer,
        };
        self.start_collective(OPERATION, team, to.unwrap_or(0), shape, memory)
    }

    fn start_collective(
        &self,
        operation: &'static str,
        team: u32,
        root: u32,
        shape: Shape,
        memory: Memory,
    ) -> Result<Handle> {
        self.check_outside(operation, am::Operation::Request)?;
        self.check_fault()?;
        let size = self
            .collectives
            .teams
            .lock()
            .get(team as usize)
            .map(|machine| machine.team().size);
        let Some(size) = size else {
            return Err(Error::Collective {
                operation,
                rank: self.job.rank,
                reason: format!("there is no team {team}"),
            });
        };
        if root >= size {
            return Err(Error::NoSuchRank {
                operation,
                rank: root,
                size,
            });
        }
        let op = self.operations.begin(&self.job, operation, None)?;
        self.with_machine(team, self.job.rank, |machine| {
            machine.start(shape, memory, op.bits().into())
        });
        if self.collectives.has_outgoing() {
            self.advance_collectives();
        }
        self.check_fault()?;
        let ended = self.operations.take(&self.job, operation, op)?.is_some();
        Ok(if ended {
            Handle::DONE
        } else {
            Handle(Some(op))
        })
    }

    /// Does something with the machine of a team, and then what follows from it. `None`: nothing, as the job has failed,
    /// or fails now. `source`: whose message it is about.
    fn with_machine<R>(
        &self,
        team: u32,
        source: Rank,
        act: impl FnOnce(&mut Machine<Memory>) -> Result<R, Violation>,
    ) -> Option<R> {
        // Callers' memory may be touched.
        let _polling = M::PARALLEL.then(|| self.job.polling.enter());
        if !self.job.stands_for_all() {
            return None;
        }
        let teams = if M::PARALLEL {
            Some(self.collectives.teams.lock())
        } else {
            self.collectives.teams.try_lock()
        };
        let Some(mut teams) = teams else {
            let reason = "a function that reduces has polled".to_owned();
            self.job.fail(Error::Collective {
                operation: "reduce_nb",
                rank: self.job.rank,
                reason,
            });
            return None;
        };
        let Some(machine) = teams.get_mut(team as usize) else {
            self.job
                .fail_by_message(source, format!("there is no team {team}"));
            return None;
        };
        let done = act(machine);
        while let Some((name, _memory)) = machine.ended() {
            if let Some(op) = OpId::from_bits(name as u32) {
                self.operations.finish(&self.job, &self.descriptors, op);
            }
        }
        let outgoing = teams.iter().any(Machine::has_outgoing);
        self.collectives.outgoing.store(outgoing, Relaxed);
        match done {
            Ok(value) => Some(value),
            Err(violation) => {
                self.job.fail(Error::Protocol {
                    rank: self.job.rank,
                    peer: violation.peer(),
                    reason: violation.to_string(),
                });
                None
            }
        }
    }

    /// Sends what collective operations have to send, as far as there is room; how many messages that were. Part of every
    /// poll.
    #[cold]
    pub(super) fn advance_collectives(&self) -> u32 {
        // Somebody else sends, perhaps this thread further up: sending may poll.
        let Some(mut copy) = self.collectives.sender.try_lock() else {
            return 0;
        };
        let mut sent = 0;
        let teams = self
            .collectives
            .teams
            .try_lock()
            .map_or(0, |teams| teams.len() as u32);
        for team in 0..teams {
            // Each message is tried once; those that come up meanwhile have to wait for the next poll, so that one poll
            // does not take for ever.
            let count =
                self.with_machine(team, self.job.rank, |machine| Ok(machine.outgoing_count()));
            for _ in 0..count.unwrap_or(0) {
                match self.send_collective(team, &mut copy) {
                    ControlFlow::Continue(posted) => sent += u32::from(posted),
                    ControlFlow::Break(()) => break,
                }
            }
        }
        sent
    }

    /// Sends a message of a team, if there is room for it: was it sent? Breaks when there is none any more.
    fn send_collective(&self, team: u32, copy: &mut Vec<u8>) -> ControlFlow<(), bool> {
        let taken = self.with_machine(team, self.job.rank, |machine| {
            Ok(machine.outgoing().map(|outgoing| {
                let payload = machine.payload(&outgoing);
                if M::PARALLEL {
                    // While this thread sends, another may fail in its wait and give the memory back.
                    copy.clear();
                    copy.extend_from_slice(payload);
                }
                let payload = std::ptr::from_ref(payload);
                (outgoing, payload)
            }))
        });
        let Some(Some((outgoing, payload))) = taken else {
            return ControlFlow::Break(());
        };
        let payload = if M::PARALLEL {
            &copy[..]
        } else {
            // SAFETY: the machine keeps a message's bytes in place and unchanged until it is told that they were sent. They
            // are its own or a caller's, who is this thread and inside of a call.
            unsafe { &*payload }
        };
        let posted = self.post_collective(team, &outgoing, payload);
        let posted = match posted {
            Ok(posted) => posted,
            Err(error) => {
                self.job.fail(error);
                return ControlFlow::Break(());
            }
        };
        self.with_machine(team, self.job.rank, |machine| {
            machine.sent(outgoing, posted)
        });
        ControlFlow::Continue(posted)
    }

    fn post_collective(&self, team: u32, outgoing: &Outgoing, payload: &[u8]) -> Result<bool> {
        let (target, part, signature) = (outgoing.target, outgoing.part, outgoing.signature);
        match outgoing.data {
            None => {
                self.request_short(target, READY, &[team, part, signature], Blocking::Immediate)
            }
            Some((offset, _)) => {
                let args = [team, part, signature, offset as u32];
                self.request_medium(target, DATA, &args, payload, Blocking::Immediate)
            }
        }
    }
}
