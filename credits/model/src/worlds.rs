//! The worlds that are checked.

use credits::{Growth, Tuning};

use crate::Event::{Crossing, Epoch, GoesOn, Grant, NothingToReturn, Return, Stall};
use crate::{Event, Requests, World};

/// Small limits: an epoch of `epoch` requests, and at most two credits given or given back within it.
fn tuning(minimum: u16, epoch: u32) -> Tuning {
    Tuning {
        minimum,
        max_per_peer: 6,
        epoch,
        revoke_limit: 2,
        lender_limit: 2,
        scavenge: 2,
        ..Tuning::default()
    }
}

fn requests(list: &[(u32, u32, &[u8])]) -> Vec<Requests> {
    let one = |&(from, to, costs): &(u32, u32, &[u8])| Requests {
        from,
        to,
        costs: costs.to_vec(),
    };
    list.iter().map(one).collect()
}

const ALL: &[Event] = &[Stall, Grant, Return, NothingToReturn, Epoch, Crossing];

/// The worlds that are checked with every change: 1.7 million states in all.
#[must_use]
pub fn small() -> Vec<World> {
    vec![
        World {
            name: "two borrow from one bank",
            ranks: 3,
            loan: 1,
            banked: 2,
            tuning: tuning(1, 3),
            requests: requests(&[(0, 2, &[1; 3]), (1, 2, &[1; 3])]),
            events: ALL.to_vec(),
        },
        World {
            name: "one has what the other needs",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 2, &[1; 3]), (1, 2, &[1; 2])]),
            events: vec![Stall, Grant, Return, NothingToReturn, Epoch],
        },
        World {
            name: "loans that double",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: Tuning {
                growth: Growth::Doubling,
                ..tuning(1, 2)
            },
            requests: requests(&[(0, 2, &[1; 4]), (1, 2, &[1; 2])]),
            events: ALL.to_vec(),
        },
        World {
            name: "a large loan goes on to the most",
            ranks: 2,
            loan: 1,
            banked: 7,
            tuning: Tuning {
                growth: Growth::Doubling,
                lender_limit: 6,
                ..tuning(1, 3)
            },
            requests: requests(&[(0, 1, &[1; 5]), (1, 1, &[1; 3])]),
            events: vec![Stall, Grant, Epoch, GoesOn],
        },
        World {
            name: "use counts for one epoch more",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: Tuning {
                hold: true,
                ..tuning(1, 2)
            },
            requests: requests(&[(0, 2, &[1; 3]), (1, 2, &[1; 3])]),
            events: ALL.to_vec(),
        },
        World {
            name: "with a pace, one is asked at a time",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: Tuning {
                scavenge: 1,
                revokes_per_epoch: 1,
                ..tuning(1, 2)
            },
            requests: requests(&[(0, 2, &[1; 4]), (1, 2, &[1; 2])]),
            events: ALL.to_vec(),
        },
        World {
            name: "requests of two credits",
            ranks: 3,
            loan: 3,
            banked: 0,
            tuning: tuning(2, 2),
            requests: requests(&[(0, 2, &[2; 3]), (1, 2, &[2, 1, 2])]),
            events: ALL.to_vec(),
        },
        World {
            name: "two ranks to each other",
            ranks: 2,
            loan: 2,
            banked: 1,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 1, &[1; 4]), (1, 0, &[1; 3])]),
            events: vec![Stall, Grant, Return, NothingToReturn, Epoch],
        },
        World {
            name: "two ranks with more credits",
            ranks: 2,
            loan: 3,
            banked: 2,
            tuning: tuning(1, 3),
            requests: requests(&[(0, 1, &[1; 6]), (1, 0, &[1; 2])]),
            events: ALL.to_vec(),
        },
        World {
            name: "a rank also to itself",
            ranks: 2,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 1, &[1; 3]), (1, 1, &[1; 3])]),
            events: vec![Stall, Grant, Return, NothingToReturn, Epoch],
        },
        World {
            name: "a ring",
            ranks: 3,
            loan: 1,
            banked: 1,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 1, &[1; 2]), (1, 2, &[1; 2]), (2, 0, &[1; 2])]),
            events: vec![Stall, Grant, Epoch],
        },
        World {
            name: "all to all",
            ranks: 3,
            loan: 1,
            banked: 1,
            tuning: tuning(1, 2),
            requests: requests(&[
                (0, 1, &[1]),
                (0, 2, &[1]),
                (1, 0, &[1]),
                (1, 2, &[1]),
                (2, 0, &[1]),
                (2, 1, &[1]),
            ]),
            events: vec![Epoch],
        },
        World {
            name: "a lender with requests of its own",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 2, &[1; 3]), (1, 2, &[1]), (2, 1, &[1; 2])]),
            events: vec![Stall, Return, NothingToReturn, Epoch],
        },
    ]
}

/// Larger ones, for minutes and some gigabytes.
#[must_use]
pub fn large() -> Vec<World> {
    vec![
        World {
            name: "a large loan goes on, and has to give back",
            ranks: 3,
            loan: 1,
            banked: 4,
            tuning: Tuning {
                growth: Growth::Doubling,
                lender_limit: 6,
                revoke_limit: 6,
                max_per_peer: 4,
                ..tuning(1, 2)
            },
            requests: requests(&[(0, 2, &[1; 4]), (1, 2, &[1; 4])]),
            events: vec![Stall, Grant, Return, NothingToReturn, Epoch, GoesOn],
        },
        World {
            name: "one has what the other needs, for longer",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 2, &[1; 4]), (1, 2, &[1; 3])]),
            events: ALL.to_vec(),
        },
        World {
            name: "a rank also to itself, for longer",
            ranks: 2,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 1, &[1; 3]), (1, 1, &[1; 4])]),
            events: ALL.to_vec(),
        },
        World {
            name: "requests of two credits, for longer",
            ranks: 3,
            loan: 3,
            banked: 1,
            tuning: tuning(2, 2),
            requests: requests(&[(0, 2, &[2; 4]), (1, 2, &[2, 2, 1])]),
            events: ALL.to_vec(),
        },
        World {
            name: "all to all, with more to one",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[
                (0, 1, &[1]),
                (0, 2, &[1; 3]),
                (1, 0, &[1]),
                (1, 2, &[1]),
                (2, 0, &[1]),
                (2, 1, &[1]),
            ]),
            events: vec![Stall, Return, NothingToReturn, Epoch],
        },
        World {
            name: "a ring that takes back",
            ranks: 3,
            loan: 2,
            banked: 0,
            tuning: tuning(1, 2),
            requests: requests(&[(0, 1, &[1; 3]), (1, 2, &[1; 3]), (2, 0, &[1; 3])]),
            events: vec![Stall, Return, Epoch],
        },
    ]
}
