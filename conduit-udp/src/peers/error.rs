//! Why an open network over UDP could not be opened.

use std::io;
use std::net::SocketAddr;

use crate::socket::SocketError;

/// Why the network could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What names this process's interface or port can't be used.
    #[error("UDP at {host:?}: {reason}")]
    Host {
        /// The text.
        host: String,
        /// The reason.
        reason: String,
    },
    /// No interface fits the subnet.
    #[error("UDP within the subnet {subnet:?}: {reason}")]
    Subnet {
        /// The text.
        subnet: String,
        /// The reason.
        reason: String,
    },
    /// Another process has the port.
    #[error("the UDP port of {0} is taken by another process")]
    Taken(SocketAddr),
    /// The socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system refused.
    #[error("UDP: {what}: {error}")]
    System {
        /// The request.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}
