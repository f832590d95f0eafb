//! Types and constants as C sees them. A test below compares the constants with the headers, and
//! programs in `tests/c/gex` check the layout of the structures.

use std::ffi::{c_char, c_int, c_uint, c_void};

use am::handlers::Accepts;
use conduit::Rank;
use conduit_core::kernel::Blocking;

/// `GASNET_OK`. The five constants below are GASNet's error codes, `GASNET_ERR_*`.
pub(crate) const OK: c_int = 0;
pub(crate) const NOT_INIT: c_int = 10001;
pub(crate) const RESOURCE: c_int = 10002;
pub(crate) const BAD_ARG: c_int = 10003;
pub(crate) const NOT_READY: c_int = 10004;
pub(crate) const BARRIER_MISMATCH: c_int = 10005;

/// The result of a call with [`Flags::IMMEDIATE`] that did nothing because it would have had to
/// wait.
pub(crate) const NO_OP: c_int = 1;

bitflags::bitflags! {
    /// `gex_Flags_t` of communication calls.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(transparent)]
    pub(crate) struct Flags: u32 {
        const IMMEDIATE = 1 << 0;
        const PREPARE_LEAST_CLIENT = 1 << 11;
        const PREPARE_LEAST_ALLOC = 1 << 12;
        /// Internal: the caller is a GASNet-1 call, which returns error codes instead of ending the
        /// job.
        const RETURN_ERRORS = 1 << 31;
        const _ = !0;
    }
}

impl Flags {
    pub(crate) fn blocking(self) -> Blocking {
        if self.contains(Self::IMMEDIATE) {
            Blocking::Immediate
        } else {
            Blocking::Wait
        }
    }
}

/// Constants of the types `gex_Event_t` and `gex_Event_t *`, as numbers.
pub(crate) mod events {
    pub(crate) const INVALID: usize = 0;
    pub(crate) const NO_OP: usize = 1;
    /// `GEX_EVENT_NOW`: passed instead of a pointer to an event, like the two constants below.
    pub(crate) const NOW: usize = 1;
    /// `GEX_EVENT_DEFER`.
    pub(crate) const DEFER: usize = 2;
    /// `GEX_EVENT_GROUP`.
    pub(crate) const GROUP: usize = 3;
}

bitflags::bitflags! {
    /// `gex_EC_t`: categories of events.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(transparent)]
    pub(crate) struct Categories: u32 {
        const GET = 1 << 0;
        const PUT = 1 << 1;
        const AM = 1 << 2;
        const LC = 1 << 3;
        const RMW = 1 << 4;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `gex_Flags_t` of a handler, in its entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(transparent)]
    pub(crate) struct HandlerFlags: u32 {
        const SHORT = 1 << 0;
        const MEDIUM = 1 << 1;
        const LONG = 1 << 2;
        const REQUEST = 1 << 3;
        const REPLY = 1 << 4;
        const _ = !0;
    }
}

impl HandlerFlags {
    /// Returns the message kinds that the handler accepts. A handler without a flag for the payload
    /// accepts every kind of payload, and a handler without a flag for request or reply accepts
    /// both. A GASNet-1 handler has no flags at all and so accepts all kinds.
    pub(crate) fn accepts(self) -> Accepts {
        let known = Accepts::from_bits_truncate(self.bits() as u8);
        let or_all = |group: Accepts| {
            let some = known & group;
            if some.is_empty() { group } else { some }
        };
        or_all(Accepts::SHORT | Accepts::MEDIUM | Accepts::LONG)
            | or_all(Accepts::REQUEST | Accepts::REPLY)
    }
}

/// `gex_AM_Fn_t`: a handler, before it is cast to its actual type.
pub(crate) type HandlerFn = unsafe extern "C" fn();

/// `gex_AM_Entry_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) index: u8,
    pub(crate) function: Option<HandlerFn>,
    pub(crate) flags: HandlerFlags,
    pub(crate) nargs: c_uint,
    pub(crate) cdata: *const c_void,
    pub(crate) name: *const c_char,
}

/// `CONDUIT_GEX_ANY_NARGS`: the argument count in the entry of a GASNet-1 handler, which declares
/// no count.
pub(crate) const ANY_NARGS: c_uint = c_uint::MAX;

/// `gasnet_handlerentry_t`.
#[repr(C)]
pub(crate) struct LegacyEntry {
    pub(crate) index: u8,
    pub(crate) function: Option<HandlerFn>,
}

/// `GEX_RANK_INVALID`.
pub(crate) const NO_RANK: Rank = Rank::MAX;

bitflags::bitflags! {
    /// `gex_Flags_t` of calls that make and destroy teams.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(transparent)]
    pub(crate) struct TeamFlags: u32 {
        const RANK_IS_JOBRANK = 1 << 15;
        const NO_SCRATCH = 1 << 18;
        const LOCAL_SCRATCH = 1 << 19;
        const GLOBAL_SCRATCH = 1 << 22;
        const SYMMETRIC_SCRATCH = 1 << 23;
        const SCRATCH = Self::NO_SCRATCH.bits() | Self::LOCAL_SCRATCH.bits() | Self::GLOBAL_SCRATCH.bits()
            | Self::SYMMETRIC_SCRATCH.bits();
        const SCRATCH_SIZE_MIN = 1 << 24;
        const SCRATCH_SIZE_RECOMMENDED = 1 << 25;
        const SCRATCH_SIZE = Self::SCRATCH_SIZE_MIN.bits() | Self::SCRATCH_SIZE_RECOMMENDED.bits();
        const _ = !0;
    }
}

/// `gex_Memvec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memvec {
    pub(crate) address: *mut c_void,
    pub(crate) bytes: usize,
}

/// `gex_MK_Create_args_t`, of which only the fields that the library reads are declared.
#[repr(C)]
pub(crate) struct KindArguments {
    pub(crate) flags: u64,
    pub(crate) class: c_uint,
}

// SAFETY: the library never dereferences the client's address; it only returns it to the client.
unsafe impl Send for Memvec {}
// SAFETY: sharing is sound for the same reason: the address is never dereferenced.
unsafe impl Sync for Memvec {}

/// `gex_Token_Info_t`.
#[repr(C)]
pub(crate) struct TokenInfo {
    pub(crate) source: Rank,
    pub(crate) endpoint: *const c_void,
    pub(crate) entry: *const Entry,
    pub(crate) is_request: c_int,
    pub(crate) is_long: c_int,
}

bitflags::bitflags! {
    /// `gex_TI_t`: fields of [`TokenInfo`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(transparent)]
    pub(crate) struct TokenFields: u32 {
        const SOURCE = 1 << 0;
        const ENDPOINT = 1 << 1;
        const ENTRY = 1 << 2;
        const IS_REQUEST = 1 << 3;
        const IS_LONG = 1 << 4;
    }
}

/// `gex_EP_Location_t`.
#[repr(C)]
pub(crate) struct Location {
    pub(crate) rank: Rank,
    pub(crate) endpoint: u16,
}

/// `gex_RankInfo_t`.
#[repr(C)]
pub(crate) struct RankInfo {
    pub(crate) rank: Rank,
}

/// The client flag `GEX_FLAG_DEFER_THREADS`.
pub(crate) const DEFER_THREADS: u32 = 1 << 21;

/// `gex_ProgressThreadInfo_t`.
#[repr(C)]
pub(crate) struct ProgressThread {
    pub(crate) devices: *const c_char,
    pub(crate) roles: c_uint,
    pub(crate) function: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    pub(crate) argument: *mut c_void,
}

/// `gasnet_seginfo_t`.
#[repr(C)]
pub(crate) struct SegmentInfo {
    pub(crate) address: *mut c_void,
    pub(crate) size: usize,
}

/// `gasnet_nodeinfo_t`.
#[repr(C)]
pub(crate) struct NodeInfo {
    pub(crate) host: Rank,
    pub(crate) supernode: Rank,
    /// The number to add to an address in the node's segment, as the node sees it, to get the
    /// address of the same byte in this process.
    pub(crate) offset: usize,
}

/// `conduit_gex_config_t`: the configuration that the client was compiled for.
#[repr(C)]
pub(crate) struct Config {
    /// The size of this structure in bytes, so that later versions can extend it.
    pub(crate) bytes: usize,
    /// The name of the conduit, for example "smp" or "udp".
    pub(crate) conduit: *const c_char,
    /// The segment configuration, "FAST" or "EVERYTHING".
    pub(crate) segment: *const c_char,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the value of a constant in a header, with or without a cast to a pointer.
    fn defined(header: &str, name: &str) -> u64 {
        let value = header
            .lines()
            .find_map(|line| {
                line.strip_prefix("#define ")?
                    .strip_prefix(name)?
                    .strip_prefix(' ')
            })
            .unwrap_or_else(|| panic!("{name} is not in the header"));
        let word = value
            .split([')', '(', ' '])
            .rfind(|word| !word.is_empty())
            .unwrap_or_default();
        let digits = word.trim_end_matches(['U', 'L']);
        let number = match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => digits.parse(),
        };
        number.unwrap_or_else(|_| panic!("{name} is {value}"))
    }

    #[test]
    fn constants_are_those_of_the_headers() {
        const FORWARD: &str = include_str!("../include/gasnet_fwd.h");
        const ENTRIES: &str = include_str!("../include/conduit_gex/entries.h");
        for (name, value) in [
            ("GASNET_OK", OK as u64),
            ("GASNET_ERR_NOT_INIT", NOT_INIT as u64),
            ("GASNET_ERR_RESOURCE", RESOURCE as u64),
            ("GASNET_ERR_BAD_ARG", BAD_ARG as u64),
            ("GASNET_ERR_NOT_READY", NOT_READY as u64),
            ("GASNET_ERR_BARRIER_MISMATCH", BARRIER_MISMATCH as u64),
            ("GEX_FLAG_IMMEDIATE", Flags::IMMEDIATE.bits().into()),
            (
                "GEX_FLAG_AM_PREPARE_LEAST_CLIENT",
                Flags::PREPARE_LEAST_CLIENT.bits().into(),
            ),
            (
                "GEX_FLAG_AM_PREPARE_LEAST_ALLOC",
                Flags::PREPARE_LEAST_ALLOC.bits().into(),
            ),
            ("GEX_FLAG_DEFER_THREADS", DEFER_THREADS.into()),
            ("GEX_RANK_INVALID", NO_RANK.into()),
            (
                "GEX_FLAG_RANK_IS_JOBRANK",
                TeamFlags::RANK_IS_JOBRANK.bits().into(),
            ),
            (
                "GEX_FLAG_TM_NO_SCRATCH",
                TeamFlags::NO_SCRATCH.bits().into(),
            ),
            (
                "GEX_FLAG_TM_LOCAL_SCRATCH",
                TeamFlags::LOCAL_SCRATCH.bits().into(),
            ),
            (
                "GEX_FLAG_TM_GLOBAL_SCRATCH",
                TeamFlags::GLOBAL_SCRATCH.bits().into(),
            ),
            (
                "GEX_FLAG_TM_SYMMETRIC_SCRATCH",
                TeamFlags::SYMMETRIC_SCRATCH.bits().into(),
            ),
            (
                "GEX_FLAG_TM_SCRATCH_SIZE_MIN",
                TeamFlags::SCRATCH_SIZE_MIN.bits().into(),
            ),
            (
                "GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED",
                TeamFlags::SCRATCH_SIZE_RECOMMENDED.bits().into(),
            ),
            ("GEX_EVENT_INVALID", events::INVALID as u64),
            ("GEX_EVENT_NO_OP", events::NO_OP as u64),
            ("GEX_EVENT_NOW", events::NOW as u64),
            ("GEX_EVENT_DEFER", events::DEFER as u64),
            ("GEX_EVENT_GROUP", events::GROUP as u64),
            ("GEX_EC_GET", Categories::GET.bits().into()),
            ("GEX_EC_PUT", Categories::PUT.bits().into()),
            ("GEX_EC_AM", Categories::AM.bits().into()),
            ("GEX_EC_LC", Categories::LC.bits().into()),
            ("GEX_EC_RMW", Categories::RMW.bits().into()),
            ("GEX_FLAG_AM_SHORT", HandlerFlags::SHORT.bits().into()),
            ("GEX_FLAG_AM_MEDIUM", HandlerFlags::MEDIUM.bits().into()),
            ("GEX_FLAG_AM_LONG", HandlerFlags::LONG.bits().into()),
            ("GEX_FLAG_AM_REQUEST", HandlerFlags::REQUEST.bits().into()),
            ("GEX_FLAG_AM_REPLY", HandlerFlags::REPLY.bits().into()),
            ("GEX_TI_SRCRANK", TokenFields::SOURCE.bits().into()),
            ("GEX_TI_EP", TokenFields::ENDPOINT.bits().into()),
            ("GEX_TI_ENTRY", TokenFields::ENTRY.bits().into()),
            ("GEX_TI_IS_REQ", TokenFields::IS_REQUEST.bits().into()),
            ("GEX_TI_IS_LONG", TokenFields::IS_LONG.bits().into()),
            ("GEX_TI_ALL", TokenFields::all().bits().into()),
        ] {
            assert_eq!(defined(FORWARD, name), value, "{name}");
        }
        assert_eq!(
            defined(ENTRIES, "CONDUIT_GEX_RETURN_ERRORS"),
            u64::from(Flags::RETURN_ERRORS.bits())
        );
    }
}
