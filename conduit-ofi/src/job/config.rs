//! The configuration of a rank's network, and its derivation from the settings.

use std::path::PathBuf;
use std::time::Duration;

use conduit_portals::transport::{PortalsConfig, ProgressThread};
use seal::Protection;

use crate::library::Which;
use crate::provider::Hints;
use crate::settings::Settings;
use crate::wire::WireConfig;

/// The configuration of the network over libfabric. All ranks must use the same configuration,
/// except for `host`.
#[derive(Debug, Clone)]
pub struct OfiConfig {
    /// The libfabric to load.
    pub library: Which,
    /// The requirements on the provider.
    pub hints: Hints,
    /// The name of this rank's host, for error messages.
    pub host: String,
    /// The sizes of the endpoint.
    pub wire: WireConfig,
    /// The portals' limits.
    pub portals: PortalsConfig,
    /// Whether and how frames are sealed. If they are sealed, only frames from ranks of the job are
    /// accepted, and direct access is off. If this is `None`, frames are not sealed.
    pub protection: Option<Protection>,
    /// The file with the job's secret.
    pub secret_file: Option<PathBuf>,
    /// The number of connections that a rank has at a time besides its endpoint, in
    /// [`start_in`](super::start_in). If it is 0, the rank has no connections.
    pub connections: u16,
    /// The time without a poll after which the progress thread makes progress for the rank. If it
    /// is `None`, neither that thread is started nor the one that ends the rank when a library call
    /// hangs.
    pub attend: Option<Duration>,
}

impl OfiConfig {
    /// Creates a configuration with default limits for a rank on this host.
    pub fn new(hints: Hints, host: String) -> Self {
        Self {
            library: Which::default(),
            hints,
            host,
            wire: WireConfig::default(),
            portals: PortalsConfig::default(),
            protection: None,
            secret_file: None,
            connections: 0,
            attend: Some(ProgressThread::PERIOD),
        }
    }
}

impl OfiConfig {
    /// Creates the configuration from the settings for a rank on the host `host`. `one_host` says
    /// whether all ranks are on that host.
    pub fn of(settings: &Settings, host: &str, one_host: bool) -> Self {
        let hints = Hints {
            provider: settings.provider.clone(),
            domain: settings.domain.clone(),
            one_host,
            ..Hints::default()
        };
        let mut config = Self::new(hints, host.to_owned());
        config.library = settings.which();
        config.wire.dead_time = Duration::from_millis(settings.dead_time.into());
        config.wire.receives = settings.receives;
        config.wire.receive_bytes = settings.receive_bytes;
        config.protection = match (settings.encrypt, settings.authenticate) {
            (true, _) => Some(Protection::Encrypt),
            (false, true) => Some(Protection::Authenticate),
            (false, false) => None,
        };
        config.portals.arrival_bytes = settings.arrivals;
        // The cast is lossless, because the setting is at most 48.
        config.connections = settings.connections as u16;
        config.attend = Some(ProgressThread::period(settings.attend, settings.dead_time));
        config
    }
}
