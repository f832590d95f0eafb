//! Throughput in virtual time.

use super::network::{Faults, Network};
use crate::protocol::{Config, Nanos};

const SECOND: u64 = 1_000_000_000;

/// Sends `count` fragments of `length` bytes from each of the ranks `1..size` to rank 0. Returns
/// the time that this takes.
fn time(network: &mut Network, count: u64, length: usize) -> Nanos {
    let size = network.endpoints.len() as u32;
    let begin = network.now;
    let mut left = vec![count; size as usize];
    loop {
        let mut any = false;
        for from in 1..size {
            while left[from as usize] > 0 && network.send(from, 0, 1, length) {
                left[from as usize] -= 1;
            }
            any |= left[from as usize] > 0;
        }
        if !any {
            break;
        }
        assert!(network.step(begin + 100 * SECOND));
    }
    network.settle(100 * SECOND);
    network.now - begin
}

fn describe(network: &Network) -> String {
    let counters = network.endpoints[1].counters();
    let link = network.endpoints[1].link(0).unwrap();
    let own = network.endpoints[0].counters();
    format!(
        "resent {} {} {}, duplicates {}, acks {} {} {}, overflown {}, window {}, round trip {} of {}",
        counters.resent_packet_threshold,
        counters.resent_time_threshold,
        counters.resent_pto,
        own.duplicates,
        own.acks_immediate,
        own.acks_delayed,
        own.acks_with_segment,
        network.overflown,
        link.congestion_window,
        link.smoothed_rtt,
        link.min_rtt,
    )
}

#[test]
fn a_loss_of_one_per_cent_costs_less_than_half() {
    for (rate, delay, length) in [
        (1000, 10_000, 1 << 20),
        (1000, 1_000_000, 1 << 20),
        (100, 50_000, 65_536),
        (3000, 5_000, 65_536),
        (1000, 10_000, 4000),
    ] {
        let mut times = Vec::new();
        for lose in [0, 10] {
            let mut network = Network::new(
                2,
                5,
                &Config::default(),
                Faults {
                    rate,
                    delay,
                    lose,
                    ..Faults::default()
                },
            );
            // The link is opened beforehand, as in any measurement.
            time(&mut network, 1, 100);
            let count = (10 << 20) / length as u64;
            let time = time(&mut network, count, length);
            let share = (count * length as u64 * 1000) as f64 / (rate * time) as f64;
            println!(
                "{rate} B/us, {delay} ns, {length} B, loss {lose}: {share:.3}; {}",
                describe(&network)
            );
            times.push(time);
        }
        assert!(times[1] < 2 * times[0], "{times:?}");
    }
}

#[test]
fn many_to_one_does_not_collapse() {
    for senders in [4, 32] {
        let faults = Faults {
            rate: 1000,
            intake: 1000,
            buffer: 1 << 20,
            ..Faults::default()
        };
        let config = Config {
            socket_buffer: 1 << 20,
            ..Config::default()
        };
        let mut network = Network::new(senders + 1, 5, &config, faults);
        let count = 64 / u64::from(senders);
        let time = time(&mut network, count, 1 << 18);
        let share = ((count * u64::from(senders)) << 18) as f64 * 1000.0 / (1000 * time) as f64;
        println!("{senders} senders: {share:.3}; {}", describe(&network));
        assert!(share > 0.5, "{share}");
    }
}
