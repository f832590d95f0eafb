//! The checked worlds.

use ReturnMode::{Buffered, Deposited, Immediately, Received};
use agent::Limits;
use agent::host::{Limit, ReturnMode};

use crate::world::Event::{AllDone, Destroyed, Gone, Long, TimeOut, Waits};
use crate::{Ask, Fault, What, World};

/// The length of a message that exceeds an eager buffer. Strips have half this length.
const LONG: usize = 2400;

fn world(name: &'static str, asks: &[Ask]) -> World {
    World {
        name,
        limits: Limits {
            ejection: LONG as u64 / 2,
            injection: LONG as u64 / 2,
            getmsg: 1,
            eager: 4096,
            strip: LONG as u32 / 2,
            // All agents start together.
            connect: 0,
            ..Limits::default()
        },
        capacity: 1,
        asks: asks.to_vec(),
        takes: 1,
        abandons: false,
        deaths: 0,
        cuts: 0,
        destroys: false,
        ticks: 0,
        fault: Fault::None,
        events: vec![AllDone],
    }
}

fn ask(from: usize, what: What) -> Ask {
    Ask {
        from,
        to: 1,
        what,
        limit: Limit::Never,
    }
}

fn send(handle: u8, length: usize, mode: ReturnMode) -> Ask {
    ask(
        0,
        What::Send {
            handle,
            length,
            mode,
        },
    )
}

fn within(time: u64, ask: Ask) -> Ask {
    Ask {
        limit: Limit::At(time),
        ..ask
    }
}

/// Returns the worlds that are checked with every change.
#[must_use]
pub fn small() -> Vec<World> {
    let get = ask(0, What::Get);
    vec![
        World {
            deaths: 2,
            takes: 2,
            events: vec![AllDone, Gone, Waits],
            ..world(
                "short messages of two handles, two deaths",
                &[
                    send(1, 8, Deposited),
                    send(2, 9, Immediately),
                    send(1, 10, Deposited),
                ],
            )
        },
        World {
            cuts: 1,
            ticks: 1,
            events: vec![AllDone, Gone, Long],
            ..world(
                "a long message and a short one of a handle, a lost session",
                &[send(1, LONG, Buffered), send(1, 8, Deposited)],
            )
        },
        World {
            deaths: 1,
            cuts: 1,
            events: vec![AllDone, Gone, Long],
            ..world(
                "a long message, a death and a lost session",
                &[send(1, LONG, Deposited)],
            )
        },
        World {
            events: vec![AllDone, Long],
            capacity: 2,
            ..world(
                "two long messages, room for one in flight",
                &[send(1, LONG, Deposited), send(2, LONG, Deposited)],
            )
        },
        World {
            cuts: 1,
            capacity: 3,
            events: vec![AllDone, Gone],
            ..world(
                "buffers that overtake each other, a lost session",
                &[
                    send(1, 1000, Deposited),
                    send(1, 8, Deposited),
                    send(1, 1001, Deposited),
                ],
            )
        },
        World {
            destroys: true,
            deaths: 1,
            ticks: 1,
            events: vec![AllDone, Destroyed, Gone],
            takes: 2,
            ..world(
                "receipts, a channel that is destroyed, a death",
                &[send(1, 8, Received), send(1, 9, Received)],
            )
        },
        World {
            abandons: true,
            deaths: 1,
            ticks: 1,
            takes: 0,
            events: vec![AllDone, Gone, TimeOut],
            ..world(
                "a get that is given up, a message for it, a death",
                &[get, send(1, 8, Deposited)],
            )
        },
        World {
            cuts: 1,
            ticks: 1,
            takes: 0,
            events: vec![AllDone, Gone, Long],
            ..world(
                "a get of a long message, a lost session",
                &[get, send(1, LONG, Immediately)],
            )
        },
        World {
            ticks: 2,
            capacity: 0,
            events: vec![TimeOut, Waits],
            ..world(
                "time-outs at a full channel",
                &[
                    within(30_000, send(1, 8, Deposited)),
                    within(20_000, send(1, 9, Buffered)),
                ],
            )
        },
        World {
            limits: Limits {
                ports: 1,
                ..world("", &[]).limits
            },
            cuts: 1,
            ticks: 1,
            takes: 3,
            events: vec![AllDone, Gone, Waits],
            ..world(
                "ports that are closed and used again, a lost session",
                &[
                    send(1, 8, Immediately),
                    send(2, 9, Immediately),
                    send(1, 10, Deposited),
                ],
            )
        },
        World {
            ticks: 1,
            cuts: 1,
            events: vec![AllDone, Gone],
            ..world(
                "both ways, and a poll, a lost session",
                &[
                    send(1, 8, Deposited),
                    ask(0, What::Poll(1)),
                    Ask {
                        to: 0,
                        ..ask(1, What::Poll(0))
                    },
                ],
            )
        },
    ]
}

/// Returns larger worlds, which take minutes and some gigabytes.
#[must_use]
pub fn large() -> Vec<World> {
    let get = ask(0, What::Get);
    vec![
        World {
            deaths: 2,
            ticks: 1,
            takes: 2,
            events: vec![AllDone, Gone, Waits],
            ..world(
                "short messages of two handles, two deaths",
                &[
                    send(1, 8, Deposited),
                    send(2, 9, Immediately),
                    send(1, 10, Deposited),
                ],
            )
        },
        World {
            deaths: 1,
            ticks: 1,
            events: vec![AllDone, Gone],
            ..world(
                "both ways, and a poll, a death",
                &[
                    send(1, 8, Deposited),
                    ask(0, What::Poll(1)),
                    Ask {
                        from: 1,
                        to: 0,
                        ..get
                    },
                    Ask {
                        to: 0,
                        ..send(1, 9, Buffered)
                    },
                ],
            )
        },
        World {
            deaths: 1,
            cuts: 1,
            ticks: 1,
            takes: 2,
            events: vec![AllDone, Gone, Long],
            ..world(
                "a long message, a short one and a get, a death and a lost session",
                &[send(1, LONG, Buffered), send(1, 8, Received), get],
            )
        },
        World {
            limits: Limits {
                ports: 1,
                ..world("", &[]).limits
            },
            deaths: 2,
            ticks: 1,
            takes: 3,
            events: vec![AllDone, Gone, Waits],
            ..world(
                "ports that are closed and used again, two deaths",
                &[
                    send(1, 8, Immediately),
                    send(2, 9, Immediately),
                    send(1, 10, Deposited),
                ],
            )
        },
    ]
}
