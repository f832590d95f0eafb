//! Jobs over a libfabric that refuses: memory that can't be registered, devices that vanish (see the crate `refusing-fabric`).

use conduit_tests::job::{Finished, Job};

const LAUNCH: &str = env!("CARGO_BIN_EXE_launch");
const FACADE: &str = env!("CARGO_BIN_EXE_facade");

/// The rank with the faults.
const FAULTY: u32 = 1;

/// Runs a job of three ranks over tcp on this host, one of which has a device with these faults, after a command of the shell on it.
#[track_caller]
fn run(faults: &str, before: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Finished {
    let script = format!(
        "if [ $PMI_RANK = {FAULTY} ]; then export CONDUIT_OFI_DOMAIN='lo!{faults}'; {before}; fi; exec \"$@\""
    );
    let wrapped = [&["-c", &script, "refusing", FACADE], arguments].concat();
    let library = refusing_fabric::file();
    let job = Job::new(LAUNCH, 3, "sh", &wrapped)
        .env("CONDUIT_NETWORK", "ofi")
        .env("CONDUIT_OFI_LIBRARY", &library.to_string_lossy())
        .env("CONDUIT_OFI_PROVIDER", "tcp")
        .env("CONDUIT_OFI_DOMAIN", "lo")
        .env("CONDUIT_OFI_DEAD_TIME", "2000")
        .env(refusing_fabric::FAULTS, faults)
        .env("RUST_BACKTRACE", "0");
    let job = (settings.iter()).fold(job, |job, (name, value)| job.env(name, value));
    let finished = job.run().expect("nothing is left behind");
    println!("{faults}: {finished:#?}");
    finished
}

#[track_caller]
fn fails(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    for word in words {
        assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
    }
}

#[test]
fn memory_that_may_not_be_locked() {
    // Less than what the network itself registers, and less than a segment.
    for kilobytes in [100, 5000] {
        let before = format!("ulimit -l {kilobytes}");
        let finished = run("verbs,memlock", &before, &["calls", "seq"], &[]);
        fails(&finished, &["ulimit -l"]);
    }
}

#[test]
fn a_device_that_vanishes() {
    for way in ["vanish", "gone", "silent", "stuck"] {
        for after in [30, 1000] {
            let faults = format!("{way}={after}");
            let finished = run(&faults, "true", &["storm", "all"], &[]);
            fails(&finished, &["rank "]);
        }
    }
}
