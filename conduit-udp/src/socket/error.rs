//! Errors of opening a socket.

use std::io;
use std::net::SocketAddr;

/// Why a socket was not opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A system call failed.
    #[error("{what} for UDP at {address}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The address of the socket.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The MTU is unknown.
    #[error("the MTU of the interface with {0} is not known: set it")]
    Mtu(SocketAddr),
    /// The MTU is too small for the protocol.
    #[error(
        "an MTU of {mtu} bytes leaves {payload} for a packet at {address}; it must be {least} at least"
    )]
    Small {
        /// The MTU, bytes.
        mtu: usize,
        /// Bytes left without the IP and UDP headers.
        payload: usize,
        /// Bytes that the protocol needs.
        least: usize,
        /// The address of the socket.
        address: SocketAddr,
    },
}
