//! `cargo xtask nightly`: searches and simulations that take too long for each change.

use anyhow::Result;
use clap::Args;

use super::steps::Steps;
use crate::build::Cargo;

/// Searches and simulations that take too long for each change
#[derive(Debug, Clone, Args)]
pub struct Nightly {}

/// What `cargo run --release -p` does, and its arguments.
const PROGRAMS: [(&str, &[&str]); 6] = [
    ("conduit-udp-sim", &["--seeds", "0..20000"]),
    ("conduit-udp-sim", &["fuzz", "--inputs", "20000000"]),
    ("credits-model", &["--large"]),
    ("promotion-model", &["--large"]),
    ("agent-model", &["--large"]),
    ("agent-sim", &["--seeds", "0..2000"]),
];

impl Nightly {
    /// Does all of it, also what comes after a failure.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn run(&self) -> Result<()> {
        let cargo = Cargo::new();
        let mut steps = Steps::default();
        let mut first = Ok(());
        for (package, arguments) in PROGRAMS {
            let mut run = cargo.task("run");
            run.args(["--release", "-p", package, "--"]).args(arguments);
            first = first.and(steps.command(package, &mut run));
        }
        println!("\n{}", steps.table());
        first
    }
}
