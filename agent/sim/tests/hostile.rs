//! An agent that violates the protocol. The others survive it, bound what they hold for it, and
//! serve each other.

use std::collections::BTreeMap;

use agent::Limits;
use agent::host::{Limit, Operation, Outcome, Request, ReturnMode};
use agent_sim::{Delays, World};
use proptest::prelude::*;

use super::worlds::MS;

/// The hostile agent; those of the other nodes are sound.
const HOSTILE: u32 = 1;
const SOUND: [u32; 2] = [0, 2];

/// Messages of sound nodes have smaller numbers.
const MOST_IDS: u64 = 1 << 10;

/// Returns the bytes of a sound node's message; the hostile node sends others.
fn content(id: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(id ^ 0x5eed);
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend((0..length.max(32)).map(|_| random.u8(..)));
    bytes
}

/// Takes the messages that sound nodes have received from each other, in order.
fn take(world: &mut World, arrived: &mut BTreeMap<u32, Vec<u64>>) {
    for node in SOUND {
        while let Some(message) = world.hosts[node as usize].take(0) {
            let bytes = message.memory.bytes();
            // Messages of the hostile node contain other numbers.
            if let Some(id) = bytes.first_chunk().map(|id| u64::from_le_bytes(*id))
                && (1..MOST_IDS).contains(&id)
            {
                assert!(
                    bytes == content(id, bytes.len() - 8),
                    "message {id} is corrupt"
                );
                arrived.entry(node).or_default().push(id);
            }
        }
    }
    let _ = world.hosts[HOSTILE as usize].take(0);
}

proptest! {
    // `PROPTEST_CASES` can raise this.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(300)))]

    #[test]
    fn others_serve_each_other(
        seed in any::<u64>(),
        percent in 1u32..60,
        lengths in prop::collection::vec(prop_oneof![3 => 32usize..2000, 1 => 2000usize..60_000], 1..60),
    ) {
        let limits = Limits { ejection: 1 << 18, strip: 1 << 13, ..Limits::default() };
        let mut world = World::new(3, 8 << 20, limits, Delays::default(), seed);
        for host in &mut world.hosts {
            host.create(0, 4);
        }
        world.net.make_hostile(HOSTILE, percent, seed);
        let mut arrived = BTreeMap::new();
        let mut sent: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let never = Limit::Never;
        for (id, length) in (1u64..).zip(lengths) {
            for [from, to] in [[0, 2], [2, 0]] {
                let id = 2 * id + u64::from(from / 2);
                world.send((from, 1), to, id, content(id, length), ReturnMode::Deposited, never);
                sent.entry(to).or_default().push(id);
            }
            for other in SOUND {
                let id = 1 << 32 | id << 2 | u64::from(other);
                let bytes = vec![7; length];
                world.send((HOSTILE, other.into()), other, id, bytes.clone(), ReturnMode::Deposited, never);
                world.send((other, 2), HOSTILE, id, bytes, ReturnMode::Buffered, Limit::At(world.now() + MS));
                let host = &mut world.hosts[HOSTILE as usize];
                host.ask(Request {
                    id: id | 1 << 40,
                    node: World::host_id(other),
                    channel: [0].into(),
                    process: 0,
                    limit: Limit::At(100 * MS),
                    operation: Operation::Get,
                });
            }
            world.run(world.now() + MS / 5, |_, _| {});
            take(&mut world, &mut arrived);
        }
        for _ in 0..200 {
            world.run(world.now() + MS, |_, _| {});
            take(&mut world, &mut arrived);
        }
        world.kill(HOSTILE);
        for _ in 0..100 {
            world.run(world.now() + MS, |_, _| {});
            take(&mut world, &mut arrived);
        }
        // The hostile node's gets take messages too.
        for (node, ids) in &arrived {
            let mut expected = sent[node].iter();
            prop_assert!(ids.iter().all(|id| expected.any(|sent| sent == id)), "{ids:?}");
        }
        for node in SOUND {
            let of_sound = |id: &u64| *id < MOST_IDS;
            let host = &world.hosts[node as usize];
            let done = host.completed.iter().filter(|(id, _)| of_sound(id));
            prop_assert!(done.clone().all(|(_, outcome)| *outcome == Outcome::Sent));
            prop_assert_eq!(done.count(), sent[&(2 - node)].len());
            prop_assert_eq!(world.held(node), agent::Held::default());
        }
    }
}
