//! The configuration of a rank's network, and its derivation from the settings.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::{PortalsConfig, ProgressThread};
use seal::Protection;

use super::UdpError;
use crate::protocol::Config;
use crate::settings::Settings;
use crate::socket::{FaultConfig, Options, choose, default_source, interfaces};

/// The configuration of the network over UDP. All ranks must use the same configuration, except for
/// `options.address` and `host`.
#[derive(Debug, Clone)]
pub struct UdpConfig {
    /// The options of this rank's socket.
    pub options: Options,
    /// The name of this rank's host, for error texts.
    pub host: String,
    /// The protocol's limits and times. [`start`](crate::job::start) overwrites the rank, the size,
    /// the packet size and the socket buffer.
    pub protocol: Config,
    /// The portals' limits.
    pub portals: PortalsConfig,
    /// The protection of packets.
    pub protection: Protection,
    /// The file with the job's secret.
    pub secret_file: Option<PathBuf>,
    /// Injected faults, for tests.
    pub faults: FaultConfig,
    /// The time for which a rank may compute before the progress thread makes progress for it, or
    /// `None` for no such thread.
    pub attend: Option<Duration>,
}

impl UdpConfig {
    /// Creates a configuration with default limits and these socket options.
    pub fn new(options: Options, host: String) -> Self {
        Self {
            options,
            host,
            protocol: Config::default(),
            portals: PortalsConfig::default(),
            protection: Protection::default(),
            secret_file: None,
            faults: FaultConfig::default(),
            attend: Some(ProgressThread::PERIOD),
        }
    }
}

impl UdpConfig {
    /// Creates the configuration for these settings, on a rank of host `host`.
    ///
    /// # Errors
    /// Returns an error if the interface does not exist, if the system cannot list interfaces, or
    /// if the setting for the ports is malformed.
    pub fn of(settings: &Settings, host: &str, rank: Rank) -> Result<Self, UdpError> {
        let failed = |operation, reason: String| UdpError::System {
            rank,
            operation,
            reason,
        };
        let interfaces = interfaces()
            .map_err(|error| failed("list the interfaces of this host", error.to_string()))?;
        let words = settings.interface.as_deref().unwrap_or_default();
        let interface = choose(&interfaces, words, default_source())
            .map_err(|error| failed("CONDUIT_UDP_INTERFACE", error.to_string()))?;
        let mut options = Options::on(interface);
        if settings.mtu.is_some() {
            options.mtu = settings.mtu;
        }
        options.send_buffer = settings.socket_buffer;
        options.receive_buffer = settings.socket_buffer;
        options.offload = settings.offload;
        if let Some(text) = &settings.ports {
            let reason = || format!("is {text:?}, must be FIRST-LAST, ports from 1 to 65535");
            options.ports = ports(text).ok_or_else(|| failed("CONDUIT_UDP_PORTS", reason()))?;
        }
        let mut config = Self::new(options, host.to_owned());
        let milliseconds = |ms: u32| u64::from(ms) * 1_000_000;
        config.protocol.dead_time = milliseconds(settings.dead_time);
        config.protocol.mtu_timeout = milliseconds(settings.dead_time);
        config.protocol.probe_interval = milliseconds(settings.probe_interval);
        config.protocol.idle_time = milliseconds(settings.idle_time);
        config.protocol.ack_delay = u64::from(settings.ack_delay) * 1_000;
        config.protocol.window = settings.window;
        config.protection = match settings.encrypt {
            true => Protection::Encrypt,
            false => Protection::Authenticate,
        };
        config.faults = settings.faults();
        config.attend = Some(ProgressThread::period(settings.attend, settings.dead_time));
        config.portals.arrival_bytes = settings.arrivals;
        Ok(config)
    }
}

/// Parses a range of ports. Returns `None` if the text is not a range of ports.
fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let ports = first.trim().parse().ok()?..=last.trim().parse().ok()?;
    (*ports.start() > 0 && !ports.is_empty()).then_some(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports() {
        assert_eq!(ports("40000-40099"), Some(40_000..=40_099));
        assert_eq!(ports(" 1 - 65535"), Some(1..=65_535));
        for wrong in ["", "40000", "0-9", "9-8", "1-65536", "a-b", "-5", "1-2-3"] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }
}
