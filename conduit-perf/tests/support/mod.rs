//! Runs the program with a hard limit on its time.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One program at a time: ranks that spin on the same cores would keep each other waiting.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs the program.
pub(crate) fn conduit_perf(arguments: &[&str]) -> Output {
    conduit_perf_with(arguments, &[])
}

/// Runs the program with these variables in its environment.
pub(crate) fn conduit_perf_with(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = Command::new(env!("CARGO_BIN_EXE_conduit-perf"))
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let deadline = Instant::now() + Duration::from_secs(1800);
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("kill");
            child.wait().expect("reap");
            panic!("conduit-perf {arguments:?} did not end");
        }
        // Only so as not to take a core from what is measured.
        std::thread::sleep(Duration::from_millis(20));
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child
        .stdout
        .take()
        .expect("stdout")
        .read_to_end(&mut stdout)
        .expect("read");
    child
        .stderr
        .take()
        .expect("stderr")
        .read_to_end(&mut stderr)
        .expect("read");
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}
