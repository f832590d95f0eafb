//! A hash of 64-bit integers.

/// Mixes a number so that each bit of the result depends on all bits of the number. This is the
/// finaliser of SplitMix64.
pub(crate) fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
