//! `cargo xtask`: see [`xtask`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{Book, Budgets, Full, Install, Nightly, Quick};

/// Tasks of this workspace that cargo alone does not do
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Quick(Quick),
    Full(Full),
    Nightly(Nightly),
    Book(Book),
    Budgets(Budgets),
    Install(Install),
}

fn main() -> ExitCode {
    let (name, done) = match Options::parse().task {
        Task::Quick(quick) => ("quick", quick.run()),
        Task::Full(full) => ("full", full.run()),
        Task::Nightly(nightly) => ("nightly", nightly.run()),
        Task::Book(book) => ("book", book.run()),
        Task::Budgets(budgets) => ("budgets", budgets.run()),
        Task::Install(install) => ("install", install.run()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
