//! `conduit-hsta`, a node's transport agent. Either Dragon starts it instead of its own
//! `dragon-hsta`, or it serves clients of Conduit's channels without Dragon (`--native`).

mod native;
mod settings;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::host::Host;
use agent::{AgentMachine, Dragonfly, Node};
use clap::Parser;
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use dragon::startup::{self, Purpose, Startup};
use dragon::{Gateway, Library};
use networks::open::{Choice, Family};

/// The variable that is set for an agent that already runs under valgrind or perf.
const UNDER: &str = "CONDUIT_HSTA_UNDER";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Settings(#[from] ::settings::SettingsError),
    #[error(transparent)]
    Load(#[from] dragon::LoadError),
    #[error(transparent)]
    Startup(#[from] startup::StartupError),
    #[error(transparent)]
    Gateway(#[from] dragon::OpenError),
    #[error("cannot open the network at {host}: {source}")]
    Network {
        host: String,
        source: networks::open::OpenError,
    },
    #[error("this node ({0:#x}) is not among the job's {1} nodes")]
    Stranger(u64, usize),
    #[error("an agent between jobs (oob_connect, oob_accept) is not supported")]
    OtherJobs,
    #[error("{0}")]
    Front(agent::Code),
    #[error("invalid address of node {host:#x}: {source}")]
    Address { host: u64, source: ConnectError },
    #[error("cannot run {program} ({setting}): {source}")]
    Under {
        setting: &'static str,
        program: &'static str,
        source: std::io::Error,
    },
    #[error(transparent)]
    Native(#[from] native::NativeError),
    #[error("invalid address of a node's agent: {0}")]
    Peer(#[from] ConnectError),
    #[error("{0}")]
    System(#[from] std::io::Error),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conduit-hsta: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let settings = settings::Settings::from_env()?.agent;
    let level = match settings.debug {
        true => tracing::Level::DEBUG,
        false => tracing::Level::WARN,
    };
    // Dragon passes no arguments.
    let native = (std::env::args_os().len() > 1).then(native::Options::parse);
    match native {
        Some(_) => dragon::log::init_plain(level),
        None => dragon::log::init(level),
    }
    if std::env::var_os(UNDER).is_none() {
        under(&settings)?;
    }
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    if let Some(options) = native {
        return Ok(native::run(&options, &settings, &ends)?);
    }
    let library = Library::load(None)?;
    let told = Startup::read(&mut std::io::stdin())?;
    if told.frontend {
        dragon::at_front_end(library).map_err(Error::Front)?;
    }
    let nic = startup::nic()?;
    let mut gateway = Gateway::open(library, nic)?;
    let (own, network) = network(&settings, &told, gateway.node())?;
    let agents = startup::agents();
    if told.purpose == Purpose::User && nic < agents && agents > 1 {
        // Continue after a failure: each agent can work without the others.
        if let Err(error) = gateway.join_siblings(told.port, nic, agents) {
            tracing::warn!("agent {nic} cannot share work with the node's other agents: {error}");
        }
    }
    let nodes = nodes(&told, &network)?;
    serve((own, nodes), &settings, &mut gateway, network, || {
        startup::ready(&mut std::io::stdout())?;
        Ok(|| ends.load(Ordering::Relaxed))
    })
}

/// Runs the agent of node `own`. `begin` is called when the agent is ready. It returns a function
/// whose result `true` ends the agent.
fn serve<H: Host, E: FnMut() -> bool, F: From<ConnectError>>(
    (own, nodes): (u32, Vec<Node>),
    settings: &settings::AgentSettings,
    host: &mut H,
    mut network: networks::open::Network,
    begin: impl FnOnce() -> Result<E, F>,
) -> Result<(), F> {
    let dragonfly = settings.dragonfly(nodes.len());
    let addresses: Vec<_> = nodes.iter().map(|node| node.address.clone()).collect();
    let mut machine = AgentMachine::new(own, nodes, settings.limits(), seed());
    if dragonfly {
        let addresses = addresses.iter().map(Vec::as_slice);
        let mut network = Dragonfly::new(network, own, addresses, seed())?;
        agent::driver::run(&mut machine, host, &mut network, begin()?);
    } else {
        agent::driver::run(&mut machine, host, &mut network, begin()?);
    }
    tracing::debug!("at the end: {:?}", machine.counters());
    Ok(())
}

/// Re-executes this program under valgrind or perf if a setting requests it. Otherwise returns.
fn under(settings: &settings::AgentSettings) -> Result<(), Error> {
    let me = std::env::current_exe()?;
    let process = std::process::id();
    let (setting, program, first) = if settings.valgrind {
        let log = format!("--log-file=hsta-{process}.valgrind");
        ("DRAGON_HSTA_ENABLE_VALGRIND", "valgrind", vec![log])
    } else if settings.perf {
        let output = format!("--output=hsta-{process}.perf");
        let first = ["record", "--call-graph=fp"].map(str::to_owned);
        let first = first.into_iter().chain([output, "--".to_owned()]);
        ("DRAGON_HSTA_ENABLE_PERF", "perf", first.collect())
    } else {
        return Ok(());
    };
    let source = Command::new(program)
        .args(first)
        .arg(me)
        .args(std::env::args_os().skip(1))
        .env(UNDER, program)
        .exec();
    Err(Error::Under {
        setting,
        program,
        source,
    })
}

/// Opens the network at the address by which the other nodes know this one. Returns this node's
/// number and the network.
fn network(
    settings: &settings::AgentSettings,
    told: &Startup,
    host: u64,
) -> Result<(u32, networks::open::Network), Error> {
    if let Purpose::Connect(..) | Purpose::Accept = told.purpose {
        return Err(Error::OtherJobs);
    }
    let own = told.nodes.iter().position(|node| node.host == host);
    let own = own.ok_or(Error::Stranger(host, told.nodes.len()))?;
    let address = told.nodes[own].address;
    let place = format!("{address}:{}", told.port);
    let choice = Choice {
        near: false,
        far: Some(settings.far()),
        host: Some(&place),
        subnet: None,
        family: Family::V4,
        key: None,
    };
    let (mut open, warnings) = networks::open::Settings::from_env()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // Dragon provides no secret by which its agents could authenticate each other.
    open.open.unauthenticated |= open.networks.secret_file.is_none();
    let network = networks::open::open(&choice, &open).map_err(|source| Error::Network {
        host: place,
        source,
    })?;
    // The cast is lossless, because the number of nodes is limited.
    Ok((own as u32, network))
}

fn nodes(told: &Startup, network: &networks::open::Network) -> Result<Vec<Node>, Error> {
    let node = |host: u64, text: String| match network.address_of_text(&text) {
        Ok(address) => Ok(Node { host, address }),
        Err(source) => Err(Error::Address { host, source }),
    };
    let of_job = told
        .nodes
        .iter()
        .map(|known| node(known.host, format!("{}:{}", known.address, told.port)));
    of_job.collect()
}

fn seed() -> u64 {
    // If the system returns no random numbers, any seed will do.
    getrandom::u64().unwrap_or_else(|_| std::process::id().into())
}
