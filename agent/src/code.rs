//! Result codes of operations.

use std::fmt;

/// The result of an operation, as its user gets it. The numbers are those of Dragon's `return_codes.h`; others that a
/// channel answers with pass through an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// It was done.
    pub const SUCCESS: Self = Self(0);
    /// The target's node is gone, or its agent.
    pub const FAILURE: Self = Self(1);
    /// There is no such node.
    pub const NOT_FOUND: Self = Self(8);
    /// The target has not enough memory for the message, now or ever.
    pub const OUT_OF_SPACE: Self = Self(10);
    /// The operation's time has passed.
    pub const TIMEOUT: Self = Self(11);
    /// An argument makes no sense: a descriptor that isn't one, no time for a send that returns when it was buffered.
    pub const INVALID_ARGUMENT: Self = Self(13);
    /// There is no message, and the operation was to be tried once.
    pub const CHANNEL_EMPTY: Self = Self(42);
    /// There is no room for a message, and the operation was to be tried once.
    pub const CHANNEL_FULL: Self = Self(43);
    /// The channel was destroyed.
    pub const OBJECT_DESTROYED: Self = Self(120);
    /// The agent of whoever asks has too many requests already. No code of Dragon's: there the gateway is a channel.
    pub const GATEWAY_FULL: Self = Self(10_001);
}

impl std::error::Error for Code {}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::SUCCESS => "success",
            Self::FAILURE => "the node is gone, or its agent",
            Self::NOT_FOUND => "there is no such node",
            Self::OUT_OF_SPACE => "there is not enough memory",
            Self::TIMEOUT => "its time has passed",
            Self::INVALID_ARGUMENT => "an argument makes no sense",
            Self::CHANNEL_EMPTY => "the channel is empty",
            Self::CHANNEL_FULL => "the channel is full",
            Self::OBJECT_DESTROYED => "the channel was destroyed",
            Self::GATEWAY_FULL => "the agent has too many requests already",
            Self(code) => return write!(f, "code {code}"),
        })
    }
}
