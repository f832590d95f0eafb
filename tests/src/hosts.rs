//! What tests of jobs over several hosts have in common.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use conduit_run::{Launch, Outcome, RunningJob, Stream};

use crate::job::{Finished, Job};
use crate::lan::{self, Lan};

/// For jobs of many ranks on few processors.
const LONG: Duration = Duration::from_secs(240);

/// Runs a job with these settings, which has to end well.
#[track_caller]
pub fn succeeds(job: Job, settings: &[(&str, &str)]) -> Finished {
    let job = settings
        .iter()
        .fold(job.limit(LONG), |job, (name, value)| job.env(name, value));
    let finished = job.run().expect("nothing is left behind");
    assert_eq!(finished.code, Some(0), "{settings:?}: {finished:#?}");
    finished
}

/// Hosts joined by a bridge, where there can be some.
pub fn hosts(count: u32) -> Option<Lan> {
    match lan::missing() {
        None => Some(Lan::of(count).expect("namespaces and a bridge")),
        Some(reason) if std::env::var_os("CONDUIT_TEST_HOSTS").is_some() => panic!("{reason}"),
        Some(reason) => {
            eprintln!("not tested: {reason}");
            None
        }
    }
}

/// What ranks print: who, where, and what.
pub type Lines = Receiver<(usize, Stream, String)>;

/// A job under way on these hosts, all of whose ranks have said that they are ready.
pub fn under_way(
    lan: &Lan,
    program: &str,
    ranks: usize,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> (RunningJob, Lines) {
    let (sender, lines) = channel();
    let job = Launch::new(ranks, "sh")
        .args(lan.on_host(program))
        .args(arguments)
        .env("RUST_BACKTRACE", "0")
        .grace(Duration::from_millis(500))
        .timeout(Some(Duration::from_secs(60)))
        .quiet(true)
        .output(move |rank, stream, line| {
            let line = String::from_utf8_lossy(line).into_owned();
            // The receiver is there until the job has ended.
            let _ = sender.send((rank, stream, line));
        });
    let job = (settings.iter()).fold(job, |job, (name, value)| job.env(name, value));
    let mut job = job.spawn().expect("the launcher starts");
    let mut ready = 0;
    while ready < ranks {
        // Output comes while somebody waits for the job.
        let ended = job.wait_for(Duration::from_millis(20));
        assert!(
            !ended.expect("the launcher works"),
            "{:?}",
            lines.try_iter().collect::<Vec<_>>()
        );
        for (rank, stream, line) in lines.try_iter() {
            assert_eq!(
                (stream, line.as_str()),
                (Stream::Stdout, "ready"),
                "rank {rank}"
            );
            ready += 1;
        }
    }
    (job, lines)
}

/// Waits for a job's end: how, after what time, and what was printed meanwhile.
pub fn end(job: RunningJob, lines: &Lines) -> (Outcome, Duration, Vec<String>) {
    let begun = Instant::now();
    let outcome = job.wait().expect("the job ends");
    let lines = lines
        .try_iter()
        .map(|(rank, _, line)| format!("{rank}: {line}"));
    (outcome, begun.elapsed(), lines.collect())
}
