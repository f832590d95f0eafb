//! `cargo xtask budgets`: compares the number of instructions of each hot path with its budget.
//!
//! - [`table`] has the counts, the tools that they depend on, and the format of the file with both;
//! - [`verdict`] compares counts with their budgets.

mod table;
mod verdict;

use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use table::{Table, Tools};
use verdict::Judged;

use crate::build::Cargo;
use crate::build::Mode;
use crate::command;
use crate::install::{Conduit, Install};

/// The file with the committed budgets, relative to the workspace's folder.
const FILE: &str = "tools/conduit-perf/budgets.tsv";
/// The prefix under which the C library is installed, relative to the workspace's folder. `.ci/run`
/// uses the same prefix.
const PREFIX: &str = "target/prefix";

/// Count the instructions of each hot path and compare them with the budgets
///
/// Builds conduit-perf and the optimised C library, and counts with valgrind. Fails if a count is
/// more than 2 % above its budget in tools/conduit-perf/budgets.tsv. Counts do not depend on the
/// machine's load, but they do depend on the compilers, the C library and the processor's
/// extensions. If these differ from the ones recorded in the file, the tolerance is 10 %.
#[derive(Debug, Clone, Default, Args)]
pub struct Budgets {
    /// The operations to count, given by their names or the first words of their names [default:
    /// all]. The C library is built only if operations through the C headers (c) are among them
    #[arg(conflicts_with = "write")]
    operations: Vec<String>,

    /// Write the counts as the new budgets
    #[arg(long)]
    write: bool,
}

impl Budgets {
    /// Counts instructions and prints each count beside its budget.
    ///
    /// # Errors
    /// Returns an error if a count is above its budget, a program is missing or fails, or the
    /// budgets' file cannot be read or written.
    pub fn run(&self) -> Result<()> {
        let cargo = Cargo::new();
        let now = self.count(&cargo)?;
        let path = cargo.root().join(FILE);
        if self.write {
            let text = now.to_string();
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            println!("{FILE}: {} budgets written", now.counts.len());
            return Ok(());
        }
        let budgets = match fs::read_to_string(&path) {
            Ok(text) => text.parse::<Table>().context(FILE)?.only(&self.operations),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{FILE} is missing; write it with: cargo xtask budgets --write")
            }
            Err(error) => return Err(error).context(FILE),
        };
        let judged = Judged::new(&budgets, &now);
        println!("{judged}");
        ensure!(
            judged.is_good(),
            "a hot path exceeds its budget of instructions"
        );
        Ok(())
    }

    /// Builds the programs to measure and counts their instructions.
    fn count(&self, cargo: &Cargo) -> Result<Table> {
        // Check for valgrind first, because building takes minutes.
        command::output(Command::new("valgrind").arg("--version"))
            .context("counting instructions needs valgrind; install the package of that name")?;
        let program = cargo.program("conduit-perf", "release")?;
        let mut counter = Command::new(program);
        counter.args(["count", "--json"]).args(&self.operations);
        let is_c = |name: &String| table::means("c", name);
        if self.operations.is_empty() || self.operations.iter().any(is_c) {
            let prefix = cargo.root().join(PREFIX);
            let install = Install {
                modes: vec![Mode::Seq],
                conduits: vec![Conduit::Smp],
                no_debug: true,
                ..Install::new(&prefix)
            };
            install.run()?;
            counter.arg("--c").arg(&prefix);
        }
        let lines = command::output(&mut counter)?;
        Ok(Table {
            tools: Tools::here(cargo)?,
            counts: table::read_counts(&lines)?,
        })
    }
}
