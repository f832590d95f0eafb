//! The command line.

use sim::program::Program;

const UDP_SIM: Program = Program(env!("CARGO_BIN_EXE_udp-sim"));

#[test]
fn a_seed_is_one_json_object() {
    let run = UDP_SIM.json("--seed 5");
    assert_eq!(run["scenario"]["seed"], 5);
    assert_eq!(run["report"]["violations"].as_array().unwrap().len(), 0);
}

#[test]
fn what_the_seed_says_can_be_changed() {
    let run = UDP_SIM
        .json("--seed 5 --ranks 3 --loss 0.25 --pattern all-to-all --sizes tiny --fragments 7");
    assert_eq!(run["scenario"]["path"]["loss"], 0.25);
    assert_eq!(run["report"]["fragments"], 3 * 2 * 7);
}

#[test]
fn a_range_says_how_many_fail() {
    let range = UDP_SIM.json("--seeds 10..20");
    assert_eq!(
        (
            range["seeds"].as_u64(),
            range["failing"].as_array().map(Vec::len)
        ),
        (Some(10), Some(0))
    );
    let text = UDP_SIM.text("--seeds 10..20");
    assert!(text.contains("10 seeds, 0 failing"), "{text}");
    // No packet arrives, so every run fails, and every failing seed is printed with the command
    // that repeats it.
    let output = UDP_SIM.run("--seeds 0..3 --no-faults --loss 1");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success()
            && text.contains("udp-sim --seed 1 --verbose --no-faults --loss 1\n"),
        "{text}"
    );
}

#[test]
fn tables_and_fuzzing_can_be_asked_for() {
    let loss = UDP_SIM.json("loss --losses 0,0.01 --time 10");
    assert_eq!(loss.as_array().unwrap().len(), 2);
    let incast = UDP_SIM.text("incast --senders 2 --time 10");
    assert!(incast.contains("| senders |"), "{incast}");
    let fuzz = UDP_SIM.json("fuzz --inputs 5000");
    assert!(fuzz["inputs"].as_u64().unwrap() >= 5000);
    let session = UDP_SIM.json("fuzz --session 3");
    assert_eq!(session["sessions"], 1);
}

#[test]
fn bad_arguments_are_errors_that_say_why() {
    for (arguments, message) in [
        ("--seeds 5", "expected A..B"),
        ("--seeds 9..9", "no seed"),
        ("--loss 2", "expected a number from 0 to 1"),
        ("--ranks 1", "2..=4096"),
    ] {
        UDP_SIM.fails_with(arguments, message);
    }
}

/// Returns whether a command makes a row that takes only seconds. Each table has a few such rows.
fn is_small(command: &str) -> bool {
    ["--losses 0.01", "--losses 0.3", "--senders 8"]
        .iter()
        .any(|end| command.ends_with(end))
}

#[test]
fn figures_come_out_again() {
    UDP_SIM.renews_figures(is_small);
}

#[test]
#[ignore = "takes a minute"]
fn large_figures_come_out_again() {
    UDP_SIM.renews_figures(|command| !is_small(command));
}
