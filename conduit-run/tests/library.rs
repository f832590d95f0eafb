//! The launcher as a library, inside a multi-threaded process.

use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::support::{Process, run};
use conduit_run::{Bind, Error, How, Killer, Launch, Status, Stream};

/// The time limit of every job in these tests.
const LIMIT: Option<Duration> = Some(Duration::from_secs(600));

type Lines = Arc<Mutex<Vec<(usize, Stream, String)>>>;

fn shell(ranks: usize, script: &str) -> Launch {
    Launch::new(ranks, "sh")
        .args(["-c", script])
        .timeout(LIMIT)
        .quiet(true)
}

fn captured(launch: Launch) -> (Launch, Lines) {
    let lines = Lines::default();
    let sink = Arc::clone(&lines);
    let launch = launch.output(move |rank, stream, line| {
        let line = String::from_utf8_lossy(line).into_owned();
        sink.lock().unwrap().push((rank, stream, line));
    });
    (launch, lines)
}

#[test]
fn output_is_captured_by_rank_and_stream() {
    let (launch, lines) = captured(shell(2, "echo a; echo b >&2; printf c"));
    let outcome = launch.run().unwrap();
    assert_eq!((outcome.exit_code, outcome.how), (0, How::Completed));
    let mut lines = lines.lock().unwrap().clone();
    lines.sort();
    let expected: Vec<_> = (0..2)
        .flat_map(|rank| {
            [
                (Stream::Stdout, "a"),
                (Stream::Stdout, "c"),
                (Stream::Stderr, "b"),
            ]
            .map(|(stream, text)| (rank, stream, text.to_owned()))
        })
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn the_outcome_names_the_failure_and_all_ends() {
    let outcome = shell(3, "[ $PMI_RANK = 1 ] && exit 3; exec sleep 1000")
        .run()
        .unwrap();
    assert_eq!((outcome.exit_code, outcome.failed_rank), (3, Some(1)));
    assert!(
        matches!(
            outcome.how,
            How::Exited {
                rank: 1,
                code: 3,
                ..
            }
        ),
        "{:?}",
        outcome.how
    );
    let terminated = Status::Killed {
        signal: libc::SIGTERM,
        core: false,
    };
    assert_eq!(outcome.ranks, [terminated, Status::Exited(3), terminated]);
}

#[test]
fn ranks_can_be_killed_while_the_job_runs() {
    let mut job = shell(3, "exec sleep 1000").spawn().unwrap();
    assert_eq!(job.pids().len(), 3);
    assert!(!job.wait_for(Duration::from_millis(1)).unwrap());
    assert!(job.kill_rank(2, libc::SIGKILL));
    assert!(!job.kill_rank(3, libc::SIGKILL), "there is no rank 3");
    assert!(!job.kill_rank(0, 12345), "there is no such signal");
    let pid = job.pids()[2];
    let outcome = job.wait().unwrap();
    let how = How::Killed {
        rank: 2,
        pid,
        signal: libc::SIGKILL,
        core: false,
    };
    assert_eq!((outcome.exit_code, outcome.how), (137, how));
}

#[test]
fn the_output_function_may_kill_ranks() {
    let killer: Arc<OnceLock<Killer>> = Arc::default();
    let in_sink = Arc::clone(&killer);
    let job = shell(2, "echo ready; exec sleep 1000")
        .output(move |rank, _, line| {
            if rank == 1 && line == b"ready" {
                assert!(in_sink.get().unwrap().kill_rank(1, libc::SIGABRT));
            }
        })
        .spawn()
        .unwrap();
    killer.set(job.killer()).unwrap();
    let outcome = job.wait().unwrap();
    assert_eq!((outcome.exit_code, outcome.failed_rank), (134, Some(1)));
    assert!(
        !killer.get().unwrap().kill_rank(0, libc::SIGKILL),
        "it has ended"
    );
}

#[test]
fn other_threads_may_kill_ranks() {
    let job = shell(4, "exec sleep 1000").spawn().unwrap();
    let killer = job.killer();
    let thread = std::thread::spawn(move || killer.kill_rank(3, libc::SIGSEGV));
    let outcome = job.wait().unwrap();
    assert!(thread.join().unwrap());
    assert_eq!((outcome.exit_code, outcome.failed_rank), (139, Some(3)));
}

#[test]
fn jobs_run_side_by_side_in_one_process() {
    let threads: Vec<_> = (0..4)
        .map(|job| {
            std::thread::spawn(move || {
                let probe = env!("CARGO_BIN_EXE_pmi-probe");
                let (launch, lines) = captured(Launch::new(3, probe).timeout(LIMIT));
                let outcome = launch.env("JOB", job.to_string()).run().unwrap();
                assert_eq!(outcome.exit_code, 0, "{:?}", lines.lock().unwrap());
                lines.lock().unwrap().len()
            })
        })
        .collect();
    assert!(
        threads
            .into_iter()
            .all(|thread| thread.join().unwrap() == 3)
    );
}

#[test]
fn dropping_a_job_ends_it_with_all_that_its_ranks_started() {
    let (send, receive) = channel();
    let mut job = shell(2, "sleep 1000 & echo $!; wait")
        .output(move |_, _, line| {
            send.send(String::from_utf8_lossy(line).into_owned())
                .unwrap()
        })
        .spawn()
        .unwrap();
    let mut pids = job.pids();
    while pids.len() < 4 {
        assert!(!job.wait_for(Duration::from_millis(10)).unwrap());
        pids.extend(receive.try_iter().map(|line| line.parse::<u32>().unwrap()));
    }
    let processes: Vec<_> = pids
        .iter()
        .map(|pid| Process::new(&pid.to_string()))
        .collect();
    assert!(!processes.iter().any(Process::ended));
    drop(job);
    processes.iter().for_each(Process::await_end);
}

#[test]
fn what_a_rank_leaves_in_its_process_group_ends_with_it() {
    let (launch, lines) = captured(shell(2, "sleep 1000 > /dev/null 2>&1 & echo $!"));
    assert_eq!(launch.run().unwrap().exit_code, 0);
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 2);
    lines
        .iter()
        .for_each(|(_, _, pid)| Process::new(pid).await_end());
}

#[test]
fn the_time_limit_is_an_outcome() {
    let limit = Duration::from_millis(50);
    let outcome = shell(2, "exec sleep 1000")
        .timeout(Some(limit))
        .run()
        .unwrap();
    assert_eq!((outcome.exit_code, outcome.failed_rank), (124, None));
    assert_eq!(outcome.how, How::TimedOut { limit });
}

#[test]
fn jobs_that_cannot_start_are_errors() {
    assert!(matches!(Launch::new(0, "true").run(), Err(Error::NoRanks)));
    assert!(matches!(
        Launch::new(1, "no-such").run(),
        Err(Error::ProgramNotFound(_))
    ));
    assert!(matches!(
        Launch::new(1, "/").run(),
        Err(Error::NotExecutable { .. })
    ));
    assert!(matches!(
        Launch::new(1 << 40, "true").run(),
        Err(Error::TooManyRanks { .. })
    ));
    let reserved = Launch::new(1, "true").env("PMI_FD", "7").run();
    assert!(matches!(reserved, Err(Error::ReservedVariable { .. })));
}

#[test]
fn the_path_of_the_ranks_finds_the_program() {
    assert!(Launch::new(1, "sh").env("PATH", "/nowhere").run().is_err());
    let outcome = shell(2, "exit 0")
        .env("PATH", "/bin:/usr/bin")
        .bind(Bind::Core)
        .run();
    assert_eq!(outcome.unwrap().exit_code, 0);
}

/// Programs inherit an ignored `SIGCHLD`, which makes the system discard their children's exit
/// codes.
#[test]
fn exit_codes_are_known_where_sigchld_is_ignored() {
    const INSIDE: &str = "CONDUIT_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        for code in [0, 6] {
            let outcome = shell(2, &format!("exit {code}")).run().unwrap();
            assert_eq!(outcome.exit_code, code);
        }
        return;
    }
    let test = "library::exit_codes_are_known_where_sigchld_is_ignored";
    let mut inside = Command::new("env");
    inside
        .arg("--ignore-signal=CHLD")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(INSIDE, "1");
    let finished = run(inside);
    let ran = finished.stdout.contains("1 passed");
    assert!(
        ran && finished.code == 0,
        "{}{}",
        finished.stdout,
        finished.stderr
    );
}
