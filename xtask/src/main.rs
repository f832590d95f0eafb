//! `cargo xtask`: see [`xtask`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::Install;

/// Work on this workspace that cargo alone does not do
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Install(Install),
}

fn main() -> ExitCode {
    let Options {
        task: Task::Install(install),
    } = Options::parse();
    match install.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask install: {error:#}");
            ExitCode::FAILURE
        }
    }
}
