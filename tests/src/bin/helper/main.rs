//! The processes that tests start, combined in one program because it links faster than four
//! programs.
//!
//! - `helper -n RANKS …`: runs the launcher.
//! - `helper PROGRAM [MODE] [ARGUMENT]`: runs a rank that uses the Rust API
//!   ([`conduit_tests::ranks`]).
//! - `helper rank …`: runs a rank that uses a network directly ([`rank`]).
//! - `helper na_peer …`: runs a process that uses NA ([`na_peer`]).

mod allocated;
mod na_peer;
mod rank;

use std::process::ExitCode;

fn main() -> ExitCode {
    libfabric_vendored::provide();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, result) = match arguments.split_first() {
        Some((first, _)) if first.starts_with('-') => return conduit_run::cli::main(),
        Some((first, rest)) if first == "rank" => ("rank", rank::run(rest)),
        Some((first, rest)) if first == "na_peer" => ("na_peer", na_peer::run(rest)),
        _ => ("Error", conduit_tests::ranks::run(&arguments)),
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    conduit::stderr::write_line(format_args!("{name}: {error:?}"));
    ExitCode::FAILURE
}
