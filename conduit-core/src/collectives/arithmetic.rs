//! The predefined reductions, which need no function from the client.

/// The type of a reduction's elements. Elements are in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// Signed 32 bits.
    I32,
    /// Unsigned 32 bits.
    U32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 64 bits.
    U64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

impl DataType {
    /// Returns the size of an element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// The operation that reduces two elements. Integer operations wrap on overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Add,
    /// The product.
    Mult,
    /// The smaller element. If either element is NaN, the result is one of the two.
    Min,
    /// The larger element. If either element is NaN, the result is one of the two.
    Max,
    /// `x & y`, for integers only.
    And,
    /// `x | y`, for integers only.
    Or,
    /// `x ^ y`, for integers only.
    Xor,
}

/// A function that reduces two vectors element by element and writes the result to the second
/// vector. The vectors must hold the same number of whole elements.
pub type Fold = fn(&[u8], &mut [u8]);

/// Returns the function that performs an operation on a type, or `None` if the operation is not
/// defined for the type (bit operations on floats).
#[must_use]
pub fn fold(ty: DataType, op: ReduceOp) -> Option<Fold> {
    macro_rules! integers {
        ($t:ty) => {
            Some(match op {
                ReduceOp::Add => |l, r| {
                    each(
                        l,
                        r,
                        <$t>::from_ne_bytes,
                        <$t>::to_ne_bytes,
                        <$t>::wrapping_add,
                    )
                },
                ReduceOp::Mult => |l, r| {
                    each(
                        l,
                        r,
                        <$t>::from_ne_bytes,
                        <$t>::to_ne_bytes,
                        <$t>::wrapping_mul,
                    )
                },
                ReduceOp::Min => {
                    |l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, <$t>::min)
                }
                ReduceOp::Max => {
                    |l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, <$t>::max)
                }
                ReduceOp::And => {
                    |l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| x & y)
                }
                ReduceOp::Or => {
                    |l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| x | y)
                }
                ReduceOp::Xor => {
                    |l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| x ^ y)
                }
            })
        };
    }
    macro_rules! floats {
        ($t:ty) => {
            match op {
                ReduceOp::Add => {
                    Some(|l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| x + y))
                }
                ReduceOp::Mult => {
                    Some(|l, r| each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| x * y))
                }
                // This comparison is one instruction on most processors. `f32::min` takes more,
                // because it treats NaN specially.
                ReduceOp::Min => Some(|l, r| {
                    each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| {
                        if x < y { x } else { y }
                    })
                }),
                ReduceOp::Max => Some(|l, r| {
                    each(l, r, <$t>::from_ne_bytes, <$t>::to_ne_bytes, |x, y| {
                        if x > y { x } else { y }
                    })
                }),
                ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
            }
        };
    }
    match ty {
        DataType::I32 => integers!(i32),
        DataType::U32 => integers!(u32),
        DataType::I64 => integers!(i64),
        DataType::U64 => integers!(u64),
        DataType::F32 => floats!(f32),
        DataType::F64 => floats!(f64),
    }
}

#[inline(always)]
fn each<T, const N: usize>(
    left: &[u8],
    right: &mut [u8],
    read: impl Fn([u8; N]) -> T,
    write: impl Fn(T) -> [u8; N],
    op: impl Fn(T, T) -> T,
) {
    for (left, right) in left.as_chunks().0.iter().zip(right.as_chunks_mut().0) {
        *right = write(op(read(*left), read(*right)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ty: DataType, op: ReduceOp, left: &[u8], right: &[u8]) -> Vec<u8> {
        let mut right = right.to_vec();
        fold(ty, op).unwrap()(left, &mut right);
        right
    }

    #[test]
    fn signs_matter_to_the_smaller_and_the_larger() {
        let (minus, one) = ((-1_i32).to_ne_bytes(), 1_i32.to_ne_bytes());
        assert_eq!(run(DataType::I32, ReduceOp::Min, &minus, &one), minus);
        assert_eq!(run(DataType::I32, ReduceOp::Max, &minus, &one), one);
        assert_eq!(run(DataType::U32, ReduceOp::Min, &minus, &one), one);
        assert_eq!(run(DataType::U32, ReduceOp::Max, &minus, &one), minus);
    }

    #[test]
    fn integers_wrap() {
        let (most, two) = (u64::MAX.to_ne_bytes(), 2_u64.to_ne_bytes());
        assert_eq!(
            run(DataType::U64, ReduceOp::Add, &most, &two),
            1_u64.to_ne_bytes()
        );
        assert_eq!(
            run(DataType::U64, ReduceOp::Mult, &most, &two),
            (u64::MAX - 1).to_ne_bytes()
        );
    }

    #[test]
    fn every_operation_of_every_type() {
        use DataType::{F32, F64, I32, I64, U32, U64};
        use ReduceOp::{Add, And, Max, Min, Mult, Or, Xor};
        let results = [
            (Add, 9),
            (Mult, 18),
            (Min, 3),
            (Max, 6),
            (And, 2),
            (Or, 7),
            (Xor, 5),
        ];
        for (op, expected) in results {
            for ty in [I32, U32] {
                let bytes = |x: u32| x.to_ne_bytes();
                assert_eq!(run(ty, op, &bytes(3), &bytes(6)), bytes(expected));
            }
            for ty in [I64, U64] {
                let bytes = |x: u64| x.to_ne_bytes();
                assert_eq!(run(ty, op, &bytes(3), &bytes(6)), bytes(expected.into()));
            }
            if matches!(op, And | Or | Xor) {
                assert!(fold(F32, op).is_none() && fold(F64, op).is_none());
                continue;
            }
            let bytes = |x: f32| x.to_ne_bytes();
            assert_eq!(
                run(F32, op, &bytes(3.0), &bytes(6.0)),
                bytes(expected as f32)
            );
            let bytes = |x: f64| x.to_ne_bytes();
            assert_eq!(
                run(F64, op, &bytes(3.0), &bytes(6.0)),
                bytes(expected.into())
            );
        }
    }

    #[test]
    fn all_elements_are_reduced() {
        let left: Vec<u8> = (0..100_u64).flat_map(u64::to_ne_bytes).collect();
        let right: Vec<u8> = (0..100_u64).rev().flat_map(u64::to_ne_bytes).collect();
        let expected: Vec<u8> = (0..100_u64).flat_map(|_| 99_u64.to_ne_bytes()).collect();
        assert_eq!(run(DataType::U64, ReduceOp::Add, &left, &right), expected);
    }
}
