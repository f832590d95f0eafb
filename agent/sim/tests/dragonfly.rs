//! Tests of nodes that pass on each other's fragments.

use agent::host::{Limit, Outcome, ReturnMode};
use agent::{Code, Limits};
use agent_sim::{Delays, World};

fn send(world: &mut World, id: u64, from: u32, to: u32) {
    let (mode, limit) = (ReturnMode::Deposited, Limit::Never);
    world.send((from, from.into()), to, id, vec![1; 100], mode, limit);
}

fn completed(world: &mut World, node: usize) -> Vec<(u64, Outcome<agent_sim::Pool>)> {
    std::mem::take(&mut world.hosts[node].completed)
}

/// From 0 to 8 through 2 and 6, from 1 to 4 through 3: messages wait at both targets when node 2
/// dies.
#[test]
fn what_goes_by_a_node_that_dies_fails_and_nothing_else() {
    let delays = Delays::default();
    let mut world = World::dragonfly(9, 1 << 20, Limits::default(), delays, 1);
    for node in [4, 8] {
        world.hosts[node].create(0, 0);
    }
    send(&mut world, 1, 0, 8);
    send(&mut world, 2, 1, 4);
    world.run(1_000_000, |_, _| {});
    assert!(world.held(4).eager > 0 && world.held(8).eager > 0);
    world.kill(2);
    world.run(1_000_000 + 3 * delays.dead_time, |_, _| {});
    let gone = Outcome::Failed(Code::FAILURE);
    assert_eq!(completed(&mut world, 0), [(1, gone)]);
    assert_eq!(completed(&mut world, 1), []);
    assert_eq!(world.held(8), agent::Held::default());
    for node in [4, 8] {
        assert!(world.hosts[node].widen(0, 9));
    }
    world.run(1_000_000 + 4 * delays.dead_time, |_, _| {});
    assert_eq!(completed(&mut world, 1), [(2, Outcome::Sent)]);
    // Node 2 returns.
    world.start(2);
    send(&mut world, 3, 0, 8);
    world.run(u64::MAX, |_, _| {});
    assert_eq!(completed(&mut world, 0), [(3, Outcome::Sent)]);
    assert_eq!(world.hosts[8].sent, [(0, 3)]);
}

#[test]
fn no_more_nodes_send_to_one_than_the_root_of_their_number() {
    let (nodes, root) = (25, 5);
    let delays = Delays::default();
    let mut world = World::dragonfly(nodes, 1 << 20, Limits::default(), delays, 1);
    world.hosts[0].create(0, 1000);
    for from in 1..nodes {
        for id in 0..20 {
            send(&mut world, id, from, 0);
        }
    }
    world.run(u64::MAX, |_, _| {});
    assert_eq!(world.hosts[0].sent.len(), 24 * 20);
    for node in 0..nodes {
        let degree = world.net.degree(node);
        assert!(degree <= root, "node {node}: {degree}");
        assert_eq!(world.waiting(node), 0);
    }
}
