//! What a rank says in a barrier, how values merge, and how they travel.

/// Width of the epoch in a word.
pub(super) const EPOCH_BITS: u32 = 24;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

const ANONYMOUS: u8 = 0;
const NAMED: u8 = 1;
const MISMATCH: u8 = 2;

/// What a rank brings to a barrier, and what the ranks bring together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// No id: agrees with every id (`GASNET_BARRIERFLAG_ANONYMOUS`).
    Anonymous,
    /// An id; GASNet's `int` by its bits, see [`Value::named`].
    Named(u32),
    /// Two ids that differ, or a rank that asked for this outcome (`GASNET_BARRIERFLAG_MISMATCH`).
    Mismatch,
}

impl Value {
    /// A named value with GASNet's signed id.
    #[inline]
    #[must_use]
    pub fn named(id: i32) -> Self {
        Self::Named(id.cast_unsigned())
    }

    /// The join of two values: anonymous gives way to an id, ids that differ are a mismatch, and a mismatch stays.
    ///
    /// Commutative, associative and idempotent, so that the order in which values arrive does not matter, nor that
    /// the last round of a dissemination brings some of them twice.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Anonymous, value) | (value, Self::Anonymous) => value,
            (Self::Named(a), Self::Named(b)) if a == b => self,
            _ => Self::Mismatch,
        }
    }

    /// The word that carries this value in an epoch: epoch in the upper 24 bits, then 8 bits that say which kind of
    /// value, then 32 bits of id.
    #[inline]
    pub(super) fn word(self, epoch: u64) -> u64 {
        let (flags, id) = match self {
            Self::Anonymous => (ANONYMOUS, 0),
            Self::Named(id) => (NAMED, id),
            Self::Mismatch => (MISMATCH, 0),
        };
        (epoch & EPOCH_MASK) << 40 | u64::from(flags) << 32 | u64::from(id)
    }

    /// The value in a word, or `None` when the word is not of this epoch. A kind that no rank sends counts as a
    /// mismatch: that ends the barrier with an outcome that the caller sees.
    #[inline]
    pub(super) fn from_word(word: u64, epoch: u64) -> Option<Self> {
        if word >> 40 != epoch & EPOCH_MASK {
            return None;
        }
        let [_, _, _, flags, ..] = word.to_be_bytes();
        Some(match flags {
            ANONYMOUS => Self::Anonymous,
            NAMED => Self::Named((word & u64::from(u32::MAX)) as u32),
            _ => Self::Mismatch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Anonymous),
            (0..3_u32).prop_map(Value::Named),
            any::<i32>().prop_map(Value::named),
            Just(Value::Mismatch)
        ]
    }

    proptest! {
        #[test]
        fn merge_is_a_join(a in value(), b in value(), c in value()) {
            prop_assert_eq!(a.merge(b), b.merge(a));
            prop_assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
            prop_assert_eq!(a.merge(a), a);
        }

        #[test]
        fn a_word_carries_its_value_in_its_epoch_only(v in value(), epoch: u64, other: u64) {
            let word = v.word(epoch);
            prop_assert_eq!(Value::from_word(word, epoch), Some(v));
            if (epoch ^ other) & EPOCH_MASK != 0 {
                prop_assert_eq!(Value::from_word(word, other), None);
            }
        }

        #[test]
        fn any_word_can_be_read(word: u64) {
            prop_assert!(Value::from_word(word, word >> 40).is_some());
        }
    }

    #[test]
    fn the_layout_of_a_word() {
        let word = Value::Named(0x0102_0304).word(0xaabb_ccdd);
        assert_eq!(word, 0xbbcc_dd01_0102_0304);
    }
}
