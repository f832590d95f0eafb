//! The second nibble of the match bits, which identifies the operation to which a message belongs.

/// A put.
pub const PUT: u8 = 1;
/// A get.
pub const GET: u8 = 2;
/// An active message: its header, its arguments and its payload (but not the separate data of a
/// long).
pub const AM: u8 = 4;
/// The data of a long, sent separately from its header.
pub const AM_DATA: u8 = 8;

/// Returns the operation in `match_bits`. The result is in 0..=15 and is not checked.
#[inline]
#[must_use]
pub const fn of(match_bits: u64) -> u8 {
    (match_bits >> 4) as u8 & 0xF
}
