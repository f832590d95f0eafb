//! The bytes of fragments: anybody can tell what belongs at an offset of which fragment, without keeping it.

use std::sync::LazyLock;

/// A prime, so that no power of two and no multiple of a packet's size brings the same bytes again.
const PERIOD: usize = 65_521;
/// The most that can be asked for at once.
const LONGEST: usize = 65_536;

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = fastrand::Rng::with_seed(0x0c0d);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.u8(..)).collect();
    period
        .iter()
        .copied()
        .cycle()
        .take(PERIOD + LONGEST)
        .collect()
});

/// `length` bytes from `offset` on of what `key` names.
///
/// # Panics
/// If `length` is more than 64 KiB.
pub(crate) fn bytes(key: u64, offset: usize, length: usize) -> &'static [u8] {
    let start = ((key % PERIOD as u64) as usize + offset % PERIOD) % PERIOD;
    &TABLE[start..start + length]
}

/// A number in which every bit depends on every bit of another.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_those_of_the_whole() {
        let key = mix(7);
        for offset in [0, 1, PERIOD - 1, PERIOD, 3 * PERIOD + 17] {
            assert_eq!(
                bytes(key, offset, 3000)[100..],
                *bytes(key, offset + 100, 2900)
            );
            assert_ne!(bytes(key, offset, 64), bytes(key, offset + 1, 64));
        }
        assert_ne!(bytes(key, 0, 64), bytes(mix(8), 0, 64));
    }
}
