//! The program that checks the worlds.

use std::process::ExitCode;

use clap::Parser;
use credits::Dynamic;
use credits_model::{check, large, small};

/// Checks the worlds and prints how many states each has.
#[derive(Parser)]
#[command(name = "credits-model", version)]
struct Options {
    /// Those that take minutes and some gigabytes, instead of the small ones
    #[arg(long)]
    large: bool,
}

fn main() -> ExitCode {
    let worlds = match Options::parse().large {
        false => small(),
        true => large(),
    };
    sim::model::show(worlds, |world| world.name, check::<Dynamic>)
}
