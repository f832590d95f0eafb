//! NA's return codes, and the mapping of errors to them.

use std::fmt;

use na::Error;

/// `na_return_t`.
#[repr(C)]
#[allow(
    dead_code,
    reason = "lists all of NA's codes, so that each has its number, but not all are used"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Return {
    Success,
    Permission,
    NoEntry,
    Interrupt,
    Again,
    NoMemory,
    Access,
    Fault,
    Busy,
    Exist,
    NoDevice,
    InvalidArg,
    ProtocolError,
    Overflow,
    MsgSize,
    ProtoNoSupport,
    OpNotSupported,
    AddrInUse,
    AddrNotAvail,
    HostUnreach,
    Timeout,
    Canceled,
    IoError,
    HostFirewall,
}

/// The reason why a call fails: NA's code, and a text for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Return,
    pub(crate) reason: String,
}

impl Failure {
    pub(crate) fn new(code: Return, reason: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }

    /// Creates the failure for an invalid argument.
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(Return::InvalidArg, reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The result of a call before it is converted to a code.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code(&error), error.to_string())
    }
}

/// Returns the code of an error.
pub(crate) fn code(error: &Error) -> Return {
    match error {
        Error::Canceled => Return::Canceled,
        Error::Unreachable(_) => Return::HostUnreach,
        Error::GivenUp => Return::ProtocolError,
        Error::Truncated { .. } => Return::MsgSize,
        Error::TooLong { .. } => Return::Overflow,
        Error::OutOfBounds { .. } | Error::Invalid(_) | Error::Refused(_) | Error::Left => {
            Return::InvalidArg
        }
        Error::Rights(_) => Return::Permission,
        Error::NoSuchMemory => Return::NoEntry,
        Error::Fault => Return::Fault,
        Error::UnknownProtocol(_) => Return::ProtoNoSupport,
        Error::AddressInUse(_) => Return::AddrInUse,
        Error::AddressNotAvailable(_) => Return::AddrNotAvail,
        Error::Permission(_) => Return::Access,
        Error::Unsupported(_) => Return::OpNotSupported,
        Error::Exhausted(_) => Return::NoMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_numbers_of_na() {
        let numbers = [
            (Return::Success, 0),
            (Return::Again, 4),
            (Return::Busy, 8),
            (Return::InvalidArg, 11),
            (Return::ProtoNoSupport, 15),
            (Return::HostUnreach, 19),
            (Return::Canceled, 21),
            (Return::HostFirewall, 23),
        ];
        for (code, number) in numbers {
            assert_eq!(code as i32, number, "{code:?}");
        }
    }

    #[test]
    fn a_failure_says_what_the_error_says() {
        let failure = Failure::from(Error::UnknownProtocol("tcp".to_owned()));
        assert_eq!(failure.code, Return::ProtoNoSupport);
        assert!(failure.reason.contains("tcp"), "{failure}");
    }
}
