//! Fatal errors of a process that was told of its job. Each is run in a process of its own, which is this program again.

use std::ffi::CString;
use std::process::{Command, Output};
use std::sync::Barrier;

use gasnet_tools::{fatal, getenv, job};

/// Says which error a process is to commit.
const WHICH: &str = "CONDUIT_TOOLS_TEST_FATAL";

/// Runs one of the errors of [`child`].
fn run(which: &str) -> Output {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args(["child", "--exact", "--nocapture", "--test-threads", "1"])
        .env(WHICH, which)
        .env_remove("GASNET_BACKTRACE")
        .env_remove("GASNET_FREEZE_ON_ERROR")
        .output()
        .expect("the child")
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
        _ => {}
    }
}

#[track_caller]
fn aborts(which: &str) -> String {
    use std::os::unix::process::ExitStatusExt;
    let output = run(which);
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
