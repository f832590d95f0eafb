//! Tests of the comparison with packaged peers. Which peers are installed depends on the machine,
//! so these tests run without any.

use crate::support::{conduit_perf, objects, text};

#[test]
fn peers_that_are_not_installed_are_named_and_conduit_is_measured() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let none = ("PATH", "/none");
    let (figures, complaints) = objects("peers --rounds 1 --json", &[none]);
    for package in ["ucx-utils", "libfabric-bin", "libopenmpi-dev"] {
        let mut lines = complaints.lines();
        let line = lines.find(|line| line.contains(package)).expect(package);
        assert!(line.contains("not installed"), "{line}");
    }
    let names: Vec<_> = figures
        .iter()
        .map(|figure| [&figure["name"], &figure["limit_name"]])
        .collect();
    assert_eq!(
        names,
        [["am-round-trip", "bare-udp"], ["put-bandwidth", "bare-udp"]]
    );
}

#[test]
fn the_help_names_the_packages() {
    let output = conduit_perf("peers --help");
    assert!(output.status.success());
    for package in ["ucx-utils", "libfabric-bin", "openmpi-bin"] {
        assert!(text(&output.stdout).contains(package), "{package}");
    }
    assert!(!conduit_perf("peers --rounds 0").status.success());
}
