//! The trees that data moves along.

/// A *k*-nomial tree over the ranks of a team.
///
/// Ranks are counted from the root: `v = (rank - root) mod size`, written in base *k*. A rank's parent has the lowest
/// digit of `v` that is not zero replaced by zero, so a rank has at most `(k - 1)·log_k(size)` children, and that many
/// steps at most lie between it and the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    size: u32,
    root: u32,
    radix: u32,
    /// Ranks are counted down from the root.
    downwards: bool,
}

impl Tree {
    /// The tree of this `root`, which is below `size`; `radix` is at least 2.
    pub(super) fn new(size: u32, root: u32, radix: u32) -> Self {
        debug_assert!(root < size && radix >= 2);
        let downwards = false;
        Self {
            size,
            root,
            radix,
            downwards,
        }
    }

    /// The one whose root is the last rank, and whose subtrees are those below, in order: that of a rank's first child ends just below
    /// the rank, and each other one's below the one before it.
    pub(super) fn downwards(size: u32, radix: u32) -> Self {
        Self {
            downwards: true,
            ..Self::new(size, size - 1, radix)
        }
    }

    /// Counted from the root.
    fn distance(&self, rank: u32) -> u32 {
        if self.downwards {
            return self.root - rank;
        }
        match rank.checked_sub(self.root) {
            Some(ahead) => ahead,
            None => self.size - (self.root - rank),
        }
    }

    fn rank_of(&self, v: u32) -> u32 {
        if self.downwards {
            return self.root - v;
        }
        let left = self.size - self.root;
        if v < left { self.root + v } else { v - left }
    }

    /// The weight of the lowest digit of `v` that is not zero; for the root one that no rank reaches.
    fn weight(&self, v: u32) -> u64 {
        let (mut weight, radix) = (1, u64::from(self.radix));
        while weight < self.size.into() && u64::from(v) % (weight * radix) == 0 {
            weight *= radix;
        }
        weight
    }

    /// Who is nearer to the root; `None` for the root.
    pub(super) fn parent(&self, rank: u32) -> Option<u32> {
        let v = self.distance(rank);
        if v == 0 {
            return None;
        }
        let above = self.weight(v) * u64::from(self.radix);
        // The remainder is the lowest digit alone, at most `v`.
        Some(self.rank_of(v - (u64::from(v) % above) as u32))
    }

    /// Those whose parent this rank is, the smallest subtree first.
    pub(super) fn children(&self, rank: u32) -> Vec<u32> {
        let v = self.distance(rank);
        let end = self.weight(v);
        let mut children = Vec::new();
        let mut weight = 1;
        while weight < end {
            for digit in 1..u64::from(self.radix) {
                let child = u64::from(v) + digit * weight;
                if child >= self.size.into() {
                    break;
                }
                children.push(self.rank_of(child as u32));
            }
            weight *= u64::from(self.radix);
        }
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_ranks_hang_on_the_root_and_know_each_other(size in 1_u32..200, radix in 2_u32..9, at in 0.0..1.0) {
            let root = ((f64::from(size) * at) as u32).min(size - 1);
            let tree = match at < 0.1 {
                true => Tree::downwards(size, radix),
                false => Tree::new(size, root, radix),
            };
            let root = tree.root;
            let depth = (1..).find(|&depth| u64::from(radix).pow(depth) >= u64::from(size)).unwrap();
            for rank in 0..size {
                let (mut above, mut steps) = (rank, 0);
                while let Some(parent) = tree.parent(above) {
                    prop_assert!(tree.children(parent).contains(&above));
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
        fn downwards_each_subtree_is_ranks_that_follow_one_another(size in 1_u32..200, radix in 2_u32..9) {
            /// The lowest rank of a subtree, whose ranks are that and all up to its own.
            fn lowest(tree: &Tree, rank: u32) -> u32 {
                let mut below = rank;
                for child in tree.children(rank) {
                    assert_eq!(child + 1, below);
                    below = lowest(tree, child);
                }
                below
            }
            let tree = Tree::downwards(size, radix);
            prop_assert_eq!(lowest(&tree, size - 1), 0);
        }
    }

    #[test]
    fn ranks_near_the_largest_number_are_no_exception() {
        let tree = Tree::new(u32::MAX, u32::MAX - 1, 2);
        assert_eq!(tree.parent(u32::MAX - 2), Some(u32::MAX - 4));
        assert_eq!(tree.parent(0), Some(u32::MAX - 1));
        assert_eq!(tree.children(u32::MAX - 1).len(), 32);
    }
}
