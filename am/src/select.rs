//! The low four bits of the match bits: which memory descriptor a message is for.
//!
//! Match entries ignore all other bits (except those that [`BOUND`] adds), so those bits can carry
//! the operation.

/// The segment, as the target of puts and gets (no events).
pub const RAR: u8 = 0;
/// The segment, as the target of a long request's data (events in AM_EQ).
pub const RARAM: u8 = 1;
/// The segment, as the local end of puts and gets and the target of a long reply's data (events in
/// SAFE_EQ).
pub const RARSRC: u8 = 2;
/// The locally managed buffers in which requests arrive.
pub const REQ_RB: u8 = 3;
/// The catch basin behind the request buffers: matches the same messages, last in the list.
pub const CB: u8 = REQ_RB;
/// The chunks that requests are sent from and replies arrive in.
pub const REQ_SB: u8 = 4;
/// System messages.
pub const SYS: u8 = 5;

/// Memory of a rank other than its segment, as the target of puts and gets (no events). The number
/// of the endpoint to which it is bound is [above](BOUND_SHIFT) the selector and is not ignored.
pub const BOUND: u8 = 7;
/// The shift of the endpoint's number in the match bits of a [`BOUND`] message.
pub const BOUND_SHIFT: u32 = 4;

/// The bits that match entries must not ignore.
pub const MASK: u64 = 0xF;

/// Returns the selector in `match_bits`.
#[inline]
#[must_use]
pub const fn of(match_bits: u64) -> u8 {
    (match_bits & MASK) as u8
}
