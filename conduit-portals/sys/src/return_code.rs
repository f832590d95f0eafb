//! The names of the functions' return codes.

use std::ffi::c_int;

use crate::Version;

/// A return code, displayed as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReturnCode {
    #[error("PTL_OK")]
    Ok,
    #[error("PTL_ARG_INVALID")]
    ArgInvalid,
    #[error("PTL_CT_NONE_REACHED")]
    CtNoneReached,
    #[error("PTL_EQ_DROPPED")]
    EqDropped,
    #[error("PTL_EQ_EMPTY")]
    EqEmpty,
    #[error("PTL_FAIL")]
    Fail,
    #[error("PTL_IGNORED")]
    Ignored,
    #[error("PTL_IN_USE")]
    InUse,
    #[error("PTL_INTERRUPTED")]
    Interrupted,
    #[error("PTL_LIST_TOO_LONG")]
    ListTooLong,
    #[error("PTL_NO_INIT")]
    NoInit,
    #[error("PTL_NO_SPACE")]
    NoSpace,
    #[error("PTL_PID_IN_USE")]
    PidInUse,
    #[error("PTL_PT_FULL")]
    PtFull,
    #[error("PTL_PT_EQ_NEEDED")]
    PtEqNeeded,
    #[error("PTL_PT_IN_USE")]
    PtInUse,
    #[error("PTL_ABORTED")]
    Aborted,
    /// A number that has no name in this version.
    #[error("unknown return code {0}")]
    Unknown(c_int),
}

impl Version {
    /// Returns the meaning of a number that a library of this version has returned.
    pub fn return_code(self, returned: c_int) -> ReturnCode {
        use ReturnCode::*;
        let constants = self.constants();
        match returned {
            crate::PTL_OK => Ok,
            crate::PTL_ARG_INVALID => ArgInvalid,
            crate::PTL_CT_NONE_REACHED => CtNoneReached,
            crate::PTL_EQ_DROPPED => EqDropped,
            crate::PTL_EQ_EMPTY => EqEmpty,
            crate::PTL_FAIL => Fail,
            crate::PTL_IGNORED => Ignored,
            crate::PTL_IN_USE => InUse,
            other if Some(other) == constants.PTL_INTERRUPTED => Interrupted,
            other if other == constants.PTL_LIST_TOO_LONG => ListTooLong,
            other if other == constants.PTL_NO_INIT => NoInit,
            other if other == constants.PTL_NO_SPACE => NoSpace,
            other if other == constants.PTL_PID_IN_USE => PidInUse,
            other if other == constants.PTL_PT_FULL => PtFull,
            other if other == constants.PTL_PT_EQ_NEEDED => PtEqNeeded,
            other if other == constants.PTL_PT_IN_USE => PtInUse,
            other if Some(other) == constants.PTL_ABORTED => Aborted,
            other => Unknown(other),
        }
    }
}
