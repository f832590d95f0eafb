//! Decides whether atomics on one number are linearizable (Herlihy and Wing, 1990): whether they
//! can be ordered so that an operation that ended before another began comes before it, and each
//! operation returns the value that the preceding ones left.
//!
//! The search is that of Wing and Gong (1993), with Lowe's table of tried states (2017). The next
//! operation is any that began before all other remaining ones ended; a tried state is identified
//! by the set of completed operations and the number that they left.

use std::collections::HashSet;

use conduit_core::ni::{AtomicOp, AtomicType};

use crate::conformance::arithmetic::model;

/// One atomic as its rank saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Event {
    /// The times at which the operation began and ended, on a clock that all ranks share.
    pub(crate) during: (u64, u64),
    /// The operation.
    pub(crate) op: AtomicOp,
    /// Its operand, as bits.
    pub(crate) operand: u64,
    /// The comparand of a compare-and-swap, as bits.
    pub(crate) comparand: u64,
    /// The value that it found, if it fetches.
    pub(crate) old: Option<u64>,
}

/// Returns whether these at most 64 atomics, on a number of this type that was 0, have such an
/// order. No result may be a NaN, whose bits are unspecified.
pub(crate) fn is_linearizable(ty: AtomicType, history: &[Event]) -> bool {
    assert!(history.len() <= 64, "a set of operations is one word");
    let all = u64::MAX
        .checked_shr(64 - history.len() as u32)
        .unwrap_or_default();
    let mut tried = HashSet::new();
    let mut open = vec![(0_u64, 0_u64)];
    while let Some((done, value)) = open.pop() {
        if done == all {
            return true;
        }
        if !tried.insert((done, value)) {
            continue;
        }
        let left = || (0..history.len()).filter(|&at| done >> at & 1 == 0);
        let first_end = left().map(|at| history[at].during.1).min();
        for at in left() {
            let event = &history[at];
            let begins_late = first_end.is_some_and(|end| event.during.0 > end);
            if !begins_late && event.old.is_none_or(|old| old == value) {
                let new = model(event.op, ty, value, event.operand, event.comparand);
                open.push((done | 1 << at, new));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(during: (u64, u64), operand: u64, old: u64) -> Event {
        Event {
            during,
            op: AtomicOp::Add,
            operand,
            comparand: 0,
            old: Some(old),
        }
    }

    fn holds(history: &[Event]) -> bool {
        is_linearizable(AtomicType::U32, history)
    }

    #[test]
    fn what_no_order_explains_is_found() {
        assert!(holds(&[]));
        // Concurrent, so either order is possible.
        assert!(holds(&[add((0, 9), 1, 2), add((0, 9), 2, 0)]));
        assert!(
            !holds(&[add((0, 9), 1, 0), add((0, 9), 2, 0)]),
            "it loses an update"
        );
        assert!(
            !holds(&[add((0, 4), 1, 2), add((5, 9), 2, 0)]),
            "it began after the other one's end"
        );
        // A value that was already overwritten when the read began.
        let get = |during, old| Event {
            op: AtomicOp::Get,
            ..add(during, 0, old)
        };
        assert!(holds(&[add((0, 4), 1, 0), get((3, 9), 0)]));
        assert!(!holds(&[add((0, 4), 1, 0), get((5, 9), 0)]));
        // Two reads that see a third operation in different orders.
        let set = Event {
            op: AtomicOp::Set,
            old: None,
            ..add((0, 9), 7, 0)
        };
        assert!(!holds(&[set, get((1, 2), 7), get((3, 4), 0)]));
        assert!(holds(&[set, get((1, 2), 0), get((3, 4), 7)]));
    }

    proptest! {
        /// A history that was made in an order, with times around each step, has that order. With a
        /// wrong old value it has none if all values are different.
        #[test]
        fn histories_of_an_order_hold_and_wrong_ones_don_t(
            steps in proptest::collection::vec((1_u64..1000, 0_u64..30, 0_u64..30), 1..40),
            wrong in any::<prop::sample::Index>(),
        ) {
            let mut value = 0;
            let mut history = Vec::new();
            for (at, (operand, before, after)) in steps.into_iter().enumerate() {
                let at = 100 + 10 * at as u64;
                history.push(add((at - before, at + after), operand, value));
                value += operand;
            }
            prop_assert!(holds(&history));
            let at = wrong.index(history.len());
            history[at].old = Some(1_000_000);
            prop_assert!(!holds(&history));
        }
    }
}
