//! See `udp-sim --help`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    conduit_udp_sim::cli::main(&conduit_udp_sim::cli::Cli::parse())
}
