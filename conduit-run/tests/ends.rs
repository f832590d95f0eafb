//! The ways a job ends, from within and from outside; no process may be left behind.

use std::process::Command;

use crate::support::{Finished, PROBE, Process, Running, conduit_run, run};
use rustix::process::Signal;

/// Every rank starts a process of its own, prints both process ids, and waits.
const FAMILY: &str = "sleep 1000 & echo $PMI_RANK $$ $!; wait";

fn family(options: &[&str]) -> (Running, Vec<Process>) {
    let ranks = 3;
    let mut args = vec!["-n", "3"];
    args.extend(options);
    args.extend(["sh", "-c", FAMILY]);
    let mut job = Running::start(conduit_run(&args));
    let mut processes = Vec::new();
    for _ in 0..ranks {
        let line = job.line();
        processes.extend(line.split(' ').skip(1).map(Process::new));
    }
    (job, processes)
}

#[test]
fn a_job_whose_launcher_is_killed_leaves_nothing() {
    let (mut job, processes) = family(&[]);
    job.signal(Signal::KILL);
    assert_eq!(job.wait(), 137);
    processes.iter().for_each(Process::await_end);
}

#[test]
fn a_rank_that_is_killed_from_outside_takes_all_with_it() {
    let mut job = Running::start(conduit_run(&["-n", "3", "sh", "-c", FAMILY]));
    let lines: Vec<String> = (0..3).map(|_| job.line()).collect();
    let fields: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let victim = fields.iter().find(|fields| fields[0] == "1").unwrap();
    let processes: Vec<_> = fields
        .iter()
        .flat_map(|f| &f[1..])
        .map(|p| Process::new(p))
        .collect();
    let pid = rustix::process::Pid::from_raw(victim[1].parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(job.wait(), 137);
    // The launcher reaped all processes before it ended, so there is no need to wait.
    assert!(processes.iter().all(Process::ended));
    let expected = format!(
        "conduit-run: rank 1 (pid {}) was killed by signal 9 (SIGKILL); ending the job\n",
        victim[1]
    );
    assert_eq!(job.stderr(), expected);
}

#[test]
fn interrupting_the_launcher_ends_the_ranks_without_a_message() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        // The signal kills each rank's shell (SIGINT is ignored by the shell's background process).
        let (mut job, processes) = family(&["--grace", "30"]);
        job.signal(signal);
        assert_eq!(job.wait(), code);
        assert!(processes.iter().all(Process::ended));
        assert_eq!(job.stderr(), "");
    }
}

#[test]
fn a_hangup_is_forwarded_and_the_job_goes_on() {
    // When SIGHUP has killed one background process, the loop starts another to wait for.
    let script = "trap 'echo hup' HUP; trap 'exit 0' USR1; echo ready; \
        while :; do sleep 1000 & wait; done";
    // A `nohup` around the tests makes them ignore SIGHUP, and so the launcher.
    let mut launcher = Command::new("env");
    launcher
        .arg("--default-signal=HUP")
        .arg(conduit_run(&[]).get_program())
        .args(["-n", "2", "sh", "-c", script]);
    let mut job = Running::start(launcher);
    assert!((0..2).all(|_| job.line() == "ready"));
    job.signal(Signal::HUP);
    assert!((0..2).all(|_| job.line() == "hup"));
    job.signal(Signal::USR1);
    assert_eq!(job.wait(), 0);
}

#[test]
fn a_user_signal_reaches_every_rank() {
    let script = "trap 'echo got; exit 0' USR2; sleep 1000 & echo ready; wait";
    let mut job = Running::start(conduit_run(&["-n", "3", "sh", "-c", script]));
    assert!((0..3).all(|_| job.line() == "ready"));
    job.signal(Signal::USR2);
    assert!((0..3).all(|_| job.line() == "got"));
    assert_eq!(job.wait(), 0);
}

#[test]
fn ranks_that_take_the_signal_well_make_a_success() {
    let script = "trap 'exit 0' TERM; sleep 1000 & echo ready; wait";
    let mut job = Running::start(conduit_run(&["-n", "2", "sh", "-c", script]));
    assert!((0..2).all(|_| job.line() == "ready"));
    job.signal(Signal::TERM);
    assert_eq!((job.wait(), job.stderr().as_str()), (0, ""));
}

#[test]
fn ranks_that_ignore_the_signal_are_killed_after_the_grace() {
    let script = "trap '' TERM; echo ready $$; while :; do sleep 1000; done";
    let args = ["-n", "2", "--grace", "0.1", "sh", "-c", script];
    let mut job = Running::start(conduit_run(&args));
    let ranks: Vec<_> = (0..2).map(|_| Process::new(&job.line()[6..])).collect();
    job.signal(Signal::TERM);
    assert_eq!(job.wait(), 143);
    assert!(ranks.iter().all(Process::ended));
}

#[test]
fn a_second_interrupt_ends_the_grace() {
    let script = "trap 'echo heard' INT; echo ready; while :; do sleep 1000 & wait; done";
    let args = ["-n", "1", "--grace", "1000", "sh", "-c", script];
    let mut job = Running::start(conduit_run(&args));
    assert_eq!(job.line(), "ready");
    job.signal(Signal::INT);
    assert_eq!(job.line(), "heard");
    job.signal(Signal::INT);
    assert_eq!(job.wait(), 130);
}

#[test]
fn processes_that_left_their_rank_end_with_the_job() {
    // The rank exits when the stray, which has already left the group, closes the pipe of the
    // substitution.
    let script = "echo $(setsid sh -c 'echo $$; exec sleep 1000 > /dev/null 2>&1' &)";
    let mut job = Running::start(conduit_run(&["-n", "2", "sh", "-c", script]));
    let strays: Vec<_> = (0..2).map(|_| Process::new(&job.line())).collect();
    assert_eq!(job.wait(), 0);
    assert!(strays.iter().all(Process::ended));
}

#[test]
fn children_that_the_launcher_had_before_are_left_alone() {
    // The shell becomes the launcher, which inherits the shell's child.
    let mut command = std::process::Command::new("sh");
    let launcher = env!("CARGO_BIN_EXE_conduit-run");
    command.args([
        "-c",
        "sleep 1000 & echo $!; exec \"$0\" -n 1 true",
        launcher,
    ]);
    let mut job = Running::start(command);
    let pid = job.line();
    let before = Process::new(&pid);
    assert_eq!(job.wait(), 0);
    let alive = !before.ended();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert!(alive);
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    let finished = run(conduit_run(&["-n", "4", PROBE, "abort", "2", "9"]));
    assert_eq!(finished.code, 9);
    assert!(
        finished.stderr.contains("conduit-run: rank 2 (pid "),
        "{}",
        finished.stderr
    );
    let message = ") aborted the job with code 9: as_told; ending the job\n";
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
}

#[test]
fn a_rank_that_leaves_before_finalize_is_named_and_no_success() {
    let finished = run(conduit_run(&["-n", "4", PROBE, "leave", "1", "0"]));
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    assert!(
        finished.stderr.starts_with("conduit-run: rank 1 (pid "),
        "{}",
        finished.stderr
    );
    let message = ") exited with code 0 before it had finished the job";
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    // No rank has to be ended, but the message is printed.
    let finished = run(conduit_run(&[
        "-n", "2", "--grace", "30", PROBE, "leave", "all", "0",
    ]));
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    let finished = run(conduit_run(&["-n", "4", PROBE, "leave", "3", "6"]));
    assert_eq!(finished.code, 6);
    assert!(
        finished.stderr.contains("rank 3 (pid "),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_rank_that_breaks_the_protocol_is_named() {
    for (way, message) in [
        ("garbage", "a PMI line is not text"),
        ("endless", "a PMI line is longer than 4096 bytes"),
        ("flood", "it does not read the answers to its requests"),
        (
            "close",
            "it closed its connection before it called finalize",
        ),
    ] {
        let args = ["-n", "3", "--grace", "0.05", PROBE, "misbehave", way, "1"];
        let finished = run(conduit_run(&args));
        assert_eq!(finished.code, 1, "{way}: {}", finished.stderr);
        let named = finished.stderr.contains("conduit-run: rank 1 (pid ");
        assert!(
            named && finished.stderr.contains(message),
            "{way}: {}",
            finished.stderr
        );
    }
}

#[test]
fn a_rank_that_becomes_another_program_is_named() {
    let args = [
        "-n",
        "2",
        "--grace",
        "0.05",
        PROBE,
        "misbehave",
        "exec",
        "1",
    ];
    let finished = run(conduit_run(&args));
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    let message = "it executed another program before it called finalize";
    let named = finished.stderr.starts_with("conduit-run: rank 1 (pid ");
    assert!(
        named && finished.stderr.contains(message),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_stopped_rank_is_named_with_the_one_that_failed() {
    // Rank 0 fails once rank 1 is stopped.
    let script = "[ $PMI_RANK = 1 ] && { echo $$ > $0; kill -STOP $$; }; \
        until read pid < $0; do :; done; \
        until grep -q '^State:.T' /proc/$pid/status; do :; done; exit 5";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let path = path.to_str().unwrap();
    let args = ["-n", "2", "--grace", "0.05", "sh", "-c", script, path];
    let finished = run(conduit_run(&args));
    assert_eq!(finished.code, 5, "{}", finished.stderr);
    let parts = [
        "conduit-run: rank 0 (pid ",
        "; rank 1 (pid ",
        ") is stopped; ending the job",
    ];
    let all = parts.iter().all(|part| finished.stderr.contains(part));
    assert!(all, "{}", finished.stderr);
}

/// The rank closes its connection first and takes longer than the grace to exit.
#[test]
fn a_rank_that_fails_slowly_says_why_before_it_is_named() {
    for options in [&[][..], &["-l"]] {
        let mut args = vec!["-n", "3"];
        args.extend(options);
        args.extend([PROBE, "fail", "1", "7"]);
        let finished = run(conduit_run(&args));
        assert_eq!(finished.code, 7, "{}", finished.stderr);
        let lines: Vec<_> = finished.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{}", finished.stderr);
        assert!(lines[0].ends_with("rank 1 has failed"), "{}", lines[0]);
        assert!(lines[1].starts_with("conduit-run: rank 1 (pid "));
        assert!(lines[1].contains("exited with code 7"), "{}", lines[1]);
    }
}

#[test]
fn what_a_rank_has_written_comes_before_what_is_said_of_it() {
    // A single write, larger than one read from a pipe.
    let script = "lines=$(seq 8000); [ $PMI_RANK = 0 ] && printf %s \"$lines\" >&2 && exit 3; exec sleep 1000";
    let finished = run(conduit_run(&["-n", "2", "-l", "sh", "-c", script]));
    assert_eq!(finished.code, 3);
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert_eq!(lines[7999], "[0] 8000");
    assert!(lines[8000].starts_with("conduit-run: rank 0 "));
}

#[test]
fn a_barrier_that_cannot_complete_is_noticed() {
    let script = format!("[ $PMI_RANK = 0 ] && exit 0; exec {PROBE}");
    let finished = run(conduit_run(&[
        "-n", "2", "--grace", "0.1", "sh", "-c", &script,
    ]));
    assert_eq!(finished.code, 1);
    let message = "exited with code 0 before it had finished the job";
    let named = finished.stderr.starts_with("conduit-run: rank 0 (pid ");
    assert!(
        named && finished.stderr.contains(message),
        "{}",
        finished.stderr
    );
}

/// Each rank prints a line and exits with its code once the previous rank has ended.
fn one_after_the_other(codes: [u8; 3]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    // The previous rank passes its pid through a FIFO. The pid exists until the launcher has reaped
    // it.
    let [c0, c1, c2] = codes;
    let script = format!(
        "wait_for() {{ read pid < $0/$1; while kill -0 $pid 2> /dev/null; do sleep 0.01; done; }}; \
         hold() {{ echo $$ > $0/$1; }}; \
         case $PMI_RANK in \
         0) hold 0; code={c0};; \
         1) wait_for 0; hold 1; code={c1};; \
         2) wait_for 1; code={c2};; \
         esac; echo rank $PMI_RANK; exit $code"
    );
    for name in ["0", "1"] {
        let path = folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let args = ["-n", "3", "--grace", "600", "sh", "-c", &script, path];
    let finished = run(conduit_run(&args));
    assert_eq!(finished.stdout, "rank 0\nrank 1\nrank 2\n");
    finished
}

#[test]
fn ranks_that_exit_with_a_code_have_a_grace_to_follow() {
    let finished = one_after_the_other([6, 6, 6]);
    assert_eq!((finished.code, finished.stderr.as_str()), (6, ""));
    // If the codes differ, the first rank that failed is named.
    for (codes, first) in [([0, 7, 6], 1), ([6, 0, 0], 0)] {
        let finished = one_after_the_other(codes);
        assert_eq!(finished.code, i32::from(codes[first]), "{codes:?}");
        let start = format!("conduit-run: rank {first} (pid ");
        let end = format!(") exited with code {}\n", codes[first]);
        let message = &finished.stderr;
        assert!(
            message.starts_with(&start) && message.ends_with(&end),
            "{message}"
        );
    }
}
