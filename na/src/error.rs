//! Errors of calls and operations, in NA's terms.

use conduit_portals::transport::fragment::Failure;
use conduit_portals::transport::open::ConnectError;

/// Why a call was refused or an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The operation was canceled.
    #[error("the operation was canceled")]
    Canceled,
    /// The peer is unreachable, has ended or was restarted.
    #[error("the peer {0}")]
    Unreachable(Failure),
    /// This process has given up the peer, which violated the protocol or did not take the data it
    /// had requested. The peer may still access the memory of this transfer, for a moment or, if it
    /// is suspended, when it resumes.
    #[error(
        "the peer was given up because it violated the protocol or did not take the data it requested"
    )]
    GivenUp,
    /// This process has left the network.
    #[error("this process has left the network")]
    Left,
    /// A message exceeds the buffer that was posted for it.
    #[error("the message has {length} bytes, but its buffer has {room}")]
    Truncated {
        /// The message's length in bytes.
        length: usize,
        /// The buffer's length in bytes.
        room: usize,
    },
    /// A message exceeds the limit of its kind.
    #[error("{what} of {length} bytes exceeds the limit of {limit} bytes ({option})")]
    TooLong {
        /// The kind of message.
        what: &'static str,
        /// The message's length in bytes.
        length: usize,
        /// The maximum length in bytes.
        limit: usize,
        /// The option that sets the limit.
        option: &'static str,
    },
    /// A transfer exceeds the memory of a handle.
    #[error("bytes {offset} to {end} exceed memory of {length} bytes")]
    OutOfBounds {
        /// The offset of the transfer's first byte.
        offset: u64,
        /// The offset of the end of the transfer.
        end: u64,
        /// The length of the memory in bytes.
        length: u64,
    },
    /// The target's memory is registered as write-only or read-only, which forbids the transfer.
    #[error("the peer's memory may not be {0}")]
    Rights(&'static str),
    /// The target has no memory with this handle: the memory was deregistered, or belongs to
    /// another process.
    #[error("the peer has no such memory; it was deregistered or belongs to another process")]
    NoSuchMemory,
    /// The memory on either side is not accessible.
    #[error("the peer cannot access the memory")]
    Fault,
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// An info string, option, address or handle is invalid; the text names it.
    #[error("{0}")]
    Refused(String),
    /// The protocol is unknown.
    #[error("unknown protocol {0}; accepted: shm, udp, ofi, conduit")]
    UnknownProtocol(String),
    /// The address is in use.
    #[error("{0}")]
    AddressInUse(String),
    /// The interface or local address does not exist.
    #[error("{0}")]
    AddressNotAvailable(String),
    /// Access requires a key, but none was given.
    #[error("{0}")]
    Permission(String),
    /// The request is not supported.
    #[error("{0}")]
    Unsupported(&'static str),
    /// All objects of a kind are in use.
    #[error("{0}")]
    Exhausted(String),
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Exhausted { .. } => Self::Exhausted(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}
