//! The plugin for Mercury, loaded by a C program in the way Mercury does: `tests/c/na`.

use std::sync::OnceLock;

use conduit_tests::c::{self, Build, Executable, Standard};
use conduit_tests::ofi;
use xtask::{Library, library};

fn program() -> &'static Executable {
    static PROGRAM: OnceLock<Executable> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = c::source("na");
        Build::new(Standard::Gnu11)
            // The plugin looks up the program's functions.
            .flag("-rdynamic")
            .source(folder.join("plugin.c"))
            .source(folder.join("library.c"))
            .executable()
            .unwrap_or_else(|error| panic!("{error:#}"))
    })
}

#[track_caller]
fn passes(protocol: &str) {
    let plugin = library("pgas-na-plugin-conduit", Library::Shared).unwrap();
    let job = program().job([plugin.as_os_str(), protocol.as_ref()]);
    // The program has no key.
    let job = job.env("CONDUIT_NA_UNAUTHENTICATED", "1");
    // A killed process is given up after this time.
    let job = job.env("CONDUIT_NA_DEAD_TIME", "2000");
    let finished = job.run().expect("nothing is left behind");
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    assert_eq!(finished.stdout, "all passed\n", "{finished:#?}");
}

#[test]
fn every_operation_over_shared_memory() {
    passes("shm");
}

#[test]
fn every_operation_over_udp() {
    passes("udp");
}

#[test]
fn every_operation_over_both() {
    passes("conduit");
}

#[test]
fn every_operation_over_libfabric() {
    if ofi::libraries().iter().any(|found| found.name == "system") {
        passes("ofi");
    }
}
