//! Random schedules. A schedule holds the actions of each rank in rounds, each of which ends with a
//! barrier.

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
    /// The call returns a handle. The source may be reused as soon as it returns.
    Handle,
    /// The call returns a handle. The source must not change until the operation is synchronised.
    Bulk,
    /// The call starts one of the thread's implicit operations.
    Implicit,
    /// The call starts one of the thread's implicit operations. The source must not change until
    /// the operation is synchronised.
    ImplicitBulk,
    /// An immediate call, which is repeated until it returns a handle.
    Immediate,
}

/// The reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The reply's category.
    pub category: Category,
    /// The number of the reply's arguments, from 1 to 16.
    pub nargs: u8,
    /// The number of payload bytes, before it is reduced to the limits.
    pub len: u16,
    /// The place of a long's payload in the requester's segment.
    pub place: u16,
}

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// The call waits for credits.
    Plain,
    /// An immediate call, which is repeated until the request is sent.
    Immediate,
    /// If the request is a long, the call returns before the payload has been read. If it is a
    /// medium, the payload is prepared in place.
    InPlace,
    /// The request is a medium, which is prepared and then cancelled.
    Cancelled,
}

/// How operations are synchronised in the middle of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// The oldest operation is waited for.
    One,
    /// At least one operation is waited for. All that have ended are then synchronised.
    Some,
    /// All operations are waited for.
    All,
    /// The oldest operation is synchronised if it has ended.
    TryOne,
    /// The operations that have ended are synchronised.
    TrySome,
    /// All operations are synchronised if they have ended.
    TryAll,
    /// The implicit operations of some classes are waited for.
    Implicit(Class),
    /// All implicit operations are synchronised if they have ended.
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
    /// Sets bytes by a memset.
    Fill(Way),
    /// Gets into private memory.
    Get(Way),
    /// Gets into the rank's own segment.
    GetOwn(Way),
    /// Gets 1 to 8 bytes into a register.
    GetValue,
    /// Runs a remote atomic.
    Atomic(AtomicOp, AtomicType, Fetch),
    /// Sends a request.
    Request {
        /// The request's category.
        category: Category,
        /// The number of the request's arguments.
        nargs: u8,
        /// How the request is sent.
        sending: Sending,
        /// The request's reply, if it gets one.
        answer: Option<Answer>,
    },
    /// Opens an access region, or closes the one that is open.
    Region,
    /// Synchronises operations.
    Sync(Sync),
    /// Notifies the round's split barrier, or waits for it.
    Barrier,
    /// Polls.
    Poll,
}

/// The destination of an atomic's old value, and how the atomic is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// The call waits and returns the old value.
    Value,
    /// The call waits and returns nothing.
    No,
    /// The call returns a handle. The old value is not fetched.
    Handle,
    /// The call starts an implicit operation. The old value is not fetched.
    Implicit,
    /// The call returns a handle. The old value is written to memory.
    HandleTo,
    /// Same as [`Self::HandleTo`], by an immediate call that is repeated until it starts the
    /// operation.
    ImmediateTo,
    /// The call starts an implicit operation. The old value is written to memory.
    ImplicitTo,
}

/// An action with numbers, which the planner maps to valid values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The target, to be taken modulo the number of ranks.
    pub target: u8,
    /// The place in the target's segment, to be mapped to a valid offset.
    pub place: u16,
    /// The place in the rank's own segment, to be mapped to a valid offset.
    pub own: u16,
    /// The length in bytes.
    pub len: u16,
}

/// The ids that ranks pass to a split barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// No rank passes an id.
    Anonymous,
    /// All ranks pass this id.
    Named(u32),
    /// Rank 0 passes no id, and all other ranks pass this one.
    Mixed(u32),
    /// Each rank passes an id of its own.
    Mismatch,
}

impl Schedule {
    /// Returns whether the threading mode is `Par` instead of `Seq`. Half of the schedules with
    /// checks and half of those without use `Par`.
    pub fn is_parallel(&self) -> bool {
        self.seed & 2 != 0
    }

    /// Returns whether requests are handled in an order drawn from the seed. Half of the schedules
    /// with each combination of the other options are shuffled.
    pub fn is_shuffled(&self) -> bool {
        self.seed & 4 != 0
    }
}

/// The steps between two barriers.
#[derive(Debug, Clone)]
pub struct Round {
    /// The steps of each rank.
    pub steps: Vec<Vec<Step>>,
    /// The ids that ranks pass to the round's split barrier.
    pub ids: Ids,
    /// Whether the round ends by quiescing instead of waiting for the expected messages.
    pub quiesces: bool,
}

/// A random schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The number of ranks.
    pub ranks: u32,
    /// The seed, which determines the order of turns and the ranks' options.
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

/// Returns a strategy for schedules for 2 to 4 ranks, with up to `rounds` rounds and up to `steps`
/// steps of each rank in a round.
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
