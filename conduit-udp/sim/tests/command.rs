//! The command line.

use std::process::{Command, Output};

use serde_json::Value;

fn udp_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_udp-sim"))
        .args(arguments)
        .output()
        .expect("the simulator runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = udp_sim(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_seed_is_one_json_object() {
    let run = json(&["--seed", "5", "--json"]);
    assert_eq!(run["scenario"]["seed"], 5);
    assert_eq!(run["report"]["violations"].as_array().unwrap().len(), 0);
}

#[test]
fn what_the_seed_says_can_be_changed() {
    let run = json(&[
        "--seed",
        "5",
        "--ranks",
        "3",
        "--loss",
        "0.25",
        "--pattern",
        "all-to-all",
        "--sizes",
        "tiny",
        "--fragments",
        "7",
        "--json",
    ]);
    assert_eq!(run["scenario"]["path"]["loss"], 0.25);
    assert_eq!(run["report"]["fragments"], 3 * 2 * 7);
}

#[test]
fn a_range_says_how_many_fail() {
    let range = json(&["--seeds", "10..20", "--json"]);
    assert_eq!(
        (
            range["seeds"].as_u64(),
            range["failing"].as_array().map(Vec::len)
        ),
        (Some(10), Some(0))
    );
    let output = udp_sim(&["--seeds", "10..20"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("10 seeds, 0 failing"));
    // Nothing arrives at all, so nothing is right, and every failing seed says how it is run again.
    let output = udp_sim(&["--seeds", "0..3", "--no-faults", "--loss", "1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success()
            && text.contains("udp-sim --seed 1 --verbose --no-faults --loss 1\n"),
        "{text}"
    );
}

#[test]
fn tables_and_fuzzing_can_be_asked_for() {
    let loss = json(&["loss", "--losses", "0,0.01", "--time", "10", "--json"]);
    assert_eq!(loss.as_array().unwrap().len(), 2);
    let incast = udp_sim(&["incast", "--senders", "2", "--time", "10"]);
    assert!(String::from_utf8_lossy(&incast.stdout).contains("| senders |"));
    let fuzz = json(&["fuzz", "--inputs", "5000", "--json"]);
    assert!(fuzz["inputs"].as_u64().unwrap() >= 5000);
    let session = json(&["fuzz", "--session", "3", "--json"]);
    assert_eq!(session["sessions"], 1);
}

#[test]
fn bad_arguments_are_errors_that_say_why() {
    for (arguments, message) in [
        (&["--seeds", "5"][..], "two numbers"),
        (&["--seeds", "9..9"], "no seed"),
        (&["--loss", "2"], "a part of 1"),
        (&["--ranks", "1"], "2..=4096"),
    ] {
        let output = udp_sim(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(message),
            "{arguments:?}: {text}"
        );
    }
}
