//! Random schedules of all operations over several ranks, checked against a reference model, which
//! is a byte array for each rank.
//!
//! - [`schedule`] draws random schedules.
//! - [`plan`] selects the steps of a schedule that have only one possible outcome, and computes
//!   that outcome.
//! - [`turns`] makes ranks take turns, so that a schedule runs the same way each time.
//! - [`given_up`] tests operations that are in flight when a call fails.
//! - [`check`] runs a schedule over a network and reports differences from the model.

mod claims;
pub mod given_up;
mod handlers;
pub mod plan;
mod planner;
mod rank;
pub mod schedule;
pub mod turns;

use std::sync::Arc;

use conduit_core::engine::Engine;
use conduit_core::ni::{Capabilities, Ni};
use conduit_core::settings::Settings;
use conduit_core::threads::Mode;
use pmi::bootstrap::Bootstrap as _;
use proptest::test_runner::{Config as ProptestConfig, TestCaseError, TestRunner};

use handlers::{Log, handlers};
use plan::{Allowed, Plan};
use rank::Rank;
use schedule::Schedule;
use turns::{InTurn, Meeting};

use crate::sample::share;

/// The length of a segment in bytes: more than the longest operation, but so few that operations
/// overlap.
const SEGMENT: usize = 16 << 10;
/// Limits on the length of a schedule's run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of turns of all ranks together, far above what any schedule needs.
    pub turns: u64,
    /// The number of polls within which all resources must have been returned.
    pub polls: u32,
}

impl Limits {
    /// Returns the limits for runs in which requests are held back for some polls.
    fn of_shuffled(self) -> Self {
        Self {
            turns: 20 * self.turns,
            polls: 20 * self.polls,
        }
    }

    /// The limits for networks that progress with each poll.
    pub const POLLS: Self = Self {
        turns: 100_000,
        polls: 2_000,
    };
    /// The limits for networks whose progress also takes time.
    pub const TIME: Self = Self {
        turns: 100_000_000,
        polls: 20_000_000,
    };
}

/// Draws schedules for three ranks and checks each. Draws `cases` schedules, or a quarter of them
/// if tests only draw samples, unless `PROPTEST_CASES` sets the number. Shrinks a failing schedule
/// in at most `shrinks` attempts.
///
/// # Panics
/// If a schedule failed. The message contains the smallest failing schedule found.
pub fn check_drawn(cases: u32, shrinks: u32, check: impl Fn(&Schedule) -> Result<(), String>) {
    let default = ProptestConfig::default();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => default.cases,
            None => share(cases, 4),
        },
        max_shrink_iters: shrinks,
        failure_persistence: None,
        ..default
    });
    let result = runner.run(&schedule::schedules(3, 40), |schedule| {
        check(&schedule).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Runs a schedule on a network in a threading mode. `ends` holds the ranks' ends of the network.
/// The seed of a schedule determines whether it runs with checks (without them, requests take their
/// fast paths) and whether requests are shuffled.
///
/// # Errors
/// A difference from the model in bytes, messages or barriers, or a resource that isn't returned.
pub fn check<N: Ni + 'static, M: Mode>(
    schedule: &Schedule,
    settings: &Settings,
    ends: Vec<N>,
    limits: Limits,
) -> Result<(), String> {
    let chunk = settings.chunk.next_multiple_of(64);
    let mapped = ends.iter().all(|end| {
        (0..end.size()).map(|peer| end.reach(peer)).all(|reach| {
            reach.capabilities.contains(Capabilities::WINDOW) && reach.inject_size >= chunk
        })
    });
    let allowed = Allowed {
        segment: SEGMENT,
        chunk,
        long_reply: match mapped {
            true => SEGMENT,
            false => am::limits::max_packed_long(chunk, am::MAX_ARGS),
        },
    };
    let plan = Arc::new(Plan::new(schedule, allowed));
    let settings = Settings {
        checks: schedule.seed.is_multiple_of(2),
        shuffle: schedule.is_shuffled().then_some(schedule.seed as u32),
        ..settings.clone()
    };
    let limits = match schedule.is_shuffled() {
        true => limits.of_shuffled(),
        false => limits,
    };
    turns::run(ends, schedule.seed, limits.turns, move |end, meeting| {
        one_rank::<M>(end, meeting, &plan, &settings, limits.polls)
    })
}

fn one_rank<M: Mode>(
    end: InTurn,
    mut meeting: Meeting,
    plan: &Arc<Plan>,
    settings: &Settings,
    most_polls: u32,
) -> Result<(), String> {
    let text = |error: conduit_core::kernel::Error| error.to_string();
    let engine = Engine::<_, M>::start(end, &mut meeting, settings).map_err(text)?;
    let log = Log::new(plan.messages.len());
    let mut registrations = handlers(engine.rank(), plan, &log);
    engine
        .memory()
        .attach(&mut meeting, &mut registrations, SEGMENT)
        .map_err(text)?;
    let at_first = Credits::of(&engine).map_err(text)?;
    let mut rank = Rank::new(&engine, plan, &log);
    for (number, round) in plan.rounds.iter().enumerate() {
        rank.round(round)
            .map_err(|reason| format!("round {number}: {reason}"))?;
    }
    each_once(&engine, plan, &log)?;
    // Waits until operations in flight have completed, which needs no other work. Does so twice,
    // because during the first wait a rank may still ask for credits of ranks that are already
    // quiet.
    for _ in 0..2 {
        let mut polls = 0;
        while !engine.is_quiet().map_err(text)? {
            engine.poll().map_err(text)?;
            polls += 1;
            if polls > most_polls {
                return Err(format!("resources still in use: {:?}", engine.in_use()));
            }
        }
        let mut fault = Ok(());
        meeting.leave(|| fault = engine.poll().map_err(text));
        fault?;
    }
    let at_last = Credits::of(&engine).map_err(text)?;
    at_last.check(&at_first, engine.rank(), &mut meeting, settings)?;
    engine.job().network().note("the end".to_owned());
    let mut fault = Ok(());
    meeting.leave(|| fault = engine.poll().map_err(text));
    fault
}

/// The distribution of a rank's credits.
#[derive(Debug)]
struct Credits {
    banked: u32,
    /// The number of credits lent to each peer.
    lent: Vec<u32>,
    /// The number of credits lent by each peer.
    send: Vec<u32>,
}

impl Credits {
    fn of<M: Mode>(engine: &Engine<InTurn, M>) -> conduit_core::kernel::Result<Credits> {
        let peers = (0..engine.size()).map(|peer| engine.messages().credits(peer));
        let peers = peers.collect::<Result<Vec<_>, _>>()?;
        Ok(Credits {
            banked: engine.messages().banked_credits(),
            send: peers.iter().map(|peer| peer.send).collect(),
            lent: peers.iter().map(|peer| peer.lent).collect(),
        })
    }

    /// Checks the credits when all ranks are quiet. Each peer must have the credits that this rank
    /// has lent to it, the total must be unchanged, and without dynamic credits none may have
    /// moved.
    fn check(
        &self,
        at_first: &Credits,
        rank: u32,
        meeting: &mut Meeting,
        settings: &Settings,
    ) -> Result<(), String> {
        let wrong = || Err(format!("rank {rank}: {self:?}, at first {at_first:?}"));
        let bytes: Vec<u8> = self
            .lent
            .iter()
            .flat_map(|lent| lent.to_le_bytes())
            .collect();
        let all = meeting
            .allgather(&bytes)
            .map_err(|error| error.to_string())?;
        for (lender, lent) in all.iter().enumerate() {
            let at = 4 * rank as usize;
            if lent[at..at + 4] != self.send[lender].to_le_bytes() {
                return wrong();
            }
        }
        let moved = self.lent != at_first.lent || self.banked != at_first.banked;
        if moved && !(settings.dynamic_credits && settings.flow_control) {
            return wrong();
        }
        let all = |credits: &Credits| {
            credits
                .lent
                .iter()
                .map(|&lent| u64::from(lent))
                .sum::<u64>()
                + u64::from(credits.banked)
        };
        if all(self) != all(at_first) {
            return wrong();
        }
        Ok(())
    }
}

/// Checks that every message to this rank has arrived once, and that no other message has arrived.
fn each_once<M: Mode>(engine: &Engine<InTurn, M>, plan: &Plan, log: &Log) -> Result<(), String> {
    let rank = engine.rank();
    let seen = log.seen();
    let mut bare = 0;
    for (number, message) in plan.messages.iter().enumerate() {
        let here = message.to == rank;
        let is_bare = here && message.request.nargs == 0;
        bare += u32::from(is_bare);
        let requests = u8::from(here && !is_bare);
        let replies = u8::from(message.from == rank && message.answer.is_some());
        if (seen.requests[number], seen.replies[number]) != (requests, replies) {
            return Err(format!(
                "message {number} {message:?}: request arrived {} times, reply {} times",
                seen.requests[number], seen.replies[number]
            ));
        }
    }
    if seen.bare != bare {
        return Err(format!(
            "{} messages without arguments, expected {bare}",
            seen.bare
        ));
    }
    Ok(())
}
