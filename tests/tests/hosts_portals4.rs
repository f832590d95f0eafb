//! Jobs of several processes over Portals 4, on a library with faults.

use conduit_tests::hosts::succeeds;
use conduit_tests::job::{Finished, Job};
use conduit_tests::portals4::{ends_of_faults, faults, file};
use tempfile::TempDir;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// A library with these faults, kept as long as its folder.
struct Library {
    _folder: TempDir,
    file: String,
}

impl Library {
    fn with(faults: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for a copy");
        let file = file(folder.path(), faults);
        Self {
            file: file.to_str().expect("a name in UTF-8").to_owned(),
            _folder: folder,
        }
    }

    /// Runs a job with each rank on a host of its own.
    #[track_caller]
    fn separate(&self, ranks: u32, arguments: &[&str]) -> Finished {
        let job = Job::new(HELPER, ranks, HELPER, arguments).env("CONDUIT_NETWORK", "portals4");
        self.succeeds(job)
    }

    /// Runs a job whose ranks take each pair of ranks for a host.
    #[track_caller]
    fn pairs(&self, ranks: u32, arguments: &[&str]) -> Finished {
        let script = "export CONDUIT_HOST=host$((PMI_RANK / 2)); exec \"$@\"";
        let wrapped = [&["-c", script, "pairs", HELPER], arguments].concat();
        let job = Job::new(HELPER, ranks, "sh", &wrapped).env("CONDUIT_NETWORK", "shm,portals4");
        self.succeeds(job)
    }

    /// Runs a program with the library's atomics.
    #[track_caller]
    fn with_atomics(&self, program: &str) -> Finished {
        let job = Job::new(HELPER, 3, HELPER, &[program, "seq"])
            .env("CONDUIT_NETWORK", "portals4")
            .env("CONDUIT_PORTALS4_ATOMICS", "1");
        self.succeeds(job)
    }

    #[track_caller]
    fn succeeds(&self, job: Job) -> Finished {
        succeeds(job, &[("CONDUIT_PORTALS4_LIBRARY", &self.file)])
    }
}

#[test]
fn every_call() {
    let library = Library::with("");
    for (ranks, mode) in [(1, "seq"), (2, "par"), (3, "parsync"), (4, "seq")] {
        library.separate(ranks, &["calls", mode]);
    }
    library.pairs(4, &["calls", "par"]);
}

/// The library does all atomics but those of handlers, including those on memory of a computing
/// rank.
#[test]
fn atomics_of_the_library() {
    for faults in ends_of_faults() {
        let library = Library::with(faults);
        library.with_atomics("calls");
        library.with_atomics("signals");
    }
    // Refused operations are sent again only within calls, so this library must not refuse any.
    Library::with("").with_atomics("a_computing_target");
}

#[test]
fn every_misbehaviour() {
    for faults in faults() {
        let library = Library::with(faults);
        library.separate(2, &["calls", "seq"]);
        library.pairs(4, &["calls", "seq"]);
    }
}
