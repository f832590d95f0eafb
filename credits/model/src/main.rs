//! Checks the worlds and prints how many states each has: the small ones, or with `--large` those that take minutes.

use std::process::ExitCode;

use credits::Dynamic;
use credits_model::{check, large, small};

fn main() -> ExitCode {
    let worlds = match std::env::args().nth(1).as_deref() {
        None => small(),
        Some("--large") => large(),
        Some(_) => {
            eprintln!("usage: credits-model [--large]");
            return ExitCode::from(2);
        }
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
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
