//! The value that a rank contributes to a barrier: how values are merged and encoded.

/// The number of bits that the epoch has in a word.
pub(super) const EPOCH_BITS: u32 = 24;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

const ANONYMOUS: u8 = 0;
const NAMED: u8 = 1;
const MISMATCH: u8 = 2;
const QUIESCE: u8 = 3;
const FINISH: u8 = 4;

bitflags::bitflags! {
    /// A set of calls that may meet in a barrier.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Calls: u8 {
        /// A barrier, regardless of its id.
        const BARRIER = 1;
        /// `quiesce`: a barrier after which all messages have been delivered.
        const QUIESCE = 2;
        /// `finish`: the regular end of the job.
        const FINISH = 4;
    }
}

/// Formats the description of a mismatch between these calls.
impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Self::BARRIER, "barrier"),
            (Self::QUIESCE, "quiesce"),
            (Self::FINISH, "finish"),
        ];
        let met = names.into_iter().filter(|(call, _)| self.contains(*call));
        let met: Vec<_> = met.map(|(_, name)| name).collect();
        match &met[..] {
            [others @ .., last] if !others.is_empty() => write!(
                f,
                "ranks called {} and {last}; all must make the same call",
                others.join(", ")
            ),
            _ => f.write_str("barrier ids do not match"),
        }
    }
}

/// A rank's contribution to a barrier, or the merged contributions of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// No id: matches every id (`GASNET_BARRIERFLAG_ANONYMOUS`).
    Anonymous,
    /// An id: the bits of GASNet's `int`; see [`Value::named`].
    Named(u32),
    /// A contribution to one of the two barriers of `quiesce`, by which a rank waits until all
    /// messages have been handled. It matches only itself.
    Quiesce,
    /// The counterpart of [`Value::Quiesce`] at the end of the job. It matches only itself.
    Finish,
    /// A mismatch, with the calls that met in the barrier. If the only call is [`Calls::BARRIER`],
    /// ids differed or a rank requested a mismatch (`GASNET_BARRIERFLAG_MISMATCH`).
    Mismatch(Calls),
}

impl Value {
    /// Returns a named value with GASNet's signed id.
    #[inline]
    #[must_use]
    pub fn named(id: i32) -> Self {
        Self::Named(id.cast_unsigned())
    }

    /// Merges two values. An id replaces [`Value::Anonymous`]. Any other two different values merge
    /// into a mismatch, which collects the calls of all values merged into it.
    ///
    /// Merging is commutative and associative, so values may arrive in any order. It is idempotent,
    /// so the last round of a dissemination may bring some values twice.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Anonymous, Self::Anonymous | Self::Named(_)) => other,
            (Self::Named(_), Self::Anonymous) => self,
            _ if self == other => self,
            _ => Self::Mismatch(self.calls() | other.calls()),
        }
    }

    /// Returns the calls that this value represents.
    fn calls(self) -> Calls {
        match self {
            Self::Anonymous | Self::Named(_) => Calls::BARRIER,
            Self::Quiesce => Calls::QUIESCE,
            Self::Finish => Calls::FINISH,
            Self::Mismatch(calls) => calls,
        }
    }

    /// Returns the word that carries this value in an epoch. The upper 24 bits hold the epoch and
    /// the next 8 bits the kind of value. The lower 32 bits hold the id or, for a mismatch, the
    /// calls.
    #[inline]
    pub(super) fn word(self, epoch: u64) -> u64 {
        let (flags, id) = match self {
            Self::Anonymous => (ANONYMOUS, 0),
            Self::Named(id) => (NAMED, id),
            Self::Quiesce => (QUIESCE, 0),
            Self::Finish => (FINISH, 0),
            Self::Mismatch(calls) => (MISMATCH, calls.bits().into()),
        };
        (epoch & EPOCH_MASK) << 40 | u64::from(flags) << 32 | u64::from(id)
    }

    /// Decodes the value in a word. Returns `None` if the word belongs to another epoch. An unknown
    /// kind is decoded as a mismatch, so that the barrier ends with an outcome that the caller
    /// sees.
    #[inline]
    pub(super) fn from_word(word: u64, epoch: u64) -> Option<Self> {
        if word >> 40 != epoch & EPOCH_MASK {
            return None;
        }
        let [_, _, _, flags, .., calls] = word.to_be_bytes();
        Some(match flags {
            ANONYMOUS => Self::Anonymous,
            NAMED => Self::Named((word & u64::from(u32::MAX)) as u32),
            QUIESCE => Self::Quiesce,
            FINISH => Self::Finish,
            _ => Self::Mismatch(Calls::from_bits_truncate(calls)),
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
            Just(Value::Quiesce),
            Just(Value::Finish),
            (0..8_u8).prop_map(|calls| Value::Mismatch(Calls::from_bits_truncate(calls))),
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

    /// The mismatch reports all calls that met, although each rank contributes only its own call.
    #[test]
    fn a_mismatch_names_all_calls_that_met() {
        let text = |values: &[Value]| match values.iter().copied().reduce(Value::merge) {
            Some(Value::Mismatch(calls)) => calls.to_string(),
            other => panic!("{other:?}"),
        };
        let ids = "barrier ids do not match";
        assert_eq!(text(&[Value::Named(1), Value::Named(2)]), ids);
        let two = "ranks called barrier and finish; all must make the same call";
        assert_eq!(text(&[Value::Anonymous, Value::Finish]), two);
        assert_eq!(text(&[Value::Finish, Value::Named(1), Value::Finish]), two);
        let all = "ranks called barrier, quiesce and finish; all must make the same call";
        assert_eq!(text(&[Value::Finish, Value::Quiesce, Value::Named(1)]), all);
        let same = Value::Quiesce.merge(Value::Quiesce);
        assert_eq!(same, Value::Quiesce);
    }

    #[test]
    fn the_layout_of_a_word() {
        let word = Value::Named(0x0102_0304).word(0xaabb_ccdd);
        assert_eq!(word, 0xbbcc_dd01_0102_0304);
    }
}
