//! The bytes of fragments, computed from a key and an offset so that they need not be stored.

use std::sync::LazyLock;

use sim::random::Rng;

/// The period of the content. It is a prime, so that the content repeats neither at powers of two
/// nor at multiples of a packet's size.
const PERIOD: usize = 65_521;
/// The maximum number of bytes that one call returns.
const LONGEST: usize = 65_536;

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Rng::with_seed(0x0c0d);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.u8(..)).collect();
    period
        .iter()
        .copied()
        .cycle()
        .take(PERIOD + LONGEST)
        .collect()
});

/// Returns `length` bytes of the content of `key`, from `offset` on.
///
/// # Panics
/// Panics if `length` is more than 64 KiB.
pub(crate) fn bytes(key: u64, offset: usize, length: usize) -> &'static [u8] {
    let start = ((key % PERIOD as u64) as usize + offset % PERIOD) % PERIOD;
    &TABLE[start..start + length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::random::mix;

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
