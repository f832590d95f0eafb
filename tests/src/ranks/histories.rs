//! A program in which all ranks run atomics on one number. One rank then checks the resulting
//! history.

use anyhow::{Result, ensure};
use conduit::threads::Mode;
use conduit::{Atom, AtomicOp, AtomicType, Conduit, FloatOp, Handlers, Rank};
use conduit_core::ni;
use fastrand::Rng;
use rustix::time::{ClockId, clock_gettime};

use super::{SHARE, attached};
use crate::linear::{Event, is_linearizable};

/// The number of atomics that a rank adds to a history. With 4 ranks, a history has half as many
/// events as the check accepts.
const EACH: usize = 8;
/// The number of histories of each type.
const ROUNDS: usize = 12;
/// The offset of the histories' numbers within the first share of each segment. Each number has a
/// cache line of its own.
const NUMBERS: usize = SHARE / 2;
/// The number of words of an event in the last share, where a rank keeps its own events.
const WORDS: usize = 6;

/// Returns the time of the host's monotonic clock, which all ranks share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns an operand. Operands are few and small, so that different orders of operations give
/// different results, none of which is NaN.
fn operand(rng: &mut Rng) -> i8 {
    rng.i8(-3..9)
}

/// Runs one atomic, whose operation and way of starting are drawn at random, and returns its event.
fn act<M: Mode, T: Atom + From<i8>>(
    conduit: &Conduit<M>,
    (to, at): (Rank, usize),
    ops: &[T::Op],
    seen: &mut T,
    rng: &mut Rng,
) -> Result<Event> {
    let (op, a) = (ops[rng.usize(..ops.len())], T::from(operand(rng)));
    let expected = *seen;
    let began = now();
    let (op, comparand, old) = match rng.u8(..8) {
        0 => (ni::AtomicOp::Get, a, Some(conduit.atomic_get(to, at)?)),
        1 | 2 => {
            let found = conduit.compare_swap(to, at, expected, a)?;
            (ni::AtomicOp::CompareSwap, expected, Some(found))
        }
        3 => {
            conduit.atomic(to, at, op, a)?;
            (op.into(), a, None)
        }
        4 => {
            conduit.wait(conduit.atomic_nb(to, at, op, a)?)?;
            (op.into(), a, None)
        }
        5 => {
            let mut found = a;
            conduit.scope(|scope| scope.atomic_fetch(&mut found, to, at, op, a))?;
            (op.into(), a, Some(found))
        }
        6 if to == conduit.rank() => {
            let found = conduit.segment().atomic_fetch(at, op, a)?;
            (op.into(), a, Some(found))
        }
        _ => (op.into(), a, Some(conduit.atomic_fetch(to, at, op, a)?)),
    };
    let during = (began, now());
    *seen = old.unwrap_or(*seen);
    Ok(Event {
        during,
        op,
        operand: a.to_bits(),
        comparand: comparand.to_bits(),
        old: old.map(T::to_bits),
    })
}

fn to_words(event: &Event) -> [u64; WORDS] {
    let (op, old) = (event.op as u64, event.old);
    let what = op << 1 | u64::from(old.is_some());
    let (began, ended) = event.during;
    let old = old.unwrap_or_default();
    [began, ended, what, event.operand, event.comparand, old]
}

fn from_words(words: &[u64]) -> Event {
    let what = words[2];
    Event {
        during: (words[0], words[1]),
        op: ni::AtomicOp::ALL[(what >> 1) as usize],
        operand: words[3],
        comparand: words[4],
        old: (what & 1 == 1).then_some(words[5]),
    }
}

fn histories<M: Mode, T: Atom + From<i8>>(
    conduit: &Conduit<M>,
    first: usize,
    ops: &[T::Op],
) -> Result<()> {
    let mut rng = Rng::with_seed(u64::from(conduit.rank()) << 8 | first as u64);
    let kept = conduit.size() as usize * SHARE - EACH * WORDS * 8;
    let ty: AtomicType = T::TYPE;
    for round in 0..ROUNDS {
        let (to, at) = (
            round as u32 % conduit.size(),
            NUMBERS + 64 * (first + round),
        );
        let mut seen = T::from_bits(0);
        let mut own = Vec::new();
        // After the barrier, all ranks run their atomics at once.
        conduit.barrier()?;
        for _ in 0..EACH {
            let event = act(conduit, (to, at), ops, &mut seen, &mut rng)?;
            own.extend(to_words(&event));
            // An atomic of the owner may return without polling, but the owner's peers need it to
            // poll.
            conduit.poll()?;
        }
        conduit.segment().put(kept, &own[..])?;
        conduit.barrier()?;
        if conduit.rank() == 0 {
            let mut all = vec![0; own.len() * conduit.size() as usize];
            for (from, part) in (0..).zip(all.chunks_mut(own.len())) {
                conduit.get(part, from, kept)?;
            }
            let mut history: Vec<_> = all.chunks(WORDS).map(from_words).collect();
            history.sort_by_key(|event| event.during);
            ensure!(
                is_linearizable(ty, &history),
                "{ty:?}: no order explains {history:#?}"
            );
        }
    }
    Ok(())
}

/// Concurrent atomics of every kind that all ranks run on one number, mapped and by message, are
/// linearizable.
pub(super) fn atomics_are_linearizable<M: Mode>() -> Result<()> {
    let conduit = attached::<M>(Handlers::new())?;
    let floats = [
        FloatOp::Set,
        FloatOp::Add,
        FloatOp::Sub,
        FloatOp::Mult,
        FloatOp::Min,
        FloatOp::Max,
    ];
    let integers = [
        AtomicOp::Set,
        AtomicOp::Add,
        AtomicOp::Sub,
        AtomicOp::Mult,
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::And,
        AtomicOp::Or,
        AtomicOp::Xor,
    ];
    histories::<M, i32>(&conduit, 0, &integers)?;
    histories::<M, i64>(&conduit, ROUNDS, &integers)?;
    histories::<M, f32>(&conduit, 2 * ROUNDS, &floats)?;
    histories::<M, f64>(&conduit, 3 * ROUNDS, &floats)?;
    Ok(conduit.finish()?)
}
