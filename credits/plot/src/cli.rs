//! The command line of `credit-plot`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::{Error, read, svg};

/// Draws a picture of a job's credit statistics, which its ranks write with
/// GASNET_PORTAL_CREDIT_STATS=1.
#[derive(Debug, Parser)]
#[command(name = "credit-plot", version, after_help = AFTER_HELP)]
struct Options {
    /// Files of statistics, or directories with them
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,

    /// The picture to write, in SVG; `-` for standard output
    #[arg(short, long, value_name = "FILE", default_value = "credits.svg")]
    output: PathBuf,

    /// The job to draw, if a directory has files of several
    #[arg(long, value_name = "NAME")]
    job: Option<String>,

    /// The rank whose loans are drawn over time [default: the rank whose loans have changed the
    /// most]
    #[arg(long, value_name = "RANK")]
    rank: Option<u32>,
}

const AFTER_HELP: &str = "\
Exit codes: 0 picture written, possibly with warnings · 1 no picture written · 2 bad usage.";

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let options = Options::parse();
    // The result is ignored, because a failure to write to standard error cannot be reported
    // anywhere.
    let complain = |what: &dyn std::fmt::Display| {
        let _ = writeln!(io::stderr(), "credit-plot: {what}");
    };
    match run(&options, |warning| {
        complain(&format_args!("warning: {warning}"));
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, warn: impl FnMut(&dyn std::fmt::Display)) -> Result<(), Error> {
    let (job, warnings) = read(&options.paths, options.job.as_deref())?;
    let mut warn = warn;
    warnings.iter().for_each(|warning| warn(warning));
    let picture = svg(&job, options.rank)?;
    let written = match options.output.as_os_str() == "-" {
        true => io::stdout().write_all(picture.as_bytes()),
        false => std::fs::write(&options.output, picture),
    };
    written.map_err(|source| Error::Write {
        path: options.output.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }
}
