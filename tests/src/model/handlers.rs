//! The handlers of a rank under test. They check each message against the plan and record it.

use std::sync::{Arc, Mutex, MutexGuard};

use am::Category;
use am::handlers::{Entry, Registration};
use conduit_core::engine::{Call, Handler};
use conduit_core::messages::Payload;
use conduit_core::threads::Mode;

use super::plan::{Part, Plan};
use super::turns::InTurn;

/// The index of the handler for all requests.
pub(super) const REQUEST: u8 = 200;
/// The index of the handler for all replies.
pub(super) const REPLY: u8 = 131;

/// The messages that a rank has received.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many times each request has arrived, by the request's number.
    pub(super) requests: Vec<u8>,
    /// How many times each reply has arrived, by the number of its request.
    pub(super) replies: Vec<u8>,
    /// The number of requests without arguments that have arrived. Such requests are
    /// indistinguishable.
    pub(super) bare: u32,
    /// The number of requests and the number of replies that have been handled.
    pub(super) handled: (u32, u32),
    /// A description of each error found.
    pub(super) wrong: Vec<String>,
}

/// A [`Seen`] that a rank and its handlers share.
#[derive(Debug, Clone)]
pub(super) struct Log(Arc<Mutex<Seen>>);

impl Log {
    pub(super) fn new(messages: usize) -> Self {
        Self(Arc::new(Mutex::new(Seen {
            requests: vec![0; messages],
            replies: vec![0; messages],
            ..Seen::default()
        })))
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }
}

/// A function with which a handler checks a message.
type Check<M> = fn(&Call<'_, InTurn, M>, u32, &Plan, &mut Seen) -> Result<(), String>;

/// Returns the handlers of `rank`.
pub(super) fn handlers<M: Mode>(
    rank: u32,
    plan: &Arc<Plan>,
    log: &Log,
) -> Vec<Registration<Handler<InTurn, M>>> {
    let make = |id: u8, check: Check<M>| {
        let (plan, log) = (plan.clone(), log.clone());
        let handler: Handler<InTurn, M> = Handler::new(move |call| {
            let mut seen = log.seen();
            if let Err(reason) = check(call, rank, &plan, &mut seen) {
                seen.wrong.push(format!("rank {rank}, {call:?}: {reason}"));
            }
        });
        Registration {
            id,
            entry: Entry::new(handler),
        }
    };
    vec![make(REQUEST, request), make(REPLY, reply)]
}

fn request<M: Mode>(
    call: &Call<'_, InTurn, M>,
    rank: u32,
    plan: &Plan,
    seen: &mut Seen,
) -> Result<(), String> {
    seen.handled.0 += 1;
    let Some(&number) = call.args().first() else {
        seen.bare += 1;
        return Ok(());
    };
    let message = plan
        .messages
        .get(number as usize)
        .ok_or("unknown message")?;
    seen.requests[number as usize] += 1;
    if (message.from, message.to) != (call.source(), rank) || !call.is_request() {
        return Err(format!("expected {message:?}"));
    }
    check(call, &message.request, number, false)?;
    let Some(answer) = message.answer else {
        return Ok(());
    };
    let (args, payload) = (answer.args(number, true), answer.payload(number, true));
    match answer.category {
        Category::Short => call.reply_short(REPLY, &args),
        Category::Medium => call.reply_medium(REPLY, &args, &payload),
        Category::Long => call.reply_long(REPLY, &args, &payload, answer.at),
    }
    .map_err(|error| error.to_string())?;
    match call.reply_short(REPLY, &args) {
        Err(conduit_core::kernel::Error::Context { .. }) => Ok(()),
        other => Err(format!("a second reply: {other:?}")),
    }
}

fn reply<M: Mode>(
    call: &Call<'_, InTurn, M>,
    rank: u32,
    plan: &Plan,
    seen: &mut Seen,
) -> Result<(), String> {
    seen.handled.1 += 1;
    let number = *call.args().first().ok_or("no arguments")? & !(1 << 31);
    let message = plan
        .messages
        .get(number as usize)
        .ok_or("unknown message")?;
    seen.replies[number as usize] += 1;
    let answer = message.answer.ok_or("the plan has no reply")?;
    if (message.from, message.to) != (rank, call.source()) || call.is_request() {
        return Err(format!("expected {message:?}"));
    }
    check(call, &answer, number, true)?;
    match call.reply_short(REPLY, &[0]) {
        Err(conduit_core::kernel::Error::Context { .. }) => Ok(()),
        other => Err(format!("a reply from a reply's handler: {other:?}")),
    }
}

fn check<M: Mode>(
    call: &Call<'_, InTurn, M>,
    part: &Part,
    number: u32,
    is_reply: bool,
) -> Result<(), String> {
    if call.args() != part.args(number, is_reply) {
        return Err(format!("wrong arguments: {:?}", call.args()));
    }
    let expected = part.payload(number, is_reply);
    match (part.category, call.payload()) {
        (Category::Short, Payload::None) => Ok(()),
        (Category::Medium, Payload::Medium(bytes)) => {
            if !bytes.as_ptr().addr().is_multiple_of(16) {
                return Err(format!("payload at {:p}", bytes.as_ptr()));
            }
            same("medium", &expected, bytes)
        }
        (Category::Long, Payload::Long { offset, length }) => {
            if (offset, length) != (part.at, part.len) {
                return Err(format!("{length} bytes at {offset}, expected {part:?}"));
            }
            let (base, _) = call
                .engine()
                .memory()
                .segment()
                .map_err(|error| error.to_string())?;
            // SAFETY: the engine has checked that the range lies in the segment. Nothing writes the
            // range while the slice lives, because ranks take turns and the plan has no other
            // operation that writes there in this round.
            let bytes = unsafe { std::slice::from_raw_parts(base.add(offset), length) };
            same("long", &expected, bytes)
        }
        (category, payload) => Err(format!(
            "expected a {category}, found the payload {payload:?}"
        )),
    }
}

/// Returns an error that tells where the bytes differ, if they do.
pub(super) fn same(what: &str, expected: &[u8], found: &[u8]) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    if expected.len() != found.len() {
        return Err(format!(
            "{what}: {} bytes instead of {}",
            found.len(),
            expected.len()
        ));
    }
    let differ = |at: &usize| expected[*at] != found[*at];
    let first = (0..found.len()).find(differ).unwrap_or(0);
    let last = (0..found.len()).rfind(differ).unwrap_or(0);
    Err(format!(
        "{what}: bytes {first}..={last} of {} differ: {} instead of {} first",
        found.len(),
        found[first],
        expected[first]
    ))
}
