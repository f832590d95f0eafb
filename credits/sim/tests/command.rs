//! The command line.

use std::process::{Command, Output};

use serde_json::Value;

fn credit_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_credit-sim"))
        .args(arguments)
        .output()
        .expect("the simulator runs")
}

fn fails_with(arguments: &[&str], message: &str) {
    let output = credit_sim(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{arguments:?}");
    assert!(text.contains(message), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn json_is_one_object() {
    let output = credit_sim(&[
        "--ranks",
        "27",
        "--credits",
        "8",
        "--static",
        "--steps",
        "2",
        "--json",
    ]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["config"]["ranks"], 27);
    assert_eq!(report["config"]["pattern"], "ghost");
    assert_eq!(report["config"]["scheme"]["name"], "static");
    assert_eq!(report["steps"].as_array().unwrap().len(), 4);
    assert_eq!(report["summary"]["steps_until_rest"], 0);
    assert!(report["summary"]["speed"].as_f64().unwrap() < 1.0);
    assert!(output.stderr.is_empty());
}

#[test]
fn a_table_is_for_people() {
    let output = credit_sim(&[
        "--ranks",
        "16",
        "--pattern",
        "pairs",
        "--unlimited",
        "--steps",
        "1",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(
        text.contains("speed") && text.contains("requests"),
        "{text}"
    );
}

#[test]
fn a_table_is_markdown() {
    let output = credit_sim(&[
        "table",
        "--ranks",
        "8,27",
        "--patterns",
        "ghost,pairs",
        "--steps",
        "3",
        "--messages",
        "20",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    let columns = |line: &str| line.matches('|').count();
    assert!(
        lines.iter().all(|line| columns(line) == columns(lines[0])),
        "{text}"
    );
    assert!(lines[2].starts_with("| 8 | ghost |") && lines[5].starts_with("| 27 | pairs |"));
}

#[test]
fn bad_input_is_named() {
    fails_with(&["--ranks", "0"], "number of ranks is 0");
    fails_with(&["table", "--ranks", "8,0"], "number of ranks is 0");
    fails_with(&["--ranks", "many"], "--ranks");
    fails_with(&["--credits", "3"], "3 credits per peer are too few");
    fails_with(&["--pattern", "spiral"], "spiral");
    fails_with(&["--pattern", "spiral"], "ghost");
    fails_with(&["--latency", "0"], "latency is 0");
    fails_with(&["--unlimited", "--credits", "8"], "cannot be used with");
    fails_with(&["--static", "--bank", "8"], "cannot be used with");
    fails_with(&["--min", "3"], "minimum per peer is 3");
    fails_with(&["--epoch", "0"], "epoch is 0");
    fails_with(&["--rotation", "3"], "--rotations");
}
