//! One rank of a several-process test of the Rust API: `facade PROGRAM [ARGUMENT]`, see [`conduit_tests::ranks`].

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Err(error) = conduit_tests::ranks::run(&arguments) else {
        return ExitCode::SUCCESS;
    };
    conduit::stderr::write_line(format_args!("Error: {error:?}"));
    ExitCode::FAILURE
}
