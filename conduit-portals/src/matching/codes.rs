//! The numeric codes that messages use for operations and outcomes.

use conduit_core::ni::{AtomicOp, AtomicType, Outcome};

/// Returns the code of an outcome.
pub fn outcome_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Done => 0,
        Outcome::NoMatch => 1,
        Outcome::OutOfRange => 2,
    }
}

/// Returns the outcome for a code, or `None` for an unknown code. This is the inverse of
/// [`outcome_code`].
pub fn outcome_of(code: u8) -> Option<Outcome> {
    Some(match code {
        0 => Outcome::Done,
        1 => Outcome::NoMatch,
        2 => Outcome::OutOfRange,
        _ => return None,
    })
}

/// Returns the code of an atomic: its operation and its type.
pub fn atomic_code(op: AtomicOp, ty: AtomicType) -> u32 {
    let op = AtomicOp::ALL
        .iter()
        .position(|&o| o == op)
        .unwrap_or_default();
    let ty = AtomicType::ALL
        .iter()
        .position(|&t| t == ty)
        .unwrap_or_default();
    (op << 8 | ty) as u32
}

/// Returns the atomic for a code, or `None` for an unknown code. This is the inverse of
/// [`atomic_code`].
pub fn atomic_of(code: u32) -> Option<(AtomicOp, AtomicType)> {
    Some((
        *AtomicOp::ALL.get((code >> 8) as usize)?,
        *AtomicType::ALL.get((code & 0xff) as usize)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_inverse() {
        for op in AtomicOp::ALL {
            for ty in AtomicType::ALL {
                assert_eq!(atomic_of(atomic_code(op, ty)), Some((op, ty)));
            }
        }
        assert_eq!(atomic_of(AtomicOp::ALL.len() as u32 * 256), None);
        assert_eq!(atomic_of(AtomicType::ALL.len() as u32), None);
        for o in [Outcome::Done, Outcome::NoMatch, Outcome::OutOfRange] {
            assert_eq!(outcome_of(outcome_code(o)), Some(o));
        }
        assert_eq!(outcome_of(3), None);
    }
}
