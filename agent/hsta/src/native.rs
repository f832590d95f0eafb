//! The agent for clients of [`conduit_channels`], which is started from the command line.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::Node;
use clap::Parser;
use conduit_channels::{DEFAULT_AGENT, Gateway, GatewayConfig, GatewayError};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use networks::open::{Choice, Family};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::settings::AgentSettings;

/// A node's transport agent.
///
/// Dragon starts the agent without arguments and passes everything through the environment and
/// standard input. With `--native`, the agent serves processes that use Conduit's own channels (the
/// crate conduit-channels, or the Python package conduit_channels). Such an agent prints
/// `CONDUIT_AGENT=NAME` when it is ready, and ends on SIGTERM, SIGINT or SIGHUP.
#[derive(Debug, Parser)]
#[command(name = "conduit-hsta", version)]
pub(crate) struct Options {
    /// Serve clients of Conduit's own channels
    #[arg(long, required = true)]
    native: bool,

    /// The addresses of the agents of all nodes of the job, in the same order on each node
    /// [default: this node alone, without a network]
    #[arg(
        long,
        value_name = "ADDRESS:PORT,...",
        value_delimiter = ',',
        requires = "node"
    )]
    nodes: Vec<SocketAddr>,

    /// This node's index in --nodes, from 0
    #[arg(long, value_name = "K", requires = "nodes")]
    node: Option<u32>,

    /// The name by which clients on this host find the agent
    #[arg(long, default_value = DEFAULT_AGENT)]
    name: String,

    /// End when standard input ends, so that the agent ends with the process that started it
    #[arg(long)]
    until_eof: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NativeError {
    #[error("--node {node} is out of range: --nodes has {nodes} nodes")]
    Stranger { node: u32, nodes: usize },
    #[error(transparent)]
    Settings(#[from] ::settings::SettingsError),
    #[error("cannot open the network at {place}: {source}")]
    Network {
        place: String,
        source: networks::open::OpenError,
    },
    #[error("invalid node address {address}: {source}")]
    Address {
        address: SocketAddr,
        source: ConnectError,
    },
    #[error("invalid address of a node's agent: {0}")]
    Peer(#[from] ConnectError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error("cannot report that the agent is ready: {0}")]
    Ready(std::io::Error),
}

/// Serves clients until `ends` is set.
pub(crate) fn run(
    options: &Options,
    settings: &AgentSettings,
    ends: &AtomicBool,
) -> Result<(), NativeError> {
    let own = options.node.unwrap_or(0);
    let (network, nodes) = network(options, settings, own)?;
    let mut gateway = Gateway::open(&GatewayConfig {
        pool: (settings.pool as usize) << 20,
        reserve: u64::from(settings.channels) << 20,
        huge_pages: settings.huge_pages,
        clients: settings.clients,
        ..GatewayConfig::new(&options.name, own.into())
    })?;
    crate::serve((own, nodes), settings, &mut gateway, network, || {
        let mut output = std::io::stdout();
        writeln!(output, "CONDUIT_AGENT={}", options.name)
            .and_then(|()| output.flush())
            .map_err(NativeError::Ready)?;
        Ok(|| ends.load(Ordering::Relaxed) || (options.until_eof && has_input_ended()))
    })
}

/// Opens the network. Returns the network and all nodes of the job.
fn network(
    options: &Options,
    settings: &AgentSettings,
    own: u32,
) -> Result<(networks::open::Network, Vec<Node>), NativeError> {
    let address = options.nodes.get(own as usize);
    if address.is_none() && !options.nodes.is_empty() {
        return Err(NativeError::Stranger {
            node: own,
            nodes: options.nodes.len(),
        });
    }
    let place = address.map(SocketAddr::to_string);
    let choice = Choice {
        near: address.is_none(),
        far: address.map(|_| settings.far()),
        host: place.as_deref(),
        subnet: None,
        family: match address {
            Some(SocketAddr::V6(_)) => Family::V6,
            _ => Family::V4,
        },
        key: None,
    };
    let (open, warnings) = networks::open::Settings::from_env()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let network = networks::open::open(&choice, &open).map_err(|source| NativeError::Network {
        place: place.clone().unwrap_or_default(),
        source,
    })?;
    let mut nodes: Vec<Node> = (0..)
        .zip(&options.nodes)
        .map(|(host, &address)| {
            let place = network.address_of_text(&address.to_string());
            let node = |address| Node { host, address };
            (place.map(node)).map_err(|source| NativeError::Address { address, source })
        })
        .collect::<Result<_, _>>()?;
    if nodes.is_empty() {
        nodes.push(Node {
            host: 0,
            address: network.address().to_vec(),
        });
    }
    Ok((network, nodes))
}

/// Reads from standard input if it is readable, and discards what was read. Returns whether
/// standard input has ended.
fn has_input_ended() -> bool {
    let input = std::io::stdin();
    let mut asked = [PollFd::new(&input, PollFlags::IN)];
    // If polling fails, the input counts as open.
    match poll(&mut asked, Some(&Timespec::default())) {
        Ok(1..) => matches!(rustix::io::read(&input, &mut [0; 64]), Ok(0)),
        _ => false,
    }
}
