//! The networks of processes that come and go ([`conduit_portals::transport::open`]), chosen by
//! name.

mod far;
mod pair;
mod settings;

pub use conduit_udp::open::{Family, OpenError as UdpError};
pub use far::Far;
pub use pair::{IsNear, Pair};
pub use settings::{OpenSettings, Settings};

use std::time::Duration;

use conduit_ofi::open::{OpenConfig as OfiConfig, OpenError as OfiError, OpenOfi};
use conduit_portals::local::{Local, LocalConfig, LocalError};
use conduit_portals::transport::open::OpenTransport;
use conduit_udp::open::{OpenConfig as UdpConfig, OpenUdp};
use seal::Secret;

/// The network under an NA class.
pub type Network = Pair<Local, Far>;

/// A network between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarKind {
    /// UDP.
    Udp,
    /// libfabric.
    Ofi,
}

/// Which networks, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Shared memory among processes of a host.
    pub near: bool,
    /// A network between hosts.
    pub far: Option<FarKind>,
    /// The interface, address or name that is used, with a port or without; for shared memory alone
    /// a name.
    pub host: Option<&'a str>,
    /// The subnet of the interface that is preferred.
    pub subnet: Option<&'a str>,
    /// The family of addresses.
    pub family: Family,
    /// The key that processes share.
    pub key: Option<&'a str>,
}

/// Why no network could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no key, and it was not said that none is wanted.
    #[error(
        "{network}: there is no key to know processes by: give an authorization key (auth_key), or a file with one \
         (CONDUIT_SECRET_FILE); or say that whoever can send packets here is trusted (CONDUIT_NA_UNAUTHENTICATED=1)"
    )]
    NoKey {
        /// The network's name.
        network: &'static str,
    },
    /// The file with the key can't be used.
    #[error("CONDUIT_SECRET_FILE={path}: {reason}")]
    SecretFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Shared memory.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// UDP.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// libfabric.
    #[error(transparent)]
    Ofi(#[from] OfiError),
}

/// Opens the network.
///
/// # Errors
/// [`OpenError`] names what is wrong with what was chosen or set.
pub fn open(choice: &Choice<'_>, settings: &Settings) -> Result<Network, OpenError> {
    let far = match choice.far {
        None => None,
        Some(FarKind::Udp) => Some(Far::Udp(Box::new(udp(choice, settings)?))),
        Some(FarKind::Ofi) => Some(Far::Ofi(Box::new(ofi(choice, settings)?))),
    };
    let near = match choice.near {
        true => Some(local(choice, settings, far.is_none())?),
        false => None,
    };
    Ok(Pair::new(near, far, is_here))
}

/// Whether an address is of this host: it begins with the host.
fn is_here(local: &Local, address: &[u8]) -> bool {
    address.first_chunk::<8>() == local.address().first_chunk()
}

fn local(choice: &Choice<'_>, settings: &Settings, alone: bool) -> Result<Local, LocalError> {
    Local::start(&LocalConfig {
        // Of two networks the host is the far one's.
        name: choice.host.filter(|_| alone).map(str::to_owned),
        ring: settings.open.ring.next_power_of_two(),
        max_peers: settings.open.max_peers,
        copy: settings.open.copy,
    })
}

/// The secret that others are known by; `None`: anybody is trusted, as was asked for.
fn secret(
    choice: &Choice<'_>,
    settings: &Settings,
    network: &'static str,
) -> Result<Option<Secret>, OpenError> {
    if let Some(key) = choice.key {
        return Ok(Some(Secret::from_key(key.as_bytes())));
    }
    if let Some(path) = &settings.lanes.secret_file {
        let secret = Secret::from_file(path).map_err(|reason| OpenError::SecretFile {
            path: path.display().to_string(),
            reason,
        })?;
        return Ok(Some(secret));
    }
    match settings.open.unauthenticated {
        true => Ok(None),
        false => Err(OpenError::NoKey { network }),
    }
}

fn udp(choice: &Choice<'_>, settings: &Settings) -> Result<OpenUdp, OpenError> {
    use conduit_udp::open::Trust;
    let trust = match secret(choice, settings, "udp")? {
        Some(secret) => Trust::Secret(secret),
        None => Trust::Unauthenticated,
    };
    let of_udp = &settings.udp;
    let mut config = UdpConfig::new(trust);
    // An interface that is set for jobs is one for this too.
    config.host = choice
        .host
        .map(str::to_owned)
        .or_else(|| of_udp.interface.clone());
    config.subnet = choice.subnet.map(str::to_owned);
    config.family = choice.family;
    config.encrypt = of_udp.encrypt;
    config.max_peers = settings.open.max_peers;
    config.mtu = of_udp.mtu;
    config.socket_buffer = of_udp.socket_buffer;
    config.offload = of_udp.offload;
    config.faults = of_udp.faults();
    let dead_time = u64::from(settings.open.dead_time) * 1_000_000;
    config.protocol.dead_time = dead_time;
    config.protocol.mtu_timeout = dead_time;
    Ok(OpenUdp::start(&config)?)
}

fn ofi(choice: &Choice<'_>, settings: &Settings) -> Result<OpenOfi, OpenError> {
    use conduit_ofi::open::Trust;
    let trust = match secret(choice, settings, "ofi")? {
        Some(secret) => Trust::Secret(secret),
        None => Trust::Unauthenticated,
    };
    let of_ofi = &settings.ofi;
    let mut config = OfiConfig::new(trust);
    config.library = of_ofi.which();
    config.provider = of_ofi.provider.clone();
    config.host = choice
        .host
        .map(str::to_owned)
        .or_else(|| of_ofi.domain.clone());
    config.subnet = choice.subnet.map(str::to_owned);
    config.encrypt = of_ofi.encrypt;
    config.max_peers = settings.open.max_peers;
    config.wire.dead_time = Duration::from_millis(settings.open.dead_time.into());
    Ok(OpenOfi::start(&config)?)
}
