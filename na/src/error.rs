//! What calls and operations can fail with, in NA's terms.

use conduit_portals::transport::fragment::Failure;
use conduit_portals::transport::open::ConnectError;

/// Why a call was refused, or an operation ended without success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The operation was canceled.
    #[error("the operation was canceled")]
    Canceled,
    /// The peer can't be reached, has ended or was restarted.
    #[error("the peer {0}")]
    Unreachable(Failure),
    /// The peer was given up here: it broke the protocol, or did not take what it had asked for. It
    /// may still access the memory of this transfer, for a moment, or when it goes on.
    #[error(
        "the peer was given up, because it broke the protocol, or didn't take what it had asked for"
    )]
    GivenUp,
    /// This process has left.
    #[error("this process has left the network")]
    Left,
    /// A message is longer than the buffer that was posted for it.
    #[error("the message has {length} bytes, its buffer {room}")]
    Truncated {
        /// Bytes of the message.
        length: usize,
        /// Bytes of the buffer.
        room: usize,
    },
    /// A message is longer than messages of its kind may be.
    #[error("{what} of {length} bytes, the limit is {limit} ({option})")]
    TooLong {
        /// The kind of message.
        what: &'static str,
        /// Bytes asked for.
        length: usize,
        /// Bytes allowed.
        limit: usize,
        /// The option that raises the limit.
        option: &'static str,
    },
    /// A transfer reaches beyond the end of a memory handle.
    #[error("bytes {offset} to {end} of memory of {length} bytes")]
    OutOfBounds {
        /// First byte.
        offset: u64,
        /// First byte that is not part of the transfer.
        end: u64,
        /// Bytes of the memory.
        length: u64,
    },
    /// The target's memory is not registered for this: it may only be read, or only be written.
    #[error("the memory at the peer may not be {0}")]
    Rights(&'static str),
    /// The target has no such memory: it was deregistered, or its process is another one.
    #[error("the peer has no such memory: it was deregistered, or is another process's")]
    NoSuchMemory,
    /// The memory at either side could not be accessed.
    #[error("the memory can't be accessed by the peer")]
    Fault,
    /// An argument makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// An info string, option, address or handle that can't be used; the text says which.
    #[error("{0}")]
    Refused(String),
    /// The protocol is not one of Conduit's.
    #[error("unknown protocol {0}: known are shm, udp, ofi and conduit")]
    UnknownProtocol(String),
    /// The address is in use.
    #[error("{0}")]
    AddressInUse(String),
    /// No such interface or local address.
    #[error("{0}")]
    AddressNotAvailable(String),
    /// Access needs a key that was not given.
    #[error("{0}")]
    Permission(String),
    /// What was asked is not supported here.
    #[error("{0}")]
    Unsupported(&'static str),
    /// All objects of a kind are in use.
    #[error("{0}")]
    Exhausted(String),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Exhausted { .. } => Self::Exhausted(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}
