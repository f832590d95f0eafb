//! The program itself: processes of its own, real limits, no number asserted beyond that it is one.

use crate::support::{conduit_perf, text};

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
        "yield,counter-barrier",
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
fn what_goes_over_udp_is_listed_by_name() {
    let output = conduit_perf(&["udp", "--list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("wire-round-trip\n"));
    let output = conduit_perf(&["udp", "--figures", "carrier-pigeon"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("wire-stream"));
}
