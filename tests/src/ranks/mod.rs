//! Programs on the Rust API that each rank of a job runs. They test the effects of every call,
//! refused calls, and the ways in which jobs end.
//!
//! A program gets the remaining arguments of the command line, and reports a failure by an error or
//! a panic.

mod bad;
mod calls;
mod children;
mod credits;
mod crowd;
mod ends;
pub mod exits;
mod hangs;
mod histories;
mod hot_pairs;
mod messages;
mod partners;
mod semantics;
mod storm;
mod threads;
mod world;

use anyhow::{Result, bail, ensure};
use conduit::{Conduit, Par, ParSync, Seq, threads::Mode};

/// The number of bytes that each rank's segment reserves for each rank of the job.
const SHARE: usize = 32 << 10;

/// Runs the program that the first argument names. Programs that exist in all threading modes take
/// the mode (`seq`, `parsync` or `par`) as the second argument. The remaining arguments go to the
/// program.
pub fn run(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        bail!("usage: helper PROGRAM [MODE] [ARGUMENT]");
    };
    let argument = rest.last().map_or("", String::as_str);
    /// Runs a program for all threading modes in the mode that the first argument names.
    macro_rules! in_mode {
        ($module:ident::$program:ident($($argument:expr),*)) => {
            match rest.first().map_or("", String::as_str) {
                "seq" => $module::$program::<Seq>($($argument),*),
                "parsync" => $module::$program::<ParSync>($($argument),*),
                "par" => $module::$program::<Par>($($argument),*),
                other => bail!("unknown threading mode {other}"),
            }
        };
    }
    match name.as_str() {
        "calls" => in_mode!(calls::all()),
        "children" => in_mode!(children::children()),
        "delivered" => in_mode!(messages::delivered()),
        "delivered_whole" => messages::delivered_whole(),
        "refused_in_handler" => in_mode!(bad::refused_in_handler(argument)),
        "refused_while_prepared" => in_mode!(bad::refused_while_prepared(argument)),
        "threads" => threads::all_at_once(),
        "handlers_reach" => in_mode!(world::handlers_reach()),
        "typed" => world::typed(),
        "signals" => in_mode!(world::signals()),
        "collectives" => in_mode!(world::collectives()),
        "finish_shared" => world::finish_shared(),
        "condition_fails" => world::condition_fails(),
        "flood" => messages::flood(),
        "partners" => partners::partners(rest.first().map_or("", String::as_str), argument),
        "hot_pairs" => hot_pairs::hot_pairs(argument),
        "mutual" => messages::mutual(),
        "bad_calls" => bad::calls(),
        "handlers_differ" => bad::handlers_differ(argument),
        "too_large" => bad::too_large(argument),
        "largest" => bad::largest(),
        "start_twice" => bad::start_twice(),
        "in_handlers" => bad::in_handlers(),
        "exit" => ends::exit(argument),
        "exits" => exits::exits(rest.first().map_or("", String::as_str), argument),
        "exit_after_finish" => ends::exit_after_finish(argument),
        "exit_at_once" => ends::exit_at_once(argument),
        "exit_in_handler" => in_mode!(ends::exit_in_handler()),
        "launcher_gone" => ends::launcher_gone(),
        "leave" => ends::leave(argument),
        "stay" => ends::stay(argument),
        "killed_meanwhile" => ends::killed_meanwhile(argument),
        "panic_in_handler" => ends::panic_in_handler(argument),
        "meet" => in_mode!(hangs::meet(argument)),
        "wait" => in_mode!(hangs::wait(argument)),
        "wait_in_traffic" => hangs::wait_in_traffic(),
        "wait_threads" => hangs::wait_threads(),
        "requests_are_shuffled" => in_mode!(semantics::requests_are_shuffled()),
        "replies_make_an_order" => in_mode!(semantics::replies_make_an_order()),
        "data_for_a_third" => in_mode!(semantics::data_for_a_third()),
        "own_operations" => in_mode!(semantics::own_operations()),
        "words_are_whole" => in_mode!(semantics::words_are_whole(argument)),
        "atomics_are_atomic" => in_mode!(semantics::atomics_are_atomic()),
        "atomics_are_linearizable" => in_mode!(histories::atomics_are_linearizable()),
        "payloads_are_delivered_whole" => in_mode!(semantics::payloads_are_delivered_whole()),
        "a_barrier_covers_stores_and_puts" => {
            in_mode!(semantics::a_barrier_covers_stores_and_puts())
        }
        "quiesce_covers_messages" => in_mode!(semantics::quiesce_covers_messages()),
        "a_computing_target" => in_mode!(semantics::a_computing_target()),
        "a_computing_initiator" => in_mode!(semantics::a_computing_initiator()),
        "handlers_run_in_calls" => in_mode!(semantics::handlers_run_in_calls()),
        "data_then_news" => in_mode!(semantics::data_then_news(argument)),
        "quiesce_covers_other_threads" => semantics::quiesce_covers_other_threads(),
        "one_handler_at_a_time" => semantics::one_handler_at_a_time(),
        "implicit_operations_are_the_threads" => semantics::implicit_operations_are_the_threads(),
        "credits" => credits::moving(),
        "crowd" => crowd::crowd(),
        "steady" => crowd::steady(argument),
        "storm" => storm::storm::<Seq>(argument),
        "storm_par" => storm::storm::<Par>(argument),
        other => bail!("no program named {other}"),
    }
}

/// Starts and attaches a job with default settings.
fn attached<M: Mode>(handlers: conduit::Handlers<M>) -> Result<Conduit<M>> {
    let job = conduit::start_as::<M>()?;
    let bytes = job.size() as usize * SHARE;
    Ok(job.attach(handlers, bytes)?)
}

/// Returns the `len` bytes that rank `from` writes for rank `to`.
fn pattern(from: u32, to: u32, len: usize) -> Vec<u8> {
    let seed = u64::from(from) << 32 | u64::from(to);
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Requires that two sequences of bytes are equal.
fn same(what: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(
        found == expected,
        "{what}: {} bytes differ",
        found.iter().zip(expected).filter(|(a, b)| a != b).count()
    );
    Ok(())
}
