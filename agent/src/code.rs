//! Result codes of operations.

use std::fmt;

/// The result code of an operation, as reported to its user. The values are those of Dragon's
/// `return_codes.h`; an agent passes on any other code that a channel returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// The operation succeeded.
    pub const SUCCESS: Self = Self(0);
    /// The target's node or its agent is gone.
    pub const FAILURE: Self = Self(1);
    /// The job has no such node.
    pub const NOT_FOUND: Self = Self(8);
    /// The target has too little memory for the message, at present or in total.
    pub const OUT_OF_SPACE: Self = Self(10);
    /// The operation timed out.
    pub const TIMEOUT: Self = Self(11);
    /// An argument is invalid: for example, a descriptor is malformed, or a send that is complete
    /// when buffered has a zero time-out.
    pub const INVALID_ARGUMENT: Self = Self(13);
    /// The channel has no message, and the operation was to be tried only once.
    pub const CHANNEL_EMPTY: Self = Self(42);
    /// The channel has no room for a message, and the operation was to be tried only once.
    pub const CHANNEL_FULL: Self = Self(43);
    /// The channel was destroyed.
    pub const OBJECT_DESTROYED: Self = Self(120);
    /// The requester's agent has too many requests already. Dragon has no code for this, because
    /// its gateways are channels.
    pub const GATEWAY_FULL: Self = Self(10_001);
}

impl std::error::Error for Code {}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::SUCCESS => "success",
            Self::FAILURE => "the node or its agent is gone",
            Self::NOT_FOUND => "no such node",
            Self::OUT_OF_SPACE => "not enough memory",
            Self::TIMEOUT => "timed out",
            Self::INVALID_ARGUMENT => "invalid argument",
            Self::CHANNEL_EMPTY => "the channel is empty",
            Self::CHANNEL_FULL => "the channel is full",
            Self::OBJECT_DESTROYED => "the channel was destroyed",
            Self::GATEWAY_FULL => "the agent has too many requests already",
            Self(code) => return write!(f, "code {code}"),
        })
    }
}
