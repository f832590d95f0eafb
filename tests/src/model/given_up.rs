//! Calls that fail while their operations are in flight. After the failure the callers' memory may
//! have another owner, so late messages must not touch it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use am::handlers::{Entry, Registration};
use conduit_core::engine::{Engine, Handler};
use conduit_core::kernel::Blocking;
use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;

use super::Limits;
use super::turns::{self, InTurn, Meeting};

/// The event that makes a call fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A third rank sends an invalid message.
    BadMessage,
    /// A handler panics, and the panic unwinds out of the call.
    Panic,
}

/// The kind of call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A get of `LENGTH` bytes.
    Get,
    /// A put of `LENGTH` bytes.
    Put,
}

/// How far a job has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Start,
    /// Rank 0 makes calls until one of them fails. Their target doesn't poll meanwhile.
    Calls,
    /// A call has failed, and its memory now has another owner. The target polls again.
    Failed,
    Over,
}

/// The length of a transfer in bytes: longer than a chunk and than a packet.
const LENGTH: usize = 100_000;
/// The byte that the memory's next owner writes.
const OTHERS: u8 = 0xA5;
const PANICS: u8 = 200;
const UNREGISTERED: u8 = 201;

/// Runs every cause with every call over a network. Each combination runs twice: once the memory's
/// next owner writes to it, and once it is freed. AddressSanitizer or valgrind finds accesses to
/// freed memory.
///
/// # Panics
/// If memory was touched after the failure, or no call failed.
pub fn check_given_up<N: Ni + 'static>(
    settings: &Settings,
    limits: Limits,
    ends: impl Fn(u64) -> Vec<N>,
) {
    for seed in 0..2 {
        for cause in [Cause::BadMessage, Cause::Panic] {
            for call in [Call::Get, Call::Put] {
                for reused in [true, false] {
                    let (stage, settings) = (Rc::new(Cell::new(Stage::Start)), settings.clone());
                    let play = move |end, meeting| {
                        let case = Case {
                            cause,
                            call,
                            reused,
                            polls: limits.polls,
                            stage: &stage,
                        };
                        case.one_rank(end, meeting, &settings)
                    };
                    let played = turns::run(ends(seed), seed, limits.turns, play);
                    played.unwrap_or_else(|reason| {
                        panic!("seed {seed}, {cause:?} in a {call:?}, {reused}: {reason}")
                    });
                }
            }
        }
    }
}

struct Case<'a> {
    cause: Cause,
    call: Call,
    /// Whether the memory's next owner writes to it. Otherwise the memory is freed.
    reused: bool,
    polls: u32,
    stage: &'a Cell<Stage>,
}

impl Case<'_> {
    fn one_rank(
        &self,
        end: InTurn,
        mut meeting: Meeting,
        settings: &Settings,
    ) -> Result<(), String> {
        let text = |error: conduit_core::kernel::Error| error.to_string();
        let engine = Engine::<_, Seq>::start(end, &mut meeting, settings).map_err(text)?;
        let panics: Handler<InTurn, Seq> = Handler::new(|_| panic!("a handler's last words"));
        let mut handlers = [Registration {
            id: PANICS,
            entry: Entry::new(panics),
        }];
        engine
            .memory()
            .attach(&mut meeting, &mut handlers, 2 * LENGTH)
            .map_err(text)?;
        match engine.rank() {
            0 => self.caller(&engine),
            1 => self.target(&engine),
            _ => self.third(&engine),
        }
    }

    fn caller(&self, engine: &Engine<InTurn, Seq>) -> Result<(), String> {
        // Makes a first put, so that networks with direct access advertise it before the call that
        // fails.
        let text = |error: conduit_core::kernel::Error| error.to_string();
        engine.rma().put(1, 0, &[1; 8]).map_err(text)?;
        self.stage.set(Stage::Calls);
        let mut buffer = loop {
            let mut buffer = vec![1; LENGTH];
            let called = catch_unwind(AssertUnwindSafe(|| match self.call {
                Call::Get => engine.rma().get(&mut buffer, 1, 0),
                Call::Put => engine.rma().put(1, LENGTH, &buffer),
            }));
            match (called, self.cause) {
                (Ok(Err(_)), Cause::BadMessage) | (Err(_), Cause::Panic) => break buffer,
                (Ok(Ok(())), _) => {}
                (called, cause) => return Err(format!("{cause:?} gave {called:?}")),
            }
        };
        match self.reused {
            true => buffer.fill(OTHERS),
            false => buffer = Vec::new(),
        }
        self.stage.set(Stage::Failed);
        for _ in 0..self.polls {
            engine.job().network().progress();
            // The engine keeps returning its first error, so the result is ignored.
            let _ = engine.poll();
        }
        self.stage.set(Stage::Over);
        match buffer.iter().filter(|byte| **byte != OTHERS).count() {
            0 => Ok(()),
            changed => Err(format!(
                "the network changed {changed} bytes that the memory's next owner had written"
            )),
        }
    }

    fn target(&self, engine: &Engine<InTurn, Seq>) -> Result<(), String> {
        while self.stage.get() < Stage::Over {
            if self.stage.get() == Stage::Calls {
                // Waiting lets the other ranks run.
                engine.job().network().wait(Duration::ZERO);
            } else {
                let _ = engine.poll();
            }
        }
        let (base, length) = engine
            .memory()
            .segment()
            .map_err(|error| error.to_string())?;
        // SAFETY: `base` points to this rank's segment, which is valid for `length` bytes and no
        // longer written.
        let bytes = unsafe { std::slice::from_raw_parts(base, length) };
        match bytes.iter().filter(|byte| **byte == OTHERS).count() {
            0 => Ok(()),
            sent => Err(format!(
                "the network sent {sent} bytes that the source's next owner had written"
            )),
        }
    }

    fn third(&self, engine: &Engine<InTurn, Seq>) -> Result<(), String> {
        /// The number of turns after which rank 0's operations are in flight.
        const TURNS: u32 = 300;
        while self.stage.get() < Stage::Calls {
            let _ = engine.poll();
        }
        for _ in 0..TURNS {
            engine.job().network().wait(Duration::ZERO);
        }
        let handler = match self.cause {
            Cause::BadMessage => UNREGISTERED,
            Cause::Panic => PANICS,
        };
        let sent = engine
            .messages()
            .request_short(0, handler, &[], Blocking::Wait);
        sent.map_err(|error| error.to_string())?;
        while self.stage.get() < Stage::Over {
            let _ = engine.poll();
        }
        Ok(())
    }
}
