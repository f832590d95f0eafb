//! One rank of a several-process test: `rank PROGRAM [udp]` with a name of [`conduit_tests::programs::PROGRAMS`], over shared
//! memory or over UDP.

use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use conduit_core::bootstrap::{Alone, Bootstrap, BootstrapError};
use conduit_core::ni::Ni;
use conduit_core::threads::Seq;
use conduit_portals::shm::{Shm, ShmConfig};
use conduit_tests::conformance::{Patience, World};
use conduit_tests::programs;
use conduit_udp::Carrier;
use conduit_udp::portals::Udp;
use conduit_udp::socket::Options;
use conduit_udp::start::UdpConfig;
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
    let (Some(name), network, None) = (arguments.next(), arguments.next(), arguments.next()) else {
        bail!("usage: rank PROGRAM [udp]");
    };
    let mut launcher: Box<dyn Bootstrap> = match Connection::from_env()? {
        Some(connection) => Box::new(Launcher(connection)),
        None => Box::new(Alone),
    };
    match network.as_deref() {
        None => run_over(shared_memory(&mut *launcher)?, &name, &mut *launcher),
        Some("udp") => run_over(udp(&mut *launcher)?, &name, &mut *launcher),
        Some(other) => bail!("no network named {other}"),
    }
}

fn shared_memory(launcher: &mut dyn Bootstrap) -> Result<Shm<Seq>> {
    // Small, so that the programs meet its limits.
    let config = ShmConfig {
        region_bytes: 64 << 20,
        ..ShmConfig::default()
    };
    Ok(Shm::start(launcher, &config)?)
}

fn udp(launcher: &mut dyn Bootstrap) -> Result<Udp<Seq, Carrier>> {
    let options = Options {
        address: Ipv4Addr::LOCALHOST.into(),
        scope: 0,
        port: 0,
        mtu: Some(1500),
        send_buffer: Options::BUFFER,
        receive_buffer: Options::BUFFER,
        offload: true,
    };
    let mut config = UdpConfig::new(options, "localhost".to_owned());
    config.portals.region_bytes = 64 << 20;
    Ok(Udp::start(launcher, &config)?)
}

fn run_over<N: Ni>(net: N, name: &str, launcher: &mut dyn Bootstrap) -> Result<()> {
    let program = programs::by_name(name).with_context(|| format!("no program named {name}"))?;
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
