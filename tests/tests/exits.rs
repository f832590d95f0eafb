//! Every way in which a rank can end, in every phase of a job: the job's exit code, one message that
//! names the rank, and nothing left behind.

use conduit_tests::job::Job;
use conduit_tests::ranks::exits::{HOW, WHEN, is_possible};
use conduit_tests::sample;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// The number of ranks of each job.
const RANKS: u32 = 4;

/// Runs all cases, or a sample, with these settings, and prints a table of the times.
fn all(launcher: &str, settings: &[(&str, &str)]) {
    let mut failures = Vec::new();
    for when in WHEN {
        for (how, code) in HOW {
            if !is_possible(when, how) || !sample::draws((launcher, when, how, settings), 4) {
                continue;
            }
            let job = Job::new(launcher, RANKS, HELPER, &["exits", when, how])
                .envs(settings)
                .env("RUST_BACKTRACE", "0");
            let finished = job.run().expect("nothing is left behind");
            println!(
                "{when:8} {how:16} {:?} {:.2?}",
                finished.code, finished.time
            );
            if finished.code != Some(code) {
                failures.push(format!("{when} {how}: expected {code}: {finished:#?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn within_a_host() {
    all(HELPER, &[]);
}

#[test]
fn over_udp() {
    all(HELPER, &[("CONDUIT_NETWORK", "udp")]);
}
