//! Errors of opening a socket.

use std::io;
use std::net::SocketAddr;

/// The reason why a socket was not opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A system call failed.
    #[error("{what} for UDP at {address}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The address of the socket.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The MTU is unknown.
    #[error("cannot determine the MTU of the interface with address {0}; set CONDUIT_UDP_MTU")]
    Mtu(SocketAddr),
    /// The MTU is too small for the protocol.
    #[error(
        "the MTU of {mtu} bytes at {address} leaves {payload} bytes for a packet; at least {least} are required"
    )]
    Small {
        /// The MTU in bytes.
        mtu: usize,
        /// The number of bytes left without the IP and UDP headers.
        payload: usize,
        /// The number of bytes that the protocol needs.
        least: usize,
        /// The address of the socket.
        address: SocketAddr,
    },
}
