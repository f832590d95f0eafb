//! Programs that test the calls that handlers may make, typed messages, signals, collectives, and
//! how a shared rank ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Result, bail, ensure};
use conduit::threads::Mode;
use conduit::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use conduit::{AtomicOp, Conduit, Handlers, Par, ReduceOp, Seq};

use super::{SHARE, attached, pattern, same};

/// The number of requests that each rank sends to each rank.
const ROUNDS: u64 = 40;

/// Handlers get the rank, the size and the segment from the call, so they need not capture them.
/// They count by atomics that are atomic with those of other ranks, read a long's payload, and
/// store into the segment.
pub(super) fn handlers_reach<M: Mode>() -> Result<()> {
    let mut handlers = Handlers::<M>::new();
    // Handlers and remote atomics add to word 0 of each rank's share. Word 1 records the ranks that
    // handlers have seen.
    let count = handlers.any_mode().short(|call, (home,): (u32,)| {
        let at = call.source() as usize * SHARE;
        let segment = call.segment();
        let added = segment.atomic(at, AtomicOp::Add, 1u64);
        let right = home == call.rank() && call.size() > call.source();
        let seen = u64::from(right) << 32 | u64::from(call.rank());
        added
            .and(segment.put(at + 8, &seen))
            .expect("in the segment");
    });
    let long = handlers.any_mode().long(|call, (wrong,): (u32,), landed| {
        let (source, rank) = (call.source(), call.rank());
        let mut bytes = vec![0; landed.length];
        landed.get(&mut bytes[..]).expect("as long as the payload");
        let expected = pattern(source, rank, landed.length);
        // SAFETY: no rank writes this share before the reply.
        let lent = unsafe { landed.bytes() }.expect("in the segment");
        let all = bytes == expected && lent == expected;
        let words = landed.to_vec::<u32>().expect("a whole number of words");
        let all = all && words.as_bytes() == expected;
        let refused = [
            landed.get(&mut 1u8).err(),
            landed.to_vec::<[u8; 4096]>().err(),
        ];
        let says = format!("expected the payload's {} bytes", landed.length);
        let odd = refused
            .iter()
            .all(|error| (error.as_ref()).is_some_and(|error| error.to_string().contains(&says)));
        let at = source as usize * SHARE + 16;
        let op = if all && odd {
            AtomicOp::Add
        } else {
            AtomicOp::Or
        };
        let old = call.segment().atomic_fetch(at, op, 1u64 << (32 * wrong));
        old.expect("in the segment");
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let at = rank as usize * SHARE;
    for _ in 0..ROUNDS {
        for to in 0..size {
            conduit.request(to, count, (to,))?;
            conduit.atomic(to, at, AtomicOp::Add, 1u64)?;
        }
    }
    for to in 0..size {
        let bytes = pattern(rank, to, 8000);
        conduit.request_long(to, long, (0,), &bytes[..], at + 64)?;
    }
    conduit.quiesce()?;
    for from in 0..size as usize {
        let mut words = [0u64; 3];
        conduit.segment().get(&mut words, from * SHARE)?;
        let expected = [2 * ROUNDS, 1 << 32 | u64::from(rank), 1];
        ensure!(
            words == expected,
            "from rank {from}: {words:?}, expected {expected:?}"
        );
    }
    Ok(conduit.finish()?)
}

#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Edge {
    from: u32,
    to: u32,
    weight: f64,
}

conduit::args! {
    #[derive(Debug, PartialEq)]
    struct Insert {
        slot: u16,
        level: i8,
        last: bool,
        key: u64,
    }
}

/// Typed payloads and arguments arrive unchanged. A payload is accepted up to the documented
/// maximum length, whatever the arguments. Handlers of a `Seq` rank may hold values that aren't
/// `Send`.
pub(super) fn typed() -> Result<()> {
    let edges = Rc::new(RefCell::new(Vec::new()));
    let insert = Rc::new(Cell::new(None));
    let largest = Rc::new(Cell::new((0, 0)));
    let mut handlers = Handlers::<Seq>::new();
    let on_edges = handlers.medium({
        let edges = edges.clone();
        move |_, (), new: &[Edge]| edges.borrow_mut().extend_from_slice(new)
    });
    let on_edge = handlers.medium({
        let edges = edges.clone();
        move |call, (back,): (bool,), edge: &Edge| {
            edges.borrow_mut().push(*edge);
            if back {
                call.reply_medium(on_edges, (), &[*edge; 2])
                    .expect("the first reply");
            }
        }
    });
    let on_insert = handlers.named("insert").short({
        let insert = insert.clone();
        move |_, args: Insert| insert.set(Some(args))
    });
    type All = (u64, u64, u64, u64, u64, u64, u64, u64);
    let on_all = handlers.medium({
        let largest = largest.clone();
        move |_, _: All, bytes: &[u8]| largest.set((bytes.len(), largest.get().1))
    });
    let on_none = handlers.medium({
        let largest = largest.clone();
        move |_, (), bytes: &[u8]| largest.set((largest.get().0, bytes.len()))
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let left = (rank + size - 1) % size;
    let right = (rank + 1) % size;
    let edge = |from: u32, weight| Edge {
        from,
        to: from ^ 7,
        weight,
    };
    conduit.request_medium(right, on_edges, (), &[edge(rank, 0.5), edge(rank, 1.5)])?;
    conduit.quiesce()?;
    conduit.request_medium(right, on_edge, (true,), &edge(rank, -2.5))?;
    let sent = |rank: u16| Insert {
        slot: rank,
        level: -3,
        last: rank.is_multiple_of(2),
        key: 1 << 50,
    };
    conduit.request(right, on_insert, sent(rank as u16))?;
    let most = conduit.max_medium();
    let bytes = vec![7; most + 1];
    conduit.request_medium(right, on_all, (1, 2, 3, 4, 5, 6, 7, 8), &bytes[..most])?;
    conduit.request_medium(right, on_none, (), &bytes[..most])?;
    let limit = most.to_string();
    let refused = conduit.request_medium(right, on_none, (), &bytes[..]);
    ensure!(
        refused.is_err_and(|error| error.to_string().contains(&limit)),
        "too long"
    );
    conduit.quiesce()?;
    let mut come = edges.take();
    // The second message and the reply to the first one have no order.
    come[2..].sort_by_key(|edge| edge.from != left);
    let expected = [
        edge(left, 0.5),
        edge(left, 1.5),
        edge(left, -2.5),
        edge(rank, -2.5),
        edge(rank, -2.5),
    ];
    ensure!(come == expected, "{come:?}");
    ensure!(insert.get() == Some(sent(left as u16)), "{insert:?}");
    ensure!(largest.get() == (most, most), "{largest:?}");
    Ok(conduit.finish()?)
}

/// A rank that sees a signal also sees its data. The data has any length, all ranks send at once,
/// and the signals use every operation and type.
pub(super) fn signals<M: Mode>() -> Result<()> {
    const LENGTHS: [usize; 6] = [0, 1, 100, 2000, 20_000, SHARE / 2 - 64];
    let conduit = attached(Handlers::<M>::new())?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let segment = conduit.segment();
    let share = |of: u32| of as usize * SHARE;
    for (round, &length) in (1u64..).zip(&LENGTHS) {
        for to in 0..size {
            let bytes = pattern(rank ^ round as u32, to, length);
            let at = share(rank);
            conduit.put_signal(to, at + 64, &bytes[..], at, AtomicOp::Add, 1u64)?;
        }
        for from in 0..size {
            conduit.wait_until(|| Ok(segment.atomic_get::<u64>(share(from))? == round))?;
            let mut bytes = vec![0; length];
            segment.get(&mut bytes[..], share(from) + 64)?;
            same(
                "signalled",
                &bytes,
                &pattern(from ^ round as u32, rank, length),
            )?;
        }
        conduit.barrier()?;
    }
    // Several signals go to one number. The data is complete once all signals have arrived, in any
    // order.
    for to in 0..size {
        conduit.put_signal(
            to,
            share(rank) + 64,
            &rank,
            8,
            AtomicOp::Max,
            i64::from(rank) - 5,
        )?;
        conduit.put_signal(
            to,
            share(rank) + 68,
            &rank,
            16,
            AtomicOp::Or,
            1u32 << (rank % 32),
        )?;
    }
    conduit.quiesce()?;
    let most = segment.atomic_get::<i64>(8)?;
    let expected = (i64::from(size) - 6).max(0);
    ensure!(
        most == expected,
        "the largest is {most}, expected {expected}"
    );
    let all = segment.atomic_get::<u32>(16)?;
    ensure!(all.count_ones() == size.min(32), "{all:#x} of {size}");
    let wrong = [
        conduit.put_signal(0, usize::MAX, &1u8, 0, AtomicOp::Add, 1u64),
        conduit.put_signal(0, 0, &1u8, 4, AtomicOp::Add, 1u64),
        conduit.put_signal(0, 0, &1u8, usize::MAX - 7, AtomicOp::Add, 1u64),
        conduit.put_signal(size, 0, &1u8, 0, AtomicOp::Add, 1u64),
    ];
    for refused in wrong {
        let text = refused.map_or_else(|error| error.to_string(), |()| "accepted".to_owned());
        ensure!(
            text.starts_with(&format!("put_signal on rank {rank}: ")),
            "{text}"
        );
    }
    Ok(conduit.finish()?)
}

/// Runs broadcasts and reductions of all forms, from every root, with few and with many elements.
pub(super) fn collectives<M: Mode>() -> Result<()> {
    let conduit = attached(Handlers::<M>::new())?;
    let (rank, size) = (conduit.rank(), conduit.size());
    for root in 0..size {
        for length in [0, 1, 3000, 40_000] {
            let expected = pattern(root, 0, length);
            let mut bytes = match rank == root {
                true => expected.clone(),
                false => vec![0; length],
            };
            conduit.broadcast(root, &mut bytes[..])?;
            same("broadcast", &bytes, &expected)?;
            let mut values: Vec<i64> = (0..length as i64).map(|at| at - i64::from(rank)).collect();
            let before = values.clone();
            conduit.reduce(root, ReduceOp::Min, &mut values)?;
            let lowest = (0..length as i64).map(|at| at + 1 - i64::from(size));
            let right = if rank == root {
                lowest.eq(values)
            } else {
                before == values
            };
            ensure!(right, "reduce to {root} of {length}");
        }
    }
    let mut floats = [f64::from(rank), 1.0];
    conduit.reduce_all(ReduceOp::Add, &mut floats)?;
    ensure!(
        floats == [f64::from(size * (size - 1) / 2), f64::from(size)],
        "{floats:?}"
    );
    // A float sum depends on the order of the additions, so that order must be the same on all
    // ranks.
    for length in [1, 3000, 40_000] {
        let value = |at| [1e16, 1.0, -1e16][at % 3];
        let mut sums: Vec<f64> = (0..length).map(|at| value(at + rank as usize)).collect();
        conduit.reduce_all(ReduceOp::Add, &mut sums)?;
        let own: Vec<u64> = sums.into_iter().map(f64::to_bits).collect();
        let mut others = own.clone();
        conduit.broadcast(0, &mut others[..])?;
        ensure!(own == others, "bits of {length} sums differ from rank 0's");
    }
    // Finds the rank with the largest value, by reducing pairs of value and rank.
    let mut pairs = vec![[rank * 7919 % 31, rank]; 1000];
    conduit.reduce_all_with(&mut pairs, |one: [u32; 2], other| one.max(other))?;
    let largest = (0..size).map(|rank| [rank * 7919 % 31, rank]).max();
    ensure!(
        pairs.iter().all(|pair| Some(*pair) == largest),
        "{:?}",
        pairs[0]
    );
    let refused = conduit.reduce_all(ReduceOp::Xor, &mut floats);
    let text = refused.map_or_else(|error| error.to_string(), |()| "accepted".to_owned());
    ensure!(
        text.starts_with(&format!("reduce_all on rank {rank}: ")),
        "{text}"
    );
    for length in [1, 700, 30_000] {
        together(&conduit, length)?;
    }
    Ok(conduit.finish()?)
}

/// Runs all collective operations of a team of all ranks and of a team of every second rank at
/// once, together with a put.
fn together<M: Mode>(conduit: &Conduit<M>, length: usize) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let all = conduit.team();
    let half = all.split(Some(rank % 2), 0)?;
    let Some(half) = half else {
        bail!("split returned no team");
    };
    let last = size - 1;
    let shares = |from: u32| -> Vec<u32> {
        let share = |to| std::iter::repeat_n(from * 1000 + to, length);
        (0..size).flat_map(share).collect()
    };
    let given = shares(rank);
    let (mut got, mut gathered) = (vec![0; given.len()], vec![0; given.len()]);
    let own = vec![rank; length];
    let (mut at_last, mut scattered) = (vec![0; given.len()], vec![0; length]);
    let mut word = if rank == last { *b"last" } else { *b"????" };
    let (mut sums, mut of_half, mut largest) = (own.clone(), own.clone(), own.clone());
    let mut at_first = own.clone();
    let mut ranges = vec![[rank, rank, 1]; length];
    conduit.scope(|scope| {
        let (all, half) = (scope.team(&all)?, scope.team(&half)?);
        all.reduce_all_in_order(&mut ranges, |[first, before, one], [after, last, other]| {
            [first, last, one & other & u32::from(before + 1 == after)]
        })?;
        half.reduce_all(ReduceOp::Add, &mut of_half)?;
        all.exchange(&given, &mut got)?;
        all.gather_all(&own, &mut gathered)?;
        scope.put(last, 0, &[1_u8; 8])?;
        all.gather(last, &own, &mut at_last)?;
        all.scatter(last, &given, &mut scattered)?;
        all.reduce_all(ReduceOp::Add, &mut sums)?;
        all.reduce(0, ReduceOp::Add, &mut at_first)?;
        half.reduce_all_with(&mut largest, |one: u32, other| one.max(other))?;
        all.broadcast(last, &mut word)
    })?;
    let total = size * last / 2;
    let same_half = || (0..size).filter(|other| other % 2 == rank % 2);
    ensure!(
        ranges.iter().all(|range| *range == [0, last, 1]),
        "{:?}",
        ranges[0]
    );
    ensure!(of_half.iter().all(|sum| *sum == same_half().sum::<u32>()));
    ensure!(
        largest
            .iter()
            .all(|value| Some(*value) == same_half().max())
    );
    let expected = |at: usize| (at / length) as u32 * 1000 + rank;
    ensure!(
        (0..).zip(&got).all(|(at, value)| *value == expected(at)),
        "exchange"
    );
    let ranks = (0..size).flat_map(|from| std::iter::repeat_n(from, length));
    ensure!(ranks.clone().eq(gathered), "gather to all");
    ensure!(rank != last || ranks.eq(at_last), "gather");
    ensure!(
        scattered.iter().all(|value| *value == last * 1000 + rank),
        "scatter"
    );
    ensure!(sums.iter().all(|sum| *sum == total), "{}", sums[0]);
    let first = if rank == 0 { total } else { rank };
    ensure!(at_first.iter().all(|sum| *sum == first), "{}", at_first[0]);
    ensure!(&word == b"last");
    // The scope doesn't wait for an operation that was refused.
    let refused = conduit.scope(|scope| scope.team(&all)?.broadcast(size, &mut word));
    let text = refused.map_or_else(|error| error.to_string(), |()| "accepted".to_owned());
    ensure!(
        text.starts_with(&format!("ScopedTeam::broadcast on rank {rank}: ")),
        "{text}"
    );
    Ok(())
}

/// A rank that is held in a static finishes while its other threads poll. Later calls are refused
/// with an error that names the call.
pub(super) fn finish_shared() -> Result<()> {
    static CONDUIT: OnceLock<Conduit<Par>> = OnceLock::new();
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    let mut handlers = Handlers::<Par>::new();
    let handled = handlers.short(|_, ()| {
        HANDLED.fetch_add(1, Relaxed);
    });
    ensure!(CONDUIT.set(attached(handlers)?).is_ok(), "set once");
    let conduit = CONDUIT.get().expect("just set");
    let right = (conduit.rank() + 1) % conduit.size();
    std::thread::scope(|threads| -> Result<()> {
        let pollers = [0, 1].map(|_| threads.spawn(|| while conduit.poll().is_ok() {}));
        conduit.request(right, handled, ())?;
        conduit.finish()?;
        for poller in pollers {
            ensure!(poller.join().is_ok(), "a polling thread panicked");
        }
        Ok(())
    })?;
    ensure!(
        HANDLED.load(Relaxed) == 1,
        "messages are handled before the end"
    );
    let refused = [
        ("request", conduit.request(right, handled, ())),
        ("barrier", conduit.barrier()),
        ("finish", conduit.finish()),
        ("poll", conduit.poll()),
    ];
    for (call, result) in refused {
        let text = result.map_or_else(|error| error.to_string(), |()| "accepted".to_owned());
        let expected = format!("{call} on rank {}: the rank has finished", conduit.rank());
        ensure!(text == expected, "{text}");
    }
    Ok(())
}

/// If the condition returns an error, the wait ends and returns that error.
pub(super) fn condition_fails() -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    let far = conduit.segment_len(conduit.rank())?;
    let waited = conduit.wait_until(|| Ok(conduit.segment().atomic_get::<u64>(far)? == 1));
    let text = waited.map_or_else(|error| error.to_string(), |()| "accepted".to_owned());
    ensure!(text.starts_with("Segment::atomic_get on rank "), "{text}");
    // The job continues after the error.
    conduit.barrier()?;
    Ok(conduit.finish()?)
}
