//! The bare limits of this machine, which are the performance of two processes in shared memory, or
//! over UDP on loopback, without any library. There is one file per kind.
//!
//! Each limit is a [`Piece`] over the sides' [`SharedArea`](crate::area::SharedArea), so it runs in
//! the same ranks and memory as the figure compared with it.

pub mod alone;
pub mod queue;
pub mod round_trip;
pub mod seal;
pub mod udp;

use crate::figure::Unit::{self, Gigabytes, Millions, Nanoseconds};
use crate::piece::{Fastest, Piece};
use crate::placement::Placement::{self, Apart, Dealt, OneCore};
use crate::side::Waiting;

use ::seal::Protection;
use alone::{Direction, Private};
use queue::{LINE, Queue};
use round_trip::{Lines, RoundTrips};
use seal::SealAndOpen;
use udp::Stream;

/// The payload sizes of medium floods, in bytes.
pub const MEDIUM_SIZES: [usize; 4] = [512, 1 << 10, 4 << 10, 16 << 10];

/// The sizes of the copies for bandwidth limits, in bytes.
pub const BULK_SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// The packet sizes of UDP streams, in bytes. They are for Ethernet frames, jumbo frames, and the
/// maximum.
pub const STREAM_PACKETS: [usize; 3] = [1472, 8972, 65_507];

/// The sizes of the sealed packets, in bytes.
const SEALED: [usize; 5] = [64, 256, 1472, 8972, 65_507];

/// A limit with its name and the interpretation of its number.
pub struct Limit {
    /// The limit's name.
    pub name: &'static str,
    /// The number of bytes per operation, or 0 if no bytes are carried.
    pub size: usize,
    /// The unit in which the time per operation is printed.
    pub unit: Unit,
    /// The placement of the sides.
    pub placement: Placement,
    /// The operations.
    pub piece: Box<dyn Piece>,
}

impl Limit {
    pub(crate) fn new(
        name: &'static str,
        size: usize,
        unit: Unit,
        placement: Placement,
        piece: impl Piece + 'static,
    ) -> Self {
        Self {
            name,
            size,
            unit,
            placement,
            piece: Box::new(piece),
        }
    }
}

/// Returns the round trip of a cache line between two cores.
#[must_use]
pub fn cache_line(lines: Lines) -> Limit {
    let name = match lines {
        Lines::One => "cache-line-one",
        Lines::Two => "cache-line-two",
    };
    Limit::new(name, 0, Nanoseconds, Apart, RoundTrips(lines))
}

/// Returns the time of a store of a word to the mapping, or of a load from it.
#[must_use]
pub fn word(direction: Direction) -> Limit {
    let name = match direction {
        Direction::In => "bare-store",
        Direction::Out => "bare-load",
    };
    Limit::new(name, 8, Nanoseconds, Apart, alone::word(direction))
}

/// Returns the bandwidth of copies between private memory and the mapping.
#[must_use]
pub fn bulk_copy(direction: Direction, private: Private) -> Limit {
    let name = match direction {
        Direction::In => "copy-in",
        Direction::Out => "copy-out",
    };
    let size = private.size();
    let copy = alone::copy(direction, private);
    Limit::new(name, size, Gigabytes, Apart, copy)
}

/// Returns the time of an atomic addition to a word in the core's own cache.
#[must_use]
pub fn fetch_add() -> Limit {
    let (name, piece) = ("bare-fetch-add", alone::fetch_add);
    Limit::new(name, 8, Nanoseconds, Apart, piece)
}

/// Returns the rate of a queue of 64-byte slots. It is the best rate of three ring lengths, because
/// if the ring is too short, the sides fall into lockstep and each slot's line moves back
/// immediately. Which length is too short depends on the machine.
#[must_use]
pub fn queue() -> Limit {
    let rings = [1024, 4096, 16384].map(|slots| Queue::new(slots, 0));
    Limit::new("queue", LINE, Millions, Apart, Fastest::of(rings))
}

/// Returns the bandwidth of a queue whose messages carry `size` bytes. It is the best bandwidth of
/// three ring lengths. The shortest ring stays in the nearest caches, and the longest lets the
/// sides drift apart.
#[must_use]
pub fn payload_queue(size: usize) -> Limit {
    let slots = |bytes: usize| (bytes / (size + LINE)).max(8) as u64;
    let rings = [256 << 10, 1 << 20, 4 << 20].map(|bytes| Queue::new(slots(bytes), size));
    let rings = Fastest::of(rings);
    Limit::new("payload-queue", size, Gigabytes, Apart, rings)
}

/// Returns the round trip of two processes on one core that yield to each other.
#[must_use]
pub fn yield_round_trip() -> Limit {
    let (name, piece) = ("yield-round-trip", RoundTrips(Lines::Two));
    Limit::new(name, 0, Nanoseconds, OneCore, piece)
}

/// Returns the time of a barrier of any number of processes.
#[must_use]
pub fn counter_barrier() -> Limit {
    let (name, piece) = ("counter-barrier", round_trip::counter_barrier);
    Limit::new(name, 0, Nanoseconds, Dealt, piece)
}

/// Returns the round trip of a packet over UDP on loopback, between connected sockets.
#[must_use]
pub fn udp_round_trip(size: usize, waiting: Waiting) -> Limit {
    let name = match waiting {
        Waiting::Polling => "udp-round-trip",
        Waiting::Blocking => "udp-round-trip-blocking",
    };
    let piece = udp::round_trips(size, waiting);
    Limit::new(name, size, Nanoseconds, Apart, piece)
}

/// Returns the bandwidth of a UDP stream on loopback in packets of `packet` bytes. It is the best
/// bandwidth with three windows.
#[must_use]
pub fn udp_stream(packet: usize) -> Limit {
    let name = match packet {
        0..=1500 => "udp-stream-ethernet",
        1501..=9000 => "udp-stream-jumbo",
        _ => "udp-stream-longest",
    };
    streams(name, &[packet])
}

/// Returns the best bandwidth of a UDP stream on loopback with all of [`STREAM_PACKETS`] and three
/// windows.
#[must_use]
pub fn best_udp_stream() -> Limit {
    streams("udp-stream-best", &STREAM_PACKETS)
}

fn streams(name: &'static str, packets: &[usize]) -> Limit {
    let windows = [128 << 10, 512 << 10, 2 << 20];
    let ways = packets
        .iter()
        .flat_map(|&packet| windows.map(|window| Stream::new(packet, window)));
    Limit::new(name, udp::BLOCK, Gigabytes, Apart, Fastest::of(ways))
}

/// Returns the time to seal a packet and open it again.
#[must_use]
pub fn seal_and_open(size: usize, protection: Protection) -> Limit {
    let name = match protection {
        Protection::Authenticate => "seal-tag",
        Protection::Encrypt => "seal-encrypt",
    };
    let piece = SealAndOpen::new(size, protection);
    Limit::new(name, size, Nanoseconds, Apart, piece)
}

/// Returns the limits of a job with `sides` ranks. With two ranks, these are all limits. With more,
/// they are the limits in which all sides take part.
#[must_use]
pub fn catalogue(sides: usize) -> Vec<Limit> {
    if sides > 2 {
        return vec![counter_barrier()];
    }
    let mut limits = vec![cache_line(Lines::One), cache_line(Lines::Two), queue()];
    limits.extend(MEDIUM_SIZES.map(payload_queue));
    for direction in [Direction::In, Direction::Out] {
        limits.push(word(direction));
        limits.extend(BULK_SIZES.map(|size| bulk_copy(direction, Private::new(size))));
    }
    limits.extend([fetch_add(), yield_round_trip(), counter_barrier()]);
    for waiting in [Waiting::Polling, Waiting::Blocking] {
        limits.extend([8, 64].map(|size| udp_round_trip(size, waiting)));
    }
    limits.extend(STREAM_PACKETS.map(udp_stream));
    for protection in [Protection::Authenticate, Protection::Encrypt] {
        limits.extend(SEALED.map(|size| seal_and_open(size, protection)));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_threads;

    #[test]
    fn every_limit_runs_in_the_standard_area() {
        in_threads(2, |side| {
            for mut limit in catalogue(2) {
                // The number of operations is small, because the threads are not pinned and the
                // machine may be busy.
                limit
                    .piece
                    .run(side, 20)
                    .unwrap_or_else(|error| panic!("{}: {error}", limit.name));
                side.meet().expect("meet");
            }
        });
    }

    #[test]
    fn a_crowd_has_the_limits_that_all_take_part_in() {
        in_threads(5, |side| {
            for mut limit in catalogue(5) {
                limit.piece.run(side, 50).expect(limit.name);
            }
        });
    }
}
