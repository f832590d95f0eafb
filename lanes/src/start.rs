//! Start of a job's network: shared memory among the ranks of a host, another network to all others.

use std::time::Duration;

use conduit_core::bootstrap::Bootstrap;
use conduit_core::ni::Rank;
use conduit_core::settings::Settings;
use conduit_core::stderr;
use conduit_core::threads::Mode;
use conduit_ofi::provider::Wish;
use conduit_ofi::start::OfiConfig;
use conduit_portals::shm::{Meeting, Shm, ShmConfig, Stranger};
use conduit_udp::socket::{self as udp, FaultConfig, Options};
use conduit_udp::start::UdpConfig;
use seal::Protection;

use crate::choice::{Choice, Kind, choose, which};
use crate::mixed::Mixed;
use crate::{Error, Far, Hosts, Network, Result};

/// Starts the network of a job whose ranks attach segments of at most `segment` bytes. Collective. Hosts some of whose ranks turn
/// out to share no memory are taken apart.
///
/// # Errors
/// No network that is allowed and there can carry the job; the chosen one can't be started, here or on another rank.
pub fn start<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    hosts: &mut Hosts,
    segment: usize,
) -> Result<Network<M>> {
    let mut choice = choose(settings, hosts, bootstrap.rank())?;
    let config = shm_config(settings, bootstrap.size(), segment);
    let everybody: Vec<Rank> = (0..bootstrap.size()).collect();
    let neighbours = match &choice {
        Choice::Near => &everybody,
        Choice::Both(neighbours, _) => neighbours,
    };
    let meeting = Meeting::hold(bootstrap, neighbours, &config)?;
    if let [first, more @ ..] = meeting.strangers() {
        hosts.part(meeting.strangers());
        let another = choose(settings, hosts, bootstrap.rank());
        if bootstrap.rank() == 0 {
            say_apart(first, more.len(), another.as_ref().ok());
        }
        choice = another?;
    }
    match choice {
        Choice::Near => Ok(Mixed::near_only(meeting.start(&everybody)?)),
        Choice::Both(neighbours, kind) => {
            let near = meeting.start(&neighbours).map_err(Error::from);
            both(bootstrap, settings, &config, hosts, near, neighbours, kind)
        }
    }
}

/// Says that ranks which should share memory don't.
fn say_apart(first: &Stranger, more: usize, choice: Option<&Choice>) {
    let Stranger { rank, peer, reason } = first;
    let more = match more {
        0 => String::new(),
        more => format!("; {more} more likewise"),
    };
    let instead = match choice {
        Some(Choice::Both(_, kind)) => format!("{kind} is used between them"),
        _ => "there is no other network to use".to_owned(),
    };
    stderr::write_line(format_args!(
        "conduit: rank {rank} can't share the memory of rank {peer} ({reason}{more}): {instead}"
    ));
}

/// What the network between hosts is started with.
enum FarConfig {
    Udp(UdpConfig),
    Ofi(OfiConfig),
}

/// Shared memory between the neighbours, another network to all others. If one rank fails all do.
fn both<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
    config: &ShmConfig,
    hosts: &Hosts,
    near: Result<Shm<M>>,
    neighbours: Vec<Rank>,
    kind: Kind,
) -> Result<Network<M>> {
    let rank = bootstrap.rank();
    let far = match kind {
        Kind::Udp => udp_config(settings, config, hosts, rank).map(FarConfig::Udp),
        Kind::Ofi => Ok(FarConfig::Ofi(ofi_config(settings, config, hosts, rank))),
    };
    let ready = far.and_then(|far| Ok((far, near?)));
    // Other hosts don't hear of what fails on this one, and would wait.
    let verdict = ready.as_ref().err().map(ToString::to_string);
    let verdicts = bootstrap.allgather(verdict.unwrap_or_default().as_bytes())?;
    let (far, near) = ready?;
    for (peer, verdict) in (0..).zip(verdicts) {
        if !verdict.is_empty() {
            let reason = String::from_utf8_lossy(&verdict);
            return Err(Error::Start(format!("rank {peer} failed: {reason}")));
        }
    }
    let far = match far {
        FarConfig::Udp(config) => {
            conduit_udp::start::start_in(bootstrap, &config, |carrier| Far::Udp(carrier.into()))
                .map_err(|error| Error::Udp(error.to_string()))?
        }
        FarConfig::Ofi(config) => {
            conduit_ofi::start::start_in(bootstrap, &config, |wire| Far::Ofi(wire.into()))
                .map_err(|error| Error::Ofi(error.to_string()))?
        }
    };
    far.set_waker(near.waker());
    Ok(Mixed::new(near, far, neighbours)?)
}

/// libfabric by the settings, with room for the same regions as shared memory has.
fn ofi_config(settings: &Settings, shm: &ShmConfig, hosts: &Hosts, rank: Rank) -> OfiConfig {
    let wish = Wish {
        provider: settings.ofi_provider.clone(),
        domain: settings.ofi_domain.clone(),
        one_host: hosts.count() == 1,
        ..Wish::default()
    };
    let host = hosts.host_of(rank).map_or("", |host| hosts.name(host));
    let mut config = OfiConfig::new(wish, host.to_owned());
    // Where ranks share memory their processors do atomics, which are none towards the network's.
    config.portals.native_atomics = !settings.allows_network("shm");
    config.library = which(settings);
    config.wire.dead_time = Duration::from_millis(settings.ofi_dead_time.into());
    config.wire.receives = settings.ofi_receives;
    config.wire.receive_bytes = settings.ofi_receive_bytes;
    config.protection = match (settings.ofi_encrypt, settings.ofi_authenticate) {
        (true, _) => Some(Protection::Encrypt),
        (false, true) => Some(Protection::Authenticate),
        (false, false) => None,
    };
    config.secret_file = settings.secret_file.clone();
    config.attend = Some(settings.ofi_attends_after());
    let inject = config.portals.inject_size;
    config.portals.inject_size = if settings.inject { inject } else { 0 };
    config.portals.max_managed = shm.max_managed;
    config.portals.region_bytes = shm.region_bytes.saturating_add(1 << 30);
    config
}

/// UDP by the settings, with room for the same regions as shared memory has.
fn udp_config(
    settings: &Settings,
    shm: &ShmConfig,
    hosts: &Hosts,
    rank: Rank,
) -> Result<UdpConfig> {
    let failed = |reason: String| Error::Udp(format!("udp start on rank {rank}: {reason}"));
    let interfaces = udp::interfaces()
        .map_err(|error| failed(format!("the interfaces of this host: {error}")))?;
    let words = settings.udp_interface.as_deref().unwrap_or_default();
    let interface = udp::choose(&interfaces, words, udp::default_source())
        .map_err(|error| failed(format!("CONDUIT_UDP_INTERFACE: {error}")))?;
    let mut options = Options::on(interface);
    if settings.udp_mtu.is_some() {
        options.mtu = settings.udp_mtu;
    }
    options.send_buffer = settings.udp_socket_buffer;
    options.receive_buffer = settings.udp_socket_buffer;
    options.offload = settings.udp_offload;
    let host = hosts.host_of(rank).map_or("", |host| hosts.name(host));
    let mut config = UdpConfig::new(options, host.to_owned());
    let milliseconds = |ms: u32| u64::from(ms) * 1_000_000;
    config.protocol.dead_time = milliseconds(settings.udp_dead_time);
    config.protocol.open_time = milliseconds(settings.udp_dead_time);
    config.protocol.probe_interval = milliseconds(settings.udp_probe_interval);
    config.protocol.idle_time = milliseconds(settings.udp_idle_time);
    config.protocol.ack_delay = u64::from(settings.udp_ack_delay) * 1_000;
    config.protocol.window = settings.udp_window;
    config.protection = match settings.udp_encrypt {
        true => Protection::Encrypt,
        false => Protection::Authenticate,
    };
    config.secret_file = settings.secret_file.clone();
    config.faults = FaultConfig {
        seed: settings.udp_fault_seed,
        loss: settings.udp_loss,
        duplicates: settings.udp_duplicates,
        corruption: settings.udp_corruption,
        reorder: settings.udp_reorder,
        delay: u64::from(settings.udp_delay) * 1_000,
    };
    config.attend = Some(settings.udp_attends_after());
    let inject = config.portals.inject_size;
    config.portals.inject_size = if settings.inject { inject } else { 0 };
    config.portals.max_managed = shm.max_managed;
    config.portals.arrival_bytes = settings.udp_arrivals;
    // Each region is rounded up to pages, or huge ones.
    config.portals.region_bytes = shm.region_bytes.saturating_add(1 << 30);
    Ok(config)
}

/// Memory that the engine needs besides a segment: see `Engine::start`.
fn shm_config(settings: &Settings, size: u32, segment: usize) -> ShmConfig {
    let chunk = settings.chunk.next_multiple_of(64);
    let chunks = (settings.sb_chunks + settings.rpl_chunks) as usize * chunk;
    let control = size as usize * 8 + (1 << 20);
    let defaults = ShmConfig::default();
    ShmConfig {
        region_bytes: segment + chunks + control,
        huge_pages: settings.huge_pages,
        windows: settings.windows,
        inject_size: if settings.inject { chunk } else { 0 },
        max_managed: chunk,
        longest_rest: match settings.spin {
            // Who shares its core gives it away while nothing comes.
            Some(_) => Duration::ZERO,
            None => defaults.longest_rest,
        },
        ..defaults
    }
}
