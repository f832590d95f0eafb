//! Computes heat on a plate distributed over the ranks of the job, and compares it with one rank's
//! result. `conduit-run -n 4 heat`.

use std::process::ExitCode;

use clap::Parser;
use conduit_examples::heat::{Plate, run};

/// Computes how heat spreads over a plate whose rows are distributed over the ranks
#[derive(Debug, Parser)]
#[command(name = "heat", version)]
struct Options {
    /// Rows of the plate
    #[arg(long, default_value_t = 512, value_parser = positive)]
    rows: usize,
    /// Columns of the plate
    #[arg(long, default_value_t = 512, value_parser = positive)]
    columns: usize,
    /// Time steps
    #[arg(long, default_value_t = 400)]
    steps: usize,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=100_000) => Ok(number),
        _ => Err("expected a number from 1 to 100000".to_owned()),
    }
}

fn main() -> ExitCode {
    main_or_error().unwrap_or_else(|error| {
        conduit::stderr::write_line(format_args!("heat: {error:#}"));
        ExitCode::FAILURE
    })
}

fn main_or_error() -> anyhow::Result<ExitCode> {
    let Options {
        rows,
        columns,
        steps,
    } = Options::parse();
    let Some(report) = run(Plate {
        rows,
        columns,
        steps,
    })?
    else {
        return Ok(ExitCode::SUCCESS);
    };
    println!("{report}");
    Ok(if report.different == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
