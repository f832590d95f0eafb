//! Decides whether atomics on one number are linearizable (Herlihy and Wing, 1990). They are if
//! they can be put into an order with two properties: if one operation ended before another began,
//! it comes first, and each operation returns the value that the operations before it left.
//!
//! The search is that of Wing and Gong (1993), with Lowe's table of tried states (2017). At each
//! step, the next operation may be any that began before all other remaining operations ended. A
//! state is identified by the set of completed operations and the number that they left.

use std::collections::HashSet;

use conduit_core::ni::{AtomicOp, AtomicType};

use crate::conformance::arithmetic::model;

/// One atomic as its rank saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Event {
    /// The times at which the operation began and ended. The clock is the same for all ranks.
    pub(crate) during: (u64, u64),
    /// The kind of operation.
    pub(crate) op: AtomicOp,
    /// The operand, as bits.
    pub(crate) operand: u64,
    /// The comparand of a compare-and-swap, as bits.
    pub(crate) comparand: u64,
    /// The value that the operation found, if it fetches.
    pub(crate) old: Option<u64>,
}

/// Returns whether the history is linearizable. It holds at most 64 atomics on a number of type
/// `ty` that was 0 at first. No result may be a NaN, because the bits of a NaN are unspecified.
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
        // The two operations are concurrent, so they may have either order.
        assert!(holds(&[add((0, 9), 1, 2), add((0, 9), 2, 0)]));
        assert!(
            !holds(&[add((0, 9), 1, 0), add((0, 9), 2, 0)]),
            "this history loses an update"
        );
        assert!(
            !holds(&[add((0, 4), 1, 2), add((5, 9), 2, 0)]),
            "the operation that found 2 began after the other one had ended"
        );
        // A read may return a value that is overwritten while it runs, but not one that was
        // overwritten before it began.
        let get = |during, old| Event {
            op: AtomicOp::Get,
            ..add(during, 0, old)
        };
        assert!(holds(&[add((0, 4), 1, 0), get((3, 9), 0)]));
        assert!(!holds(&[add((0, 4), 1, 0), get((5, 9), 0)]));
        // Two successive reads must agree with the order of the operation that is concurrent with
        // both.
        let set = Event {
            op: AtomicOp::Set,
            old: None,
            ..add((0, 9), 7, 0)
        };
        assert!(!holds(&[set, get((1, 2), 7), get((3, 4), 0)]));
        assert!(holds(&[set, get((1, 2), 0), get((3, 4), 7)]));
    }

    proptest! {
        /// If a history is made from an order, with times around each step, it is linearizable. It
        /// no longer is if one old value is replaced by one that no step leaves.
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
