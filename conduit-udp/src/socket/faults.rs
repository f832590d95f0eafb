//! Fault injection for tests, which drops, duplicates, corrupts or delays some received packets.
//!
//! The fate of a packet depends only on its sender, its receiver, its number and a seed. A packet
//! with a given number therefore has the same fate in every run, whatever the order of arrival.
//! Faults are injected at the receiver, so that packets pass through the system in the same groups
//! as without faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddrV6;

use conduit_core::ni::Rank;
use fastrand::Rng;
use settings::Percent;

use super::Batch;
use crate::protocol::{Nanos, mixed};

/// The faults to inject. By default there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultConfig {
    /// The seed that determines which packets have faults.
    pub seed: u32,
    /// The share of packets to drop.
    pub loss: Percent,
    /// The share of packets to duplicate.
    pub duplicates: Percent,
    /// The share of packets to corrupt.
    pub corruption: Percent,
    /// The share of packets to delay by up to a millisecond, which reorders them.
    pub reorder: Percent,
    /// The delay of all packets, in nanoseconds.
    pub delay: Nanos,
}

impl FaultConfig {
    /// Returns whether no faults are injected.
    pub fn is_none(&self) -> bool {
        *self
            == Self {
                seed: self.seed,
                ..Self::default()
            }
    }
}

/// The longest additional delay of a reordered packet, in nanoseconds.
const REORDER: Nanos = 1_000_000;
/// The maximum number of bytes in packets that are held back. Further packets are lost, as in any
/// full queue.
const MAX_HELD: usize = 64 << 20;
/// The number of bytes of a packet's header, which identifies the packet. The header contains the
/// kind, the flags, the length, the sender's rank and the packet number.
const NAME: usize = 16;

/// The counters of injected faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// The seed.
    pub seed: u32,
    /// Packets received.
    pub packets: u64,
    /// Packets dropped.
    pub lost: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets corrupted.
    pub corrupted: u64,
    /// Packets reordered.
    pub reordered: u64,
    /// Packets lost because too many bytes were held back.
    pub overflowed: u64,
}

impl FaultCounters {
    /// Returns each counter with its name.
    pub fn each(&self) -> [(&'static str, u64); 7] {
        [
            ("seed", self.seed.into()),
            ("packets", self.packets),
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("corrupted", self.corrupted),
            ("reordered", self.reordered),
            ("overflowed", self.overflowed),
        ]
    }
}

/// A packet that is held back. Packets are ordered by the time at which they are due.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Nanos,
    /// The order of packets that are due at the same time.
    order: u64,
    bytes: Vec<u8>,
    source: Option<SocketAddrV6>,
}

/// Injects faults between a rank's socket and its protocol.
#[derive(Debug)]
pub(super) struct Faults {
    config: FaultConfig,
    rank: Rank,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    order: u64,
    counters: FaultCounters,
}

impl Faults {
    pub(super) fn new(config: &FaultConfig, rank: Rank) -> Self {
        Self {
            config: *config,
            rank,
            held: BinaryHeap::new(),
            held_bytes: 0,
            order: 0,
            counters: FaultCounters {
                seed: config.seed,
                ..FaultCounters::default()
            },
        }
    }

    pub(super) fn counters(&self) -> &FaultCounters {
        &self.counters
    }

    /// Returns the time at which the next held packet is due.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    /// Passes on the packets of `incoming` that are neither lost nor held back, and then the held
    /// packets that are due. `limits` consists of the maximum number of packets of either kind and
    /// the maximum number of bytes of `incoming`. Returns whether there were any packets.
    pub(super) fn pass(
        &mut self,
        now: Nanos,
        incoming: &mut Batch,
        [most, most_bytes]: [usize; 2],
        mut receive: impl FnMut(&mut [u8], Option<SocketAddrV6>),
    ) -> bool {
        let mut did = false;
        let mut bytes = 0;
        for _ in 0..most {
            if bytes >= most_bytes {
                break;
            }
            let Some((packet, source)) = incoming.next_datagram_from() else {
                break;
            };
            bytes += packet.len();
            did = true;
            if self.admit(now, packet, source) {
                receive(packet, source);
            }
        }
        for _ in 0..most {
            let Some((mut packet, source)) = self.release(now) else {
                break;
            };
            did = true;
            receive(&mut packet, source);
        }
        did
    }

    /// Decides on a packet. Returns `true` if the packet passes now and unchanged. Copies of the
    /// packet may follow.
    fn admit(&mut self, now: Nanos, packet: &[u8], source: Option<SocketAddrV6>) -> bool {
        self.counters.packets += 1;
        let config = self.config;
        let mut random = self.draws_for(packet);
        let mut has = |percent: Percent| {
            percent > Percent::NONE && random.u32(..1_000_000) < percent.millionths()
        };
        let is_lost = has(config.loss);
        let is_twice = has(config.duplicates);
        let is_changed = has(config.corruption);
        let is_late = [has(config.reorder), has(config.reorder)];
        if is_lost {
            self.counters.lost += 1;
            return false;
        }
        let times = is_late.map(|late| {
            let more = if late { random.u64(1..=REORDER) } else { 0 };
            now + config.delay + more
        });
        self.counters.reordered += u64::from(is_late[0]);
        if is_twice {
            self.counters.duplicated += 1;
            self.hold(times[1], packet.to_vec(), source);
        }
        if is_changed && !packet.is_empty() {
            self.counters.corrupted += 1;
            let mut changed = packet.to_vec();
            corrupt(&mut random, &mut changed);
            self.hold(times[0], changed, source);
            return false;
        }
        if times[0] == now {
            return true;
        }
        self.hold(times[0], packet.to_vec(), source);
        false
    }

    /// Returns random numbers that depend on this packet alone.
    fn draws_for(&self, packet: &[u8]) -> Rng {
        let mut name = [0; NAME];
        let length = packet.len().min(NAME);
        name[..length].copy_from_slice(&packet[..length]);
        let [low, high] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&name[at..at + 8]);
            u64::from_le_bytes(word)
        });
        let begin = u64::from(self.config.seed) << 32 | u64::from(self.rank);
        Rng::with_seed(mix(mix(mix(begin) ^ low) ^ high))
    }

    fn hold(&mut self, due: Nanos, bytes: Vec<u8>, source: Option<SocketAddrV6>) {
        if self.held_bytes + bytes.len() > MAX_HELD {
            self.counters.overflowed += 1;
            return;
        }
        self.held_bytes += bytes.len();
        self.order += 1;
        self.held.push(Reverse(Held {
            due,
            order: self.order,
            bytes,
            source,
        }));
    }

    fn release(&mut self, now: Nanos) -> Option<(Vec<u8>, Option<SocketAddrV6>)> {
        if self.due()? > now {
            return None;
        }
        let Reverse(Held { bytes, source, .. }) = self.held.pop()?;
        self.held_bytes -= bytes.len();
        Some((bytes, source))
    }
}

/// Performs a step of SplitMix64, in which each bit of the result depends on all bits of the
/// argument.
fn mix(word: u64) -> u64 {
    mixed(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Corrupts a packet, which must not be empty. Truncates the packet, appends a byte, or flips bits.
pub fn corrupt(random: &mut Rng, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    match random.u8(..8) {
        0 => bytes.truncate(random.usize(..length)),
        1 => bytes.push(random.u8(..)),
        _ => {
            // The bits are distinct, so the packet certainly changes.
            let first = random.usize(..length * 8);
            bytes[first / 8] ^= 1 << (first % 8);
            for _ in 0..random.usize(..4) {
                let other = random.usize(..length * 8);
                if other != first {
                    bytes[other / 8] ^= 1 << (other % 8);
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(from: u32, number: u64) -> Vec<u8> {
        let mut bytes = vec![1, 0, 4, 0];
        bytes.extend(from.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend([9; 20]);
        bytes
    }

    /// Returns the fate of packets that arrive at once: their numbers in order of delivery, each
    /// with `false` if the packet was corrupted.
    fn outcome(config: &FaultConfig, rank: Rank, numbers: &[u64]) -> Vec<(u64, bool)> {
        let mut faults = Faults::new(config, rank);
        let mut all = Vec::new();
        let mut note = |bytes: &[u8]| {
            let number = bytes.get(8..16).map_or(0, |number| {
                u64::from_le_bytes(number.try_into().unwrap_or_default())
            });
            all.push((number, *bytes == packet(0, number)));
        };
        for number in numbers {
            let packet = packet(0, *number);
            if faults.admit(7, &packet, None) {
                note(&packet);
            }
        }
        while let Some(due) = faults.due() {
            let (bytes, _) = faults.release(due).expect("it is due");
            note(&bytes);
        }
        assert_eq!(faults.held_bytes, 0);
        all
    }

    const LOSS: FaultConfig = FaultConfig {
        seed: 3,
        loss: Percent::of(5),
        duplicates: Percent::NONE,
        corruption: Percent::NONE,
        reorder: Percent::NONE,
        delay: 0,
    };

    fn all(number: u64) -> Vec<u64> {
        (0..number).collect()
    }

    #[test]
    fn a_packet_has_the_same_fate_whenever_it_comes() {
        let forwards = all(10_000);
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        let first = outcome(&LOSS, 1, &forwards);
        let mut second = outcome(&LOSS, 1, &backwards);
        second.reverse();
        assert_eq!(first, second);
        assert_ne!(first, outcome(&LOSS, 2, &forwards), "another rank");
        let other = FaultConfig { seed: 4, ..LOSS };
        assert_ne!(first, outcome(&other, 1, &forwards), "another seed");
    }

    #[test]
    fn as_many_have_faults_as_are_set() {
        let near = |count: usize, wanted: usize| count.abs_diff(wanted) < 150;
        let left = outcome(&LOSS, 0, &all(20_000)).len();
        assert!(near(20_000 - left, 1000), "{left}");
        let doubled = FaultConfig {
            loss: Percent::NONE,
            duplicates: Percent::of(5),
            ..LOSS
        };
        let count = outcome(&doubled, 0, &all(20_000)).len();
        assert!(near(count - 20_000, 1000), "{count}");
        let changed = FaultConfig {
            loss: Percent::NONE,
            corruption: Percent::of(5),
            ..LOSS
        };
        let came = outcome(&changed, 0, &all(20_000));
        assert_eq!(came.len(), 20_000);
        let count = came.iter().filter(|(_, whole)| !whole).count();
        assert!(near(count, 1000), "{count}");
        let late = FaultConfig {
            loss: Percent::NONE,
            reorder: Percent::of(5),
            ..LOSS
        };
        let came = outcome(&late, 0, &all(20_000));
        let count = came.windows(2).filter(|two| two[0].0 > two[1].0).count();
        assert!(came.len() == 20_000 && count > 400, "{count} overtaken");
    }

    #[test]
    fn all_packets_come_later_in_their_order() {
        let delayed = FaultConfig {
            loss: Percent::NONE,
            delay: 500,
            ..LOSS
        };
        let mut faults = Faults::new(&delayed, 0);
        for at in 0..10 {
            assert!(!faults.admit(100 * at, &packet(0, at), None));
        }
        assert_eq!(faults.due(), Some(500));
        assert_eq!(faults.release(499), None);
        for at in 0..10 {
            assert_eq!(faults.release(500 + 100 * at), Some((packet(0, at), None)));
            assert_eq!(faults.release(500 + 100 * at), None);
        }
    }

    #[test]
    fn no_more_is_held_than_the_bound() {
        let delayed = FaultConfig {
            loss: Percent::NONE,
            delay: 500,
            ..LOSS
        };
        let mut faults = Faults::new(&delayed, 0);
        let packet = vec![0; 1 << 16];
        for _ in 0..MAX_HELD / packet.len() + 3 {
            faults.admit(0, &packet, None);
        }
        assert_eq!(faults.counters().overflowed, 3);
        while faults.release(500).is_some() {}
        assert_eq!(faults.held_bytes, 0);
    }

    #[test]
    fn nothing_set_is_nothing_done() {
        assert!(
            FaultConfig {
                seed: 7,
                ..FaultConfig::default()
            }
            .is_none()
        );
        assert!(!LOSS.is_none());
        let nothing = FaultConfig::default();
        assert_eq!(outcome(&nothing, 0, &all(100)).len(), 100);
        assert_eq!(outcome(&nothing, 0, &[5, 5, 5]), [(5, true); 3]);
        let mut faults = Faults::new(&LOSS, 0);
        // These packets are shorter than any valid one.
        for length in 0..NAME {
            faults.admit(0, &vec![0; length], None);
        }
    }
}
