//! `cargo xtask book`: builds the book from the pages in `docs`.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

use crate::build::Cargo;
use crate::command;

/// Build the book from the pages in docs: target/book/index.html (needs mdbook)
#[derive(Debug, Clone, Args)]
pub struct Book {
    /// Open it in a browser
    #[arg(long)]
    open: bool,
}

impl Book {
    /// Builds the book.
    ///
    /// # Errors
    /// Returns an error if mdbook is missing or fails.
    pub fn run(&self) -> Result<()> {
        ensure!(
            is_installed(),
            "mdbook not found; install it with `cargo install --locked mdbook`"
        );
        command::run(build(&Cargo::new()).args(self.open.then_some("--open")))
    }
}

/// Returns whether mdbook can be run.
pub(crate) fn is_installed() -> bool {
    let version = Command::new("mdbook").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// Returns the command that builds the book.
pub(crate) fn build(cargo: &Cargo) -> Command {
    let mut command = Command::new("mdbook");
    command.arg("build").arg(cargo.root().join("docs"));
    command
}
