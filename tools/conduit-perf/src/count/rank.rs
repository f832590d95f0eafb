//! Operations of one rank on itself. The rank handles each message before it sends the next one.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::ensure;
use conduit::Shape;

use super::sections::Sections;
use crate::bench::Bench;
use crate::figures::rma::{self, Repeat, SMALL_OPERATIONS};

/// The number of payload bytes of a medium, a long and a broadcast.
const PAYLOAD: usize = 512;
/// The number of 8-byte numbers in a transfer of ranges, which transfers every second number of an
/// array.
const RANGES: usize = 16;

const OPERATIONS: &[(&str, Repeat)] = &[
    ("put-strided", strided_puts),
    ("get-strided", strided_gets),
    ("put-indexed", indexed_puts),
    ("get-indexed", indexed_gets),
    ("am-short", shorts),
    ("am-short-round-trip", round_trips),
    ("am-medium", mediums),
    ("am-medium-round-trip", medium_round_trips),
    ("am-long", longs),
    ("barrier", barriers),
    ("broadcast", broadcasts),
];

/// Repeats all operations.
///
/// # Errors
/// Fails if an operation fails, or if the job has several ranks.
pub(super) fn repeat(sections: &mut Sections<'_>) -> anyhow::Result<()> {
    let bench = Bench::start()?;
    ensure!(
        bench.conduit.size() == 1,
        "repeating operations needs a job of one rank"
    );
    let mut private = [1u8; 8];
    for (name, repeat) in SMALL_OPERATIONS.iter().chain(OPERATIONS) {
        sections.run(name, |count| {
            bench.seen.reset();
            Ok(repeat(&bench, &mut private, count)?)
        })?;
    }
    bench.conduit.finish()?;
    Ok(())
}

const STRIDED: Shape<'static> = Shape::Strided {
    strides: &[2],
    counts: &[RANGES],
    element: 1,
};

const INDEXED: Shape<'static> = Shape::Indexed {
    starts: &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30],
    len: 1,
};

fn puts_of(bench: &Bench, shape: Shape<'_>, count: u64) -> conduit::Result<()> {
    let (source, shape) = black_box(([1u64; 2 * RANGES], shape));
    rma::repeat(bench, count, |target, offset| {
        (bench.conduit).put_ranges(target, offset, shape, &source, 0, shape)
    })
}

fn gets_of(bench: &Bench, shape: Shape<'_>, count: u64) -> conduit::Result<()> {
    let (mut destination, shape) = black_box(([1u64; 2 * RANGES], shape));
    rma::repeat(bench, count, |target, offset| {
        (bench.conduit).get_ranges(&mut destination, 0, shape, target, offset, shape)
    })
}

fn strided_puts(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    puts_of(bench, STRIDED, count)
}

fn strided_gets(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    gets_of(bench, STRIDED, count)
}

fn indexed_puts(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    puts_of(bench, INDEXED, count)
}

fn indexed_gets(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    gets_of(bench, INDEXED, count)
}

fn shorts(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request(bench.home, bench.messages.count, (position,))?;
        conduit.wait_until(|| seen.requests.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn round_trips(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request(bench.home, bench.messages.ping, (position,))?;
        conduit.wait_until(|| seen.answers.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn mediums(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request_medium(bench.home, bench.messages.medium, (), &[1; PAYLOAD])?;
        conduit.wait_until(|| seen.requests.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn medium_round_trips(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    for position in 0..count {
        conduit.request_medium(bench.home, bench.messages.echo, (), &[1; PAYLOAD])?;
        conduit.wait_until(|| seen.answers.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn longs(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let (conduit, seen) = (&bench.conduit, &bench.seen);
    let (long, offset) = (bench.messages.long, bench.work());
    for position in 0..count {
        conduit.request_long(bench.home, long, (), &[1u8; PAYLOAD], offset)?;
        conduit.wait_until(|| seen.requests.load(Relaxed) == position + 1)?;
    }
    Ok(())
}

fn barriers(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    (0..count).try_for_each(|_| bench.conduit.barrier())
}

fn broadcasts(bench: &Bench, _: &mut [u8], count: u64) -> conduit::Result<()> {
    let mut value = black_box([1u64; PAYLOAD / 8]);
    (0..count).try_for_each(|_| bench.conduit.broadcast(0, &mut value))
}
