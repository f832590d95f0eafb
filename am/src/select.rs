//! The low four bits of the match bits, which identify the memory descriptor to which a message
//! goes.
//!
//! Match entries ignore all other bits, except those that [`BOUND`] adds. The other bits can
//! therefore carry the operation.

/// The segment, as the target of puts and gets. Raises no events.
pub const RAR: u8 = 0;
/// The segment, as the target of a long request's data. Raises events in AM_EQ.
pub const RARAM: u8 = 1;
/// The segment, as the local side of puts and gets and as the target of a long reply's data. Raises
/// events in SAFE_EQ.
pub const RARSRC: u8 = 2;
/// The locally managed buffers in which requests arrive.
pub const REQ_RB: u8 = 3;
/// The catch basin behind the request buffers. It matches the same messages and is last in the
/// list.
pub const CB: u8 = REQ_RB;
/// The chunks from which requests are sent and in which replies arrive.
pub const REQ_SB: u8 = 4;
/// System messages.
pub const SYS: u8 = 5;

/// Memory of a rank other than its segment, as the target of puts and gets. Raises no events. The
/// memory is bound to an endpoint, whose number is in the bits [above](BOUND_SHIFT) the selector.
/// Match entries do not ignore these bits.
pub const BOUND: u8 = 7;
/// The position of the endpoint's number in the match bits of a [`BOUND`] message.
pub const BOUND_SHIFT: u32 = 4;

/// The mask of the bits that match entries must not ignore.
pub const MASK: u64 = 0xF;

/// Returns the selector in `match_bits`.
#[inline]
#[must_use]
pub const fn of(match_bits: u64) -> u8 {
    (match_bits & MASK) as u8
}
