//! The configuration of a rank's network, and what the settings make of it.

use std::path::PathBuf;
use std::time::Duration;

use conduit_portals::transport::{PortalsConfig, ProgressThread};
use seal::Protection;

use crate::library::Which;
use crate::provider::Hints;
use crate::settings::Settings;
use crate::wire::WireConfig;

/// What is set for the network over libfabric. The same on all ranks, except for the host.
#[derive(Debug, Clone)]
pub struct OfiConfig {
    /// Which libfabric to load.
    pub library: Which,
    /// Which provider.
    pub hints: Hints,
    /// This rank's host, for errors.
    pub host: String,
    /// Sizes of the endpoint.
    pub wire: WireConfig,
    /// The portals' limits.
    pub portals: PortalsConfig,
    /// How frames are sealed, so that only ranks of the job can make them; then nothing is accessed
    /// directly. `None`: they are not.
    pub protection: Option<Protection>,
    /// The file with the job's secret.
    pub secret_file: Option<PathBuf>,
    /// Connections of a rank beside the endpoint at a time, in [`start_in`](super::start_in); 0:
    /// none.
    pub connections: u16,
    /// How long a rank may compute before the progress thread makes progress for it. `None`: there
    /// is no such thread, and none that ends the rank when a library call hangs.
    pub attend: Option<Duration>,
}

impl OfiConfig {
    /// Default limits for a rank on a host.
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
    /// The configuration by these settings for a rank on the host `host`; `one_host`: all ranks are
    /// on it.
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
        // Fits: the setting has a limit.
        config.connections = settings.connections as u16;
        config.attend = Some(ProgressThread::period(settings.attend, settings.dead_time));
        config
    }
}
