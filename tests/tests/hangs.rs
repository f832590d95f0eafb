//! Mismatched barrier calls are errors, and waiting ranks report what they wait for.

use std::cell::Cell;

use conduit_tests::job::{Job, Running};
use rustix::process::{Signal, kill_process};

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

const SHM: &[(&str, &str)] = &[];
const MESSAGES: &[(&str, &str)] = &[("CONDUIT_WINDOWS", "0")];
const UDP: &[(&str, &str)] = &[("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")];

/// Requires that these calls fail on all ranks with the names of all calls. The job ends if the
/// last call is `finish`.
#[track_caller]
fn mismatch(ranks: u32, calls: [&str; 2], names: &str, mode: &str, network: &[(&str, &str)]) {
    let words: Vec<_> = (0..ranks)
        .map(|rank| {
            let call = match calls[usize::from(rank > 0)] {
                "split" => "barrier_wait",
                call => call,
            };
            format!(
                "met on {rank}: Err({call} on rank {rank}: \
                 ranks called {names}; all must make the same call)\n"
            )
        })
        .collect();
    let job = Job::new(HELPER, ranks, HELPER, &["meet", mode, &calls.join(":")]).envs(network);
    if calls.contains(&"finish") {
        let mut job = job.start().unwrap();
        let all = |written: &str| words.iter().all(|word| written.contains(word));
        job.until(all).unwrap();
    } else {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let finished = job.ends_with(0, &words);
        let between = finished
            .stderr
            .matches("a notified barrier is not completed by barrier_wait");
        assert_eq!(between.count(), ranks as usize, "{finished:#?}");
    }
}

#[test]
fn finish_and_quiesce_agree_with_no_other_call() {
    let pairs = [
        (["finish", "barrier"], "barrier and finish"),
        (["barrier", "finish"], "barrier and finish"),
        (["finish", "quiesce"], "quiesce and finish"),
        (["quiesce", "barrier"], "barrier and quiesce"),
        (["barrier_named", "quiesce"], "barrier and quiesce"),
        (["quiesce", "split"], "barrier and quiesce"),
    ];
    for network in [SHM, UDP] {
        for mode in ["seq", "par"] {
            for (calls, names) in pairs {
                mismatch(3, calls, names, mode, network);
            }
        }
    }
}

/// Starts a job whose last rank computes while the others wait in a call.
fn waiting(program: &[&str], settings: &[(&str, &str)]) -> Running {
    let job = Job::new(HELPER, 3, HELPER, program).envs(settings);
    job.start().unwrap()
}

/// Waits until each of these reports was printed.
#[track_caller]
fn reports(job: &mut Running, words: &[&str]) {
    job.until(|written| are_reported(written, words)).unwrap();
}

/// Returns whether one line contains each of these, where a star stands for any text, such as a
/// time.
fn are_reported(written: &str, words: &[&str]) -> bool {
    let is_in = |line: &str, word: &str| {
        let mut parts = word.split('*');
        let rest = parts.try_fold(line, |rest, part| Some(rest.split_once(part)?.1));
        rest.is_some()
    };
    let reported = |word: &&str| written.lines().any(|line| is_in(line, word));
    words.iter().all(reported)
}

#[test]
fn a_long_wait_reports_what_it_is_for() {
    // It waits for the reply to a request or, if the last rank has still replied, for another
    // rank's arrival.
    const QUIESCE: &str = "in quiesce for *rank ";
    const LIMIT: [(&str, &str); 1] = [("CONDUIT_WAIT_REPORT", "1")];
    // With dynamic credits a rank may be lent more than eight before the last one stops.
    let few = [
        ("GASNET_PORTAL_CRED_PER_NODE", "8"),
        ("GASNET_PORTAL_BANKED_CREDITS", "0"),
    ];
    let cases: [(&str, &[_], &str); 15] = [
        (
            "barrier",
            SHM,
            "in barrier for rank 2; a barrier lacks rank 2",
        ),
        (
            "barrier",
            UDP,
            "in barrier for rank 2; a barrier lacks rank 2",
        ),
        ("finish", SHM, "in finish for rank 2"),
        ("get", UDP, "in get for rank 2; 1 operation on rank 2"),
        ("handle", UDP, "in scope for rank 2; 1 operation on rank 2"),
        (
            "broadcast",
            SHM,
            "in broadcast for a collective operation; 1 collective operation; a broadcast lacks rank 2",
        ),
        (
            "atomic",
            UDP,
            "in atomic_get for rank 2; 1 operation on rank 2",
        ),
        (
            "compare_swap",
            UDP,
            "in compare_swap for rank 2; 1 operation on rank 2",
        ),
        (
            "wait_puts",
            UDP,
            "in wait_puts for operations under way; 1 operation on rank 2",
        ),
        (
            "put_signal",
            MESSAGES,
            "in put_signal for credits of rank 2 (0 free, * in use); * requests unanswered by rank 2",
        ),
        ("quiesce", SHM, QUIESCE),
        ("quiesce", UDP, QUIESCE),
        ("wait_until", SHM, "in wait_until for its condition"),
        (
            "request",
            SHM,
            "in request for credits of rank 2 (0 free, * in use); * requests unanswered by rank 2",
        ),
        ("attach", SHM, "in attach for ranks that have not called it"),
    ];
    for (call, network, words) in cases {
        let credits: &[_] = match call {
            "request" | "put_signal" => &few,
            _ => &[],
        };
        let settings = [&LIMIT, network, credits].concat();
        let mut job = waiting(&["wait", "seq", call], &settings);
        let line = |rank| format!("conduit: rank {rank} of 3 has waited * s {words}");
        reports(&mut job, &[&line(0), &line(1)]);
    }
}

#[test]
fn each_thread_reports_its_wait() {
    let mut job = waiting(&["wait_threads"], &[("CONDUIT_WAIT_REPORT", "1")]);
    let waits = ["barrier for rank 2", "wait_until for its condition"];
    reports(
        &mut job,
        &waits
            .map(|wait| format!("rank 0 of 3 has waited * s in {wait}"))
            .each_ref()
            .map(String::as_str),
    );
}

#[test]
fn a_report_shows_the_stack_where_asked() {
    let settings = [("CONDUIT_WAIT_REPORT", "1"), ("CONDUIT_REPORT_STACK", "1")];
    for call in ["barrier", "attach"] {
        let mut job = waiting(&["wait", "seq", call], &settings);
        reports(&mut job, &[&format!("in {call} for rank"), "hangs.rs"]);
    }
    let words = [
        "rank 0 of 3 polls, but is not waiting in a Conduit call",
        "hangs.rs",
        "rank 2 of 3 is not waiting in a Conduit call; `eu-stack -p *` shows its stacks",
    ];
    signalled(&["wait", "seq", "poll"], &settings[1..], &words);
}

/// The signal is sent to the launcher, as a user would. The launcher forwards it.
#[test]
fn a_signal_asks_all_ranks() {
    let cases: [(&[&str], &[_], &str); 4] = [
        (
            &["wait", "seq", "barrier"],
            SHM,
            "waited * s in barrier for rank 2",
        ),
        (
            &["wait", "par", "barrier"],
            UDP,
            "waited * s in barrier for rank 2",
        ),
        (
            &["wait", "seq", "poll"],
            SHM,
            "polls, but is not waiting in",
        ),
        (&["wait", "seq", "attach"], SHM, "waited * s in attach"),
    ];
    for (program, network, words) in cases {
        let of = |rank, words| format!("conduit: rank {rank} of 3 *{words}");
        let last = of(2, "is not waiting in a Conduit call");
        signalled(program, network, &[&of(0, words), &of(1, words), &last]);
    }
}

/// Sends the signal to a job of three until all of this is reported.
#[track_caller]
fn signalled(program: &[&str], settings: &[(&str, &str)], words: &[&str]) {
    let mut job = waiting(
        program,
        &[settings, &[("CONDUIT_REPORT_SIGNAL", "USR1")]].concat(),
    );
    let ready = |written: &str| written.matches("ready\n").count() == 3;
    job.until(ready).unwrap();
    let (launcher, asked) = (job.pid(), Cell::new(0));
    let all = |written: &str| {
        // A rank that is ready but not yet waiting is asked again once all have answered.
        if written.matches("conduit: rank ").count() >= 3 * asked.get() {
            asked.set(asked.get() + 1);
            kill_process(launcher, Signal::USR1).unwrap();
        }
        are_reported(written, words)
    };
    job.until(all).unwrap();
}

/// A rank that shares its core and is sent messages all the time: its polls find messages, and none
/// of its idle times is long.
#[test]
fn traffic_hides_no_wait() {
    let busy = [("CONDUIT_SPIN", "0"), ("CONDUIT_YIELD", "4294967295")];
    let waits = "rank 0 of 3 has waited * s in barrier for rank ";
    let mut job = waiting(
        &["wait_in_traffic"],
        &[&busy[..], &[("CONDUIT_WAIT_REPORT", "1")]].concat(),
    );
    reports(&mut job, &[waits]);
    drop(job);
    signalled(&["wait_in_traffic"], &busy, &[waits]);
}

#[test]
fn a_signal_that_is_none_is_refused() {
    for signal in ["KILL", "9", "", "USR"] {
        let job = Job::new(HELPER, 1, HELPER, &["wait", "seq", "poll"]);
        let job = job.env("CONDUIT_REPORT_SIGNAL", signal);
        let accepted = "expected one of USR1, USR2, HUP, QUIT, or its number";
        job.ends_with(1, &["CONDUIT_REPORT_SIGNAL", accepted]);
    }
}
