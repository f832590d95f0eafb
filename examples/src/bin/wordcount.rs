//! Counts words with a hash table distributed over the ranks of the job.
//! `conduit-run -n 4 wordcount files…`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use conduit_examples::wordcount::run;

/// Counts the words of text files with a hash table distributed over the ranks
#[derive(Debug, Parser)]
#[command(name = "wordcount", version)]
struct Options {
    /// Text files [default: the README of Conduit]
    files: Vec<PathBuf>,
    /// How many of the most frequent words to print
    #[arg(long, default_value_t = 10)]
    top: usize,
}

fn main() -> ExitCode {
    main_or_error().unwrap_or_else(|error| {
        conduit::stderr::write_line(format_args!("wordcount: {error:#}"));
        ExitCode::FAILURE
    })
}

fn main_or_error() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let Some(report) = run(&options.files)? else {
        return Ok(ExitCode::SUCCESS);
    };
    for (word, count) in report.top(options.top) {
        println!("{count:8} {word}");
    }
    println!("{report}");
    Ok(if report.equal() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
