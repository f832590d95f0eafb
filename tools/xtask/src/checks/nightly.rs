//! `cargo xtask nightly`: searches and simulations that take too long to run for each change.

use anyhow::Result;
use clap::Args;

use super::full;
use super::programs::Results;
use super::steps::Steps;
use crate::build::Cargo;

/// Run searches, simulations and models that take too long to run for each change
#[derive(Debug, Clone, Args)]
pub struct Nightly {}

/// The steps. Each consists of its title, the words of a cargo command, and an environment variable
/// with its value.
const WORK: [(&str, &str, (&str, &str)); 10] = [
    (
        "large figures",
        "test --release -p conduit-udp-sim -p agent-sim -p lanes-sim -p credit-sim -- --ignored large_figures",
        ("RUST_BACKTRACE", "1"),
    ),
    (
        "random schedules",
        "test --release -p conduit-tests --test engine engine_model::",
        ("PROPTEST_CASES", "500"),
    ),
    (
        "random kills",
        "test -p conduit-tests --test jobs faults::a_random",
        ("CONDUIT_TEST_KILLS", "300"),
    ),
    (
        "datagrams on faulty networks",
        "run --release -p conduit-udp-sim -- --seeds 0..20000",
        ("RUST_BACKTRACE", "1"),
    ),
    (
        "malformed packets",
        "run --release -p conduit-udp-sim -- fuzz --inputs 10000000",
        ("RUST_BACKTRACE", "1"),
    ),
    (
        "hostile agents' formats",
        "test --release -p pgas-agent --lib machine::tests",
        ("PROPTEST_CASES", "10000000"),
    ),
    (
        "hostile neighbours over shared memory",
        "test --release -p pgas-conduit-portals -p pgas-conduit-shm -p pgas-na --lib hostile",
        ("PROPTEST_CASES", "300000"),
    ),
    (
        "credits in every state",
        "run --release -p credits-model -- --large",
        ("RUST_BACKTRACE", "1"),
    ),
    (
        "lanes in every state",
        "run --release -p lanes-model",
        ("RUST_BACKTRACE", "1"),
    ),
    (
        "agents in every state",
        "run --release -p agent-model",
        ("RUST_BACKTRACE", "1"),
    ),
];

/// The steps with tests that run under AddressSanitizer. These are tests of memory that is given up
/// or that is lost with a killed rank, and of data in pieces. C programs are excluded because their
/// compiler would need the same sanitizer runtime.
const UNDER_ASAN: [(&str, &str); 2] = [
    (
        "AddressSanitizer: engine",
        "-p conduit-tests --test engine -- given_up portals4 collective vis",
    ),
    (
        "AddressSanitizer: kills",
        "-p conduit-tests --test jobs -- kill faults::a_random",
    ),
];

/// The environment for AddressSanitizer builds. The target is set explicitly so that build scripts
/// and macros are built without the sanitizer. To the libraries that they load, such as the test
/// double of Portals 4, programs export only the functions of the sanitizer's runtime. Exporting
/// more would be wrong because several copies of those libraries have symbols with the same names.
/// Leak detection is off because a library's self-test and exiting processes leave memory allocated
/// on purpose.
const ASAN: [(&str, &str); 6] = [
    ("RUSTC_BOOTSTRAP", "1"),
    (
        "RUSTFLAGS",
        "-Zsanitizer=address -Clink-arg=-Wl,--export-dynamic-symbol=__asan_*",
    ),
    ("CARGO_BUILD_TARGET", "x86_64-unknown-linux-gnu"),
    ("CARGO_TARGET_DIR", "target/asan"),
    ("ASAN_OPTIONS", "detect_leaks=0"),
    ("CONDUIT_TEST_KILLS", "100"),
];

impl Nightly {
    /// Runs all steps, even after a failure.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn run(&self) -> Result<()> {
        let cargo = Cargo::new();
        let mut steps = Steps::default();
        // Run all tests; a full run uses a sample.
        let mut first = full::tests(&cargo, &mut steps, None, &mut Results::default());
        first = first.and(full::release(&cargo, &mut steps, None));
        for (title, words, (name, value)) in WORK {
            let (task, rest) = words.split_once(' ').unwrap_or((words, ""));
            let mut command = cargo.task(task);
            command.args(rest.split(' ')).env(name, value);
            first = first.and(steps.command(title, &mut command));
        }
        for (title, words) in UNDER_ASAN {
            let mut command = cargo.task("test");
            command.args(words.split(' ')).envs(ASAN);
            first = first.and(steps.command(title, &mut command));
        }
        println!("\n{}", steps.table());
        first
    }
}
