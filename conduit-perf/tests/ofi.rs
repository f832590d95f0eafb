//! The family of figures over libfabric: its jobs run and say what they should; no number is asserted beyond that it is one.

use crate::support::{conduit_perf, text};

#[test]
fn figures_over_tcp_are_measured_or_said_to_be_left_out() {
    // The library that is built in is there on any machine.
    let arguments = ["--quick", "--json", "--provider", "tcp"];
    let output = conduit_perf(&[&["ofi", "--library", "vendored"], &arguments[..]].concat());
    let complaints = text(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let (mut seen, mut beside_pingpong) = (0, 0);
    for line in text(&output.stdout).lines() {
        let figure: serde_json::Value = serde_json::from_str(line).expect("an object per line");
        for number in ["value", "limit", "ratio"] {
            assert!(
                figure[number].as_f64().is_some_and(|it| it > 0.0),
                "{number} of {line}"
            );
        }
        let name = figure["name"].as_str().expect("name");
        let names = ["tcp-am-round-trip", "tcp-am-medium", "tcp-put"];
        assert!(names.contains(&name), "{line}");
        seen += 1;
        // The one that comes with the library.
        beside_pingpong += u32::from(figure["limit_name"] == "fi_pingpong");
    }
    let all = (seen, beside_pingpong) == (9, 1);
    assert!(all || complaints.contains("left out"), "{complaints}");
}

#[test]
fn a_library_or_provider_that_is_not_there_is_an_error_that_names_it() {
    for (arguments, word) in [
        (
            ["--library", "/no/such/libfabric.so"],
            "/no/such/libfabric.so",
        ),
        (["--provider", "no-such-provider"], "no-such-provider"),
    ] {
        let output = conduit_perf(&[&["ofi", "--quick"], &arguments[..]].concat());
        let complaints = text(&output.stderr);
        assert!(!output.status.success(), "{complaints}");
        assert!(complaints.contains(word), "{complaints}");
    }
}
