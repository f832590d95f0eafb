//! `conduit-run`: starts the ranks of a job, on this host or on several.

use std::process::ExitCode;

fn main() -> ExitCode {
    conduit_run::cli::main()
}
