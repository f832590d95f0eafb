//! Sequence numbers, which have 64 bits internally and 24 bits on the wire (cf. RFC 9000, A.3).

const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// Returns the bits of `sequence` that are sent on the wire.
pub(super) fn low(sequence: u64) -> u32 {
    (sequence & MASK) as u32
}

/// Returns the number nearest to `near` with these low 24 bits, or `None` if that number would be
/// negative.
pub(super) fn expand(low: u32, near: u64) -> Option<u64> {
    let ahead = u64::from(low).wrapping_sub(near) & MASK;
    if ahead < 1 << (BITS - 1) {
        near.checked_add(ahead)
    } else {
        near.checked_sub((1 << BITS) - ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_numbers_less_than_half_the_space_away_come_back(near in 0u64..1 << 40, away in -(1i64 << 23) + 1..1i64 << 23) {
            if let Some(sequence) = near.checked_add_signed(away) {
                prop_assert_eq!(expand(low(sequence), near), Some(sequence));
            }
        }
    }

    #[test]
    fn nothing_lies_before_the_first() {
        assert_eq!(expand(low(5), 2), Some(5));
        assert_eq!(expand(0x00ff_ffff, 2), None);
        assert_eq!(expand(0, 0x00ff_ffff), Some(0x0100_0000));
        assert_eq!(expand(0x00ff_ffff, 0x0100_0000), Some(0x00ff_ffff));
    }
}
