//! The tour of Conduit that `cargo run` shows.
//!
//! Started by hand, it runs this same program as the ranks of several jobs, one after the other,
//! and reports their results. Started by a launcher (it finds PMI's variables), it is a rank and
//! performs the checks.

mod checks;
mod figures;
mod jobs;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::{heat, wordcount};

/// Starts four ranks on this machine that verify every operation of Conduit, measures its
/// latencies, rates and bandwidths beside this machine's limits, and runs two example programs
#[derive(Debug, Parser)]
#[command(name = "tour", version)]
struct Options {
    /// Number of ranks in the verifying jobs
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    ranks: u16,
    /// Leave out the measurements
    #[arg(long)]
    no_figures: bool,
    /// Task of this rank (set by the tour for the ranks that it starts)
    #[arg(long, value_enum, hide = true)]
    part: Option<Part>,
}

/// The task of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Checks,
    Heat,
    Wordcount,
}

impl Part {
    /// Returns the task's name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Checks => "checks",
            Self::Heat => "heat",
            Self::Wordcount => "wordcount",
        }
    }
}

/// Runs the program. Its exit code is 0 only if everything was verified.
pub fn main() -> ExitCode {
    // The measurements also start this program as ranks, in their own way.
    if let Some(ended) = conduit_perf::rank_main() {
        return ended;
    }
    let options = Options::parse();
    let launched = std::env::var_os("PMI_RANK").is_some();
    let ended = match options.part {
        None if !launched => jobs::run(usize::from(options.ranks), !options.no_figures),
        part => rank(part.unwrap_or(Part::Checks)),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            conduit::stderr::write_line(format_args!("tour: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Performs a rank's task, and returns whether all results were correct.
fn rank(part: Part) -> Result<bool> {
    let plate = heat::Plate {
        rows: 512,
        columns: 512,
        steps: 400,
    };
    Ok(match part {
        Part::Checks => {
            checks::run()?;
            true
        }
        Part::Heat => heat::run(plate)?.is_none_or(|report| {
            println!("{report}");
            report.different == 0
        }),
        Part::Wordcount => wordcount::run(&[])?.is_none_or(|report| {
            println!("{report}");
            report.equal()
        }),
    })
}
