//! The error of a failed network start.

use conduit_core::ni::NiError;
use conduit_ofi::job::OfiError;
use conduit_portals::portals4::Portals4Error;
use conduit_shm::job::ShmError;
use conduit_udp::job::UdpError;
use pmi::bootstrap::BootstrapError;

/// The result of a start.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a job's network could not be started. The text names the rank and the setting
/// concerned.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The launcher or another rank failed.
    #[error("{0}")]
    Start(String),
    /// The shared-memory network could not be started.
    #[error("{0}")]
    Shm(String),
    /// The network over UDP could not be started.
    #[error("{0}")]
    Udp(String),
    /// The network over libfabric could not be started.
    #[error("{0}")]
    Ofi(String),
    /// The network over Portals 4 could not be started.
    #[error("{0}")]
    Portals4(String),
    /// The networks cannot be combined.
    #[error(transparent)]
    Composite(#[from] NiError),
    /// No network that `CONDUIT_NETWORK` allows can be used.
    #[error("CONDUIT_NETWORK={asked}: {reason}")]
    NoNetwork {
        /// The value of `CONDUIT_NETWORK`, or "(unset)".
        asked: String,
        /// Why none of the allowed networks can be used.
        reason: String,
    },
}

impl From<BootstrapError> for Error {
    fn from(error: BootstrapError) -> Self {
        Self::Start(error.to_string())
    }
}

impl From<ShmError> for Error {
    fn from(error: ShmError) -> Self {
        Self::Shm(error.to_string())
    }
}

impl From<UdpError> for Error {
    fn from(error: UdpError) -> Self {
        Self::Udp(error.to_string())
    }
}

impl From<Portals4Error> for Error {
    fn from(error: Portals4Error) -> Self {
        Self::Portals4(error.to_string())
    }
}

impl From<OfiError> for Error {
    fn from(error: OfiError) -> Self {
        Self::Ofi(error.to_string())
    }
}
