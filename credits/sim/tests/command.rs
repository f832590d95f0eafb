//! Tests of the command line of `credit-sim`.

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory;
use credit_sim::cli::Cli;
use serde_json::Value;
use sim::program::Program;

const CREDIT_SIM: Program = Program(env!("CARGO_BIN_EXE_credit-sim"));

/// The results of a run, except its duration.
fn report(arguments: &str) -> Value {
    let mut report = CREDIT_SIM.json(arguments);
    report.as_object_mut().unwrap().remove("effort");
    report
}

#[test]
fn json_is_one_object() {
    let report = CREDIT_SIM.json("--ranks 27 --credits 8 --static --steps 2");
    assert_eq!(report["config"]["ranks"], 27);
    assert_eq!(report["config"]["pattern"], "ghost");
    assert_eq!(report["config"]["scheme"]["name"], "static");
    assert_eq!(report["steps"].as_array().unwrap().len(), 4);
    assert_eq!(report["summary"]["steps_until_rest"], 0);
    assert!(report["summary"]["speed"].as_f64().unwrap() < 1.0);
}

#[test]
fn a_table_is_for_people() {
    let text = CREDIT_SIM.text("--ranks 16 --pattern pairs --unlimited --steps 1");
    assert!(
        text.contains("speed") && text.contains("requests"),
        "{text}"
    );
}

#[test]
fn a_table_is_markdown() {
    let text = CREDIT_SIM.text("table --ranks 8,27 --patterns ghost,pairs --steps 3 --messages 20");
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
    CREDIT_SIM.fails_with("--ranks 0", "number of ranks is 0");
    CREDIT_SIM.fails_with("table --ranks 8,0", "number of ranks is 0");
    CREDIT_SIM.fails_with("--ranks many", "--ranks");
    CREDIT_SIM.fails_with("--credits 3", "3 credits per peer are too few");
    CREDIT_SIM.fails_with("--pattern spiral", "spiral");
    CREDIT_SIM.fails_with("--pattern spiral", "ghost");
    CREDIT_SIM.fails_with("--latency 0", "latency is 0");
    CREDIT_SIM.fails_with("--unlimited --credits 8", "cannot be used with");
    CREDIT_SIM.fails_with("--static --bank 8", "cannot be used with");
    CREDIT_SIM.fails_with("--min 3", "minimum per peer is 3");
    CREDIT_SIM.fails_with("--epoch 0", "epoch is 0");
    CREDIT_SIM.fails_with("--rotation 3", "--rotations");
    CREDIT_SIM.fails_with("--chunk 512", "chunk of 512 bytes");
    CREDIT_SIM.fails_with("--bandwidth 1e-300", "bandwidth is");
    CREDIT_SIM.fails_with("--compute-polls 4294967295", "polls while computing");
    let many = "--fan 100000 --messages 1000000";
    CREDIT_SIM.fails_with(many, "messages per partner is 1000000");
}

type Options = &'static [(&'static str, Option<&'static str>)];

/// The options of a job with few credits, so that their movements matter.
const SHORT: Options = &[
    ("ranks", Some("27")),
    ("credits", Some("8")),
    ("bank", Some("1000")),
    ("max-per-peer", Some("64")),
    ("rotations", Some("3")),
    ("steps", Some("4")),
    ("messages", Some("40")),
    ("epoch", Some("64")),
    ("threads", Some("1")),
];
/// The options of a job with the original's rules, which have no pace.
const ORIGINAL: Options = &[("original", None), ("bank", Some("100"))];
const COMPUTING: Options = &[("compute", Some("50000"))];
const CHAIN: Options = &[("pattern", Some("chain"))];

/// Every option of a run, with a value and the other options with which the value makes a
/// difference.
const OPTIONS: &[(&str, Option<&str>, Options)] = &[
    ("ranks", Some("26"), &[]),
    ("pattern", Some("pairs"), &[]),
    ("equal-static", None, &[("messages", Some("4"))]),
    ("chunk", Some("2048"), &[]),
    ("credits", Some("9"), &[]),
    ("bank", Some("90"), &[]),
    ("static", None, &[]),
    ("unlimited", None, &[]),
    ("original", None, &[]),
    ("epoch", Some("100"), &[]),
    ("revoke-limit", Some("3"), &[]),
    ("lender-limit", Some("9"), &[]),
    ("max-per-peer", Some("20"), &[]),
    ("min", Some("7"), &[]),
    ("scavenge", Some("1"), ORIGINAL),
    ("revokes-per-epoch", Some("2"), ORIGINAL),
    ("growth", Some("missing"), &[]),
    ("hold", None, ORIGINAL),
    ("rotations", Some("1"), &[]),
    ("steps", Some("2"), &[]),
    ("seed", Some("2"), &[]),
    ("threads", Some("3"), &[]),
    ("reference-steps", Some("0"), &[]),
    ("messages", Some("20"), &[]),
    ("cost", Some("3"), &[]),
    ("fan", Some("2"), CHAIN),
    ("gap", Some("2"), CHAIN),
    ("hot", Some("2"), &[("pattern", Some("hotspot"))]),
    ("repeat", Some("2"), &[("pattern", Some("tree"))]),
    ("interleave", Some("true"), &[]),
    ("latency", Some("2000"), &[]),
    ("bandwidth", Some("0.5"), &[]),
    ("send", Some("300"), &[]),
    ("serve", Some("400"), &[]),
    ("serve-credit", Some("60"), &[]),
    ("reply", Some("200"), &[]),
    ("system", Some("1000"), &[]),
    ("poll", Some("40"), &[]),
    ("poll-every", Some("3"), &[]),
    ("poll-gap", Some("700"), &[]),
    ("safe-limit", Some("1"), &[]),
    ("am-limit", Some("1"), &[]),
    ("chunks", Some("4"), &[]),
    ("compute", Some("5000"), &[]),
    ("skew", Some("0.5"), COMPUTING),
    ("compute-polls", Some("5"), COMPUTING),
    ("jitter", Some("5000"), &[]),
];

/// Returns the options as arguments. If an option occurs twice, the last value counts.
fn arguments(options: &[(&str, Option<&str>)]) -> String {
    let options: BTreeMap<_, _> = options.iter().copied().collect();
    let one = |(name, value): (&str, Option<&str>)| format!("--{name} {} ", value.unwrap_or(""));
    options.into_iter().map(one).collect()
}

fn options_of(command: &clap::Command) -> BTreeSet<&str> {
    let names = command
        .get_arguments()
        .filter_map(|argument| argument.get_long());
    names
        .filter(|name| !["help", "version"].contains(name))
        .collect()
}

#[test]
fn every_option_is_run_and_does_something() {
    let run = |options: &[(&str, Option<&str>)]| report(&arguments(options));
    for &(name, value, beside) in OPTIONS {
        let without = [SHORT, beside].concat();
        let mut with = [&without[..], &[(name, value)]].concat();
        // Static credits have no bank, and without flow control there are no credits.
        match name {
            "static" => with.retain(|&(name, _)| name != "bank"),
            "unlimited" => with.retain(|&(name, _)| name != "bank" && name != "credits"),
            _ => {}
        }
        let (without, with) = (run(&without), run(&with));
        match name {
            "threads" => assert_eq!(without, with),
            "equal-static" | "reference-steps" => assert_ne!(without, with, "--{name}"),
            _ => assert_ne!(without["steps"], with["steps"], "--{name}"),
        }
    }

    let mut command = Cli::command();
    command.build();
    // These options are used by other tests.
    let mut tried: BTreeSet<&str> = OPTIONS.iter().map(|&(name, ..)| name).collect();
    tried.extend(["json", "record", "columns"]);
    assert_eq!(options_of(&command), tried);
    let table = command.find_subcommand("table").unwrap();
    let own = ["ranks", "patterns", "verify"].into();
    let common = &tried
        - &[
            "ranks",
            "pattern",
            "json",
            "record",
            "columns",
            "equal-static",
        ]
        .into();
    assert_eq!(options_of(table), &common | &own);
}

#[test]
fn a_table_marks_what_was_not_simulated_at_full_size() {
    let run = |verify| {
        let table = "table --ranks 8 --steps 2 --messages 20 --verify";
        CREDIT_SIM.text(&format!("{table} {verify}"))
    };
    assert!(!run("8").contains("\\*") && run("7").contains("\\*"));
}

#[test]
fn figures_come_out_again() {
    CREDIT_SIM.renews_figures(|command| ranks(command) < 1_000);
}

#[test]
#[ignore = "takes half an hour"]
fn large_figures_come_out_again() {
    CREDIT_SIM.renews_figures(|command| (1_000..10_000).contains(&ranks(command)));
}

#[test]
#[ignore = "takes hours"]
fn huge_figures_come_out_again() {
    CREDIT_SIM.renews_figures(|command| ranks(command) >= 10_000);
}

/// Returns the number of ranks that a command simulates.
fn ranks(command: &str) -> u32 {
    let mut words = command.split(' ').skip_while(|&word| word != "--ranks");
    let ranks = words.nth(1).expect("a number of ranks");
    ranks.parse().expect("a number")
}
