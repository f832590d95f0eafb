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
    println!(
        "{:>10} {:>11} {:>7} {:>7}  world",
        "states", "steps", "longest", "seconds"
    );
    let mut good = true;
    for world in worlds {
        let name = world.name;
        let report = check::<Dynamic>(world);
        let seconds = report.time.as_secs_f64();
        println!(
            "{:>10} {:>11} {:>7} {seconds:>7.1}  {name}",
            report.states, report.steps, report.longest
        );
        for (property, run) in &report.failures {
            println!("not always: {property}, after\n{run}");
        }
        for event in &report.missing {
            println!("never: {event}");
        }
        good &= report.failures.is_empty() && report.missing.is_empty();
    }
    ExitCode::from(u8::from(!good))
}
