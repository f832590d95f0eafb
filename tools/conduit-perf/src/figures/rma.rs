//! The figures of puts, gets and atomics by rank 0 on the home rank's mapped segment. They are
//! compared with the same operations by the same core on the same bytes without Conduit. The other
//! ranks stand by, as in the limits.

use std::hint::black_box;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};
use std::time::Instant;

use conduit::{AtomicOp, Result};

use crate::bench::{Bench, failed};
use crate::compare::Comparison;
use crate::figure::{Target, Unit};
use crate::limits::alone::{Direction, Private};
use crate::limits::{self, Limit};
use crate::piece::Piece;
use crate::side::Side;

/// The target for the time of a small blocking put or get.
const SMALL: Option<Target> = Some(Target::AtMost(1.3));
/// The target for bandwidths.
const BULK: Option<Target> = Some(Target::AtLeast(0.9));

/// A function that repeats an operation, for which it may use the private memory.
pub(crate) type Repeat = fn(&Bench, &mut [u8], u64) -> Result<()>;

/// The operations on 8 bytes by name, which [`crate::count`] repeats.
pub(crate) const SMALL_OPERATIONS: &[(&str, Repeat)] = &[
    ("put", repeat_put),
    ("put-u64", repeat_put_u64),
    ("put-nb", repeat_put_nb),
    ("put-nbi", repeat_put_nbi),
    ("put-value", repeat_put_value),
    ("get", repeat_get),
    ("get-u64", repeat_get_u64),
    ("get-value", repeat_get_value),
    ("fetch-add", repeat_fetch_add),
];

/// Makes a piece in which rank 0 repeats the operation between its private memory and the start of
/// the work area. The limit's copies use the same bytes.
fn piece<'b>(
    bench: &'b Bench,
    name: &'static str,
    private: Private,
    repeat: Repeat,
) -> impl Piece + use<'b> {
    move |side: &Side<'_>, count| {
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            private
                .with(|private| repeat(bench, private, count))
                .map_err(failed(name))?;
        }
        Ok(start.elapsed())
    }
}

/// A figure and the function that makes its limit for the same private memory.
struct Row {
    name: &'static str,
    limit: fn(Private) -> Limit,
    target: Option<Target>,
    repeat: Repeat,
}

impl Row {
    fn of(self, bench: &Bench, size: usize) -> Option<Comparison<'_>> {
        let Self {
            name,
            limit,
            target,
            repeat,
        } = self;
        let private = Private::new(size);
        let limit = limit(private.clone());
        let piece = piece(bench, name, private, repeat);
        Some(Comparison::new(name, size, limit, target, piece))
    }
}

fn store(_: Private) -> Limit {
    limits::word(Direction::In)
}

fn load(_: Private) -> Limit {
    limits::word(Direction::Out)
}

fn store_rate(private: Private) -> Limit {
    Limit {
        unit: Unit::Millions,
        ..store(private)
    }
}

fn bulk_in(private: Private) -> Limit {
    limits::bulk_copy(Direction::In, private)
}

fn bulk_out(private: Private) -> Limit {
    limits::bulk_copy(Direction::Out, private)
}

fn add(_: Private) -> Limit {
    limits::fetch_add()
}

macro_rules! rows {
    ($($(#[$doc:meta])* $function:ident: $name:literal, $limit:ident, $target:expr, $repeat:ident;)*) => {$(
        $(#[$doc])*
        pub(super) fn $function(bench: &Bench, size: usize) -> Option<Comparison<'_>> {
            let row = Row { name: $name, limit: $limit, target: $target, repeat: $repeat };
            row.of(bench, size)
        }
    )*};
}

rows! {
    /// A blocking put whose length is known only at run time.
    put: "put", store, SMALL, repeat_put;
    /// A blocking put of a number.
    put_u64: "put-u64", store, SMALL, repeat_put_u64;
    /// A put with a handle, waited for immediately.
    put_nb: "put-nb", store, None, repeat_put_nb;
    /// An implicit put, waited for immediately.
    put_nbi: "put-nbi", store, None, repeat_put_nbi;
    /// Successive implicit puts, waited for together at the end.
    put_nbi_rate: "put-nbi-rate", store_rate, None, repeat_put_nbi_rate;
    /// A put of a value in a register.
    put_value: "put-value", store, None, repeat_put_value;
    /// A blocking get whose length is known only at run time.
    get: "get", load, SMALL, repeat_get;
    /// A blocking get of a number.
    get_u64: "get-u64", load, SMALL, repeat_get_u64;
    /// A get of a value into a register.
    get_value: "get-value", load, None, repeat_get_value;
    /// A remote atomic addition that fetches.
    fetch_add: "fetch-add", add, None, repeat_fetch_add;
    /// Blocking puts of many bytes.
    put_bandwidth: "put-bandwidth", bulk_in, BULK, repeat_put;
    /// Blocking gets of many bytes.
    get_bandwidth: "get-bandwidth", bulk_out, BULK, repeat_get;
}

/// Repeats `operation(target, offset)`. A compiler fence ensures that every repetition happens and
/// that none is merged with the next one. It costs no instruction, and the limits have it as well.
#[inline(always)]
pub(crate) fn repeat(
    bench: &Bench,
    count: u64,
    mut operation: impl FnMut(conduit::Rank, usize) -> Result<()>,
) -> Result<()> {
    let (target, offset) = black_box((bench.home, bench.work()));
    for _ in 0..count {
        operation(target, offset)?;
        compiler_fence(SeqCst);
    }
    Ok(())
}

fn repeat_put(bench: &Bench, private: &mut [u8], count: u64) -> Result<()> {
    let source: &[u8] = black_box(private);
    repeat(bench, count, |target, offset| {
        bench.conduit.put(target, offset, source)
    })
}

fn repeat_put_u64(bench: &Bench, _: &mut [u8], count: u64) -> Result<()> {
    let mut value = black_box(1u64);
    repeat(bench, count, |target, offset| {
        value += 1;
        bench.conduit.put(target, offset, &value)
    })
}

fn repeat_put_nb(bench: &Bench, private: &mut [u8], count: u64) -> Result<()> {
    let source: &[u8] = black_box(private);
    repeat(bench, count, |target, offset| {
        let handle = bench.conduit.put_nb(target, offset, source)?;
        bench.conduit.wait(handle)
    })
}

fn repeat_put_nbi(bench: &Bench, private: &mut [u8], count: u64) -> Result<()> {
    let source: &[u8] = black_box(private);
    repeat(bench, count, |target, offset| {
        bench.conduit.put_nbi(target, offset, source)?;
        bench.conduit.wait_puts()
    })
}

/// Repeats implicit puts, and waits for all of them together.
pub(crate) fn repeat_put_nbi_rate(bench: &Bench, private: &mut [u8], count: u64) -> Result<()> {
    let source: &[u8] = black_box(private);
    repeat(bench, count, |target, offset| {
        bench.conduit.put_nbi(target, offset, source)
    })?;
    bench.conduit.wait_puts()
}

fn repeat_put_value(bench: &Bench, _: &mut [u8], count: u64) -> Result<()> {
    let mut value = black_box(1u64);
    repeat(bench, count, |target, offset| {
        value += 1;
        bench.conduit.put_value(target, offset, value, 8)
    })
}

fn repeat_get(bench: &Bench, private: &mut [u8], count: u64) -> Result<()> {
    let destination = black_box(private);
    repeat(bench, count, |target, offset| {
        bench.conduit.get(destination, target, offset)
    })
}

fn repeat_get_u64(bench: &Bench, _: &mut [u8], count: u64) -> Result<()> {
    repeat(bench, count, |target, offset| {
        let mut value = 0u64;
        bench.conduit.get(&mut value, target, offset)?;
        black_box(value);
        Ok(())
    })
}

fn repeat_get_value(bench: &Bench, _: &mut [u8], count: u64) -> Result<()> {
    repeat(bench, count, |target, offset| {
        black_box(bench.conduit.get_value(target, offset, 8)?);
        Ok(())
    })
}

fn repeat_fetch_add(bench: &Bench, _: &mut [u8], count: u64) -> Result<()> {
    repeat(bench, count, |target, offset| {
        let conduit = &bench.conduit;
        black_box(conduit.atomic_fetch(target, offset, AtomicOp::Add, 1u64)?);
        Ok(())
    })
}
