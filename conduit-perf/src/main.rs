//! Measures Conduit beside this machine's limits; see `conduit-perf --help`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    conduit_perf::ofi::main_if_asked();
    if let Some(code) = conduit_perf::rank_main() {
        return Ok(code);
    }
    if let Some(done) = conduit_perf::credits::rank_main() {
        return done.map(|()| ExitCode::SUCCESS);
    }
    if let Some(done) = conduit_perf::udp::rank_main() {
        return done.map(|()| ExitCode::SUCCESS);
    }
    if let Some(done) = conduit_perf::ofi::rank_main() {
        return done.map(|()| ExitCode::SUCCESS);
    }
    conduit_perf::cli::run(conduit_perf::cli::Cli::parse())
}
