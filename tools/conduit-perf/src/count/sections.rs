//! Repeats operations in sections, which callgrind collects and dumps one by one.

use std::hint::black_box;
use std::io::{self, Write};

use crate::select;

/// Runs the sections of each requested operation.
pub(super) struct Sections<'a> {
    /// Repetitions, one for each section of an operation.
    counts: &'a [u64],
    asked: &'a [String],
    /// Names of all operations so far.
    names: Vec<String>,
}

impl<'a> Sections<'a> {
    pub(super) fn new(counts: &'a [u64], asked: &'a [String]) -> Self {
        Self {
            counts,
            asked,
            names: Vec::new(),
        }
    }

    /// Prints the operation's name and runs its sections, if it was requested. `operation` repeats
    /// it as often as its argument says.
    ///
    /// # Errors
    /// The operation fails, or writing to stdout fails.
    pub(super) fn run(
        &mut self,
        name: &str,
        mut operation: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.names.push(name.to_owned());
        if select::wanted(self.asked, name) {
            writeln!(io::stdout(), "{name}")?;
            for &count in self.counts {
                conduit_counted_section(&mut operation, count)?;
            }
        }
        Ok(())
    }

    /// Checks that each requested name is that of an operation.
    ///
    /// # Errors
    /// The first unknown name.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        select::check(self.asked, self.names.iter().map(String::as_str))?;
        Ok(())
    }
}

/// A section. Callgrind finds it by this name.
// SAFETY: no other function of the program has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn conduit_counted_section(
    operation: &mut dyn FnMut(u64) -> anyhow::Result<()>,
    count: u64,
) -> anyhow::Result<()> {
    // A tail call would end the section before the operation.
    black_box(operation(count))
}
