//! The figures of active messages from rank 0 to the home rank. Both ranks wait as programs do,
//! with [`conduit::Conduit::wait_until`].

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::Error;
use crate::bench::{Bench, failed};
use crate::compare::Comparison;
use crate::figure::Target;
use crate::limits::alone::{Direction, Private};
use crate::limits::queue::checksum;
use crate::limits::round_trip::Lines;
use crate::limits::{self, Limit};
use crate::piece::Piece;
use crate::side::Side;

/// The target of a round trip, whether ranks spin or yield.
const ROUND_TRIP: Option<Target> = Some(Target::AtMost(1.5));
/// The target of shorts in one direction.
const SHORT_FLOOD: Option<Target> = Some(Target::AtLeast(0.25));
/// The target of mediums in one direction, which is 1.3 times the time of the bare queue.
const MEDIUM_FLOOD: Option<Target> = Some(Target::AtLeast(0.77));
/// The target for the bandwidth of longs.
const LONG: Option<Target> = Some(Target::AtLeast(0.9));

/// Compares a short and its reply with a cache line's round trip. The limit uses one line for both
/// directions, because a short reply returns in the slot of its request.
pub(super) fn round_trip(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    let limit = limits::cache_line(Lines::One);
    compare_round_trip(bench, "am-short-round-trip", limit, ROUND_TRIP)
}

/// Compares a short and its reply with both ranks on one core.
pub(super) fn one_core_round_trip(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    let limit = limits::yield_round_trip();
    compare_round_trip(bench, "one-core-am-round-trip", limit, ROUND_TRIP)
}

fn compare_round_trip<'b>(
    bench: &'b Bench,
    name: &'static str,
    limit: Limit,
    target: Option<Target>,
) -> Option<Comparison<'b>> {
    let piece = move |side: &Side<'_>, count| round_trips(bench, name, side, count);
    Some(Comparison::new(name, 0, limit, target, piece))
}

/// Sends shorts and waits for their replies, one after the other. An operation is a round trip.
pub(crate) fn round_trips(
    bench: &Bench,
    name: &'static str,
    side: &Side<'_>,
    count: u64,
) -> Result<Duration, Error> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    seen.reset();
    side.meet()?;
    let start = Instant::now();
    if conduit.rank() == 0 {
        for trip in 0..count {
            conduit
                .request(bench.home, bench.messages.ping, (trip,))
                .and_then(|()| conduit.wait_until(|| seen.answers.load(Relaxed) == trip + 1))
                .map_err(failed(name))?;
        }
    } else if conduit.rank() == bench.home {
        conduit
            .wait_until(|| seen.requests.load(Relaxed) == count)
            .map_err(failed(name))?;
    }
    Ok(start.elapsed())
}

/// Compares a flood of shorts with a bare queue. The shorts have one 64-bit argument, which the
/// handler counts without a reply.
pub(super) fn short_flood(bench: &Bench, _: usize) -> Option<Comparison<'_>> {
    let flood = Flood {
        bench,
        name: "am-short-flood",
        expected: |count: u64| (u128::from(count) * u128::from(count.saturating_sub(1)) / 2) as u64,
        send: |bench: &Bench, position| {
            let count = bench.messages.count;
            bench.conduit.request(bench.home, count, (position,))
        },
    };
    Some(flood.beside(0, limits::queue(), SHORT_FLOOD))
}

/// Compares a flood of mediums, whose payload the handler reads without a reply, with a bare queue
/// whose consumer reads the payload as well.
pub(super) fn medium_flood(bench: &Bench, size: usize) -> Option<Comparison<'_>> {
    if size > bench.conduit.max_medium() {
        return None;
    }
    let payload: Vec<u64> = (0..size as u64 / 8)
        .map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    let each = checksum(&payload);
    let flood = Flood {
        bench,
        name: "am-medium-flood",
        expected: move |count: u64| count.wrapping_mul(each),
        send: move |bench: &Bench, _| {
            let medium = bench.messages.medium;
            bench
                .conduit
                .request_medium(bench.home, medium, (), payload.as_bytes())
        },
    };
    Some(flood.beside(size, limits::payload_queue(size), MEDIUM_FLOOD))
}

/// Compares longs with copies. Longs and copies always have the same destination.
pub(super) fn long_bandwidth(bench: &Bench, size: usize) -> Option<Comparison<'_>> {
    if size > bench.conduit.max_long_request(bench.home).unwrap_or(0) {
        return None;
    }
    let private = Private::new(size);
    let payload = private.clone();
    let flood = Flood {
        bench,
        name: "am-long",
        expected: move |count: u64| count.wrapping_mul(size as u64),
        send: move |bench: &Bench, _| {
            let (long, offset) = (bench.messages.long, bench.work());
            payload.with(|payload| {
                bench
                    .conduit
                    .request_long(bench.home, long, (), payload, offset)
            })
        },
    };
    Some(flood.beside(size, limits::bulk_copy(Direction::In, private), LONG))
}

/// A flood of requests in one direction. It ends when the home rank has reported that the last
/// request has been handled.
struct Flood<'b, E, S> {
    bench: &'b Bench,
    name: &'static str,
    /// Returns the sum that the home rank must have counted after `count` requests.
    expected: E,
    /// Sends the request with this number.
    send: S,
}

impl<'b, E, S> Flood<'b, E, S>
where
    E: Fn(u64) -> u64 + 'b,
    S: FnMut(&Bench, u64) -> conduit::Result<()> + 'b,
{
    fn beside(self, size: usize, limit: Limit, target: Option<Target>) -> Comparison<'b> {
        Comparison::new(self.name, size, limit, target, self)
    }

    fn send(&mut self, count: u64) -> conduit::Result<()> {
        let Bench { conduit, seen, .. } = self.bench;
        for position in 0..count {
            (self.send)(self.bench, position)?;
        }
        conduit.wait_until(|| seen.answers.load(Relaxed) == 1)
    }

    fn handle(&self, count: u64) -> conduit::Result<()> {
        let Bench { conduit, seen, .. } = self.bench;
        conduit.wait_until(|| seen.requests.load(Relaxed) == count)?;
        conduit.request(0, self.bench.messages.finished, ())
    }
}

impl<'b, E, S> Piece for Flood<'b, E, S>
where
    E: Fn(u64) -> u64 + 'b,
    S: FnMut(&Bench, u64) -> conduit::Result<()> + 'b,
{
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let (rank, home) = (self.bench.conduit.rank(), self.bench.home);
        let seen = &self.bench.seen;
        seen.reset();
        side.meet()?;
        let start = Instant::now();
        if rank == 0 {
            self.send(count).map_err(failed(self.name))?;
        } else if rank == home {
            self.handle(count).map_err(failed(self.name))?;
            let (got, expected) = (seen.sum.load(Relaxed), (self.expected)(count));
            if got != expected {
                return Err(Error::Corrupt {
                    what: self.name,
                    got,
                    expected,
                });
            }
        }
        Ok(start.elapsed())
    }
}
