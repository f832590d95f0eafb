//! The program `credit-sim`; see `credit-sim --help`.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    credit_sim::cli::main(&credit_sim::cli::Cli::parse())
}
