//! One rank of a several-process test of the Rust API: `facade PROGRAM [ARGUMENT]`, see [`conduit_tests::ranks`].

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Err(error) = conduit_tests::ranks::run(&arguments) else {
        return ExitCode::SUCCESS;
    };
    // At once: ranks share where it goes, and tests look for whole words of each.
    let text = format!("Error: {error:?}\n");
    match std::io::stderr().write_all(text.as_bytes()) {
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}
