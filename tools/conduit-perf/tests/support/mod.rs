//! Functions that run the program with a hard time limit.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The lock that allows one run of the program at a time, because ranks that spin on the same cores
/// would delay each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs the program with these arguments.
pub(crate) fn conduit_perf(arguments: &str) -> Output {
    conduit_perf_with(arguments, &[])
}

/// Runs the program with these variables in its environment.
pub(crate) fn conduit_perf_with(arguments: &str, environment: &[(&str, &str)]) -> Output {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = Command::new(env!("CARGO_BIN_EXE_conduit-perf"))
        .args(arguments.split_whitespace())
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
        // The loop sleeps, so that it does not take a core from the measurement.
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut output = Output {
        status,
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = stdout.expect("stdout").read_to_end(&mut output.stdout);
    read.expect("read");
    let read = stderr.expect("stderr").read_to_end(&mut output.stderr);
    read.expect("read");
    output
}

/// Runs the program, which must succeed. Returns the objects that it prints, one per line, and its
/// standard error.
pub(crate) fn objects(arguments: &str, environment: &[(&str, &str)]) -> (Vec<Value>, String) {
    let output = conduit_perf_with(arguments, environment);
    let complaints = text(&output.stderr).to_owned();
    assert!(output.status.success(), "{complaints}");
    let object = |line| serde_json::from_str(line).expect("an object per line");
    (
        text(&output.stdout).lines().map(object).collect(),
        complaints,
    )
}

/// Runs the program, which must fail with a message that contains these words.
pub(crate) fn fails(arguments: &str, environment: &[(&str, &str)], words: &[&str]) {
    let output = conduit_perf_with(arguments, environment);
    let message = text(&output.stderr);
    assert!(!output.status.success(), "{message}");
    for word in words {
        assert!(message.contains(word), "{word} not in {message}");
    }
}

/// Returns a figure's name if the figure has a value, a limit and a ratio.
pub(crate) fn measured(figure: &Value) -> &str {
    for number in ["value", "limit", "ratio"] {
        assert!(
            figure[number].as_f64().is_some_and(|it| it > 0.0),
            "{number} of {figure}"
        );
    }
    figure["name"].as_str().expect("name")
}

/// Returns output as text.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}
