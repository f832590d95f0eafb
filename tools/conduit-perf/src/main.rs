//! The program `conduit-perf`, which measures Conduit relative to this machine's limits; see
//! `conduit-perf --help`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    conduit_perf::ofi::main_if_asked();
    match conduit_perf::rank_main() {
        Some(code) => Ok(code),
        None => conduit_perf::cli::run(conduit_perf::cli::Cli::parse()),
    }
}
