//! The worlds to be checked.

use credits::{Growth, Tuning};

use crate::Event::{Crossing, Epoch, GoesOn, Grant, NothingToReturn, Return, Stall};
use crate::{Event, Requests, World};

/// Returns a tuning with small limits: epochs of `epoch` requests, and at most two credits given or
/// given back to one peer within an epoch.
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

/// Creates worlds. Each line gives a world's name, its number of ranks, its credits, its tuning,
/// its requests (sender, receiver and costs), and the events that must happen.
macro_rules! worlds {
    ($($name:literal: $ranks:literal ranks, loan $loan:literal, banked $banked:literal, $tuning:expr;
       $($request:expr),* => $events:expr;)*) => {
        vec![$(World {
            name: $name,
            ranks: $ranks,
            loan: $loan,
            banked: $banked,
            tuning: $tuning,
            requests: vec![$(requests($request)),*],
            events: $events.to_vec(),
        }),*]
    };
}

fn requests<const N: usize>((from, to, costs): (u32, u32, [u8; N])) -> Requests {
    let costs = costs.to_vec();
    Requests { from, to, costs }
}

const ALL: &[Event] = &[Stall, Grant, Return, NothingToReturn, Epoch, Crossing];

/// Returns the worlds that are checked with every change to the code. They have 1.7 million states
/// in total.
#[must_use]
pub fn small() -> Vec<World> {
    worlds! {
        "two borrow from one bank": 3 ranks, loan 1, banked 2, tuning(1, 3);
            (0, 2, [1; 3]), (1, 2, [1; 3]) => ALL;
        "one has what the other needs": 3 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 2, [1; 3]), (1, 2, [1; 2]) => &[Stall, Grant, Return, NothingToReturn, Epoch];
        "loans that double": 3 ranks, loan 2, banked 0, Tuning { growth: Growth::Doubling, ..tuning(1, 2) };
            (0, 2, [1; 4]), (1, 2, [1; 2]) => ALL;
        "a large loan goes on to the most": 2 ranks, loan 1, banked 7,
            Tuning { growth: Growth::Doubling, lender_limit: 6, ..tuning(1, 3) };
            (0, 1, [1; 5]), (1, 1, [1; 3]) => &[Stall, Grant, Epoch, GoesOn];
        "use counts for one more epoch": 3 ranks, loan 2, banked 0, Tuning { hold: true, ..tuning(1, 2) };
            (0, 2, [1; 3]), (1, 2, [1; 3]) => ALL;
        "with a pace, one is asked at a time": 3 ranks, loan 2, banked 0,
            Tuning { scavenge: 1, revokes_per_epoch: 1, ..tuning(1, 2) };
            (0, 2, [1; 4]), (1, 2, [1; 2]) => ALL;
        "requests of two credits": 3 ranks, loan 3, banked 0, tuning(2, 2);
            (0, 2, [2; 3]), (1, 2, [2, 1, 2]) => ALL;
        "two ranks to each other": 2 ranks, loan 2, banked 1, tuning(1, 2);
            (0, 1, [1; 4]), (1, 0, [1; 3]) => &[Stall, Grant, Return, NothingToReturn, Epoch];
        "two ranks with more credits": 2 ranks, loan 3, banked 2, tuning(1, 3);
            (0, 1, [1; 6]), (1, 0, [1; 2]) => ALL;
        "a rank also to itself": 2 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 1, [1; 3]), (1, 1, [1; 3]) => &[Stall, Grant, Return, NothingToReturn, Epoch];
        "a ring": 3 ranks, loan 1, banked 1, tuning(1, 2);
            (0, 1, [1; 2]), (1, 2, [1; 2]), (2, 0, [1; 2]) => &[Stall, Grant, Epoch];
        "all to all": 3 ranks, loan 1, banked 1, tuning(1, 2);
            (0, 1, [1]), (0, 2, [1]), (1, 0, [1]), (1, 2, [1]), (2, 0, [1]), (2, 1, [1]) => &[Epoch];
        "a lender that also sends requests": 3 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 2, [1; 3]), (1, 2, [1]), (2, 1, [1; 2]) => &[Stall, Return, NothingToReturn, Epoch];
    }
}

/// Returns larger worlds, which take minutes and several gigabytes of memory to check.
#[must_use]
pub fn large() -> Vec<World> {
    worlds! {
        "a large loan goes on, and has to give back": 3 ranks, loan 1, banked 4,
            Tuning { growth: Growth::Doubling, lender_limit: 6, revoke_limit: 6, max_per_peer: 4, ..tuning(1, 2) };
            (0, 2, [1; 4]), (1, 2, [1; 4]) => &[Stall, Grant, Return, NothingToReturn, Epoch, GoesOn];
        "one has what the other needs, for longer": 3 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 2, [1; 4]), (1, 2, [1; 3]) => ALL;
        "a rank also to itself, for longer": 2 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 1, [1; 3]), (1, 1, [1; 4]) => ALL;
        "requests of two credits, for longer": 3 ranks, loan 3, banked 1, tuning(2, 2);
            (0, 2, [2; 4]), (1, 2, [2, 2, 1]) => ALL;
        "all to all, with more to one": 3 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 1, [1]), (0, 2, [1; 3]), (1, 0, [1]), (1, 2, [1]), (2, 0, [1]), (2, 1, [1])
                => &[Stall, Return, NothingToReturn, Epoch];
        "a ring that takes back": 3 ranks, loan 2, banked 0, tuning(1, 2);
            (0, 1, [1; 3]), (1, 2, [1; 3]), (2, 0, [1; 3]) => &[Stall, Return, Epoch];
    }
}
