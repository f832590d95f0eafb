//! Code shared by the tests of jobs over several hosts.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use conduit_run::{How, Launch, Outcome, RunningJob, Stream};

use crate::job::{Finished, Job};
use crate::lan::{self, Lan};
use crate::pace;

/// The time limit for jobs with many ranks on few processors.
const LONG: Duration = Duration::from_secs(1800);
/// Settings for jobs in which no rank may be taken for silent, even if it is rarely scheduled.
const ALL_LIVE: [(&str, &str); 2] = [
    ("CONDUIT_UDP_DEAD_TIME", "600000"),
    ("CONDUIT_OFI_DEAD_TIME", "600000"),
];
/// How long, on an idle system, a rank may be silent in jobs in which one does fall silent.
pub const DEAD_TIME: Duration = Duration::from_secs(2);

/// Runs a job with these settings and panics if it fails.
#[track_caller]
pub fn succeeds(job: Job, settings: &[(&str, &str)]) -> Finished {
    let job = job.limit(LONG).envs(&ALL_LIVE).envs(settings);
    let finished = job.run().expect("nothing is left behind");
    assert_eq!(finished.code, Some(0), "{settings:?}: {finished:#?}");
    finished
}

/// Returns `count` hosts joined by a bridge, or `None` if they can't be created here.
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

/// The lines that a job prints, each with its rank and its stream.
type Lines = Receiver<(usize, Stream, String)>;

/// Starts a job on these hosts and waits until each rank has printed that it is ready.
fn under_way(
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
        .timeout(Some(pace::HANG))
        .quiet(true)
        .output(move |rank, stream, line| {
            let line = String::from_utf8_lossy(line).into_owned();
            // Sending succeeds, because the receiver lives until the job has ended.
            let _ = sender.send((rank, stream, line));
        });
    let job = job.envs(settings.iter().copied());
    let mut job = job.spawn().expect("the launcher starts");
    let mut ready = 0;
    while ready < ranks {
        // The launcher's output is forwarded only while this process waits for the job.
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

/// Waits for a job's end. Returns how the job ended, how long the wait took, and the lines printed
/// during the wait.
fn end(job: RunningJob, lines: &Lines) -> (Outcome, Duration, Vec<String>) {
    let begun = Instant::now();
    let outcome = job.wait().expect("the job ends");
    let lines = lines
        .try_iter()
        .map(|(rank, _, line)| format!("{rank}: {line}"));
    (outcome, begun.elapsed(), lines.collect())
}

/// A job of four ranks on two hosts between which a failure occurs. If hosts can't be created here,
/// the methods that return an option return `None`, and the others do nothing.
#[derive(Debug, Clone, Copy)]
pub struct Faulty {
    /// The program that each rank runs.
    pub program: &'static str,
    /// The settings that choose the network.
    pub network: &'static [(&'static str, &'static str)],
    /// The setting for how many milliseconds a rank may be silent before it is given up.
    pub dead_time: &'static str,
}

impl Faulty {
    fn under_way(&self, lan: &Lan, arguments: &[&str], dead_time: Duration) -> (RunningJob, Lines) {
        let milliseconds = pace::scaled(dead_time).as_millis().to_string();
        let settings = [self.network, &[(self.dead_time, &*milliseconds)]].concat();
        under_way(lan, self.program, 4, arguments, &settings)
    }

    /// Kills a rank, and checks that the job's outcome names that rank. Returns how long the job
    /// took to end.
    pub fn kill_a_rank(&self) -> Option<Duration> {
        let lan = hosts(2)?;
        let (job, lines) = self.under_way(&lan, &["storm", "all"], DEAD_TIME);
        assert!(job.killer().kill_rank(2, 9));
        let (outcome, time, lines) = end(job, &lines);
        assert!(
            matches!(
                outcome.how,
                How::Killed {
                    rank: 2,
                    signal: 9,
                    ..
                }
            ),
            "{outcome:?}, {lines:?}"
        );
        Some(time)
    }

    /// Kills all ranks of a host, and checks that the job's outcome names one of them. Returns how
    /// long the job took to end.
    pub fn crash_a_host(&self) -> Option<Duration> {
        let lan = hosts(2)?;
        let (job, lines) = self.under_way(&lan, &["storm", "all"], DEAD_TIME);
        lan.crash(1).expect("its processes are killed");
        let (outcome, time, lines) = end(job, &lines);
        assert!(
            matches!(
                outcome.how,
                How::Killed {
                    rank: 2 | 3,
                    signal: 9,
                    ..
                }
            ),
            "{outcome:?}, {lines:?}"
        );
        Some(time)
    }

    /// Pulls a cable for a second, and checks that the job continues afterwards.
    pub fn pull_a_cable_for_a_second(&self) {
        let Some(lan) = hosts(2) else { return };
        // The limit is far above a second, because the hosts must also find each other's addresses
        // again, and they try that only once a second.
        let (job, lines) = self.under_way(&lan, &["steady", "3000"], 10 * DEAD_TIME);
        lan.plug(1, false).expect("the cable is pulled");
        std::thread::sleep(Duration::from_secs(1));
        lan.plug(1, true).expect("the cable is plugged in");
        let (outcome, _, lines) = end(job, &lines);
        assert!(
            matches!(outcome.how, How::Completed),
            "{outcome:?}, {lines:?}"
        );
        println!("{lines:?}");
    }

    /// Pulls a cable permanently. A rank must end with an error that names the silent rank. Returns
    /// how long that took and what the ranks printed.
    pub fn pull_a_cable_for_ever(&self) -> Option<(Duration, String)> {
        self.cut_for_ever(|lan| lan.plug(1, false))
    }

    /// Same as [`pull_a_cable_for_ever`](Self::pull_a_cable_for_ever), but deletes the interface
    /// instead.
    pub fn delete_an_interface(&self) -> Option<(Duration, String)> {
        self.cut_for_ever(|lan| lan.delete_interface(1))
    }

    fn cut_for_ever(
        &self,
        cut: impl FnOnce(&Lan) -> anyhow::Result<()>,
    ) -> Option<(Duration, String)> {
        let lan = hosts(2)?;
        let (job, lines) = self.under_way(&lan, &["steady", "60000"], DEAD_TIME);
        cut(&lan).expect("the hosts are disconnected");
        let (outcome, time, lines) = end(job, &lines);
        let text = lines.join("\n");
        // The launcher may notice the closed connection of a rank or the end of its process first.
        assert_eq!(outcome.exit_code, 1, "{outcome:?}, {text}");
        assert!(
            matches!(
                outcome.how,
                How::Exited { code: 1, .. } | How::Protocol { .. }
            ),
            "{outcome:?}, {text}"
        );
        assert!(text.contains("silent"), "{text}");
        println!("after {time:?}: {text}");
        Some((time, text))
    }
}

/// Kills a rank while others transfer megabytes over the network that `settings` choose. The
/// failure gives the transfers' memory back to its owners, after which no transfer may touch it.
/// The ranks ignore the launcher's `SIGTERM`, so that each detects the failure itself.
///
/// # Panics
/// If a transfer touched memory that was given back, or the job ended in an unexpected way.
#[track_caller]
pub fn killed_meanwhile(program: &str, settings: &[(&str, &str)]) {
    for how in ["reused", "freed"] {
        killed(program, how, settings);
    }
}

#[track_caller]
fn killed(program: &str, how: &str, settings: &[(&str, &str)]) {
    let (sender, receiver) = channel();
    let script = "trap '' TERM; exec \"$@\"";
    let launch = Launch::new(3, "sh")
        .args(["-c", script, "killed", program, "killed_meanwhile", how])
        .env("RUST_BACKTRACE", "0")
        .grace(Duration::from_secs(30))
        .timeout(Some(Duration::from_secs(60)))
        .quiet(true)
        .output(move |rank, _, line| {
            // Sending succeeds, because the receiver lives until the job has ended.
            let _ = sender.send((rank, String::from_utf8_lossy(line).into_owned()));
        });
    let with = |launch: Launch, (name, value): &(&str, &str)| launch.env(*name, *value);
    let job = settings
        .iter()
        .fold(launch, with)
        .spawn()
        .expect("the job starts");
    let outcome = job.wait().expect("nothing is left behind");
    let lines: Vec<_> = receiver.try_iter().collect();
    let said = |rank, words| {
        lines
            .iter()
            .any(|(by, line)| *by == rank && line.starts_with(words))
    };
    assert!(
        said(0, "left alone after") && said(1, "got nothing of others"),
        "{settings:?}: {:?}: {lines:#?}",
        outcome.how
    );
}
