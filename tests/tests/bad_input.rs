//! Errors of users: each results in one clear message, the end of all ranks, and a matching exit
//! code.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use conduit::settings::{Description, Groups as _, Settings};
use conduit_tests::job::{Finished, Job};

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

fn run(ranks: u32, arguments: &[&str], settings: &[(&str, &str)]) -> Finished {
    let job = Job::new(HELPER, ranks, HELPER, arguments).envs(settings);
    job.run().expect("nothing is left behind")
}

#[track_caller]
fn ends(finished: &Finished, code: i32, words: &[&str]) {
    assert_eq!(finished.code, Some(code), "{finished:#?}");
    for word in words {
        assert!(finished.stderr.contains(word), "no {word:?}: {finished:#?}");
    }
}

#[test]
fn calls_with_wrong_arguments_are_refused_and_the_job_goes_on() {
    for ranks in [1, 3] {
        ends(&run(ranks, &["bad_calls"], &[]), 0, &[]);
        ends(
            &run(ranks, &["bad_calls"], &[("CONDUIT_WINDOWS", "0")]),
            0,
            &[],
        );
    }
}

#[test]
fn a_setting_that_is_wrong_ends_all_ranks() {
    let table = [
        ("GASNET_PORTAL_MSG_LIMIT", "5", "12 to"),
        ("GASNET_PORTAL_MSG_LIMIT", "many", "12 to"),
        ("GASNET_PORTAL_MSG_LIMIT", "-1", "12 to"),
        ("GASNET_PORTAL_NUM_TMPMD", "0", "1 to"),
        ("GASNET_PORTAL_PACKED_LONG", "perhaps", "0"),
        ("GASNET_PORTAL_SB_CHUNKS", "99999999999999999999", "1 to"),
        ("GASNET_PORTAL_CRED_PER_NODE", "1", "4 to"),
        ("GASNET_PORTAL_AMRECV_SPACE", "1", ""),
        ("GASNET_PORTAL_SB_CHUNK", "8", "GASNET_PORTAL_SB_CHUNKS"),
        ("CONDUIT_CHUNK", "1000000", ""),
        ("CONDUIT_NETWORK", "carrier-pigeon", "shm"),
    ];
    for (name, value, word) in table {
        let finished = run(2, &["calls", "seq"], &[(name, value)]);
        ends(&finished, 1, &["start_as on rank", name, value, word]);
    }
}

#[test]
fn a_launcher_that_is_gone_is_told_by_the_call_that_finds_out() {
    let finished = run(1, &["launcher_gone"], &[]);
    ends(&finished, 1, &["finish on rank 0: "]);
}

/// A file for the job's secret that others may read, one whose content differs between ranks, and
/// one that a rank doesn't have. Every rank reports its own error or the other rank's.
#[test]
fn a_secret_that_is_not_the_jobs_ends_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for (name, content, mode) in [
        ("first0", "5ecre7", 0o600),
        ("first1", "5ecre7", 0o644),
        ("second0", "5ecre7", 0o600),
        ("second1", "an0ther", 0o600),
        ("third0", "5ecre7", 0o600),
        ("fourth0", "5ecre7", 0o600),
        ("fourth1", "5ecre7", 0o600),
    ] {
        fs::write(path(name), content.repeat(8)).unwrap();
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    let script =
        "file=$1$PMI_RANK; shift; [ ! -e $file ] || export CONDUIT_SECRET_FILE=$file; exec \"$@\"";
    let run = |name: &str| {
        let files = path(name);
        let arguments = ["-c", script, "secret", &files, HELPER, "calls", "seq"];
        let job = Job::new(HELPER, 2, "sh", &arguments)
            .env("CONDUIT_NETWORK", "udp")
            .env("CONDUIT_UDP_INTERFACE", "lo")
            .run();
        let finished = job.expect("nothing is left behind");
        for secret in ["5ecre7", "an0ther"] {
            assert!(!finished.stderr.contains(secret), "{finished:#?}");
        }
        finished
    };
    let setting = "CONDUIT_SECRET_FILE";
    ends(
        &run("first"),
        1,
        &["rank 1", setting, &path("first1"), "0644"],
    );
    for (name, file) in [("second", "second0"), ("third", "third0")] {
        let finished = run(name);
        // Either rank's error may be reported before the launcher ends the other.
        let heard = |words: &[&str]| words.iter().all(|word| finished.stderr.contains(word));
        let first = heard(&[
            "rank 0 cannot decode the contribution of rank 1",
            &path(file),
        ]);
        let second = heard(&["rank 1 cannot decode the contribution of rank 0"]);
        assert!(first || second, "{finished:#?}");
        ends(&finished, 1, &[setting]);
    }
    ends(&run("fourth"), 0, &[]);
}

/// Defaults that depend on a changed setting are adjusted to it instead of being refused.
#[test]
fn a_setting_alone_at_an_end_of_its_range_starts_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let statistics = folder.path().to_str().unwrap();
    let credits = |row: &Description| row.name.starts_with("GASNET_PORTAL_");
    for row in Settings::default().describe().into_iter().filter(credits) {
        let values: Vec<&str> = match row.name {
            // From the least that two ranks need.
            "GASNET_PORTAL_AMRECV_SPACE" => vec!["272K", "9223372036854775807"],
            _ => row
                .accepted
                .split(|c: char| !c.is_ascii_digit())
                .filter(|word| !word.is_empty())
                .collect(),
        };
        assert!(values.len() > 1, "{row:?}");
        for value in values {
            let mut settings = vec![(row.name, value)];
            if row.name == "GASNET_PORTAL_CREDIT_STATS" {
                settings.push(("CONDUIT_CREDIT_STATS_DIR", statistics));
            }
            let finished = run(2, &["calls", "seq"], &settings);
            assert_eq!(
                finished.code,
                Some(0),
                "{}={value}: {finished:#?}",
                row.name
            );
        }
    }
    // More than may be lent to one peer, unless this setting raises that limit.
    let settings = [("GASNET_PORTAL_CRED_PER_NODE", "500")];
    ends(&run(2, &["calls", "seq"], &settings), 0, &[]);
}

#[test]
fn credits_that_do_not_fit_the_receive_space_are_an_error() {
    let settings = [
        ("GASNET_PORTAL_CRED_PER_NODE", "60000"),
        ("GASNET_PORTAL_MAX_CRED_PER_NODE", "65535"),
        ("GASNET_PORTAL_AMRECV_SPACE", "65536"),
    ];
    let finished = run(2, &["calls", "seq"], &settings);
    ends(&finished, 1, &["GASNET_PORTAL_AMRECV_SPACE", "65536"]);
}

#[test]
fn a_segment_larger_than_memory_is_an_error_on_every_rank() {
    let finished = run(3, &["too_large", "all"], &[]);
    ends(&finished, 1, &["attach on rank", "exceeds the limit"]);
    // The error is on one rank only: the others can't attach either. The first one to fail names
    // the rank; the launcher ends the rest.
    let finished = run(3, &["too_large", "last"], &[]);
    ends(&finished, 1, &["attach", "rank 2"]);
    // The rank that caused the failure gives the reason.
    let why = "attach on rank 2: a segment of ";
    ends(&finished, 1, &[why, "conduit-run: rank 2 (pid "]);
    // Accepted by the setting, but the memory doesn't exist.
    for size in ["1T", "9223372036854775807"] {
        let finished = run(2, &["too_large", "all"], &[("CONDUIT_MAX_SEGMENT", size)]);
        ends(&finished, 1, &[]);
    }
}

/// The error names the first difference and the ranks that have each variant. All ranks get it,
/// whichever rank the launcher ends first.
#[test]
fn ranks_whose_handlers_differ_are_told_at_attach() {
    let usual = "254 \"add\", a medium of (u64) with [u32] on ranks 0, 2-3";
    for (what, on_one) in [
        ("id", "200 \"add\", a medium of (u64) with [u32] on rank 1"),
        (
            "name",
            "254 \"sum\", a medium of (u64) with [u32] on rank 1",
        ),
        ("kind", "254 \"add\", a short of (u64) on rank 1"),
        (
            "arguments",
            "254 \"add\", a medium of (i64) with [u32] on rank 1",
        ),
        (
            "payload",
            "254 \"add\", a medium of (u64) with [i32] on rank 1",
        ),
        ("number", "none on rank 1"),
    ] {
        for settings in [&[][..], &[("CONDUIT_NETWORK", "udp")]] {
            let finished = run(4, &["handlers_differ", what], settings);
            let difference = format!("the ranks' handlers differ: handler 2 is {usual}; {on_one}");
            ends(&finished, 1, &["attach on rank", &difference]);
        }
    }
}

#[test]
fn a_process_starts_once() {
    ends(&run(2, &["start_twice"], &[]), 0, &[]);
}

/// Debug builds check which calls a handler makes.
#[cfg(debug_assertions)]
#[test]
fn handlers_are_refused_what_they_may_not_do() {
    for settings in [&[][..], &[("CONDUIT_WINDOWS", "0")]] {
        ends(&run(2, &["in_handlers"], settings), 0, &[]);
    }
}

/// Calls that poll or may wait, and the name of the call in the error.
const WAITS: [(&str, &str); 6] = [
    ("poll", "poll"),
    ("wait", "wait_until"),
    ("barrier", "barrier"),
    ("quiesce", "quiesce"),
    ("flood", "request"),
    ("get", "get"),
];

/// Threading modes, and whether a debug build makes its checks: without them it refuses the same
/// calls as an optimised build.
fn modes_and_checks(settings: &[(&str, &str)]) -> &'static [(&'static str, &'static str)] {
    match settings.is_empty() {
        true => &[("seq", "1"), ("seq", "0"), ("par", "0")],
        false => &[("seq", "0")],
    }
}

/// Returns whether a get that copies from mapped memory succeeds, which it does if the build
/// doesn't check the caller.
fn is_done(what: &str, settings: &[(&str, &str)], checks: &str) -> bool {
    what == "get" && settings.is_empty() && (checks == "0" || !cfg!(debug_assertions))
}

/// Handlers must not poll or wait in any build, because that would run what has to come after the
/// handler. A call that needs no poll succeeds if the build makes no checks.
#[test]
fn handlers_neither_poll_nor_wait() {
    let ways: [&[(&str, &str)]; 3] = [
        &[],
        &[("CONDUIT_WINDOWS", "0")],
        &[("CONDUIT_NETWORK", "udp")],
    ];
    for (what, operation) in WAITS {
        for place in ["request", "reply"] {
            let what_where = format!("{what}:{place}");
            for settings in ways {
                for (mode, checks) in modes_and_checks(settings) {
                    let more = [settings, &[("CONDUIT_CHECKS", checks)]].concat();
                    let finished = run(2, &["refused_in_handler", mode, &what_where], &more);
                    match is_done(what, settings, checks) {
                        true => ends(&finished, 0, &[]),
                        false => ends(&finished, 1, &[operation, "handler"]),
                    }
                }
            }
        }
    }
}

#[test]
fn nobody_waits_with_a_payload_prepared() {
    let ways: [&[(&str, &str)]; 2] = [&[], &[("CONDUIT_NETWORK", "udp")]];
    for (what, operation) in WAITS {
        for settings in ways {
            for (mode, checks) in modes_and_checks(settings) {
                let more = [settings, &[("CONDUIT_CHECKS", checks)]].concat();
                let finished = run(2, &["refused_while_prepared", mode, what], &more);
                match is_done(what, settings, checks) {
                    true => ends(&finished, 0, &[]),
                    false => ends(&finished, 1, &[operation, "between prepare and commit"]),
                }
            }
        }
    }
}

#[test]
fn a_handler_that_panics_ends_the_job_with_its_words() {
    for who in ["main", "threads"] {
        let finished = run(3, &["panic_in_handler", who], &[]);
        ends(&finished, 101, &["a handler's last words"]);
        let times = finished.stderr.matches("last words").count();
        assert_eq!(times, 1, "the panic was reported once: {finished:#?}");
    }
}

#[test]
fn any_rank_may_end_the_job() {
    // One rank computes; the others wait in a barrier, for a condition, and for a message to be
    // handled.
    let quick = [("CONDUIT_EXIT_TIMEOUT", "1")];
    for (code, expected) in [("7", 7), ("0", 0), ("255", 255)] {
        let finished = run(5, &["exit", code], &quick);
        // The first cause, instead of a rank that was notified of it.
        ends(
            &finished,
            expected,
            &["conduit-run: rank 1 (pid ", &format!("code {code}")],
        );
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    }
    for mode in ["seq", "par"] {
        ends(&run(3, &["exit_in_handler", mode], &[]), 9, &[]);
    }
}

/// After finish, no rank is notified and none is waited for; the process ends without a message.
#[test]
fn an_exit_after_finish_ends_its_process() {
    for code in [0, 3] {
        let finished = run(3, &["exit_after_finish", &code.to_string()], &[]);
        ends(&finished, code, &[]);
        assert!(!finished.stderr.contains("not all ranks"), "{finished:#?}");
    }
}

#[test]
fn a_rank_may_end_the_job_while_others_attach() {
    for _ in 0..20 {
        let finished = run(5, &["exit_at_once", "7"], &[]);
        ends(&finished, 7, &["conduit-run: rank 1 (pid ", "code 7"]);
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    }
}

#[test]
fn leaving_without_finish_is_told_and_no_success() {
    let launcher = [
        "conduit-run: rank 1 (pid ",
        "exited with code 0 before it had finished",
    ];
    let own = "conduit: rank 1 of 3 leaves the job without Conduit::finish";
    let finished = run(3, &["leave", "return"], &[]);
    ends(&finished, 1, &launcher);
    assert_eq!(finished.stderr.matches(own).count(), 1, "{finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 2, "{finished:#?}");
    let finished = run(3, &["leave", "exit"], &[]);
    ends(&finished, 1, &launcher);
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    // No other rank waits here, so none has to be ended.
    ends(&run(1, &["leave", "all"], &[]), 0, &[]);
    assert_eq!(run(1, &["leave", "all"], &[]).stderr, "");
}

/// Open MPI's `mpirun -n 3`, for example, would run three jobs of one rank.
#[test]
fn what_another_launcher_has_started_is_no_job_of_its_own() {
    let alone = |variables: &[(&str, &str)]| {
        let job = Job::alone(HELPER, ["calls", "seq"]).envs(variables);
        job.run().expect("nothing is left behind")
    };
    let size = ("OMPI_COMM_WORLD_SIZE", "3");
    let rank = ("OMPI_COMM_WORLD_RANK", "1");
    let found = "OMPI_COMM_WORLD_SIZE=3 and OMPI_COMM_WORLD_RANK=1";
    let finished = alone(&[size, rank]);
    ends(
        &finished,
        1,
        &[found, "conduit-run -n N", "CONDUIT_ALONE=1"],
    );
    ends(&alone(&[size, rank, ("CONDUIT_ALONE", "1")]), 0, &[]);
    ends(&alone(&[]), 0, &[]);
    // Our own launcher, started below the other one, takes precedence.
    ends(&run(2, &["calls", "seq"], &[size, rank]), 0, &[]);
}
