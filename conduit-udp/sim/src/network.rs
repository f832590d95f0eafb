//! The network, which consists of interfaces, queues and paths. They decide when and how packets
//! arrive.

use conduit_core::ni::Rank;
use conduit_udp::protocol::Nanos;
use conduit_udp::socket::corrupt;
use sim::random::{Rng, chance};

use crate::process::Datagram;
use crate::scenario::{Directions, Fault, Host, Path, Scenario};

/// The maximum duration of a run of lost packets, in nanoseconds. On an idle path, a longer run
/// would be an outage.
const LONGEST_BURST: Nanos = 20_000_000;
/// The kind of packets without a segment (`conduit_udp::protocol`, the header).
const NO_SEGMENT: u8 = 0;

/// A queue that drains at a constant rate and drops packets when it is full.
#[derive(Debug, Clone, Default)]
struct Queue {
    empty_at: Nanos,
}

impl Queue {
    /// Returns when the packet leaves the queue, or `None` if it is dropped.
    fn pass(&mut self, now: Nanos, bytes: usize, bandwidth: u64, room: usize) -> Option<Nanos> {
        if bandwidth == 0 {
            return Some(now);
        }
        let time =
            |bytes: u64| (u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth)) as Nanos;
        let begin = self.empty_at.max(now);
        if begin - now + time(bytes as u64) > time(room as u64) {
            return None;
        }
        self.empty_at = begin + time(bytes as u64);
        Some(self.empty_at)
    }
}

/// The number of packets that met each fate.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Fates {
    /// The number of packets sent by ranks.
    pub packets: u64,
    /// The number of packets lost on the way, including those lost because they have no segment.
    pub lost: u64,
    /// The number of packets lost during an outage of a link or direction.
    pub cut: u64,
    /// The number of packets lost because they were larger than the path's MTU.
    pub too_large: u64,
    /// The number of packets dropped by the queue of an interface or port.
    pub queue_full: u64,
    /// The number of packets dropped by a socket.
    pub socket_full: u64,
    /// The number of packets duplicated.
    pub duplicated: u64,
    /// The number of packets corrupted on the way.
    pub corrupted: u64,
    /// The number of packets replayed by an attacker.
    pub replayed: u64,
    /// The number of packets forged by an attacker.
    pub forged: u64,
}

#[derive(Debug)]
pub(crate) struct Network {
    path: Path,
    host: Host,
    faults: Vec<Fault>,
    random: Rng,
    uplinks: Vec<Queue>,
    downlinks: Vec<Queue>,
    /// For each direction between two ranks, when the current run of lost packets began.
    in_burst: Vec<Option<Nanos>>,
    ranks: usize,
    pub(crate) fates: Fates,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let ranks = scenario.ranks as usize;
        Self {
            path: scenario.path.clone(),
            host: scenario.host.clone(),
            faults: scenario.faults.clone(),
            random: Rng::with_seed(scenario.seed ^ 0x6e65_7477),
            uplinks: vec![Queue::default(); ranks],
            downlinks: vec![Queue::default(); ranks],
            in_burst: vec![None; ranks * ranks],
            ranks,
            fates: Fates::default(),
        }
    }

    fn has(&mut self, part: f64) -> bool {
        chance(&mut self.random, part)
    }

    fn is_cut(&self, from: Rank, to: Rank, now: Nanos) -> bool {
        self.faults.iter().any(|fault| {
            let (hit, begin, end) = match *fault {
                Fault::BlackHole {
                    from: f,
                    to: t,
                    begin,
                    end,
                } => (f == from && t == to, begin, end),
                Fault::LinkDown { rank, begin, end } => (rank == from || rank == to, begin, end),
                _ => return false,
            };
            hit && now >= begin && end.is_none_or(|end| now < end)
        })
    }

    fn is_too_large(&self, from: Rank, to: Rank, size: usize) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(*fault, Fault::SmallMtu { from: f, to: t, bytes } if f == from && t == to && size > bytes))
    }

    fn is_lost(&mut self, now: Nanos, from: Rank, to: Rank) -> bool {
        if self.path.burst <= 1.0 {
            return self.has(self.path.loss);
        }
        // Gilbert's model: `leave` follows from the configured mean length of a run, and `enter`
        // from the configured fraction of lost packets.
        let at = from as usize * self.ranks + to as usize;
        let leave = 1.0 / self.path.burst;
        let enter = leave * self.path.loss / (1.0 - self.path.loss);
        let was = self.in_burst[at].filter(|since| now.saturating_sub(*since) < LONGEST_BURST);
        let goes_on = match was {
            Some(_) => !self.has(leave),
            None => self.has(enter),
        };
        self.in_burst[at] = goes_on.then_some(was.unwrap_or(now));
        goes_on
    }

    fn travel(&mut self) -> Nanos {
        let mut time = self.path.latency;
        if self.path.jitter > 0 && self.has(self.path.jittered) {
            time += self.random.u64(..=self.path.jitter);
        }
        time
    }

    /// Sends a rank's packet. Adds the resulting packets to `copies`, with the time at which each
    /// reaches the switch's port to the receiver.
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        from: Rank,
        to: Rank,
        packet: &[u8],
        copies: &mut Vec<(Nanos, Datagram)>,
    ) {
        self.fates.packets += 1;
        let Some(left) = self.uplinks[from as usize].pass(
            now,
            packet.len(),
            self.host.bandwidth,
            self.host.uplink_queue,
        ) else {
            self.fates.queue_full += 1;
            return;
        };
        if self.is_too_large(from, to, packet.len()) {
            self.fates.too_large += 1;
            return;
        }
        let is_faulty = match self.path.faulty {
            Directions::Both => true,
            Directions::Up => from < to,
            Directions::Down => from > to,
        };
        if is_faulty {
            self.mistreat(left, from, to, packet, copies);
        }
        if self.is_cut(from, to, left) {
            self.fates.cut += 1;
            return;
        }
        if is_faulty {
            let is_ack = packet.first().is_some_and(|first| first & 15 == NO_SEGMENT);
            if self.is_lost(left, from, to) || (is_ack && self.has(self.path.ack_loss)) {
                self.fates.lost += 1;
                return;
            }
        }
        let mut bytes = packet.to_vec();
        let is_changed = is_faulty && self.has(self.path.corrupt);
        if is_changed {
            self.fates.corrupted += 1;
            corrupt(&mut self.random, &mut bytes);
        }
        let at = left
            + if is_faulty {
                self.travel()
            } else {
                self.path.latency
            };
        copies.push((at, Datagram { bytes, is_changed }));
        if is_faulty && self.has(self.path.duplicate) {
            self.fates.duplicated += 1;
            let at = left + self.travel();
            copies.push((
                at,
                Datagram {
                    bytes: packet.to_vec(),
                    is_changed: false,
                },
            ));
        }
    }

    /// Simulates an attacker that has seen a packet.
    fn mistreat(
        &mut self,
        now: Nanos,
        from: Rank,
        to: Rank,
        packet: &[u8],
        copies: &mut Vec<(Nanos, Datagram)>,
    ) {
        if self.has(self.path.replay) {
            let at = now + self.path.latency + self.random.u64(..=self.path.replay_after);
            if !self.is_cut(from, to, at) {
                self.fates.replayed += 1;
                copies.push((
                    at,
                    Datagram {
                        bytes: packet.to_vec(),
                        is_changed: false,
                    },
                ));
            }
        }
        if self.has(self.path.forge) {
            self.fates.forged += 1;
            let mut bytes = packet.to_vec();
            if self.random.bool() {
                // Forges the same packet with another number or rank in its header, or with another
                // body.
                let at = self.random.usize(..bytes.len().min(24));
                bytes[at] = bytes[at].wrapping_add(self.random.u8(1..));
            } else {
                let length = self.random.usize(..200);
                bytes = (0..length).map(|_| self.random.u8(..)).collect();
            }
            let at = now + self.travel();
            copies.push((
                at,
                Datagram {
                    bytes,
                    is_changed: true,
                },
            ));
        }
    }

    /// Returns when a packet at the switch's port reaches the receiver's socket, if the port has
    /// room.
    pub(crate) fn arrive(&mut self, now: Nanos, to: Rank, bytes: usize) -> Option<Nanos> {
        let at = self.downlinks[to as usize].pass(
            now,
            bytes,
            self.host.bandwidth,
            self.host.downlink_queue,
        );
        if at.is_none() {
            self.fates.queue_full += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_passes_what_its_rate_allows_and_drops_the_rest() {
        let mut queue = Queue::default();
        assert_eq!(queue.pass(100, 1000, 1_000_000_000, 2500), Some(1100));
        assert_eq!(queue.pass(100, 1000, 1_000_000_000, 2500), Some(2100));
        assert_eq!(queue.pass(100, 1000, 1_000_000_000, 2500), None);
        assert_eq!(queue.pass(700, 1000, 1_000_000_000, 2500), Some(3100));
        assert_eq!(queue.pass(9000, 1000, 1_000_000_000, 2500), Some(10_000));
        assert_eq!(Queue::default().pass(5, 1000, 0, 0), Some(5));
    }

    #[test]
    fn losses_are_as_many_as_set_also_in_bursts() {
        for burst in [1.0, 8.0] {
            let mut scenario = Scenario::from_seed(1);
            scenario.faults.clear();
            scenario.host.bandwidth = 0;
            scenario.path = Path {
                loss: 0.05,
                burst,
                ..Path::perfect(10)
            };
            let mut network = Network::new(&scenario);
            let mut copies = Vec::new();
            for _ in 0..100_000 {
                network.send(0, 0, 1, &[1; 40], &mut copies);
            }
            let lost = 100_000 - copies.len();
            assert!(
                (4000..6000).contains(&lost),
                "{lost} with bursts of {burst}"
            );
        }
    }
}
