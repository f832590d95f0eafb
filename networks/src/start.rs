//! The start of a job's network: shared memory among the ranks of a host, and another network to
//! all other ranks.

use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_core::stderr;
use conduit_core::threads::Mode;
use conduit_ofi::job::OfiConfig;
use conduit_portals::portals4::{self, Portals4Config};
use conduit_portals::transport::connections::Connections;
use conduit_portals::transport::{LaneSettings, PortalsConfig};
use conduit_shm::job::{Meeting, Shm, ShmConfig, Stranger};
use conduit_udp::job::UdpConfig;
use pmi::bootstrap::Bootstrap;

use crate::choice::{Choice, NetworkKind, choose};
use crate::composite::Composite;
use crate::settings::NetworkSettings;
use crate::{Error, Far, Hosts, InterHost, Network, Result};

/// The amount of shared memory of each rank, which is the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The size in bytes of the largest segment.
    pub segment: usize,
    /// The number of bytes for event queues.
    pub queues: usize,
}

/// The maximum number of bytes of shared memory for a rank's queues. Until these bytes are used,
/// they are only address space.
const QUEUES: usize = 1 << 30;

impl Room {
    /// Computes the room in a job of `size` ranks. A rank's memory can hold a segment of `segment`
    /// bytes, and its shared memory may have at most `shared` bytes.
    pub fn new(settings: NetworkSettings<'_>, size: u32, segment: usize, shared: usize) -> Self {
        let queues = QUEUES.min(shared / 4);
        let besides = queues + shm_besides(settings, size) + ShmConfig::STAGING;
        Self {
            segment: segment.min(shared.saturating_sub(besides)),
            queues,
        }
    }
}

/// Starts the network of a job whose ranks have this room. All ranks must call this together.
/// Splits hosts whose ranks turn out not to share memory.
///
/// # Errors
/// Returns [`Error::NoNetwork`] if no allowed network can carry the job, the error of the chosen
/// network if it cannot be started on this rank, and [`Error::Start`] if another rank failed.
pub fn start<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    settings: NetworkSettings<'_>,
    hosts: &mut Hosts,
    room: Room,
) -> Result<Network<M>> {
    let mut choice = choose(settings, hosts, bootstrap.rank())?;
    let config = shm_config(settings, bootstrap.size(), room);
    let everybody: Vec<Rank> = (0..bootstrap.size()).collect();
    let neighbours = match &choice {
        Choice::IntraHost => &everybody,
        Choice::Both(neighbours, _) => neighbours,
    };
    let meeting = Meeting::hold(bootstrap, neighbours, &config)?;
    if let [first, more @ ..] = meeting.strangers() {
        hosts.split(meeting.strangers());
        let another = choose(settings, hosts, bootstrap.rank());
        if bootstrap.rank() == 0 {
            report_split(first, more.len(), another.as_ref().ok());
        }
        choice = another?;
    }
    match choice {
        Choice::IntraHost => Ok(Composite::single_host(meeting.start(&everybody)?)),
        Choice::Both(neighbours, kind) => {
            let intra = meeting.start(&neighbours).map_err(Error::from);
            both(bootstrap, settings, &config, hosts, intra, neighbours, kind)
        }
    }
}

/// Reports that some ranks of a host cannot share memory.
fn report_split(first: &Stranger, more: usize, choice: Option<&Choice>) {
    let Stranger { rank, peer, reason } = first;
    let more = match more {
        0 => String::new(),
        more => format!("; and {more} more pairs"),
    };
    let instead = match choice {
        Some(Choice::Both(_, kind)) => format!("using {kind} between them"),
        _ => "no other network is usable".to_owned(),
    };
    stderr::write_line(format_args!(
        "conduit: rank {rank} cannot share the memory of rank {peer} ({reason}{more}): {instead}"
    ));
}

/// The configuration of the inter-host network.
enum InterHostConfig {
    Udp(UdpConfig),
    Ofi(OfiConfig),
    Portals4(Portals4Config),
}

/// Starts shared memory among the ranks of this host and another network to all other ranks. If one
/// rank fails, all ranks fail.
fn both<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    settings: NetworkSettings<'_>,
    config: &ShmConfig,
    hosts: &Hosts,
    intra: Result<Shm<M>>,
    neighbours: Vec<Rank>,
    kind: NetworkKind,
) -> Result<Network<M>> {
    let ready = inter_host_config(settings, config, hosts, bootstrap.rank(), kind)
        .and_then(|inter| Ok((inter, intra?)));
    // The ranks exchange their verdicts, because ranks of other hosts would otherwise wait for a
    // rank that has failed.
    let verdict = ready.as_ref().err().map(ToString::to_string);
    let verdicts = bootstrap.allgather(verdict.unwrap_or_default().as_bytes())?;
    let (inter, intra) = ready?;
    for (peer, verdict) in (0..).zip(verdicts) {
        if !verdict.is_empty() {
            let reason = String::from_utf8_lossy(&verdict);
            return Err(Error::Start(format!("rank {peer} failed: {reason}")));
        }
    }
    let inter = match inter {
        InterHostConfig::Portals4(config) => {
            let inter = portals4::start::start(bootstrap, &config)?;
            return Ok(Composite::new(
                intra,
                Far::Portals4(inter.into()),
                neighbours,
            )?);
        }
        InterHostConfig::Udp(config) => {
            conduit_udp::job::start_in(bootstrap, &config, |carrier| {
                InterHost::Udp(carrier.into())
            })?
        }
        InterHostConfig::Ofi(config) => {
            let (rank, force) = (bootstrap.rank(), settings.shm.lane_force_switch);
            conduit_ofi::job::start_in(bootstrap, &config, |wire, beside| {
                Ok(match beside {
                    None => InterHost::Ofi(wire.into()),
                    Some(beside) => {
                        let connected = beside.connect(wire)?;
                        // There is no limit on the number of lanes besides the network's own.
                        let lanes = LaneSettings {
                            slots: u16::MAX,
                            ..LaneSettings::default()
                        };
                        let connections = Connections::new(connected, rank, lanes, force);
                        InterHost::Connected(connections.into())
                    }
                })
            })?
        }
    };
    inter.set_waker(intra.waker());
    Ok(Composite::new(intra, Far::Soft(inter), neighbours)?)
}

/// Returns the configuration of the inter-host network from its settings, adapted to the settings
/// of the engine and of shared memory.
fn inter_host_config(
    settings: NetworkSettings<'_>,
    shm: &ShmConfig,
    hosts: &Hosts,
    rank: Rank,
    kind: NetworkKind,
) -> Result<InterHostConfig> {
    let host = hosts.host_of(rank).map_or("", |host| hosts.name(host));
    let secret_file = settings.networks.secret_file.clone();
    Ok(match kind {
        NetworkKind::Udp => {
            let mut config = UdpConfig::of(settings.udp, host, rank)?;
            config.secret_file = secret_file;
            adapt(&mut config.portals, settings, shm);
            InterHostConfig::Udp(config)
        }
        NetworkKind::Ofi => {
            let mut config = OfiConfig::of(settings.ofi, host, hosts.count() == 1);
            config.secret_file = secret_file;
            adapt(&mut config.portals, settings, shm);
            // Handlers and ranks that share memory use the processor's atomics, which are not
            // atomic with respect to the device's.
            let alone = !settings.networks.allows_network("shm");
            config.portals.native_atomics = settings.ofi.atomics && alone;
            InterHostConfig::Ofi(config)
        }
        NetworkKind::Portals4 => {
            let mut config = Portals4Config::of(settings.portals4);
            config.max_managed = shm.max_managed;
            config.inject_size = if settings.engine.inject {
                shm.max_managed
            } else {
                0
            };
            // As with libfabric, the processor's atomics are not atomic with respect to the
            // device's.
            config.atomics &= !settings.networks.allows_network("shm");
            config.region_bytes = shm.region_bytes.saturating_add(ROUNDING);
            InterHostConfig::Portals4(config)
        }
    })
}

/// The number of additional bytes of regions, because the size of each region is rounded up to a
/// multiple of the page size, which may be that of huge pages.
const ROUNDING: usize = 1 << 30;

/// Adapts the configuration of the inter-host network's portals to the common settings and to
/// shared memory, because the portals adopt its regions.
fn adapt(portals: &mut PortalsConfig, settings: NetworkSettings<'_>, shm: &ShmConfig) {
    if !settings.engine.inject {
        portals.inject_size = 0;
    }
    let NetworkSettings { networks, .. } = settings;
    portals.lanes = PortalsConfig::lanes(networks.lane_window, networks.lane_arrivals);
    portals.max_managed = shm.max_managed;
    portals.region_bytes = shm.region_bytes.saturating_add(ROUNDING);
}

fn chunk_bytes(settings: NetworkSettings<'_>) -> usize {
    settings.engine.chunk.next_multiple_of(64)
}

/// Returns the number of bytes of regions that the engine needs besides the segment.
fn shm_besides(settings: NetworkSettings<'_>, size: u32) -> usize {
    let engine = settings.engine;
    let chunks = (engine.sb_chunks + engine.rpl_chunks) as usize * chunk_bytes(settings);
    let control = size as usize * 8 + (1 << 20);
    chunks + control
}

/// Returns the configuration of shared memory: regions for the segment and for the engine's other
/// needs (`Engine::start`).
fn shm_config(settings: NetworkSettings<'_>, size: u32, room: Room) -> ShmConfig {
    let engine = settings.engine;
    let chunk = chunk_bytes(settings);
    ShmConfig {
        region_bytes: room.segment + shm_besides(settings, size),
        queue_bytes: room.queues,
        huge_pages: settings.shm.huge_pages,
        windows: engine.windows,
        inject_size: if engine.inject { chunk } else { 0 },
        max_managed: chunk,
        flood_bytes: settings.shm.flood_bytes,
        max_coalescing: match engine.spin {
            // Ranks that share a core yield it while they are idle, so there are no pauses.
            Some(_) => Duration::ZERO,
            None => Duration::from_nanos(settings.shm.coalescing.into()),
        },
        reply_slots: settings.shm.reply_slots,
        adaptive_delay: settings.shm.adaptive_delay,
        shared_ring_above: settings.shm.lane_above,
        lane_rings: settings.shm.lane_rings,
        lane_force_switch: settings.shm.lane_force_switch,
        ..ShmConfig::default()
    }
}
