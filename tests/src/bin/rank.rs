//! One rank of a several-process test: `rank PROGRAM` with a name of [`conduit_tests::programs::PROGRAMS`].

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use conduit_core::bootstrap::{Alone, Bootstrap, BootstrapError};
use conduit_core::threads::Seq;
use conduit_portals::shm::{Shm, ShmConfig};
use conduit_tests::conformance::{Patience, World};
use conduit_tests::programs;
use pmi::client::Connection;

/// Job start over the launcher's PMI.
struct Launcher(Connection);

impl Launcher {
    fn failed(&self, operation: &'static str, error: &pmi::client::Error) -> BootstrapError {
        BootstrapError {
            rank: self.rank(),
            operation,
            reason: error.to_string(),
        }
    }
}

impl Bootstrap for Launcher {
    fn rank(&self) -> u32 {
        self.0.rank() as u32
    }
    fn size(&self) -> u32 {
        self.0.size() as u32
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let answer = self.0.allgather("tests", bytes);
        answer.map_err(|error| self.failed("allgather", &error))
    }
    fn barrier(&mut self) -> Result<(), BootstrapError> {
        let answer = self.0.barrier();
        answer.map_err(|error| self.failed("barrier", &error))
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: rank PROGRAM");
    };
    let mut launcher: Box<dyn Bootstrap> = match Connection::from_env()? {
        Some(connection) => Box::new(Launcher(connection)),
        None => Box::new(Alone),
    };
    let program = programs::by_name(&name).with_context(|| format!("no program named {name}"))?;
    // Small, so that the programs meet its limits.
    let config = ShmConfig {
        region_bytes: 64 << 20,
        ..ShmConfig::default()
    };
    let net = Shm::<Seq>::start(&mut *launcher, &config)?;
    let mut world = World::new(vec![net], Patience::of_processes());
    program(&mut world);
    launcher.barrier()?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rank: {error:#}");
            ExitCode::FAILURE
        }
    }
}
