//! The second nibble of the match bits: which operation a message belongs to.

/// A put.
pub const PUT: u8 = 1;
/// A get.
pub const GET: u8 = 2;
/// An active message: its header, arguments and, unless it is a long with separate data, its
/// payload.
pub const AM: u8 = 4;
/// The data of a long, sent apart from its header.
pub const AM_DATA: u8 = 8;

/// Returns the operation in `match_bits`: any of 0..=15, unchecked.
#[inline]
#[must_use]
pub const fn of(match_bits: u64) -> u8 {
    (match_bits >> 4) as u8 & 0xF
}
