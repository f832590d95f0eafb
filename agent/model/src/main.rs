//! The checker's program; see `agent-model --help`.

use std::process::ExitCode;

use agent_model::{check, large, small};

fn main() -> ExitCode {
    sim::model::main(env!("CARGO_BIN_NAME"), small, large, |w| w.name, check)
}
