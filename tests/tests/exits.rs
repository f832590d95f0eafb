//! Every way in which a rank can end, in every phase of a job: the job has the right exit code and
//! leaves nothing behind.

use conduit_tests::job::Job;
use conduit_tests::ranks::exits::{HOW, WHEN, is_possible};
use conduit_tests::sample;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// The number of ranks of each job.
const RANKS: &str = "4";

/// Runs all cases, or a sample, with these options of the launcher and these settings, and prints a
/// table of the times.
fn all(options: &[&str], settings: &[(&str, &str)]) {
    let mut failures = Vec::new();
    for when in WHEN {
        for (how, code) in HOW {
            if !is_possible(when, how) || !sample::draws((options, when, how, settings), 4) {
                continue;
            }
            let words = [options, &["-n", RANKS, HELPER, "exits", when, how]].concat();
            let job = Job::alone(HELPER, words)
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
    all(&[], &[]);
}

#[test]
fn over_udp() {
    all(&[], &[("CONDUIT_NETWORK", "udp")]);
}

/// Two daemons on this machine, whose ranks take it for two hosts.
#[test]
fn between_hosts() {
    let shell = "env CONDUIT_HOST={host}";
    all(&["--hosts", "a,b", "--remote-shell", shell], &[]);
}
