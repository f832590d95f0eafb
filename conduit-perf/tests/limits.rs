//! The program itself: processes of its own, real limits, no number asserted beyond that it is one.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs the program with a hard limit on its time.
fn conduit_perf(arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_conduit-perf"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let deadline = Instant::now() + Duration::from_secs(120);
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

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn limits_of_processes_on_one_core_and_of_a_crowd_are_json_objects() {
    // Those that need no core to themselves, so that the test runs anywhere.
    let output = conduit_perf(&[
        "limits",
        "--quick",
        "--json",
        "--ranks",
        "2,5",
        "--figures",
        "yield,futex,counter-barrier",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut seen = Vec::new();
    for line in text(&output.stdout).lines() {
        let limit: serde_json::Value = serde_json::from_str(line).expect("an object per line");
        let value = limit["value"].as_f64().expect("value");
        assert!(value > 0.0 && limit["unit"] == "ns", "{line}");
        seen.push((
            limit["name"].as_str().expect("name").to_owned(),
            limit["ranks"].as_u64().expect("ranks"),
        ));
    }
    let seen: Vec<_> = seen
        .iter()
        .map(|(name, ranks)| (name.as_str(), *ranks))
        .collect();
    assert_eq!(
        seen,
        [
            ("yield-round-trip", 2),
            ("futex-round-trip", 2),
            ("counter-barrier", 2),
            ("counter-barrier", 5)
        ]
    );
}

#[test]
fn an_unknown_limit_is_refused_by_name() {
    let output = conduit_perf(&["limits", "--figures", "warp-drive"]);
    assert!(!output.status.success());
    let message = text(&output.stderr);
    assert!(
        message.contains("warp-drive") && message.contains("cache-line-two"),
        "{message}"
    );
}

#[test]
fn a_side_without_shared_memory_says_what_is_missing() {
    let output = conduit_perf(&["side", "--rank", "1", "--sides", "2"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("standard input"),
        "{}",
        text(&output.stderr)
    );
}
