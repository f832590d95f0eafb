//! The other sides of a measurement without a job: this program again, with the shared memory as its standard input.

use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context;

use crate::Error;
use crate::mapping::Mapping;

/// Processes that are killed and reaped when dropped.
#[derive(Debug)]
pub struct Companions(Vec<Child>);

impl Companions {
    /// Starts this program once for each side but 0, with the arguments that `arguments` gives for the side.
    ///
    /// # Errors
    /// A process can't be started; those that were are killed.
    pub fn start(
        mapping: &Mapping,
        sides: usize,
        arguments: impl Fn(usize) -> Vec<String>,
    ) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::system("current_exe"))?;
        let mut companions = Self(Vec::new());
        for rank in 1..sides {
            let memory = mapping.file().try_clone().map_err(Error::system("dup"))?;
            let child = Command::new(&program)
                .args(arguments(rank))
                .stdin(Stdio::from(memory))
                .spawn()
                .map_err(Error::system("spawn"))?;
            companions.0.push(child);
        }
        Ok(companions)
    }

    /// The first side whose process has ended with a failure, and how.
    pub fn ended(&mut self) -> Option<(usize, ExitStatus)> {
        self.0.iter_mut().enumerate().find_map(|(index, child)| {
            let status = child.try_wait().ok().flatten()?;
            (!status.success()).then_some((index + 1, status))
        })
    }
}

impl Drop for Companions {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only if the process has ended and been reaped, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// In a companion: the shared memory, which is its standard input. It dies with the process that started it from now on.
///
/// # Errors
/// Standard input is something else.
pub fn handed_over() -> anyhow::Result<Mapping> {
    die_with_parent()?;
    let memory = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("standard input")?;
    Mapping::of_file(memory.into()).context("standard input as shared memory")
}

/// In a companion: dies with the process that started it.
///
/// # Errors
/// The system refuses.
pub fn die_with_parent() -> Result<(), Error> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(Error::system("prctl"))
}
