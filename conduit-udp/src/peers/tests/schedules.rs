//! Random schedules: sends, restarts, ends and closes, over a network with many faults.

use proptest::prelude::*;

use super::app::{COPIED, READ};
use super::world::{Faults, MS, World};
use crate::protocol::Refused;

const PLACES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Send(usize, usize, u8, usize),
    Run(u64),
    Restart(usize),
    Kill(usize),
    Close(usize, usize),
    EndSession(usize, usize),
    Leave(usize),
    Refuse(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || 0..PLACES;
    let step = prop_oneof![
        12 => (place(), place(), prop_oneof![Just(COPIED), Just(READ)], 0usize..700)
            .prop_map(|(from, to, channel, length)| Step::Send(from, to, channel, length)),
        2 => (place(), place(), 700usize..40_000)
            .prop_map(|(from, to, length)| Step::Send(from, to, READ, length)),
        8 => (0u64..40).prop_map(|time| Step::Run(time * MS / 4)),
        1 => (0u64..6_000).prop_map(|time| Step::Run(time * MS)),
        1 => place().prop_map(Step::Restart),
        1 => place().prop_map(Step::Kill),
        1 => (place(), place()).prop_map(|(place, to)| Step::Close(place, to)),
        1 => (place(), place()).prop_map(|(place, to)| Step::EndSession(place, to)),
        1 => place().prop_map(Step::Leave),
        1 => (place(), 1u32..20).prop_map(|(place, count)| Step::Refuse(place, count)),
    ];
    prop::collection::vec(step, 1..120)
}

fn run(seed: u64, faults: Faults, steps: &[Step]) {
    let mut world = World::new(PLACES, seed);
    world.faults = faults;
    for step in steps {
        match *step {
            Step::Send(from, to, ..) if from == to || world.processes[from].is_none() => {}
            Step::Send(from, to, channel, length) => {
                let sent = world.send(from, to, channel, length);
                assert!(matches!(sent, Ok(()) | Err(Refused::Full)), "{sent:?}");
            }
            Step::Run(time) => world.run(time),
            Step::Restart(place) => world.start(place),
            Step::Kill(place) => world.kill(place),
            Step::Close(place, to) if place != to => world.close(place, to),
            Step::EndSession(place, to) if place != to => world.end_session(place, to),
            Step::Close(..) | Step::EndSession(..) => {}
            Step::Leave(place) => {
                if let Some(process) = &mut world.processes[place] {
                    process.node.leave();
                }
                world.transmit();
                world.kill(place);
            }
            Step::Refuse(place, count) => {
                if let Some(process) = &mut world.processes[place] {
                    process.app.refuses = count;
                }
            }
        }
        world.transmit();
    }
    world.faults = Faults::default();
    // This time is longer than a handshake lasts, and longer than the dead time.
    world.run(10_000 * MS);
    world.check_rest();
    // Afterwards all live processes can communicate.
    let living: Vec<usize> = (0..PLACES)
        .filter(|&place| world.processes[place].is_some())
        .collect();
    for &from in &living {
        for &to in living.iter().filter(|&&to| to != from) {
            world.send_one(from, to, READ, 5_000);
        }
    }
    world.run(1_000 * MS);
    world.check_rest();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn what_is_accepted_in_a_session_arrives_once_and_in_order(
        seed: u64,
        steps in steps(),
        lose in 0u32..40,
        double in 0u32..40,
        jitter in 0u64..20,
    ) {
        let faults = Faults { lose, double, jitter: jitter * MS };
        run(seed, faults, &steps);
    }
}

/// `docs/udp.md` states this memory.
#[test]
fn an_idle_peer_costs_few_bytes_and_none_when_it_has_gone() {
    const MANY: usize = 256;
    let mut world = World::new(1 + MANY, 1);
    let empty = world.process(0).node.memory();
    for place in 1..=MANY {
        world.send_one(place, 0, COPIED, 100);
    }
    world.run(25_000 * MS);
    // A few links may be open for probes.
    let idle = (world.process(0).node.memory() - empty) / MANY;
    println!("{idle} bytes");
    assert!(idle < 400, "{idle} bytes");
    for place in 1..=MANY {
        world.process(place).node.leave();
    }
    world.run(100 * MS);
    for place in 1..=MANY {
        world.kill(place);
        world.close(0, place);
    }
    // By this time, the used cookies are forgotten.
    world.run(30_000 * MS);
    let after = world.process(0).node.memory();
    assert!(after <= empty + 1_024, "{after} after {empty}");
}
