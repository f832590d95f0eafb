//! Random schedules: the actions of each rank, in rounds that end with a barrier.

use am::Category;
use conduit_core::ni::{AtomicOp, AtomicType};
use conduit_core::rma::Class;
use proptest::collection::vec;
use proptest::prelude::*;

/// How an operation is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The call returns when the operation has ended.
    Blocking,
    /// The call returns a handle; the source may be reused.
    Handle,
    /// The call returns a handle; the source is read until the operation is synchronised.
    Bulk,
    /// One of the thread's implicit operations.
    Implicit,
    /// One of the thread's implicit operations, whose source is read until it is synchronised.
    ImplicitBulk,
    /// An immediate call, repeated until it returns a handle.
    Immediate,
}

/// The reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The reply's category.
    pub category: Category,
    /// Its arguments, 1 to 16.
    pub nargs: u8,
    /// Payload bytes, within the limits.
    pub len: u16,
    /// The place of a long in the requester's segment.
    pub place: u16,
}

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Waits for credits.
    Plain,
    /// An immediate call, repeated until the request is sent.
    Immediate,
    /// A long that returns before its payload has been read; a medium whose payload is prepared in
    /// place.
    InPlace,
    /// A medium that is prepared and then cancelled.
    Cancelled,
}

/// How operations are synchronised in the middle of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// The oldest operation.
    One,
    /// All that have ended, at least one.
    Some,
    /// All operations.
    All,
    /// The oldest operation, if it has ended.
    TryOne,
    /// The operations that have ended.
    TrySome,
    /// All operations, if they have ended.
    TryAll,
    /// Implicit operations of some classes.
    Implicit(Class),
    /// All implicit operations, if they have ended.
    TryImplicit,
}

/// A rank's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Puts private memory.
    Put(Way),
    /// Puts a part of the rank's own segment.
    PutOwn(Way),
    /// Puts 1 to 8 bytes of a register.
    PutValue(Way),
    /// Memset.
    Fill(Way),
    /// Gets into private memory.
    Get(Way),
    /// Gets into the rank's own segment.
    GetOwn(Way),
    /// Gets 1 to 8 bytes into a register.
    GetValue,
    /// A remote atomic.
    Atomic(AtomicOp, AtomicType, Fetch),
    /// A request.
    Request {
        /// Its category.
        category: Category,
        /// Its arguments.
        nargs: u8,
        /// How it is sent.
        sending: Sending,
        /// Its reply.
        answer: Option<Answer>,
    },
    /// Opens an access region, or closes the one that is open.
    Region,
    /// Synchronises.
    Sync(Sync),
    /// Notifies the round's split barrier, or waits for it.
    Barrier,
    /// Polls.
    Poll,
}

/// The old value's destination, and how the atomic is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// The old value is returned.
    Value,
    /// No old value; a blocking call.
    No,
    /// No old value; a handle.
    Handle,
    /// No old value; an implicit operation.
    Implicit,
    /// The old value is written to memory; a handle.
    HandleTo,
    /// The same by an immediate call, repeated until it starts the operation.
    ImmediateTo,
    /// The old value is written to memory; an implicit operation.
    ImplicitTo,
}

/// An action with its numbers, which the planner maps to valid ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The target, modulo the ranks.
    pub target: u8,
    /// The place in the target's segment.
    pub place: u16,
    /// The place in the rank's own segment.
    pub own: u16,
    /// The length in bytes.
    pub len: u16,
}

/// The ids that ranks pass to a split barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// No rank has one.
    Anonymous,
    /// All ranks have this one.
    Named(u32),
    /// Rank 0 has none, all others have this one.
    Mixed(u32),
    /// Each rank has its own.
    Mismatch,
}

impl Schedule {
    /// Returns whether the threading mode is `Par` instead of `Seq`: in half of all schedules, with
    /// and without checks.
    pub fn is_parallel(&self) -> bool {
        self.seed & 2 != 0
    }

    /// Returns whether requests are handled in an order drawn from the seed: in half of all
    /// schedules of each of those kinds.
    pub fn is_shuffled(&self) -> bool {
        self.seed & 4 != 0
    }
}

/// The steps between two barriers.
#[derive(Debug, Clone)]
pub struct Round {
    /// Each rank's steps.
    pub steps: Vec<Vec<Step>>,
    /// The ids passed to its split barrier.
    pub ids: Ids,
    /// Whether it ends by quiescing instead of waiting for the expected messages.
    pub quiesces: bool,
}

/// A random schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The number of ranks.
    pub ranks: u32,
    /// Determines the order of turns and the ranks' options.
    pub seed: u64,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
}

fn way() -> impl Strategy<Value = Way> {
    prop::sample::select(vec![
        Way::Blocking,
        Way::Handle,
        Way::Bulk,
        Way::Implicit,
        Way::ImplicitBulk,
        Way::Immediate,
    ])
}

fn category() -> impl Strategy<Value = Category> {
    prop::sample::select(vec![Category::Short, Category::Medium, Category::Long])
}

fn length() -> impl Strategy<Value = u16> {
    prop_oneof![3 => 0u16..64, 3 => 0u16..1200, 1 => 0u16..6000]
}

fn answer() -> impl Strategy<Value = Option<Answer>> {
    let answer =
        (category(), 1u8..=16, length(), any::<u16>()).prop_map(|(category, nargs, len, place)| {
            Answer {
                category,
                nargs,
                len,
                place,
            }
        });
    prop::option::of(answer)
}

fn request() -> impl Strategy<Value = Action> {
    use Sending::{Cancelled, Immediate, InPlace, Plain};
    let sending = prop::sample::select(vec![Plain, Plain, Immediate, InPlace, Cancelled]);
    (category(), 0u8..=16, sending, answer()).prop_map(|(category, nargs, sending, answer)| {
        Action::Request {
            category,
            nargs,
            sending,
            answer,
        }
    })
}

fn atomic() -> impl Strategy<Value = Action> {
    (
        prop::sample::select(&AtomicOp::ALL[..]),
        prop::sample::select(&AtomicType::ALL[..]),
        prop::sample::select(vec![
            Fetch::Value,
            Fetch::No,
            Fetch::Handle,
            Fetch::Implicit,
            Fetch::HandleTo,
            Fetch::ImmediateTo,
            Fetch::ImplicitTo,
        ]),
    )
        .prop_map(|(op, ty, fetch)| Action::Atomic(op, ty, fetch))
}

fn sync() -> impl Strategy<Value = Action> {
    let all = vec![
        Sync::One,
        Sync::Some,
        Sync::All,
        Sync::TryOne,
        Sync::TrySome,
        Sync::TryAll,
        Sync::TryImplicit,
        Sync::Implicit(Class::all()),
        Sync::Implicit(Class::PUTS),
        Sync::Implicit(Class::GETS),
        Sync::Implicit(Class::ATOMICS),
    ];
    prop::sample::select(all).prop_map(Action::Sync)
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        3 => way().prop_map(Action::Put),
        1 => way().prop_map(Action::PutOwn),
        1 => way().prop_map(Action::PutValue),
        1 => way().prop_map(Action::Fill),
        3 => way().prop_map(Action::Get),
        1 => way().prop_map(Action::GetOwn),
        1 => Just(Action::GetValue),
        2 => atomic(),
        8 => request(),
        1 => Just(Action::Region),
        2 => sync(),
        1 => Just(Action::Barrier),
        1 => Just(Action::Poll),
    ];
    (action, any::<u8>(), any::<u16>(), any::<u16>(), length()).prop_map(
        |(action, target, place, own, len)| Step {
            action,
            target,
            place,
            own,
            len,
        },
    )
}

fn ids() -> impl Strategy<Value = Ids> {
    prop_oneof![
        Just(Ids::Anonymous),
        any::<u32>().prop_map(Ids::Named),
        any::<u32>().prop_map(Ids::Mixed),
        Just(Ids::Mismatch)
    ]
}

/// Returns a strategy for schedules for 2 to 4 ranks, of up to `rounds` rounds with up to `steps`
/// steps of each rank.
pub fn schedules(rounds: usize, steps: usize) -> impl Strategy<Value = Schedule> {
    (2u32..=4).prop_flat_map(move |ranks| {
        let of_rank = vec(vec(step(), 0..=steps), ranks as usize);
        let round = (of_rank, ids(), any::<bool>()).prop_map(|(steps, ids, quiesces)| Round {
            steps,
            ids,
            quiesces,
        });
        (vec(round, 1..=rounds), any::<u64>()).prop_map(move |(rounds, seed)| Schedule {
            ranks,
            seed,
            rounds,
        })
    })
}
