//! Tests of the figures over Portals 4, with the libportals for tests. Their jobs must run and
//! produce the expected output. Of measured values, the tests check only that they are numbers.

use xtask::{Library, library};

use crate::support::{conduit_perf, fails, measured, objects, text};

const LIBRARY: &str = "CONDUIT_PORTALS4_LIBRARY";

#[test]
fn figures_are_measured_beside_bare_loops() {
    let library = library("portals4-double", Library::Shared).expect("cargo builds it");
    let library = library.to_str().expect("a path in UTF-8");
    let asked = [
        "am-short-round-trip",
        "am-short-flood",
        "put",
        "put-nbi-rate",
        "put-bandwidth",
        "get",
        "get-bandwidth",
    ];
    let arguments = format!("portals4 --quick --json --figures {}", asked.join(","));
    let (figures, complaints) = objects(&arguments, &[(LIBRARY, library)]);
    let list = conduit_perf("portals4 --list");
    let names: Vec<_> = text(&list.stdout).lines().collect();
    for name in asked {
        let found = figures.iter().any(|figure| measured(figure) == name);
        assert!(found && names.contains(&name), "{name}: {complaints}");
    }
    let beside = |name: &str| {
        let figure = figures.iter().find(|figure| figure["name"] == name);
        figure.expect("it was measured")["limit_name"].clone()
    };
    assert_eq!(beside("am-short-round-trip"), "put-to-and-fro");
    assert_eq!(beside("put"), "put-and-acknowledgement");
    assert_eq!(beside("get"), "get-and-reply");
    // The library accepts messages of up to 64 KiB, so the bare loops of larger sizes are left out.
    assert!(complaints.contains("left out"), "{complaints}");
}

#[test]
fn a_library_that_is_not_there_is_an_error_that_names_it() {
    let library = "/no/such/libportals.so";
    fails("portals4 --quick", &[(LIBRARY, library)], &[library]);
}
