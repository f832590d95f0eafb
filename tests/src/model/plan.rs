//! The reference model: a byte array for each rank, which the schedule modifies.
//!
//! The operations of a round have no order. The plan therefore leaves out operations that would
//! conflict, that is, a write combined with any other access to the same bytes. The remaining
//! operations have only one outcome: reads return the bytes from the beginning of the round, and
//! all writes are visible after the round.

use am::Category;
use conduit_core::atomics::AtomicRequest;
use conduit_core::barrier::BarrierOutcome;
use conduit_core::barrier::Value;

use super::claims::{Cells, Claims};
use super::planner::Planner;
use super::schedule::{Fetch, Ids, Round, Schedule, Sending, Sync, Way};

/// The number of integers for atomics at the start of each segment.
pub const CELLS: usize = 16;

/// The limits of the job under test.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// The length of a segment in bytes.
    pub segment: usize,
    /// The length of a chunk in bytes.
    pub chunk: usize,
    /// The maximum length of a long reply in bytes.
    pub long_reply: usize,
}

/// The source of a put's bytes.
#[derive(Debug, Clone)]
pub enum Source {
    /// Private memory.
    Private(Vec<u8>),
    /// The rank's own segment.
    Own {
        /// The offset of the first byte.
        at: usize,
        /// The number of bytes.
        len: usize,
    },
}

/// A step that has only one outcome.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the engine's calls"
)]
pub enum Task {
    Put {
        way: Way,
        target: u32,
        at: usize,
        source: Source,
    },
    PutValue {
        way: Way,
        target: u32,
        at: usize,
        value: u64,
        bytes: usize,
    },
    Fill {
        way: Way,
        target: u32,
        at: usize,
        byte: u8,
        len: usize,
    },
    Get {
        way: Way,
        target: u32,
        at: usize,
        expected: Vec<u8>,
        /// The offset in the rank's own segment, if the destination lies there.
        own: Option<usize>,
    },
    GetValue {
        target: u32,
        at: usize,
        expected: u64,
        bytes: usize,
    },
    Atomic {
        target: u32,
        at: usize,
        request: AtomicRequest,
        fetch: Fetch,
        /// The old value, if it is known because only this rank uses the integer.
        expected: Option<u64>,
    },
    Request {
        message: u32,
        sending: Sending,
    },
    Cancelled {
        target: u32,
        len: usize,
    },
    Region,
    Sync(Sync),
    Barrier,
    Poll,
}

/// A request and its reply. The message's number is its index in [`Plan::messages`].
#[derive(Debug, Clone, Copy)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the engine's calls"
)]
pub struct Message {
    pub from: u32,
    pub to: u32,
    pub request: Part,
    pub answer: Option<Part>,
}

/// The content and the size of a request or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the engine's calls"
)]
pub struct Part {
    pub category: Category,
    pub nargs: usize,
    pub len: usize,
    pub at: usize,
}

impl Part {
    /// Returns the message's arguments: its number, followed by values derived from the number.
    pub fn args(&self, message: u32, is_reply: bool) -> Vec<u32> {
        let mut random = random(message, is_reply);
        let first = message | u32::from(is_reply) << 31;
        std::iter::once(first)
            .chain(std::iter::repeat_with(|| random.u32(..)))
            .take(self.nargs)
            .collect()
    }

    /// Returns the message's payload.
    pub fn payload(&self, message: u32, is_reply: bool) -> Vec<u8> {
        let mut random = random(message.wrapping_add(1 << 20), is_reply);
        std::iter::repeat_with(|| random.u8(..))
            .take(self.len)
            .collect()
    }
}

fn random(message: u32, is_reply: bool) -> fastrand::Rng {
    fastrand::Rng::with_seed(u64::from(message) << 1 | u64::from(is_reply))
}

/// A round of the plan.
#[derive(Debug, Default)]
pub struct Planned {
    /// The tasks of each rank.
    pub tasks: Vec<Vec<Task>>,
    /// The value that each rank passes to the split barrier.
    pub values: Vec<Value>,
    /// The barrier's outcome. `None` if no rank passes a value.
    pub outcome: Option<BarrierOutcome>,
    /// Whether the round ends with a call of `quiesce`.
    pub quiesces: bool,
    /// The content of all segments after the round.
    pub memory: Vec<Vec<u8>>,
    /// The number of requests that each rank has handled from the start to the end of this round.
    pub requests: Vec<u32>,
    /// The number of replies that each rank has handled, counted in the same way.
    pub replies: Vec<u32>,
}

/// Everything that each rank does and sees in a schedule.
#[derive(Debug, Default)]
pub struct Plan {
    /// The rounds, in order.
    pub rounds: Vec<Planned>,
    /// The messages, by number.
    pub messages: Vec<Message>,
}

impl Plan {
    /// Plans a schedule within the job's limits.
    pub fn new(schedule: &Schedule, allowed: Allowed) -> Self {
        let ranks = schedule.ranks as usize;
        let mut plan = Self::default();
        let mut memory = vec![vec![0; allowed.segment]; ranks];
        let (mut requests, mut replies) = (vec![0; ranks], vec![0; ranks]);
        for round in &schedule.rounds {
            let mut planner = Planner {
                allowed,
                ranks: schedule.ranks,
                before: &memory,
                after: memory.clone(),
                claims: vec![Claims::default(); ranks],
                cells: vec![Cells::default(); ranks],
                messages: &mut plan.messages,
                requests: &mut requests,
                replies: &mut replies,
            };
            let tasks = (0..)
                .zip(&round.steps)
                .map(|(rank, steps)| {
                    let tasks = steps.iter().filter_map(|step| planner.task(rank, step));
                    tasks.collect()
                })
                .collect();
            memory = planner.after;
            let values = values(round, schedule.ranks);
            let merged = values
                .iter()
                .fold(Value::Anonymous, |all, &one| all.merge(one));
            plan.rounds.push(Planned {
                tasks,
                values,
                outcome: Some(merged.into()),
                quiesces: round.quiesces,
                memory: memory.clone(),
                requests: requests.clone(),
                replies: replies.clone(),
            });
        }
        plan
    }
}

fn values(round: &Round, ranks: u32) -> Vec<Value> {
    let value = |rank| match round.ids {
        Ids::Anonymous => Value::Anonymous,
        Ids::Mixed(_) if rank == 0 => Value::Anonymous,
        Ids::Named(id) | Ids::Mixed(id) => Value::Named(id),
        Ids::Mismatch => Value::Named(rank),
    };
    (0..ranks).map(value).collect()
}
