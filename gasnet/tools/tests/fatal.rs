//! Fatal errors of a process in a job. Each error occurs in a child process, which runs this
//! program again.

use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Barrier;

use gasnet_tools::{fatal, getenv, job, look_at_error, prepare_debugging};

/// The environment variable that selects the error with which the child process ends.
const WHICH: &str = "CONDUIT_TOOLS_TEST_FATAL";

/// Returns the command that runs one of the errors of [`child`].
fn command(which: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command
        .args(["child", "--exact", "--nocapture", "--test-threads", "1"])
        .env(WHICH, which)
        .env_remove("GASNET_BACKTRACE")
        .env_remove("GASNET_FREEZE_ON_ERROR")
        .env_remove("GASNET_FREEZE");
    command
}

#[test]
fn child() {
    match std::env::var(WHICH).as_deref() {
        Ok("in a job") => {
            job::set_place(3, 8);
            job::set_place(4, 8);
            job::set_before_abort(|| eprintln!("told the others"));
            fatal("something");
        }
        Ok("while it ends") => {
            job::set_before_abort(|| fatal("another one"));
            fatal("something");
        }
        Ok("of many threads") => {
            let barrier = Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        job::set_before_abort(|| eprintln!("told the others"));
                        barrier.wait();
                        fatal("something");
                    });
                }
            });
        }
        Ok("by a setting of the job") => {
            let variable = |name: &str, value: &str| {
                (
                    CString::new(name).expect("a name"),
                    CString::new(value).expect("a value"),
                )
            };
            job::set_environment([variable("GASNET_BACKTRACE", "perhaps")]);
            assert_eq!(getenv(c"GASNET_BACKTRACE"), Some(c"perhaps"));
            fatal("something");
        }
        Ok("by its own way") => {
            eprintln!("the message");
            look_at_error();
            std::process::exit(3);
        }
        Ok("frozen at its start") => {
            prepare_debugging();
            std::process::exit(4);
        }
        _ => {}
    }
}

#[track_caller]
fn aborts(which: &str) -> String {
    use std::os::unix::process::ExitStatusExt;
    let output = command(which).output().expect("the child");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{stderr}");
    stderr
}

#[test]
fn the_rank_is_named_and_the_others_are_told() {
    assert_eq!(
        aborts("in a job"),
        "*** FATAL ERROR (rank 3 of 8): something\ntold the others\n"
    );
}

#[test]
fn an_error_on_the_way_out_ends_it() {
    assert_eq!(
        aborts("while it ends"),
        "*** FATAL ERROR: something\n*** FATAL ERROR: another one\n"
    );
    let stderr = aborts("by a setting of the job");
    assert!(
        stderr.contains("GASNET_BACKTRACE='perhaps' is neither yes nor no"),
        "{stderr}"
    );
}

#[test]
fn the_first_of_many_threads_ends_the_process() {
    let stderr = aborts("of many threads");
    assert_eq!(stderr.matches("told the others").count(), 1, "{stderr}");
}

#[test]
fn errors_that_end_otherwise_write_backtraces_too() {
    let output = command("by its own way")
        .env("GASNET_BACKTRACE", "1")
        .output()
        .expect("the child");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.starts_with("the message\n") && stderr.contains("child"),
        "{stderr}"
    );
}

#[test]
fn a_job_waits_for_a_debugger_at_its_start_when_asked() {
    let output = command("frozen at its start").output().expect("the child");
    assert_eq!(output.status.code(), Some(4));
    let mut frozen = command("frozen at its start")
        .env("GASNET_FREEZE", "1")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child");
    let mut line = String::new();
    let stderr = frozen.stderr.take().expect("its standard error");
    let read = BufReader::new(stderr).read_line(&mut line);
    let state = frozen.try_wait();
    // End the process first, so that nothing is left running if an assertion fails.
    let ended = frozen.kill().and_then(|()| frozen.wait());
    assert!(read.is_ok() && ended.is_ok(), "{read:?} {ended:?}");
    assert!(
        line.contains("set the variable conduit_tools_frozen to 0"),
        "{line}"
    );
    assert!(matches!(state, Ok(None)), "it waits: {state:?}");
}
