//! Errors of opening an open network over UDP.

use std::io;
use std::net::SocketAddr;

use crate::socket::SocketError;

/// The reason why the network could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text that selects this process's interface or port cannot be used.
    #[error("UDP at {host:?}: {reason}")]
    Host {
        /// The text.
        host: String,
        /// The reason.
        reason: String,
    },
    /// No interface matches the subnet.
    #[error("UDP within the subnet {subnet:?}: {reason}")]
    Subnet {
        /// The text.
        subnet: String,
        /// The reason.
        reason: String,
    },
    /// Another process uses the port.
    #[error("the UDP port of {0} is in use by another process")]
    Taken(SocketAddr),
    /// The socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system refused an operation.
    #[error("UDP: {what}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}
