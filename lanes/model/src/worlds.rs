//! The worlds to check.

use lanes::{LaneKind, Settings};

use crate::Event::{ByLane, CrossingAsks, CrossingRecalls, Denial, Recall, Refusal, Wait};
use crate::{Fault, Flow, World};

/// Heavy traffic, in samples.
const MUCH: u32 = 80;
/// Medium traffic, in samples.
const SOME: u32 = 20;
/// Light traffic, in samples.
const LITTLE: u32 = 9;

fn world(name: &'static str, kind: LaneKind, flows: &[(u32, u32, &[u8])]) -> World {
    let flow = |&(from, to, fragments): &(u32, u32, &[u8])| Flow {
        from,
        to,
        fragments: fragments.to_vec(),
    };
    let flows: Vec<Flow> = flows.iter().map(flow).collect();
    let ranks = flows.iter().map(|flow| flow.from.max(flow.to)).max();
    World {
        name,
        ranks: ranks.map_or(1, |last| last + 1),
        kind,
        settings: Settings {
            slots: 1,
            hold: 1,
            backoff: 1,
            ..Settings::default()
        },
        phases: Vec::new(),
        shifts: 0,
        rounds: 1,
        deaths: 0,
        refusals: 0,
        flows,
        fault: Fault::None,
        events: vec![ByLane],
    }
}

/// Returns phases in which rank 0's traffic is mostly with rank 1 and then mostly with rank 2.
fn one_then_the_other() -> Vec<Vec<(u32, u32, u32)>> {
    vec![
        vec![(0, 1, MUCH), (0, 2, LITTLE)],
        vec![(0, 1, LITTLE), (0, 2, MUCH)],
    ]
}

/// Returns the traffic of three ranks in a cycle. The weights are those between ranks 0 and 1,
/// between 1 and 2, and between 2 and 0. Both ends of a pair see the same weight.
fn ring(weights: [u32; 3]) -> Vec<(u32, u32, u32)> {
    let pairs = (0..).zip(weights);
    pairs
        .flat_map(|(rank, weight)| {
            let next = (rank + 1) % 3;
            [(rank, next, weight), (next, rank, weight)]
        })
        .collect()
}

/// Returns the worlds that are checked with every change to the code.
#[must_use]
pub fn small() -> Vec<World> {
    let sources: &[(u32, u32, &[u8])] = &[(1, 0, &[1, 2]), (2, 0, &[1, 1])];
    let two: &[(u32, u32, &[u8])] = &[(0, 1, &[1, 1]), (1, 0, &[2, 1])];
    let three: &[(u32, u32, &[u8])] = &[(0, 1, &[1]), (1, 2, &[1]), (2, 0, &[])];
    let mutual = vec![vec![(0, 1, MUCH), (1, 0, SOME)]];
    vec![
        World {
            phases: one_then_the_other(),
            shifts: 1,
            rounds: 3,
            events: vec![ByLane, Recall, Wait],
            ..world(
                "an owner of one lane, two sources",
                LaneKind::Owner,
                sources,
            )
        },
        World {
            phases: one_then_the_other(),
            shifts: 1,
            rounds: 3,
            deaths: 1,
            events: vec![ByLane, Recall],
            ..world(
                "an owner of one lane, two sources, a death",
                LaneKind::Owner,
                &[(1, 0, &[2]), (2, 0, &[1])],
            )
        },
        World {
            phases: one_then_the_other(),
            shifts: 3,
            rounds: 5,
            events: vec![ByLane, Recall],
            ..world(
                "a lane that moves back and forth",
                LaneKind::Owner,
                &[(1, 0, &[1]), (2, 0, &[])],
            )
        },
        World {
            phases: mutual.clone(),
            rounds: 2,
            deaths: 1,
            ..world("two owners of a lane for each other", LaneKind::Owner, two)
        },
        World {
            phases: mutual,
            rounds: 2,
            deaths: 1,
            refusals: 1,
            events: vec![ByLane, CrossingAsks, Denial, Refusal],
            ..world(
                "two ranks that ask each other, a death, a connection that fails",
                LaneKind::Both,
                two,
            )
        },
        World {
            phases: vec![ring([MUCH, SOME, LITTLE])],
            rounds: 2,
            refusals: 1,
            events: vec![ByLane, Denial, Refusal],
            ..world(
                "a cycle of asks, a connection that fails",
                LaneKind::Both,
                three,
            )
        },
        World {
            phases: vec![ring([SOME, SOME, SOME])],
            rounds: 2,
            deaths: 1,
            events: vec![ByLane, Denial],
            ..world(
                "a cycle of equal asks, a death",
                LaneKind::Both,
                &[(0, 1, &[1]), (1, 2, &[]), (2, 0, &[])],
            )
        },
        World {
            phases: vec![
                vec![(0, 1, SOME), (1, 0, SOME)],
                vec![(0, 2, MUCH), (1, 2, MUCH)],
            ],
            shifts: 1,
            rounds: 2,
            events: vec![ByLane, Recall, CrossingRecalls, Denial],
            ..world(
                "both ends want another peer",
                LaneKind::Both,
                &[(0, 1, &[1, 1]), (1, 0, &[1]), (2, 0, &[])],
            )
        },
    ]
}

/// Returns larger worlds, which take a minute or more and several gigabytes of memory to check.
#[must_use]
pub fn large() -> Vec<World> {
    let sources: &[(u32, u32, &[u8])] = &[(1, 0, &[1, 2, 1]), (2, 0, &[2, 1])];
    let three: &[(u32, u32, &[u8])] = &[(0, 1, &[1]), (1, 2, &[]), (2, 0, &[])];
    vec![
        World {
            phases: one_then_the_other(),
            shifts: 2,
            rounds: 4,
            deaths: 1,
            events: vec![ByLane, Recall, Wait],
            ..world(
                "an owner of one lane, two sources, a death",
                LaneKind::Owner,
                sources,
            )
        },
        World {
            phases: vec![ring([MUCH, SOME, LITTLE]), ring([LITTLE, SOME, MUCH])],
            shifts: 1,
            rounds: 2,
            events: vec![ByLane, Recall, Denial],
            ..world("a cycle whose traffic changes", LaneKind::Both, three)
        },
    ]
}
