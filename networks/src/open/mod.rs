//! The networks of processes that come and go ([`conduit_portals::transport::open`]), and the
//! choice among them.

mod far;
mod pair;
mod settings;

pub use conduit_udp::peers::{Family, OpenError as UdpError};
pub use far::Far;
pub use pair::{IsNear, Pair};
pub use settings::{OpenSettings, Settings};

use std::time::Duration;

use conduit_ofi::peers::{OpenConfig as OfiConfig, OpenError as OfiError, OpenOfi};
use conduit_shm::peers::{Local, LocalConfig, LocalError};
use conduit_udp::peers::{OpenConfig as UdpConfig, OpenUdp};
use conduit_udp::socket::SocketError as UdpSocketError;
use rustix::io::Errno;
use seal::Secret;

/// The network on which an NA class is built.
pub type Network = Pair<Local, Far>;

/// A network between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarKind {
    /// UDP.
    Udp,
    /// libfabric.
    Ofi,
}

/// The choice of the networks to open, with their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Whether to use shared memory among the processes of a host.
    pub near: bool,
    /// The network between hosts to use, if any.
    pub far: Option<FarKind>,
    /// The interface, address or host name to use, optionally with a port. If only shared memory is
    /// used, this is the name of the process.
    pub host: Option<&'a str>,
    /// The subnet of the preferred interface.
    pub subnet: Option<&'a str>,
    /// The family of addresses.
    pub family: Family,
    /// The key that all processes share.
    pub key: Option<&'a str>,
}

/// The reason why no network could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No key is configured, and operation without one is not allowed.
    #[error(
        "{network}: no key to authenticate processes: set an authorization key (auth_key) or a file with one \
         (CONDUIT_SECRET_FILE), or trust every sender (CONDUIT_NA_UNAUTHENTICATED=1)"
    )]
    NoKey {
        /// The network's name.
        network: &'static str,
    },
    /// The key is empty and thus not a secret.
    #[error(
        "{network}: the authorization key (auth_key) is empty, which is no secret: omit it, or set a nonempty one"
    )]
    EmptyKey {
        /// The network's name.
        network: &'static str,
    },
    /// The key's file cannot be used.
    #[error("CONDUIT_SECRET_FILE={path}: {reason}")]
    SecretFile {
        /// The path of the file.
        path: String,
        /// The problem with the file.
        reason: String,
    },
    /// An error of shared memory.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// An error of UDP.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// An error of libfabric.
    #[error(transparent)]
    Ofi(#[from] OfiError),
}

/// The kind of an [`OpenError`], for callers that report error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// The key, or the file with the key, is missing or unusable.
    Key,
    /// Another process uses the address.
    AddressInUse,
    /// The interface or address does not exist on this host.
    AddressNotAvailable,
    /// The process or the system has no descriptors or memory left.
    Exhausted,
    /// The error is of any other kind.
    Other,
}

impl OpenError {
    /// Returns the error's kind.
    pub fn kind(&self) -> OpenErrorKind {
        use OpenErrorKind::*;
        match self {
            Self::NoKey { .. } | Self::EmptyKey { .. } | Self::SecretFile { .. } => Key,
            Self::Local(LocalError::Taken(_)) | Self::Udp(UdpError::Taken(_)) => AddressInUse,
            Self::Udp(UdpError::Host { .. } | UdpError::Subnet { .. })
            | Self::Ofi(OfiError::Host { .. } | OfiError::Subnet { .. }) => AddressNotAvailable,
            Self::Local(LocalError::System { reason: error, .. })
            | Self::Udp(
                UdpError::System { error, .. }
                | UdpError::Socket(UdpSocketError::System { error, .. }),
            ) => of_number(error.raw_os_error()),
            // libfabric uses the system's error numbers.
            Self::Ofi(OfiError::Refused { error, .. }) => of_number(*error),
            _ => Other,
        }
    }
}

/// Returns the kind of a system error.
fn of_number(error: Option<i32>) -> OpenErrorKind {
    match error.map(Errno::from_raw_os_error) {
        Some(Errno::ADDRINUSE) => OpenErrorKind::AddressInUse,
        Some(Errno::ADDRNOTAVAIL) => OpenErrorKind::AddressNotAvailable,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
            OpenErrorKind::Exhausted
        }
        _ => OpenErrorKind::Other,
    }
}

/// Opens the network.
///
/// # Errors
/// Returns an [`OpenError`] that names the faulty choice or setting.
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
    Ok(Pair::new(near, far, Local::is_near))
}

fn local(choice: &Choice<'_>, settings: &Settings, alone: bool) -> Result<Local, LocalError> {
    Local::start(&LocalConfig {
        // If both networks are used, the setting `host` is for the far one.
        name: choice.host.filter(|_| alone).map(str::to_owned),
        ring: settings.open.ring.next_power_of_two(),
        max_peers: settings.open.max_peers,
        copy: settings.open.copy,
    })
}

/// Returns the secret that authenticates other processes, or `None` if the settings say to trust
/// every process.
fn secret(
    choice: &Choice<'_>,
    settings: &Settings,
    network: &'static str,
) -> Result<Option<Secret>, OpenError> {
    if let Some(key) = choice.key {
        if key.is_empty() {
            return Err(OpenError::EmptyKey { network });
        }
        return Ok(Some(Secret::from_key(key.as_bytes())));
    }
    if let Some(path) = &settings.networks.secret_file {
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
    let of_udp = &settings.udp;
    let mut config = UdpConfig::new(secret(choice, settings, "udp")?);
    // An interface that is set for jobs applies to open networks, too.
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
    let of_ofi = &settings.ofi;
    let mut config = OfiConfig::new(secret(choice, settings, "ofi")?);
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

#[cfg(test)]
mod tests {
    use conduit_portals::transport::open::OpenTransport as _;

    use super::*;

    fn choice(near: bool, far: Option<FarKind>, host: Option<&str>) -> Choice<'_> {
        Choice {
            near,
            far,
            host,
            subnet: None,
            family: Family::Any,
            key: Some("a key of the tests"),
        }
    }

    fn kind(choice: &Choice<'_>) -> OpenErrorKind {
        match open(choice, &Settings::default()) {
            Ok(_) => panic!("opened with {choice:?}"),
            Err(error) => error.kind(),
        }
    }

    #[test]
    fn processes_of_other_users_are_reached_by_the_far_network() {
        let far = Some(FarKind::Udp);
        let mut network =
            open(&choice(true, far, Some("127.0.0.1")), &Settings::default()).unwrap();
        let own = network.address_to_text(network.address()).unwrap();
        let (_, near) = own.split_once('~').unwrap();
        let (host, name) = near.split_once('/').unwrap();
        let (user, _) = name.split_once('.').unwrap();
        let user: u32 = user.parse().unwrap();
        for (user, is_near) in [(user, true), (user ^ 1, false), (user * 10 + 1, false)] {
            let text = format!("127.0.0.1:9~{host}/{user}.somebody");
            let address = network.address_of_text(&text).unwrap();
            let peer = network.connect(&address).unwrap();
            assert_eq!(peer & 1 == 1, is_near, "{text}");
            network.close(peer);
        }
    }

    #[test]
    fn an_empty_key_is_refused() {
        let empty = |near, far| Choice {
            key: Some(""),
            ..choice(near, far, None)
        };
        for far in [FarKind::Udp, FarKind::Ofi] {
            assert_eq!(kind(&empty(false, Some(far))), OpenErrorKind::Key);
        }
        // A network that needs no key ignores an empty one.
        assert!(open(&empty(true, None), &Settings::default()).is_ok());
    }

    #[test]
    fn failures_have_kinds() {
        let name = format!("test-kinds-{}", std::process::id());
        let settings = Settings::default();
        let _taken = open(&choice(true, None, Some(&name)), &settings).unwrap();
        let taken = choice(true, None, Some(&name));
        assert_eq!(kind(&taken), OpenErrorKind::AddressInUse);
        let udp = open(
            &choice(false, Some(FarKind::Udp), Some("127.0.0.1")),
            &settings,
        )
        .unwrap();
        let port = udp.address_to_text(udp.address()).unwrap();
        let taken = choice(false, Some(FarKind::Udp), Some(&port));
        assert_eq!(kind(&taken), OpenErrorKind::AddressInUse);
        let nowhere = choice(false, Some(FarKind::Udp), Some("no-such-interface"));
        assert_eq!(kind(&nowhere), OpenErrorKind::AddressNotAvailable);
        for (number, kind) in [
            (24, OpenErrorKind::Exhausted),
            (12, OpenErrorKind::Exhausted),
            (98, OpenErrorKind::AddressInUse),
            (99, OpenErrorKind::AddressNotAvailable),
            (13, OpenErrorKind::Other),
        ] {
            let error = LocalError::System {
                operation: "a test",
                reason: std::io::Error::from_raw_os_error(number),
            };
            assert_eq!(OpenError::from(error).kind(), kind, "{number}");
        }
    }
}
