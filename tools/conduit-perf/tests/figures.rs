//! Tests in which the program measures Conduit. Its jobs must run and produce the expected output.
//! Of measured values, the tests check only that they are numbers.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::{conduit_perf, fails, measured, objects, text};
use conduit_run::{Launch, Stream};

#[test]
fn every_figure_is_measured_or_said_to_be_left_out() {
    let list = conduit_perf("--list");
    let names: HashSet<_> = text(&list.stdout).lines().collect();
    let (figures, complaints) = objects("--quick --json", &[]);
    let mut seen = HashSet::new();
    for figure in &figures {
        let name = names.get(measured(figure)).expect("a name from the list");
        let ranks = if *name == "crowd-barrier" { 8 } else { 2 };
        assert_eq!(figure["ranks"], ranks, "{figure}");
        seen.insert(*name);
    }
    for name in names.difference(&seen) {
        let said = complaints
            .lines()
            .any(|line| line.starts_with(&format!("{name} ")) && line.contains("left out"));
        assert!(said, "{name}: {complaints}");
    }
    // These figures need only one core, so they are always measured.
    for name in [
        "one-core-am-round-trip",
        "one-core-barrier",
        "crowd-barrier",
    ] {
        assert!(seen.contains(name), "{name}: {complaints}");
    }
}

#[test]
fn figures_are_selected_by_name_and_without_a_target_there_is_nothing_to_check() {
    let output = conduit_perf("--quick --check --figures one-core-barrier");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.contains("one-core-barrier") && !table.contains("one-core-am"),
        "{table}"
    );
    assert!(table.contains("0 of 0 targets met"), "{table}");
}

#[test]
fn an_unknown_figure_is_refused_by_name() {
    let words = ["warp-drive", "am-short-flood"];
    fails("--figures warp-drive", &[], &words);
}

#[test]
fn a_job_that_fails_says_why() {
    fails(
        "--quick --figures one-core-barrier",
        &[("CONDUIT_NETWORK", "tin-cans")],
        &["tin-cans", "the job of 2 ranks failed"],
    );
}

#[test]
fn a_rank_with_an_unreadable_order_says_so() {
    let order = ("RANK_OF_CONDUIT_PERF", "make it so");
    fails("", &[order], &["RANK_OF_CONDUIT_PERF"]);
}

#[test]
fn every_operation_that_can_be_counted_can_be_repeated() {
    for (subject, first) in [
        ("rank", "put"),
        ("na", "unexpected-16"),
        ("agent", "send-16"),
        ("datagrams", "tiny-round-trip"),
    ] {
        let output = conduit_perf(&format!("repeat {subject} 2,300"));
        let names = text(&output.stdout);
        assert!(
            output.status.success() && names.starts_with(first),
            "{subject}: {names}{}",
            text(&output.stderr)
        );
        let again = conduit_perf(&format!("repeat {subject} 2 --only {first}"));
        assert!(again.status.success(), "{subject}: {}", text(&again.stderr));
        assert!(
            text(&again.stdout)
                .lines()
                .all(|name| name.starts_with(first))
        );
    }
    let unknown = "repeat datagrams 2 --only warp-drive";
    fails(unknown, &[], &["warp-drive", "tiny-round-trip"]);
}

#[test]
fn a_pair_of_a_larger_job_is_measured_while_the_others_stand_by() {
    let (sender, lines) = std::sync::mpsc::channel();
    let outcome = Launch::new(4, env!("CARGO_BIN_EXE_conduit-perf"))
        .args([
            "--pair",
            "--quick",
            "--json",
            "--figures",
            "put-u64,barrier",
        ])
        .timeout(Some(Duration::from_secs(120)))
        .quiet(true)
        .output(move |_, stream, line| {
            if stream == Stream::Stdout {
                let _ = sender.send(String::from_utf8_lossy(line).into_owned());
            }
        })
        .run()
        .expect("the job runs");
    assert_eq!(outcome.exit_code, 0, "{outcome:?}");
    for line in lines {
        let figure: serde_json::Value = serde_json::from_str(&line).expect("an object per line");
        assert_eq!(figure["ranks"], 2, "{line}");
    }
}

#[test]
fn a_pair_without_a_launcher_is_refused() {
    fails("--pair", &[], &["conduit-run"]);
}
