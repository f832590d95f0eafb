//! The links and routes between nodes. The *n* nodes form groups of about √*n* nodes. Each node has
//! links to all others of its group. Each pair of groups has one link, which connects one node of
//! each.

use std::ops::Range;

/// The routes between a number of nodes; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub(super) struct Routes {
    nodes: u32,
    /// The number of nodes in each group except the last, which may have fewer.
    size: u32,
}

impl Routes {
    pub(super) fn new(nodes: u32) -> Self {
        let root = nodes.isqrt();
        let size = root + u32::from(root * root < nodes);
        Self {
            nodes,
            size: size.max(1),
        }
    }

    pub(super) fn nodes(self) -> u32 {
        self.nodes
    }

    fn group(self, node: u32) -> u32 {
        node / self.size
    }

    /// Returns the nodes of the group that contains a node.
    pub(super) fn members(self, node: u32) -> Range<u32> {
        self.range(self.group(node))
    }

    fn range(self, group: u32) -> Range<u32> {
        let first = group * self.size;
        first..(first + self.size).min(self.nodes)
    }

    pub(super) fn are_together(self, a: u32, b: u32) -> bool {
        self.group(a) == self.group(b)
    }

    /// Returns the node of group `of` that has the link to group `to`.
    fn gate(self, of: u32, to: u32) -> u32 {
        let members = self.range(of);
        members.start + to % (members.end - members.start)
    }

    /// Returns the next node on the route from `at` to `to`. The route back passes through the same
    /// nodes.
    pub(super) fn next(self, at: u32, to: u32) -> u32 {
        if self.are_together(at, to) {
            return to;
        }
        let gate = self.gate(self.group(at), self.group(to));
        match at == gate {
            false => gate,
            true => self.gate(self.group(to), self.group(at)),
        }
    }

    pub(super) fn are_neighbours(self, a: u32, b: u32) -> bool {
        self.next(a, b) == b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of neighbours of each node.
    fn degrees(routes: Routes) -> impl Iterator<Item = usize> {
        (0..routes.nodes()).map(move |node| {
            let others = (0..routes.nodes()).filter(|other| *other != node);
            others
                .filter(|other| routes.are_neighbours(*other, node))
                .count()
        })
    }

    #[test]
    fn no_node_has_more_neighbours_than_the_root_of_their_number() {
        for nodes in (1..150).chain([255, 256, 257, 1000, 1024, 1025]) {
            let routes = Routes::new(nodes);
            let root = f64::from(nodes).sqrt().ceil() as usize;
            let most = degrees(routes).max();
            assert!(most.is_some_and(|most| most <= root), "{nodes}: {most:?}");
        }
    }

    #[test]
    fn every_way_is_short_and_the_same_back() {
        for nodes in [1, 2, 3, 5, 9, 10, 63, 64, 65, 130] {
            let routes = Routes::new(nodes);
            for from in 0..nodes {
                for to in (0..nodes).filter(|to| *to != from) {
                    let way = |mut at, to| {
                        let mut way = vec![at];
                        while at != to {
                            let next = routes.next(at, to);
                            assert!(
                                routes.are_neighbours(at, next) && routes.are_neighbours(next, at)
                            );
                            at = next;
                            way.push(at);
                        }
                        way
                    };
                    let there = way(from, to);
                    let mut back = way(to, from);
                    back.reverse();
                    assert!(there.len() <= 4 && there == back, "{there:?} {back:?}");
                }
            }
        }
    }
}
