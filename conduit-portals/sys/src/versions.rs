//! Constants whose values depend on the version of the library.

use std::ffi::{c_int, c_uint};
use std::fmt;

/// A version of the interface. Versions with the same constants are not distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// Version 4.0, and all other versions before 4.3.
    V4_0,
    /// Version 4.3. It lacks `PTL_INTERRUPTED` and `PTL_ME_ACK_DISABLE`, whose numbers were
    /// reassigned to the constants that follow them.
    V4_3,
}

impl Version {
    /// Returns this version's constants.
    pub const fn constants(self) -> &'static Constants {
        match self {
            Self::V4_0 => &Constants::V4_0,
            Self::V4_3 => &Constants::V4_3,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4_0 => "4.0",
            Self::V4_3 => "4.3",
        })
    }
}

/// Defines a structure with a field for each constant, and the structure's two values. `=` joins a
/// constant's name for match entries to its name for list entries.
macro_rules! constants {
    ($($name:ident $(= $same:ident)?: $type:ty = $old:expr, $new:expr;)*) => {
        /// Constants whose values depend on the version. An optional constant is `None` if the
        /// version lacks it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Constants {
            $(pub $name: $type, $(pub $same: $type,)?)*
        }

        impl Constants {
            /// The constants of all versions before 4.3.
            pub const V4_0: Self = Self {
                $($name: $old, $($same: $old,)?)*
            };

            /// The constants of 4.3.
            pub const V4_3: Self = Self {
                $($name: $new, $($same: $new,)?)*
            };
        }
    };
}

constants! {
    // Return codes.
    PTL_INTERRUPTED: Option<c_int> = Some(8), None;
    PTL_LIST_TOO_LONG: c_int = 9, 8;
    PTL_NO_INIT: c_int = 10, 9;
    PTL_NO_SPACE: c_int = 11, 10;
    PTL_PID_IN_USE: c_int = 12, 11;
    PTL_PT_FULL: c_int = 13, 12;
    PTL_PT_EQ_NEEDED: c_int = 14, 13;
    PTL_PT_IN_USE: c_int = 15, 14;
    PTL_ABORTED: Option<c_int> = None, Some(15);
    // The header of 4.3 defines this value, although `PTL_ABORTED` is the last code there.
    PTL_STATUS_LAST: c_int = 16, 15;

    // Options of a table entry.
    PTL_PT_ALLOC_DISABLED: Option<c_uint> = None, Some(1 << 4);
    PTL_PT_ALLOC_OPTIONS_MASK: c_uint = (1 << 4) - 1, (1 << 5) - 1;

    // Options of an MD.
    PTL_MD_EVENT_CT_BYTES: c_uint = 1 << 15, 1 << 14;
    PTL_MD_UNRELIABLE: Option<c_uint> = None, Some(1 << 8);
    PTL_MD_OPTIONS_MASK: c_uint = (1 << 15) | ((1 << 8) - 1), (1 << 14) | ((1 << 9) - 1);

    // Options of an entry.
    PTL_ME_ACK_DISABLE = PTL_LE_ACK_DISABLE: Option<c_uint> = Some(1 << 4), None;
    PTL_ME_UNEXPECTED_HDR_DISABLE = PTL_LE_UNEXPECTED_HDR_DISABLE: c_uint = 1 << 5, 1 << 4;
    PTL_ME_IS_ACCESSIBLE = PTL_LE_IS_ACCESSIBLE: c_uint = 1 << 6, 1 << 5;
    PTL_ME_EVENT_LINK_DISABLE = PTL_LE_EVENT_LINK_DISABLE: c_uint = 1 << 7, 1 << 6;
    PTL_ME_EVENT_COMM_DISABLE = PTL_LE_EVENT_COMM_DISABLE: c_uint = 1 << 8, 1 << 7;
    PTL_ME_EVENT_FLOWCTRL_DISABLE = PTL_LE_EVENT_FLOWCTRL_DISABLE: c_uint = 1 << 9, 1 << 8;
    PTL_ME_EVENT_SUCCESS_DISABLE = PTL_LE_EVENT_SUCCESS_DISABLE: c_uint = 1 << 10, 1 << 9;
    PTL_ME_EVENT_OVER_DISABLE = PTL_LE_EVENT_OVER_DISABLE: c_uint = 1 << 11, 1 << 10;
    PTL_ME_EVENT_UNLINK_DISABLE = PTL_LE_EVENT_UNLINK_DISABLE: c_uint = 1 << 12, 1 << 11;
    PTL_ME_EVENT_CT_COMM = PTL_LE_EVENT_CT_COMM: c_uint = 1 << 13, 1 << 12;
    PTL_ME_EVENT_CT_OVERFLOW = PTL_LE_EVENT_CT_OVERFLOW: c_uint = 1 << 14, 1 << 13;
    PTL_ME_EVENT_CT_BYTES = PTL_LE_EVENT_CT_BYTES: c_uint = 1 << 15, 1 << 14;
    PTL_LE_APPEND_OPTIONS_MASK: c_uint = (1 << 16) - 1, (1 << 15) - 1;

    // Options only of match entries.
    PTL_ME_MANAGE_LOCAL: c_uint = 1 << 16, 1 << 15;
    PTL_ME_NO_TRUNCATE: c_uint = 1 << 17, 1 << 16;
    PTL_ME_MAY_ALIGN: c_uint = 1 << 18, 1 << 17;
    PTL_ME_LOCAL_INC_UH_RLENGTH: Option<c_uint> = None, Some(1 << 18);
}
