//! The schedule of operations in which each pair of ranks has data of its own.
//!
//! Each of these operations takes as many steps as the team has ranks. In each step *d*, a rank
//! sends at most one block and receives at most one. If all ranks send, each rank sends to the rank
//! *d* places ahead and receives from the rank *d* places behind, so that no rank is the target of
//! all others at once. If only one rank sends or receives, its partner is *d* places ahead. In step
//! 0 a rank copies its block for itself.

use crate::collectives::{CollectiveKind, Team};

/// A rank's work in one step. In memory that holds one block for each rank, blocks are numbered by
/// rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    /// The receiver's team rank, and the number of the source block that it receives.
    pub(super) to: Option<(u32, u32)>,
    /// The sender's team rank, and the number of the result block that its data fills.
    pub(super) from: Option<(u32, u32)>,
    /// For a local copy, the numbers of the source block and the result block.
    pub(super) own: Option<(u32, u32)>,
}

impl Pair {
    /// Returns the work of a step. `step` and the root must be below the team's size.
    pub(super) fn of(kind: CollectiveKind, team: &Team, step: u32) -> Self {
        let (rank, size) = (team.rank, team.size);
        let on = |from: u32| ((u64::from(from) + u64::from(step)) % u64::from(size)) as u32;
        let back = ((u64::from(rank) + u64::from(size - step)) % u64::from(size)) as u32;
        let mut pair = Self::default();
        match kind {
            CollectiveKind::Exchange => {
                pair.to = Some((on(rank), on(rank)));
                pair.from = Some((back, back));
            }
            CollectiveKind::GatherAll => {
                pair.to = Some((on(rank), 0));
                pair.from = Some((back, back));
            }
            CollectiveKind::Gather { root } => {
                let source = on(root);
                pair.to = (rank == source).then_some((root, 0));
                pair.from = (rank == root).then_some((source, source));
            }
            CollectiveKind::Scatter { root } => {
                let target = on(root);
                pair.to = (rank == root).then_some((target, target));
                pair.from = (rank == target).then_some((root, 0));
            }
            _ => {}
        }
        if step == 0 {
            let (to, from) = (pair.to.take(), pair.from.take());
            pair.own = to.zip(from).map(|(to, from)| (to.1, from.1));
        }
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every block moves exactly once from its source to its destination, and the sender of each
    /// block is the rank from which the receiver expects it.
    #[test]
    fn blocks_go_where_they_belong() {
        for size in 1..9 {
            let at = |rank| Team::of_job(rank, size);
            for root in 0..size {
                for kind in [
                    CollectiveKind::Exchange,
                    CollectiveKind::GatherAll,
                    CollectiveKind::Gather { root },
                    CollectiveKind::Scatter { root },
                ] {
                    let mut moved = Vec::new();
                    for (rank, step) in (0..size).flat_map(|rank| (0..size).map(move |s| (rank, s)))
                    {
                        let pair = Pair::of(kind, &at(rank), step);
                        if let Some((source, result)) = pair.own {
                            moved.push((rank, source, rank, result));
                        }
                        if let Some((to, block)) = pair.to {
                            let (from, place) = Pair::of(kind, &at(to), step).from.unwrap();
                            assert_eq!(from, rank);
                            moved.push((rank, block, to, place));
                        }
                        if let Some((from, _)) = pair.from {
                            assert_eq!(Pair::of(kind, &at(from), step).to.unwrap().0, rank);
                        }
                    }
                    moved.sort_unstable();
                    let all = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
                    let expected: Vec<_> = all
                        .filter_map(|(from, to)| match kind {
                            CollectiveKind::Exchange => Some((from, to, to, from)),
                            CollectiveKind::GatherAll => Some((from, 0, to, from)),
                            CollectiveKind::Gather { root } => {
                                (to == root).then_some((from, 0, to, from))
                            }
                            _ => (from == root).then_some((from, to, to, 0)),
                        })
                        .collect();
                    let mut expected = expected;
                    expected.sort_unstable();
                    assert_eq!(moved, expected, "{kind:?} of {size}");
                }
            }
        }
    }
}
