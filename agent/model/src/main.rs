//! `agent-model`: checks the small worlds, or with `--large` larger ones, and prints how many states each has.

use std::process::ExitCode;

use agent_model::{check, large, small};

fn main() -> ExitCode {
    println!("    states |       steps | longest | seconds | world");
    let mut is_good = true;
    let worlds = match std::env::args().nth(1).as_deref() {
        Some("--large") => large(),
        _ => small(),
    };
    for world in worlds {
        let name = world.name;
        let report = check(world);
        println!(
            "{:10} | {:11} | {:7} | {:7.1} | {name}",
            report.states,
            report.steps,
            report.longest,
            report.time.as_secs_f64()
        );
        for (rule, run) in &report.failures {
            println!("not always: {rule}, after\n{run}");
        }
        for event in &report.missing {
            println!("never: {event}");
        }
        is_good &= report.failures.is_empty() && report.missing.is_empty();
    }
    ExitCode::from(u8::from(!is_good))
}
