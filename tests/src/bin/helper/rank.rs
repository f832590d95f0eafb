//! One rank of a job of processes: `helper rank PROGRAM [udp|faults]` with a name of
//! [`conduit_tests::programs::PROGRAMS`], over shared memory, over UDP, or over UDP with packet
//! faults.

use anyhow::{Context, Result, bail};
use conduit_core::ni::Ni;
use conduit_core::threads::Seq;
use conduit_portals::transport::ProgressThread;
use conduit_shm::job::{Shm, ShmConfig};
use conduit_tests::any::AnyNi;
use conduit_tests::conformance::{Patience, World};
use conduit_tests::{programs, udp as udp_of_tests};
use conduit_udp::job::Udp;
use conduit_udp::job::start;
use conduit_udp::socket::{FaultConfig, Options};
use pmi::bootstrap::{Alone, Bootstrap};
use pmi::client::Connection;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some(mut launcher) = Connection::from_env()? else {
        return run_in(&mut Alone::default(), arguments);
    };
    run_in(&mut launcher, arguments)?;
    Ok(launcher.finalize()?)
}

fn run_in(launcher: &mut dyn Bootstrap, arguments: &[String]) -> Result<()> {
    let (name, network) = match arguments {
        [name] => (name, None),
        [name, network] => (name, Some(network.as_str())),
        _ => bail!("usage: helper rank PROGRAM [udp|faults]"),
    };
    match network {
        None => run_over(shared_memory(launcher)?, name, launcher),
        Some("udp") => {
            let udp = udp(launcher, FaultConfig::default())?;
            run_over(udp, name, launcher)
        }
        Some("faults") => {
            let udp = udp(launcher, udp_of_tests::faults(1))?;
            run_over(udp, name, launcher)
        }
        Some(other) => bail!("no network named {other}"),
    }
}

fn shared_memory(launcher: &mut dyn Bootstrap) -> Result<Shm<Seq>> {
    // Small, so that the programs reach its limits.
    let config = ShmConfig {
        region_bytes: 64 << 20,
        ..ShmConfig::default()
    };
    Ok(Shm::start(launcher, &config)?)
}

fn udp(launcher: &mut dyn Bootstrap, faults: FaultConfig) -> Result<Udp<Seq>> {
    let mut config = udp_of_tests::config(1500);
    config.options.send_buffer = Options::BUFFER;
    config.options.receive_buffer = Options::BUFFER;
    config.attend = Some(ProgressThread::PERIOD);
    config.faults = faults;
    Ok(start(launcher, &config)?)
}

fn run_over(net: impl Ni + 'static, name: &str, launcher: &mut dyn Bootstrap) -> Result<()> {
    let program = programs::by_name(name).with_context(|| format!("no program named {name}"))?;
    let mut world = World::new(vec![AnyNi::new(net)], Patience::of_processes());
    program(&mut world);
    launcher.fence()?;
    Ok(())
}
