//! The trees along which data moves.

/// A binomial tree over the ranks of a team.
///
/// Ranks are counted from the root: `v = (rank - root) mod size`. The `v` of a rank's parent is the
/// rank's `v` with its lowest set bit cleared. A rank therefore has at most log₂(size) children and
/// is at most that many steps away from the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    size: u32,
    root: u32,
    /// Whether ranks are counted down from the root.
    downwards: bool,
}

impl Tree {
    /// Creates the tree with this `root`, which must be less than `size`.
    pub(super) fn new(size: u32, root: u32) -> Self {
        debug_assert!(root < size);
        let downwards = false;
        Self {
            size,
            root,
            downwards,
        }
    }

    /// Creates the tree whose root is the last rank and whose subtrees are ranges of consecutive
    /// ranks. The subtree of a rank's first child ends just below the rank, and the subtree of each
    /// further child ends just below the previous child's subtree.
    pub(super) fn downwards(size: u32) -> Self {
        Self {
            downwards: true,
            ..Self::new(size, size - 1)
        }
    }

    /// Returns the rank's distance from the root, `v`.
    fn distance(self, rank: u32) -> u32 {
        if self.downwards {
            return self.root - rank;
        }
        match rank.checked_sub(self.root) {
            Some(ahead) => ahead,
            None => self.size - (self.root - rank),
        }
    }

    fn rank_of(self, v: u32) -> u32 {
        if self.downwards {
            return self.root - v;
        }
        let left = self.size - self.root;
        if v < left { self.root + v } else { v - left }
    }

    /// Returns the parent of this rank, or `None` for the root.
    pub(super) fn parent(self, rank: u32) -> Option<u32> {
        let v = self.distance(rank);
        (v != 0).then(|| self.rank_of(v & (v - 1)))
    }

    /// Returns the children of this rank in ascending order of subtree size.
    pub(super) fn children(self, rank: u32) -> impl Iterator<Item = u32> {
        let v = self.distance(rank);
        let children = (0..v.trailing_zeros()).map(move |bit| v | 1 << bit);
        let exists = move |child: &u32| *child < self.size;
        children
            .take_while(exists)
            .map(move |child| self.rank_of(child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_ranks_hang_on_the_root_and_know_each_other(size in 1_u32..200, at in 0.0..1.0) {
            let root = ((f64::from(size) * at) as u32).min(size - 1);
            let tree = match at < 0.1 {
                true => Tree::downwards(size),
                false => Tree::new(size, root),
            };
            let root = tree.root;
            let depth = u32::BITS - (size - 1).leading_zeros();
            for rank in 0..size {
                let (mut above, mut steps) = (rank, 0);
                while let Some(parent) = tree.parent(above) {
                    prop_assert!(tree.children(parent).any(|child| child == above));
                    above = parent;
                    steps += 1;
                }
                prop_assert_eq!(above, root);
                prop_assert!(steps <= depth);
                for child in tree.children(rank) {
                    prop_assert_eq!(tree.parent(child), Some(rank));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn downwards_each_subtree_is_ranks_that_follow_one_another(size in 1_u32..200) {
            /// Returns the lowest rank of a subtree. The subtree must consist of all ranks from
            /// there up to its root.
            fn lowest(tree: &Tree, rank: u32) -> u32 {
                let mut below = rank;
                for child in tree.children(rank) {
                    assert_eq!(child + 1, below);
                    below = lowest(tree, child);
                }
                below
            }
            let tree = Tree::downwards(size);
            prop_assert_eq!(lowest(&tree, size - 1), 0);
        }
    }

    #[test]
    fn ranks_near_the_largest_number_are_no_exception() {
        let tree = Tree::new(u32::MAX, u32::MAX - 1);
        assert_eq!(tree.parent(u32::MAX - 2), Some(u32::MAX - 4));
        assert_eq!(tree.parent(0), Some(u32::MAX - 1));
        assert_eq!(tree.children(u32::MAX - 1).count(), 32);
    }
}
