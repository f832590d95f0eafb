//! Runs and checks one rank's part of a plan.

mod starts;
mod sync;

use conduit_core::engine::Engine;
use conduit_core::kernel::{Blocking, Completion, Error, Handle};
use conduit_core::rma::{Class, value_bytes};
use conduit_core::threads::Mode;

use super::handlers::{Log, REQUEST, same};
use super::plan::{Plan, Planned, Source, Task};
use super::schedule::{Fetch, Sending, Sync, Way};
use super::turns::InTurn;

/// The memory that an operation in flight uses, and the expected result if the operation is a get.
#[derive(Debug)]
struct Kept {
    memory: Vec<u8>,
    expected: Option<Vec<u8>>,
}

impl Kept {
    fn nothing() -> Self {
        Self::source(Vec::new())
    }

    fn source(memory: Vec<u8>) -> Self {
        Self {
            memory,
            expected: None,
        }
    }

    fn check(self) -> Result<(), String> {
        match self.expected {
            Some(expected) => same("fetched", &expected, &self.memory),
            None => Ok(()),
        }
    }
}

/// A rank that runs its part of a plan.
pub(super) struct Rank<'a, M: Mode> {
    engine: &'a Engine<InTurn, M>,
    plan: &'a Plan,
    log: &'a Log,
    handles: Vec<Handle>,
    kept: Vec<Kept>,
    /// The implicit operations in flight, with their classes.
    implicit: Vec<(Class, Kept)>,
    /// The operations of the open access region, if one is open.
    region: Option<Vec<Kept>>,
    /// The sources of longs in place, which are kept until the round ends.
    longs: Vec<Vec<u8>>,
    /// Whether the round's split barrier has been notified, and whether it has been waited for.
    barrier: (bool, bool),
}

type Done<T = ()> = Result<T, String>;

fn text(error: Error) -> String {
    format!("{error} ({error:?})")
}

impl<'a, M: Mode> Rank<'a, M> {
    pub(super) fn new(engine: &'a Engine<InTurn, M>, plan: &'a Plan, log: &'a Log) -> Self {
        Self {
            engine,
            plan,
            log,
            handles: Vec::new(),
            kept: Vec::new(),
            implicit: Vec::new(),
            region: None,
            longs: Vec::new(),
            barrier: (false, false),
        }
    }

    /// Runs a round, from its first task to the barrier that follows its check.
    pub(super) fn round(&mut self, round: &Planned) -> Done {
        let rank = self.engine.rank() as usize;
        self.barrier = (false, false);
        for task in &round.tasks[rank] {
            self.note(&format!("{task:?}"));
            self.task(task, round)
                .map_err(|reason| format!("{task:?}: {reason}"))?;
        }
        self.note("the split barrier");
        while self.barrier != (true, true) {
            self.split_barrier(round)?;
        }
        if self.region.is_some() {
            self.end_region()?;
        }
        self.note("synchronisation");
        self.sync(Sync::All)?;
        self.sync(Sync::Implicit(Class::all()))?;
        let expected = (round.requests[rank], round.replies[rank]);
        self.note(&format!("waiting for {expected:?} messages"));
        let log = self.log;
        if round.quiesces {
            self.engine.barriers().quiesce().map_err(text)?;
            self.all_handled(expected)?;
        } else {
            self.engine
                .wait_until(|| {
                    let (requests, replies) = log.seen().handled;
                    requests >= expected.0 && replies >= expected.1
                })
                .map_err(|error| {
                    format!("{}: {:?} of {expected:?}", text(error), log.seen().handled)
                })?;
            self.note("the barrier before the check");
            self.meet()?;
        }
        self.longs.clear();
        let (base, len) = self.engine.memory().segment().map_err(text)?;
        // SAFETY: `base` points to the rank's own segment of `len` bytes, and no rank writes it
        // between the two barriers.
        let segment = unsafe { std::slice::from_raw_parts(base, len) };
        same(
            "segment",
            &round.memory[rank],
            &segment[..round.memory[rank].len()],
        )?;
        // This check precedes the next barrier, because other ranks may begin the next round after
        // that barrier.
        self.all_handled(expected)?;
        self.note("the barrier after the check");
        self.meet()
    }

    fn all_handled(&self, expected: (u32, u32)) -> Done {
        let seen = self.log.seen();
        if seen.handled != expected {
            return Err(format!(
                "{:?} requests and replies handled, expected {expected:?}",
                seen.handled
            ));
        }
        match seen.wrong.first() {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    fn note(&self, what: &str) {
        let what = format!("{what}, with {:?}", self.engine.in_use());
        self.engine.job().network().note(what);
    }

    fn meet(&self) -> Done {
        let anonymous = conduit_core::barrier::Value::Anonymous;
        self.engine
            .barriers()
            .barrier(anonymous)
            .map(drop)
            .map_err(text)
    }

    fn split_barrier(&mut self, round: &Planned) -> Done {
        let value = round.values[self.engine.rank() as usize];
        if !self.barrier.0 {
            self.barrier.0 = true;
            return self.engine.barriers().barrier_notify(value).map_err(text);
        }
        // Half of the cases wait for the barrier, and the other half try it repeatedly.
        let outcome = if self.handles.len().is_multiple_of(2) {
            self.engine.barriers().barrier_wait(value).map_err(text)?
        } else {
            loop {
                if let Some(outcome) = self.engine.barriers().barrier_try(value).map_err(text)? {
                    break outcome;
                }
            }
        };
        self.barrier.1 = true;
        if Some(outcome) == round.outcome {
            Ok(())
        } else {
            Err(format!(
                "barrier: {outcome:?}, expected {:?}",
                round.outcome
            ))
        }
    }

    /// Repeats an immediate call until it has started its operation.
    fn ask<T>(&self, mut ask: impl FnMut() -> Result<Option<T>, Error>) -> Done<T> {
        loop {
            if let Some(started) = ask().map_err(text)? {
                return Ok(started);
            }
            self.engine.poll().map_err(text)?;
        }
    }

    fn keep(&mut self, handle: Option<Handle>, kept: Kept) -> Done {
        self.handles
            .push(handle.ok_or("the operation was not started, although the call may wait")?);
        self.kept.push(kept);
        Ok(())
    }

    fn keep_implicit(&mut self, started: bool, kept: Kept, class: Class) -> Done {
        match &mut self.region {
            Some(region) => region.push(kept),
            None => self.implicit.push((class, kept)),
        }
        started
            .then_some(())
            .ok_or("the operation was not started, although the call may wait".to_owned())
    }

    fn task(&mut self, task: &Task, round: &Planned) -> Done {
        let engine = self.engine;
        match *task {
            Task::Put {
                way,
                target,
                at,
                ref source,
            } => self.put(way, target, at, source),
            Task::PutValue {
                way,
                target,
                at,
                value,
                bytes,
            } => {
                let value = value.to_ne_bytes();
                let value = value_bytes("put_value", &value, bytes).map_err(text)?;
                self.put(way, target, at, &Source::Private(value.to_vec()))
            }
            Task::Fill {
                way,
                target,
                at,
                byte,
                len,
            } => match way {
                Way::Blocking | Way::Bulk => {
                    engine.rma().memset(target, at, byte, len).map_err(text)
                }
                Way::Implicit | Way::ImplicitBulk => {
                    let (completion, blocking) = (Completion::Implicit, Blocking::Wait);
                    let started = engine
                        .rma()
                        .memset_nb(target, at, byte, len, completion, blocking);
                    self.keep_implicit(
                        started.map_err(text)?.is_some(),
                        Kept::nothing(),
                        Class::PUTS,
                    )
                }
                Way::Handle | Way::Immediate => {
                    let (completion, blocking) = (Completion::Handle, Blocking::Wait);
                    let handle = engine
                        .rma()
                        .memset_nb(target, at, byte, len, completion, blocking);
                    self.keep(handle.map_err(text)?, Kept::nothing())
                }
            },
            Task::Get {
                way,
                target,
                at,
                ref expected,
                own,
            } => self.get(way, target, at, expected, own),
            Task::GetValue {
                target,
                at,
                expected,
                bytes,
            } => {
                let value = engine.rma().get_value(target, at, bytes).map_err(text)?;
                (value == expected)
                    .then_some(())
                    .ok_or(format!("{value:#x} came"))
            }
            Task::Atomic {
                target,
                at,
                request,
                fetch,
                expected,
            } => self.atomic((target, at), request, fetch, expected),
            Task::Request { message, sending } => self.request(message, sending),
            Task::Cancelled { target, len } => {
                let prepared = engine
                    .messages()
                    .prepare_medium(target, len, len, Blocking::Wait);
                let mut prepared = prepared.map_err(text)?.ok_or("not prepared")?;
                prepared.payload().fill(0xEE);
                prepared.cancel();
                Ok(())
            }
            Task::Region if self.region.is_some() => self.end_region(),
            Task::Region => {
                self.region = Some(Vec::new());
                engine.rma().begin_region().map_err(text)?;
                match engine.rma().begin_region() {
                    Err(Error::AccessRegion { .. }) => Ok(()),
                    other => Err(format!("opening a second region returned {other:?}")),
                }
            }
            Task::Sync(sync) => self.sync(sync),
            Task::Barrier if self.barrier != (true, true) => self.split_barrier(round),
            Task::Barrier | Task::Poll => engine.poll().map_err(text),
        }
    }

    fn end_region(&mut self) -> Done {
        let kept = self.region.take().unwrap_or_default();
        let handle = self.engine.rma().end_region().map_err(text)?;
        self.engine.rma().wait(handle).map_err(text)?;
        kept.into_iter().try_for_each(Kept::check)
    }
}
