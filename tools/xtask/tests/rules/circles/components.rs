//! The strongly connected components of a graph, by Tarjan's algorithm ("Depth-first search and
//! linear graph algorithms", SIAM Journal on Computing 1, 1972).

use std::collections::BTreeSet;

struct Search<'a> {
    edges: &'a [BTreeSet<usize>],
    /// The number of each node in the order in which nodes were reached, from 1; 0 for a node that
    /// has not been reached yet.
    reached: Vec<usize>,
    /// The first reached node on the stack that is reachable from the node's subtree.
    low: Vec<usize>,
    stack: Vec<usize>,
    count: usize,
    components: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.count += 1;
        self.reached[node] = self.count;
        self.low[node] = self.count;
        self.stack.push(node);
        for &next in &self.edges[node] {
            if self.reached[next] == 0 {
                self.visit(next);
                self.low[node] = self.low[node].min(self.low[next]);
            } else if self.stack.contains(&next) {
                self.low[node] = self.low[node].min(self.reached[next]);
            }
        }
        if self.low[node] == self.reached[node] {
            let position = self.stack.iter().position(|&other| other == node);
            let component = self.stack.split_off(position.expect("it was pushed"));
            self.components.push(component);
        }
    }
}

/// Returns the components that consist of at least two nodes. `edges[n]` contains the successors of
/// node `n`.
pub(super) fn circles(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        reached: vec![0; edges.len()],
        low: vec![0; edges.len()],
        stack: Vec::new(),
        count: 0,
        components: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.reached[node] == 0 {
            search.visit(node);
        }
    }
    search.components.retain(|component| component.len() > 1);
    for component in &mut search.components {
        component.sort_unstable();
    }
    search.components
}

#[test]
fn circles_are_found_and_trees_are_not() {
    let edges = |lists: &[&[usize]]| -> Vec<BTreeSet<usize>> {
        let set = |list: &&[usize]| list.iter().copied().collect();
        lists.iter().map(set).collect()
    };
    assert!(circles(&edges(&[&[1, 2], &[2], &[]])).is_empty());
    // Nodes 0, 1 and 2 form a cycle that leads to another cycle, of nodes 3 and 4. Node 5 leads to
    // both cycles.
    let two = edges(&[&[1], &[2], &[0, 3], &[4], &[3], &[0, 4]]);
    assert_eq!(circles(&two), [vec![3, 4], vec![0, 1, 2]]);
    // Two cycles that share a node are one component.
    assert_eq!(circles(&edges(&[&[1], &[0, 2], &[1]])), [vec![0, 1, 2]]);
}
