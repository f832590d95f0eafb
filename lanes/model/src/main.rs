//! The program `lanes-model`; see `lanes-model --help`.

use std::process::ExitCode;

use lanes_model::{check, large, small};

fn main() -> ExitCode {
    sim::model::main(env!("CARGO_BIN_NAME"), small, large, |w| w.name, check)
}
