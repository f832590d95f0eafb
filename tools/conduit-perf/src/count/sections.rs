//! The sections in which operations are repeated. Callgrind counts and dumps them one by one.

use std::hint::black_box;
use std::io::{self, Write};

use crate::select;

/// The runner of the sections of each requested operation.
pub(super) struct Sections<'a> {
    /// The number of repetitions in each section of an operation.
    counts: &'a [u64],
    asked: &'a [String],
    /// The names of all operations so far, requested or not.
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

    /// If the operation was requested, prints its name and runs its sections. `operation` repeats
    /// the operation as often as its argument says.
    ///
    /// # Errors
    /// Fails if the operation fails, or if writing to stdout fails.
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

    /// Checks that each requested name matches an operation.
    ///
    /// # Errors
    /// Returns an error with the first unknown name.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        select::check(self.asked, self.names.iter().map(String::as_str))?;
        Ok(())
    }
}

/// Runs a section. Callgrind finds this function by its name.
// SAFETY: no other function of the program has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn conduit_counted_section(
    operation: &mut dyn FnMut(u64) -> anyhow::Result<()>,
    count: u64,
) -> anyhow::Result<()> {
    // `black_box` prevents a tail call, which would end the section before the operation.
    black_box(operation(count))
}
