//! Tests of the figures over libfabric. Their jobs must run and produce the expected output. Of
//! measured values, the tests check only that they are numbers.

use crate::support::{fails, measured, objects};
use serde_json::Value;

#[test]
fn figures_over_tcp_are_measured_or_said_to_be_left_out() {
    // The vendored library is used, because it exists on any machine.
    let arguments = "ofi --library vendored --quick --json --provider tcp";
    let (figures, complaints) = objects(arguments, &[]);
    let names = ["tcp-am-round-trip", "tcp-am-medium", "tcp-put"];
    for figure in &figures {
        assert!(names.contains(&measured(figure)), "{figure}");
    }
    // One figure is compared with the `fi_pingpong` that is bundled with the library.
    let beside = |figure: &&Value| figure["limit_name"] == "fi_pingpong";
    let (seen, beside_pingpong) = (figures.len(), figures.iter().filter(beside).count());
    let all = (seen, beside_pingpong) == (9, 1);
    assert!(all || complaints.contains("left out"), "{complaints}");
}

#[test]
fn a_library_or_provider_that_is_not_there_is_an_error_that_names_it() {
    for (option, word) in [
        ("--library", "/no/such/libfabric.so"),
        ("--provider", "no-such-provider"),
    ] {
        fails(&format!("ofi --quick {option} {word}"), &[], &[word]);
    }
}
