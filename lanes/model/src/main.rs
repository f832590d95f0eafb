//! `lanes-model`: checks the small worlds, or with `--large` larger ones, and prints how many
//! states each has.

use std::process::ExitCode;

use lanes_model::{check, large, small};

fn main() -> ExitCode {
    let worlds = match std::env::args().nth(1).as_deref() {
        Some("--large") => large(),
        _ => small(),
    };
    sim::model::show(worlds, |world| world.name, check)
}
