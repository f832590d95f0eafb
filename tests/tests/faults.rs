//! Killed ranks: all others end soon, one message names the dead rank, and nothing is left behind.
//!
//! `CONDUIT_TEST_KILLS=1000 cargo test -p conduit-tests --test jobs faults::a_random --
//! --nocapture` is the long run; `CONDUIT_TEST_SEED` repeats the same kills.

use std::time::{Duration, Instant};

use conduit_ofi::library::Which;
use conduit_run::{How, Launch};
use conduit_tests::job::{Job, Running, shared_memory};
use conduit_tests::{ofi, pace};
use rustix::process::{Signal, kill_process};

const HELPER: &str = env!("CARGO_BIN_EXE_helper");
/// The time from a rank's death to the end of all, on an idle system.
const END: Duration = Duration::from_secs(5);
/// Over UDP, with the least base windows for ten ranks, and some wide ones.
const WIDE_WINDOWS: [(&str, &str); 4] = [
    ("CONDUIT_NETWORK", "udp"),
    ("CONDUIT_UDP_INTERFACE", "lo"),
    ("CONDUIT_UDP_ARRIVALS", "1M"),
    ("CONDUIT_LANE_ARRIVALS", "8M"),
];
/// Two exclusive rings for several ranks, each of which has them for a few messages at a time.
const RINGS: [(&str, &str); 3] = [
    ("CONDUIT_LANE_ABOVE", "0"),
    ("CONDUIT_LANE_RINGS", "2"),
    ("CONDUIT_LANE_FORCE_SWITCH", "20"),
];
/// Connections that change hands every few fragments. A rank's death is noticed by the dead time,
/// or from libfabric's errors.
const CONNECTIONS: [(&str, &str); 6] = [
    ("CONDUIT_NETWORK", "ofi"),
    ("CONDUIT_OFI_PROVIDER", "tcp"),
    ("CONDUIT_OFI_DOMAIN", "lo"),
    ("CONDUIT_OFI_DEAD_TIME", "1000"),
    ("CONDUIT_OFI_CONNECTIONS", "2"),
    ("CONDUIT_LANE_FORCE_SWITCH", "20"),
];
const STORMS: [&str; 5] = ["puts", "flood", "barriers", "quiesce", "all"];

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
struct Kill {
    ranks: usize,
    storm: &'static str,
    victim: usize,
    after: Duration,
    windows: bool,
    checks: bool,
    parallel: bool,
    settings: &'static [(&'static str, &'static str)],
}

/// Runs a job, kills one of its ranks, and returns what was wrong with the job's end.
fn kill(kill: Kill) -> Result<(), String> {
    let before = shared_memory();
    let (sender, receiver) = std::sync::mpsc::channel();
    let job = Launch::new(kill.ranks, HELPER)
        .args([
            if kill.parallel { "storm_par" } else { "storm" },
            kill.storm,
        ])
        .env("CONDUIT_WINDOWS", if kill.windows { "1" } else { "0" })
        .env("CONDUIT_CHECKS", if kill.checks { "1" } else { "0" })
        .envs(kill.settings.iter().copied())
        .env("RUST_BACKTRACE", "0")
        .grace(Duration::from_millis(500))
        .timeout(Some(pace::HANG))
        .quiet(true)
        .output(move |rank, stream, line| {
            let line = String::from_utf8_lossy(line).into_owned();
            // The receiver lives until the job has ended.
            let _ = sender.send((rank, stream, line));
        });
    let mut job = job.spawn().map_err(|error| error.to_string())?;
    let ended = job.wait_for(kill.after);
    if ended.map_err(|error| error.to_string())? {
        let lines: Vec<_> = receiver.try_iter().collect();
        return Err(format!("ended before: {lines:?}"));
    }
    if !job.killer().kill_rank(kill.victim, 9) {
        return Err("the victim had already ended".to_owned());
    }
    let killed = Instant::now();
    let outcome = job.wait().map_err(|error| error.to_string())?;
    let time = killed.elapsed();
    let lines: Vec<_> = receiver.try_iter().collect();
    if time > pace::scaled(END) {
        return Err(format!("the end took {time:?}"));
    }
    match outcome.how {
        How::Killed {
            rank, signal: 9, ..
        } if rank == kill.victim => {}
        how => return Err(format!("{how}; {lines:?}")),
    }
    // The launcher's message names the dead rank; the ranks print none.
    let words: Vec<_> = lines
        .iter()
        .filter(|(_, _, line)| line != "ready" && !line.is_empty())
        .collect();
    if !words.is_empty() {
        return Err(format!(
            "ranks printed messages beside the launcher's: {words:?}"
        ));
    }
    let left: Vec<_> = shared_memory().difference(&before).cloned().collect();
    if !left.is_empty() {
        return Err(format!("left in /dev/shm: {left:?}"));
    }
    Ok(())
}

#[test]
fn a_rank_killed_in_each_storm() {
    for storm in STORMS {
        for (windows, checks) in [(true, true), (false, true), (true, false), (false, false)] {
            let run = Kill {
                ranks: 4,
                storm,
                victim: 2,
                after: Duration::from_millis(200),
                windows,
                checks,
                // Both values of the other two parameters with each mode.
                parallel: windows == checks,
                settings: &[],
            };
            if let Err(reason) = kill(run) {
                panic!("{run:?}: {reason}");
            }
        }
    }
}

/// A ring that is lent goes through all its states many times per millisecond.
#[test]
fn a_rank_killed_while_rings_change_hands() {
    for victim in 0..8 {
        let run = Kill {
            ranks: 4,
            storm: "flood",
            victim: victim % 4,
            after: Duration::from_millis(150),
            windows: victim % 2 == 0,
            checks: victim >= 4,
            parallel: false,
            settings: &RINGS,
        };
        if let Err(reason) = kill(run) {
            panic!("{run:?}: {reason}");
        }
    }
}

/// The same with connections, some of which stay.
#[test]
fn a_rank_killed_while_it_has_connections() {
    for victim in 0..8 {
        let run = Kill {
            ranks: 4,
            storm: STORMS[victim % 2],
            victim: victim % 4,
            after: Duration::from_millis(400),
            windows: true,
            checks: victim >= 4,
            parallel: false,
            // Without the last setting they move by traffic.
            settings: &CONNECTIONS[..CONNECTIONS.len() - victim / 4],
        };
        if let Err(reason) = kill(run) {
            panic!("{run:?}: {reason}");
        }
    }
}

#[test]
fn a_random_rank_at_a_random_moment() {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => default,
    };
    let runs = number("CONDUIT_TEST_KILLS", 15);
    let seed = number("CONDUIT_TEST_SEED", fastrand::u64(..));
    println!("CONDUIT_TEST_SEED={seed}, {runs} runs");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut failed = 0;
    for at in 0..runs {
        let ranks = random.usize(2..=6);
        let run = Kill {
            ranks: if at % 3 == 1 { 10 } else { ranks },
            storm: STORMS[random.usize(..STORMS.len())],
            victim: random.usize(..ranks),
            // From the middle of job start to the middle of the work.
            after: Duration::from_micros(random.u64(..200_000)),
            windows: random.bool(),
            checks: random.bool(),
            parallel: random.bool(),
            settings: match at % 3 {
                0 => &[],
                1 => &WIDE_WINDOWS,
                _ => &RINGS,
            },
        };
        if let Err(reason) = kill(run) {
            failed += 1;
            println!("run {at}, {run:?}: {reason}");
        }
    }
    assert_eq!(failed, 0, "of {runs} runs; seed {seed}");
}

/// Ranks whose children try to use the network during a flood, over each network.
#[test]
fn children_of_ranks_use_nothing_of_theirs() {
    let mut networks = vec![
        vec![],
        vec![("CONDUIT_WINDOWS", "0")],
        vec![("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")],
    ];
    if ofi::libraries()
        .iter()
        .any(|fabric| fabric.which == Which::Vendored)
    {
        networks.push(vec![
            ("CONDUIT_NETWORK", "ofi"),
            ("CONDUIT_OFI_LIBRARY", "vendored"),
            ("CONDUIT_OFI_PROVIDER", "tcp"),
            ("CONDUIT_OFI_DOMAIN", "lo"),
        ]);
    }
    for network in networks {
        for (mode, checks) in [("seq", "0"), ("seq", "1"), ("par", "0")] {
            let job = Job::new(HELPER, 3, HELPER, &["children", mode])
                .env("CONDUIT_CHECKS", checks)
                .env("RUST_BACKTRACE", "0")
                .envs(&network);
            let finished = job.run().expect("nothing is left behind");
            assert_eq!(finished.code, Some(0), "{network:?} {mode}: {finished:#?}");
            assert!(
                finished.stderr.is_empty(),
                "{network:?} {mode}: {finished:#?}"
            );
        }
    }
}

/// The harness finds processes and files that are left behind.
#[test]
fn a_killed_launcher_takes_its_ranks_with_it() {
    for storm in ["all", "barriers"] {
        let job = Job::new(HELPER, 4, HELPER, &["storm", storm]);
        let running: Running = job.start().expect("the job starts");
        let pid = running.pid();
        // During its start or its work, which makes no difference to what may be left.
        std::thread::sleep(Duration::from_millis(150));
        kill_process(pid, Signal::KILL).expect("the launcher is there");
        let finished = running.wait().expect("nothing is left behind");
        assert_eq!(finished.code, Some(128 + 9), "{finished:#?}");
    }
}
