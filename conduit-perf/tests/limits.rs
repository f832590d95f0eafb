//! The program itself: processes of its own, real limits, no number asserted beyond that it is one.

use crate::support::{conduit_perf, fails, objects, text};

#[test]
fn limits_of_processes_on_one_core_and_of_a_crowd_are_json_objects() {
    // Those that need no core to themselves, so that the test runs anywhere.
    let (limits, _) = objects(
        "limits --quick --json --ranks 2,5 --figures yield,counter-barrier",
        &[],
    );
    let mut seen = Vec::new();
    for limit in &limits {
        let value = limit["value"].as_f64().expect("value");
        assert!(value > 0.0 && limit["unit"] == "ns", "{limit}");
        seen.push((
            limit["name"].as_str().expect("name"),
            limit["ranks"].as_u64().expect("ranks"),
        ));
    }
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
    let words = ["warp-drive", "cache-line-two"];
    fails("limits --figures warp-drive", &[], &words);
}

#[test]
fn what_goes_over_udp_is_listed_by_name() {
    let output = conduit_perf("udp --list");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("wire-round-trip\n"));
    fails("udp --figures carrier-pigeon", &[], &["wire-stream"]);
}
