//! The calls that start collective operations, and the transport of their messages. The operations
//! run in machines of [`crate::collectives`], whose messages are active messages to the library's
//! own handlers.
//!
//! Handlers pass arriving messages to the machine. Every poll sends the machine's outgoing messages
//! as immediate requests. A message for which there is no credit, or no room in the network, stays
//! in the machine's queue.

use am::Context;
use am::handlers::{Accepts, Registration};

use crate::collectives::state::{CallerMemory, ReduceFunction, Reducer, Reduction, Sync};
use crate::collectives::{CollectiveKind, Outgoing, Shape, TeamId, fold};
use crate::engine::handlers::library_handler;
use crate::engine::waiting::Unwinding;
use crate::engine::{Call, Calls, Handler, subject};
use crate::kernel::Handle;
use crate::kernel::context;
use crate::kernel::error::{Error, Result};
use crate::kernel::options::{Blocking, Completion};
use crate::messages::payload::Payload;
use crate::ni::Ni;
use crate::rma::implicit::Class;
use crate::threads::Mode;

/// The id of the handler that receives a part's data. Arguments: team, part, signature, offset.
const DATA: u8 = 1;
/// The id of the handler that receives a ready message. Arguments: team, part, signature.
const READY: u8 = 2;
/// The id of the handler that receives an acknowledgement: the reply to data whose sender must know
/// that the receiver took it. Arguments: team, part.
const TAKEN: u8 = 3;

/// Maximum number of arguments of these handlers. The team counts as two arguments.
pub(crate) const MOST_ARGS: usize = 5;

/// Returns the registrations of the library's handlers. Their ids are part of the protocol.
pub(crate) fn handlers<N: Ni + 'static, M: Mode>() -> [Registration<Handler<N, M>>; 3] {
    [
        library_handler(
            DATA,
            "collective data",
            MOST_ARGS,
            Accepts::MEDIUM | Accepts::REQUEST,
            on_data,
        ),
        library_handler(
            READY,
            "collective ready",
            4,
            Accepts::SHORT | Accepts::REQUEST,
            on_ready,
        ),
        library_handler(
            TAKEN,
            "collective taken",
            3,
            Accepts::SHORT | Accepts::REPLY,
            on_taken,
        ),
    ]
}

fn on_data<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    // The pattern always matches, because the handler table has checked the message.
    let (&[first, count, part, signature, offset], Payload::Medium(payload)) =
        (call.args(), call.payload())
    else {
        return;
    };
    let (engine, source) = (call.engine(), call.source());
    let team = TeamId { first, count };
    let told = engine
        .collectives
        .with_machine(&engine.kernel, team, source, |machine| {
            machine.on_data(source, part, signature, offset, payload)
        });
    if told == Some(true)
        && let Err(error) = call.reply_short(TAKEN, &[first, count, part])
    {
        engine.job().fail(error);
    }
}

fn on_ready<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    if let &[first, count, part, signature] = call.args() {
        let (engine, source) = (call.engine(), call.source());
        let team = TeamId { first, count };
        engine
            .collectives
            .with_machine(&engine.kernel, team, source, |machine| {
                machine.on_ready(source, part, signature)
            });
    }
}

fn on_taken<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    if let &[first, count, part] = call.args() {
        let (engine, source) = (call.engine(), call.source());
        let team = TeamId { first, count };
        engine
            .collectives
            .with_machine(&engine.kernel, team, source, |machine| {
                machine.on_taken(source, part)
            });
    }
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Collectives> {
    /// Starts an operation that moves data without reducing it. A broadcast copies `bytes` bytes
    /// from `source` at the root to `result` at all ranks of a team. A scatter, gather, gather to
    /// all or exchange moves blocks of `bytes` bytes. Where a rank has blocks for all ranks, its
    /// pointer refers to one block per rank of the team, in rank order. `source` is ignored at
    /// ranks that contribute nothing, and `result` at ranks that receive nothing.
    ///
    /// In a broadcast, `source` may equal `result` at a rank where both are used. In a gather,
    /// `source` may be the location in `result` of the rank's own block.
    ///
    /// Collective: all ranks of the team must start the same operations in the same order. Several
    /// operations may be in flight, and every poll of any rank advances them. Operations with
    /// [`Completion::Implicit`] belong to this thread's implicit collectives, or to its access
    /// region.
    ///
    /// # Errors
    /// If the team or the rank does not exist, the total size overflows, or all operation ids are
    /// in use.
    ///
    /// # Safety
    /// Until the operation has ended, `result` must be valid for writes and `source` for reads of
    /// all their bytes. Nothing else may write to either of them, and nothing else may read
    /// `result`. The two may overlap only as described above.
    #[expect(
        clippy::too_many_arguments,
        reason = "a collective operation needs all of these"
    )]
    pub unsafe fn move_nb(
        self,
        team: TeamId,
        kind: CollectiveKind,
        result: *mut u8,
        source: *const u8,
        bytes: usize,
        sync: Sync,
        completion: Completion,
    ) -> Result<Handle> {
        let operation = completion.name("move_nb", "move_nbi");
        if kind.reduces() {
            return Err(self.refused(
                operation,
                "this call does not support reductions".to_owned(),
            ));
        }
        let shape = Shape {
            kind,
            element: 1,
            count: bytes,
            meaning: 0,
            in_order: false,
        };
        let memory = CallerMemory {
            source,
            result,
            ..CallerMemory::nothing()
        };
        self.start_collective(operation, team, shape, memory, sync, completion)
    }

    /// Starts a barrier of a team. The barrier ends at each rank only once all ranks of the team
    /// have started it.
    ///
    /// Collective, as [`Calls::move_nb`] is. The team of all ranks also has a faster, independent
    /// barrier: [`Calls::team_barrier_start`].
    ///
    /// # Errors
    /// If the team does not exist, or all operation ids are in use.
    pub fn barrier_nb(self, team: TeamId) -> Result<Handle> {
        let (memory, sync) = (CallerMemory::nothing(), Sync::default());
        let completion = Completion::Handle;
        self.start_collective("barrier_nb", team, Shape::BARRIER, memory, sync, completion)
    }

    pub(crate) fn refused(self, operation: &'static str, reason: String) -> Error {
        Error::Collective {
            operation,
            rank: self.job().rank,
            reason,
        }
    }

    /// Starts a reduction of the elements of all ranks of a team. Elements with the same index are
    /// reduced with each other. The result goes to the rank `to` of the team, or to all ranks if
    /// `to` is `None`. `source` may equal `result`, either at all ranks that receive the result or
    /// at none of them.
    ///
    /// Reducing the same data again yields the same bits, and all ranks receive the same bits. If
    /// the reduction keeps the order of the ranks and its result goes to one rank, each of the
    /// other ranks allocates memory for a result while the reduction is in flight.
    ///
    /// Collective, as [`Calls::move_nb`] is.
    ///
    /// # Errors
    /// If the rank `to` does not exist, the operation is not defined for its type, the element size
    /// is 0 or too large, or all operation ids are in use.
    ///
    /// # Safety
    /// The conditions of [`Calls::move_nb`] apply. `source` and `result` must hold `count` elements
    /// each. `result` is ignored at ranks that receive nothing.
    #[expect(
        clippy::too_many_arguments,
        reason = "a collective operation needs all of these"
    )]
    pub unsafe fn reduce_nb(
        self,
        team: TeamId,
        to: Option<u32>,
        result: *mut u8,
        source: *const u8,
        count: usize,
        reduction: Reduction,
        completion: Completion,
    ) -> Result<Handle> {
        let operation = completion.name("reduce_nb", "reduce_nbi");
        let refuse = |reason: String| self.refused(operation, reason);
        let (element, meaning, reducer, in_order) = match reduction {
            Reduction::Known(ty, op) => {
                let fold = fold(ty, op)
                    .ok_or_else(|| refuse(format!("{op:?} is not defined for {ty:?}")))?;
                let meaning = 1 + (ty as u32) * 16 + op as u32;
                (ty.size(), meaning, Reducer::Known(fold), false)
            }
            Reduction::Custom {
                element,
                function,
                in_order,
            } => {
                let checks = self.job().has_checks();
                let function: ReduceFunction = Box::new(move |left, right| {
                    // Run the function in the context of a reply handler, so that it may neither
                    // send nor wait, because the machine is in use meanwhile.
                    let _entered = checks.then(|| context::Entered::new(Context::ReplyHandler));
                    function(left, right);
                });
                (element, 0, Reducer::Custom(function), in_order)
            }
        };
        if element == 0 || element > Shape::MAX_ELEMENT || element.checked_mul(count).is_none() {
            return Err(refuse(format!(
                "cannot reduce {count} elements of {element} bytes"
            )));
        }
        let mut shape = Shape {
            kind: to.map_or(CollectiveKind::ReduceToAll, |root| {
                CollectiveKind::ReduceToOne { root }
            }),
            element,
            count,
            meaning,
            in_order,
        };
        let mut memory = CallerMemory {
            source,
            result,
            reducer,
            own: Vec::new(),
        };
        if let Some(root) = to.filter(|_| in_order) {
            // The order of the ranks determines the root of the tree. The result therefore goes to
            // all ranks, and all except the requested one discard it.
            let team = self.team(team)?;
            if root >= team.size {
                return Err(refuse(format!(
                    "rank {root} is not in a team of {} ranks",
                    team.size
                )));
            }
            shape.kind = CollectiveKind::ReduceToAll;
            shape.meaning = !root;
            if root != team.rank {
                let bytes = element * count;
                let room = memory.own.try_reserve_exact(bytes);
                room.map_err(|error| refuse(format!("cannot allocate {bytes} bytes: {error}")))?;
                memory.own.resize(bytes, 0);
                memory.result = memory.own.as_mut_ptr();
            }
        }
        let sync = Sync::default();
        self.start_collective(operation, team, shape, memory, sync, completion)
    }

    fn start_collective(
        self,
        operation: &'static str,
        team: TeamId,
        shape: Shape,
        memory: CallerMemory,
        sync: Sync,
        completion: Completion,
    ) -> Result<Handle> {
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        self.engine.check_fault()?;
        let group = match completion {
            Completion::Handle => None,
            Completion::Implicit => Some(
                self.engine
                    .rma()
                    .implicit_group(operation, Class::COLLECTIVES)?,
            ),
        };
        // Parts that arrived early are reduced at once, which calls the caller's function.
        let unwinding = Unwinding {
            engine: self.engine,
            operation,
        };
        let started = self.engine.collectives.start(
            self.kernel(),
            operation,
            team,
            shape,
            memory,
            sync,
            group,
        );
        if started.is_ok() && self.engine.collectives.has_outgoing() {
            self.advance_collectives();
        }
        std::mem::forget(unwinding);
        let op = started?;
        self.engine.check_fault()?;
        if group.is_some() {
            return Ok(Handle::DONE);
        }
        let ended = self.kernel().take(operation, op)?.is_some();
        Ok(if ended {
            Handle::DONE
        } else {
            Handle(Some(op))
        })
    }

    /// Sends the outgoing messages of collective operations until one cannot be sent. Returns the
    /// number of messages sent.
    #[cold]
    pub(crate) fn advance_collectives(self) -> u32 {
        self.engine
            .collectives
            .advance(self.kernel(), |team, outgoing, payload| {
                self.post_collective(team, outgoing, payload)
            })
    }

    fn post_collective(self, team: TeamId, outgoing: &Outgoing, payload: &[u8]) -> Result<bool> {
        let (target, part, signature) = (outgoing.target, outgoing.part, outgoing.signature);
        let TeamId { first, count } = team;
        match outgoing.data {
            None => {
                let args = [first, count, part, signature];
                self.engine
                    .messages()
                    .request_short(target, READY, &args, Blocking::Immediate)
            }
            Some((offset, _)) => {
                let args = [first, count, part, signature, offset as u32];
                self.engine.messages().request_medium(
                    target,
                    DATA,
                    &args,
                    payload,
                    Blocking::Immediate,
                )
            }
        }
    }
}
