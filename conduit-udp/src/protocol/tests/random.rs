//! Random traffic over random networks.

use proptest::prelude::*;

use super::network::{Faults, Network};
use crate::protocol::Config;

const SECOND: u64 = 1_000_000_000;

fn faults() -> impl Strategy<Value = Faults> {
    (
        0u64..300,
        0u64..200,
        0u64..50,
        0u64..200_000,
        0u64..300_000,
        prop::sample::select(vec![0, 10, 100, 1000]),
    )
        .prop_map(|(lose, double, change, delay, jitter, rate)| Faults {
            lose,
            double,
            change,
            delay,
            jitter: if jitter > 150_000 { 0 } else { jitter },
            rate,
            ..Faults::default()
        })
}

fn config() -> impl Strategy<Value = Config> {
    (
        1024usize..9000,
        0u32..12,
        0u32..8,
        1000usize..30_000,
        0u64..200,
        prop::sample::select(vec![0, 1, 10_000, 1_000_000, 1_000_000_000]),
        prop::sample::select(vec![0, 1, 1024]),
    )
        .prop_map(
            |(packet, window, initial, early, before_wrap, idle_time, open_links)| Config {
                idle_time,
                open_links,
                packet,
                window: 1 << window,
                initial_window: 1 << initial,
                link_commands: 4096,
                link_fragments: 8,
                link_early: early,
                early: 2 * early,
                socket_buffer: 200_000,
                first_sequence: (1 << 24) - before_wrap,
                ..Config::default()
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_once_and_in_order(
        seed: u64,
        size in 2u32..5,
        faults in faults(),
        config in config(),
        refuse in prop::sample::select(vec![0u64, 0, 100, 700]),
        fragments in prop::collection::vec((0u32..4, 0u32..4, 0u8..2, 0usize..700, 0usize..60, prop_oneof![9 => 0u64..50_000, 1 => 50_000u64..20_000_000]), 1..120),
    ) {
        let mut network = Network::new(size, seed, &config, faults);
        for app in &mut network.apps {
            app.refuse = refuse;
        }
        for (from, to, channel, length, more, pause) in fragments {
            let (from, to) = (from % size, to % size);
            let length = if channel == 1 { length * (1 + more) } else { length };
            let end = network.now + 200 * SECOND;
            while !network.send(from, to, channel, length) {
                prop_assert!(network.step(end), "full forever");
            }
            if pause > 25_000 {
                network.run(pause - 25_000);
            }
        }
        network.settle(400 * SECOND);
        for app in &network.apps {
            prop_assert!(app.failures.is_empty(), "{:?}", app.failures);
        }
        // For each link, the bound allows twice the window's slots and log, the buffered segments,
        // the rings and the fragments.
        let window = 2 * 2 * 4096 * (32 + 4) + 2 * 2 * 512;
        let bound = size as usize * (2000 + window.min(4 * 36 * 2 * config.window as usize + 2048) + config.link_early + 4096 + 8 * 200 + 10_000);
        prop_assert!(network.most_memory < bound, "{} {}", network.most_memory, bound);
    }
}
