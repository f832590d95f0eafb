//! The program `credits-model`; see `credits-model --help`.

use std::process::ExitCode;

use credits::Dynamic;
use credits_model::{check, large, small};

fn main() -> ExitCode {
    sim::model::main(
        env!("CARGO_BIN_NAME"),
        small,
        large,
        |w| w.name,
        check::<Dynamic>,
    )
}
