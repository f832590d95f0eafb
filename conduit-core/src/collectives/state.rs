//! The collective operations of one rank. Each team has a machine of [`crate::collectives`], which
//! accesses callers' memory. This module also sends the machines' messages.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::collectives::{
    DataType, Fold, Limits, Operand, Outgoing, ReduceOp, Shape, Team, TeamId, TeamMachine,
    Violation,
};
use crate::kernel::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::OpId;
use crate::ni::{Ni, Rank};
use crate::threads::{Lock, Mode};

/// A reduction of elements: the operation and the elements' type or size.
pub enum Reduction {
    /// A reduction by a predefined operation.
    Known(DataType, ReduceOp),
    /// A reduction by the caller's function.
    Custom {
        /// The size of an element in bytes.
        element: usize,
        /// The function, which must be associative, and commutative unless `in_order`. Any thread
        /// that polls may call it, even where other calls are refused.
        function: ReduceFunction,
        /// Whether the order of the ranks is kept. If so, the elements of lower ranks are on the
        /// left.
        in_order: bool,
    },
}

/// A function that reduces whole elements one by one and writes the result to its second argument.
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

pub(crate) enum Reducer {
    Nothing,
    Known(Fold),
    Custom(ReduceFunction),
}

/// A caller's memory for one operation, from the operation's start to its end.
pub(crate) struct CallerMemory {
    pub(crate) source: *const u8,
    pub(crate) result: *mut u8,
    pub(crate) reducer: Reducer,
    /// The memory that `result` points to if the result does not go to the caller's memory.
    pub(crate) own: Vec<u8>,
}

impl CallerMemory {
    /// Returns the operand of a barrier, which uses one byte whose value is irrelevant.
    pub(crate) fn nothing() -> Self {
        Self {
            source: std::ptr::null(),
            result: std::ptr::null_mut(),
            reducer: Reducer::Nothing,
            own: Vec::new(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.result.is_null() && self.source.is_null()
    }
}

/// The byte that a barrier sends. Its value is irrelevant.
const NOTHING: [u8; 1] = [0];

// SAFETY: `move_nb` and `reduce_nb` require the caller to leave the memory to the operation until
// the operation ends, on whatever thread it runs. The reduction's function is `Send`, so any thread
// may call it.
unsafe impl Send for CallerMemory {}

impl Operand for CallerMemory {
    fn source(&self, offset: usize, len: usize) -> &[u8] {
        if self.is_nothing() {
            return &NOTHING;
        }
        // SAFETY: this is called only where this rank contributes data, only within the length of
        // that data, and only until the operation ends. Until then the caller of `move_nb` or
        // `reduce_nb` guarantees that the memory is valid and unchanged. If `source` equals
        // `result`, results are stored only over operands that have already been sent.
        unsafe { std::slice::from_raw_parts(self.source.add(offset), len) }
    }

    fn result(&self, offset: usize, len: usize) -> &[u8] {
        if self.is_nothing() {
            return &NOTHING;
        }
        // SAFETY: the caller of `move_nb` or `reduce_nb` keeps `result` valid until the operation
        // ends, and the bytes requested have been stored.
        unsafe { std::slice::from_raw_parts(self.result.add(offset), len) }
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        if self.is_nothing() {
            return;
        }
        // SAFETY: the caller of `move_nb` or `reduce_nb` keeps `result` valid for writes until the
        // operation ends. `bytes` is memory of the machine or of a message, so it does not overlap
        // `result`.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.result.add(offset), bytes.len())
        };
    }

    fn copy(&mut self, from: usize, to: usize, len: usize) {
        if self.is_nothing() {
            return;
        }
        // SAFETY: both offsets lie within memory that the caller of `move_nb` keeps valid until the
        // operation ends.
        let (from, to) = unsafe { (self.source.add(from), self.result.add(to)) };
        if !std::ptr::eq(from, to) {
            // SAFETY: until the operation ends, `from` is valid for reads and `to` for writes of
            // `len` bytes. Should the caller violate the rule against other overlaps, `ptr::copy`
            // is still well defined.
            unsafe { std::ptr::copy(from, to, len) };
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

/// The synchronisation of an operation's accesses to other ranks' memory. A rank's own memory needs
/// none, because an operation accesses it only between the operation's start and end at this rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sync {
    /// Whether the operation accesses memory only once all ranks have started it.
    pub before: bool,
    /// Whether the operation ends at each rank only once all of its accesses have ended.
    pub after: bool,
}

/// The state of this rank in one team.
struct Seat {
    machine: TeamMachine<CallerMemory>,
    /// Whether the team is in [`Teams::sending`].
    sends: bool,
}

impl Seat {
    fn new(team: Team, limits: Limits) -> Self {
        Self {
            machine: TeamMachine::new(team, limits),
            sends: false,
        }
    }
}

/// The teams of which a rank is a member.
struct Teams {
    /// The team of all ranks, to which most operations belong.
    job: Seat,
    others: HashMap<TeamId, Seat>,
    /// The teams that have messages to send.
    sending: VecDeque<TeamId>,
    /// The number of team names that this rank has assigned.
    named: u32,
}

impl Teams {
    fn seat(&mut self, team: TeamId) -> Option<&mut Seat> {
        match team {
            TeamId::JOB => Some(&mut self.job),
            _ => self.others.get_mut(&team),
        }
    }
}

/// The collective operations of a rank.
pub(crate) struct Collectives<M: Mode> {
    teams: M::Lock<Teams>,
    limits: Limits,
    /// The lock that a thread must hold to send. Its buffer holds a copy of the bytes being sent,
    /// in the mode in which other threads may meanwhile return the memory to its caller.
    sender: M::Lock<Vec<u8>>,
    /// Whether a machine has messages to send. Changed only while the machines are locked.
    outgoing: AtomicBool,
}

impl<M: Mode> Collectives<M> {
    pub(crate) fn new(rank: Rank, size: u32, max_medium: usize) -> Self {
        let limits = Limits::with_messages_of(max_medium);
        Self {
            teams: Lock::new(Teams {
                job: Seat::new(Team::of_job(rank, size), limits),
                others: HashMap::new(),
                sending: VecDeque::new(),
                named: 0,
            }),
            limits,
            sender: Lock::new(Vec::new()),
            outgoing: AtomicBool::new(false),
        }
    }

    /// Returns whether a machine is in use, which means that a reduction's function is running.
    /// Meaningful only in modes in which one thread at a time is inside the engine.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.teams.try_lock().is_none()
    }

    /// Returns whether messages are waiting to be sent. If so, polls must try to send them.
    #[inline]
    pub(crate) fn has_outgoing(&self) -> bool {
        self.outgoing.load(Relaxed)
    }

    /// Returns the oldest part in flight of each team: the kind of its operation, and the ranks
    /// whose messages are missing.
    pub(crate) fn lack(&self) -> Vec<(&'static str, Vec<Rank>)> {
        let teams = self.teams.try_lock();
        let seats = teams
            .iter()
            .flat_map(|teams| std::iter::once(&teams.job).chain(teams.others.values()));
        seats.filter_map(|seat| seat.machine.lacks()).collect()
    }

    /// Returns a count that this rank has not used yet for the name of a team whose first member it
    /// is.
    pub(crate) fn name(&self) -> u32 {
        let mut teams = self.teams.lock();
        // The count 0 belongs to the team of all ranks.
        teams.named = teams.named.wrapping_add(1).max(1);
        teams.named
    }

    /// Makes this rank a member of a team.
    pub(crate) fn enter(&self, team: Team) {
        let (id, seat) = (team.id, Seat::new(team, self.limits));
        self.teams.lock().others.insert(id, seat);
    }

    /// Returns a team of which this rank is a member.
    pub(crate) fn team<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        team: TeamId,
    ) -> Result<Team> {
        self.of_team(kernel, operation, team, Team::clone)
    }

    fn of_team<N: Ni, R>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        team: TeamId,
        look: impl FnOnce(&Team) -> R,
    ) -> Result<R> {
        let mut teams = self.teams.lock();
        match teams.seat(team) {
            Some(seat) => Ok(look(seat.machine.team())),
            None => Err(no_team(kernel.job.rank, operation, team)),
        }
    }

    /// Leaves a team that has no operations in flight at this rank.
    pub(crate) fn leave<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        team: TeamId,
    ) -> Result<()> {
        let refuse = |reason: &str| {
            let reason = reason.to_owned();
            Err(Error::Collective {
                operation,
                rank: kernel.job.rank,
                reason,
            })
        };
        let mut teams = self.teams.lock();
        let Some(seat) = teams.seat(team) else {
            return Err(no_team(kernel.job.rank, operation, team));
        };
        if team == TeamId::JOB {
            return refuse("the team of all ranks can't be destroyed");
        }
        if !seat.machine.is_idle() {
            return refuse("operations of the team are in flight");
        }
        teams.others.remove(&team);
        Ok(())
    }

    /// Starts an operation of a team. The operation is a member of `group`, if one is given.
    #[expect(
        clippy::too_many_arguments,
        reason = "a collective operation needs all of these"
    )]
    pub(crate) fn start<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        team: TeamId,
        shape: Shape,
        memory: CallerMemory,
        sync: Sync,
        group: Option<OpId>,
    ) -> Result<OpId> {
        let size = self.of_team(kernel, operation, team, |team| team.size)?;
        if let Some(rank) = shape.kind.root()
            && rank >= size
        {
            return Err(match team {
                TeamId::JOB => Error::NoSuchRank {
                    operation,
                    rank,
                    size,
                },
                _ => Error::Collective {
                    operation,
                    rank: kernel.job.rank,
                    reason: format!("rank {rank} is not in a team of {size} ranks"),
                },
            });
        }
        if shape.bytes_in_all(size).is_none() {
            let (count, element) = (shape.count, shape.element);
            return Err(Error::Collective {
                operation,
                rank: kernel.job.rank,
                reason: format!("{count} elements of {element} bytes for each of {size} ranks"),
            });
        }
        let op = kernel.begin(operation, group, None)?;
        let name = Some(op.bits().into());
        self.with_machine(kernel, team, kernel.job.rank, |machine| {
            let meet = |machine: &mut TeamMachine<_>, name| {
                machine.start(
                    Shape::BARRIER,
                    CallerMemory::nothing(),
                    name,
                    name.is_some(),
                )
            };
            if sync.before {
                meet(machine, None)?;
            }
            machine.start(shape, memory, name.filter(|_| !sync.after), sync.before)?;
            match sync.after {
                true => meet(machine, name),
                false => Ok(()),
            }
        });
        Ok(op)
    }

    /// Runs `act` on the machine of a team, and handles ended operations, outgoing messages and
    /// violations. Returns `None` if the job failed before or during this call. `source` is the
    /// sender of the message that `act` handles.
    pub(crate) fn with_machine<N: Ni, R>(
        &self,
        kernel: &Kernel<N, M>,
        team: TeamId,
        source: Rank,
        act: impl FnOnce(&mut TeamMachine<CallerMemory>) -> Result<R, Violation>,
    ) -> Option<R> {
        // A call that fails must wait until this thread, which may access callers' memory, is out.
        let _polling = M::PARALLEL.then(|| kernel.job.polling.enter());
        if !kernel.job.stands_for_all() {
            return None;
        }
        let teams = if M::PARALLEL {
            Some(self.teams.lock())
        } else {
            self.teams.try_lock()
        };
        let Some(mut teams) = teams else {
            let reason = "the reduction's function polled".to_owned();
            kernel.job.fail(Error::Collective {
                operation: "reduce_nb",
                rank: kernel.job.rank,
                reason,
            });
            return None;
        };
        let Some(seat) = teams.seat(team) else {
            let TeamId { first, count } = team;
            let reason = format!("this rank is not a member of team {first}.{count}");
            kernel.job.fail_by_message(source, reason);
            return None;
        };
        let machine = &mut seat.machine;
        let done = act(machine);
        while let Some((name, _memory)) = machine.ended() {
            if let Some(op) = OpId::from_bits(name as u32) {
                kernel.finish(op);
            }
        }
        if machine.has_outgoing() && !seat.sends {
            seat.sends = true;
            teams.sending.push_back(team);
        }
        self.outgoing.store(!teams.sending.is_empty(), Relaxed);
        match done {
            Ok(value) => Some(value),
            Err(violation) => {
                kernel.job.fail(Error::Protocol {
                    rank: kernel.job.rank,
                    peer: violation.peer(),
                    reason: violation.to_string(),
                });
                None
            }
        }
    }

    /// Returns the next team that has messages to send, and removes it from the queue. It re-enters
    /// the queue if messages remain. Skips teams that this rank has left.
    fn next_sender(&self) -> Option<TeamId> {
        let mut teams = self.teams.try_lock()?;
        while let Some(team) = teams.sending.pop_front() {
            if let Some(seat) = teams.seat(team) {
                seat.sends = false;
                return Some(team);
            }
        }
        self.outgoing.store(false, Relaxed);
        None
    }

    /// Sends the outgoing messages of collective operations until one cannot be sent. Returns the
    /// number of messages sent. Every poll calls this.
    #[cold]
    pub(crate) fn advance<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        mut send: impl FnMut(TeamId, &Outgoing, &[u8]) -> Result<bool>,
    ) -> u32 {
        // The lock is held if another thread is sending, or if this thread is already sending
        // further up its stack, which is possible because sending may poll.
        let Some(mut copy) = self.sender.try_lock() else {
            return 0;
        };
        let mut sent = 0;
        let teams = self.teams.try_lock().map_or(0, |teams| teams.sending.len());
        for _ in 0..teams {
            let Some(team) = self.next_sender() else {
                break;
            };
            sent += self.send_for(kernel, team, &mut copy, &mut send);
        }
        sent
    }

    /// Sends a team's outgoing messages until one cannot be sent. Returns the number of messages
    /// sent.
    fn send_for<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        team: TeamId,
        copy: &mut Vec<u8>,
        send: &mut impl FnMut(TeamId, &Outgoing, &[u8]) -> Result<bool>,
    ) -> u32 {
        // Each message is tried once. Messages queued during the loop wait for the next poll, so
        // that a poll always ends.
        let (mut left, mut last, mut sent) = (None, None, 0);
        loop {
            let taken = self.with_machine(kernel, team, kernel.job.rank, |machine| {
                if let Some((outgoing, sent)) = last.take() {
                    machine.sent(outgoing, sent)?;
                }
                let left = left.get_or_insert_with(|| machine.outgoing_count());
                let Some(rest) = left.checked_sub(1) else {
                    return Ok(None);
                };
                *left = rest;
                Ok(machine.outgoing().map(|outgoing| {
                    let payload = machine.payload(&outgoing);
                    if M::PARALLEL {
                        // While this thread sends, a waiting call on another thread may fail and
                        // return the memory to its caller.
                        copy.clear();
                        copy.extend_from_slice(payload);
                    }
                    let payload = std::ptr::from_ref(payload);
                    (outgoing, payload)
                }))
            });
            let Some(Some((outgoing, payload))) = taken else {
                return sent;
            };
            let payload = if M::PARALLEL {
                &copy[..]
            } else {
                // SAFETY: the machine keeps a message's bytes in place and unchanged until `sent`
                // is called. The bytes belong either to the machine or to a caller on this same
                // thread. That caller is still inside its call, so it can't change them.
                unsafe { &*payload }
            };
            match send(team, &outgoing, payload) {
                Ok(posted) => {
                    sent += u32::from(posted);
                    last = Some((outgoing, posted));
                }
                Err(error) => {
                    kernel.job.fail(error);
                    return sent;
                }
            }
        }
    }
}

fn no_team(rank: Rank, operation: &'static str, team: TeamId) -> Error {
    let TeamId { first, count } = team;
    Error::Collective {
        operation,
        rank,
        reason: format!("this rank is not a member of team {first}.{count}"),
    }
}
