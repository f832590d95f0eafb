//! The launcher, as a binary of this package, so that its tests find it.

use std::process::ExitCode;

fn main() -> ExitCode {
    conduit_run::cli::main()
}
