//! Tests in which the program measures real limits with processes of its own. Of measured values,
//! the tests check only that they are numbers.

use record::Record;

use crate::support::{conduit_perf, fails, objects, text};

#[test]
fn limits_of_processes_on_one_core_and_of_a_crowd_are_json_objects() {
    // These limits need no exclusive core, so the test runs anywhere.
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
fn a_record_has_the_table_and_its_origin() {
    let output = conduit_perf("limits --quick --record --ranks 2 --figures yield");
    let record: Record = serde_json::from_slice(&output.stdout).expect("a record");
    let command = "conduit-perf limits --quick --ranks 2 --figures yield";
    assert_eq!((&record.command[..], record.rows.len()), (command, 1));
    assert_eq!(record.columns[0], "limit");
    assert!(!record.processor.is_empty() && !record.commit.is_empty());
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
