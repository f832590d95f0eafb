//! The programs behind `docs/semantics.md`. Each tests some of the guarantees on that page, between
//! all pairs of ranks.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

use anyhow::{Result, bail, ensure};
use conduit::threads::Mode;
use conduit::{AtomicOp, Conduit, Handlers, Par, Rank, Short};

use super::{SHARE, attached, pattern, same};

/// The offset, within a rank's share of a segment, of the words that other ranks read. They follow
/// the data, and each has a cache line of its own.
const WORDS: usize = SHARE - 16 * 64;
/// The length of a put in bytes: longer than a packet over UDP, and not a multiple of any unit.
const DATA: usize = 5003;

/// The length in bytes of a put that is longer than a chunk.
const MUCH: usize = 20_011;

const _: () = assert!(MUCH < WORDS);

/// Returns the offset in other ranks' segments at which the share of `from` begins.
fn share(from: Rank) -> usize {
    from as usize * SHARE
}

/// Returns the offset in other ranks' segments of word `number` in the share of `from`.
fn word(from: Rank, number: usize) -> usize {
    share(from) + WORDS + 64 * number
}

/// The address of this rank's own segment.
#[derive(Clone, Copy)]
struct Own(usize);

impl Own {
    fn of<M: Mode>(conduit: &Conduit<M>) -> Result<Self> {
        Ok(Self(conduit.segment().as_ptr().expose_provenance()))
    }

    /// Returns a word of this rank's segment. Reading it is a plain load, without a call into
    /// Conduit.
    fn word(&self, offset: usize) -> &AtomicU64 {
        let at = std::ptr::with_exposed_provenance_mut(self.0 + offset);
        // SAFETY: `at` is the address of an aligned word in the segment, which lives until the
        // process ends. The word is accessed only as a whole.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Returns bytes of this rank's segment, read by plain loads.
    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let first: *const u8 = std::ptr::with_exposed_provenance(self.0 + offset);
        // SAFETY: the bytes lie in the segment, which lives until the process ends.
        let byte = |at| unsafe { first.add(at).read_volatile() };
        (0..len).map(byte).collect()
    }

    /// Computes, without a call into Conduit, until the word at `offset` has this value.
    fn compute_until(&self, offset: usize, value: u64) {
        while self.word(offset).load(Acquire) != value {
            std::hint::spin_loop();
        }
    }
}

/// Returns the rank that follows this one by `places`, counting modulo the number of ranks.
fn after<M: Mode>(conduit: &Conduit<M>, places: u32) -> Rank {
    (conduit.rank() + places) % conduit.size()
}

/// Returns all ranks in order, beginning with this rank's successor and ending with this rank.
fn everyone<M: Mode>(conduit: &Conduit<M>) -> impl Iterator<Item = Rank> + use<M> {
    let (rank, size) = (conduit.rank(), conduit.size());
    (1..=size).map(move |step| (rank + step) % size)
}

/// Sends a reply and panics if that fails. In a handler, a panic ends the job with an error.
fn reply<M: Mode>(call: &conduit::Call<'_, M>, handler: Short<(u32,)>, number: u32) {
    call.reply(handler, (number,)).expect("the first reply");
}

// ---- order of messages ----------------------------------------------------------------------

/// With `CONDUIT_SHUFFLE`, a peer handles requests of one rank in an order other than the one in
/// which they were sent.
pub(super) fn requests_are_shuffled<M: Mode>() -> Result<()> {
    const ROUNDS: usize = 12;
    const BURST: u32 = 32;
    let come = Arc::new(Mutex::new(Vec::<(Rank, u32)>::new()));
    let mut handlers = Handlers::<M>::new();
    let short = handlers.any_mode().short({
        let come = come.clone();
        move |call, (number,): (u32,)| come.lock().expect("no panic").push((call.source(), number))
    });
    let medium = handlers.any_mode().medium({
        let come = come.clone();
        move |call, (number,): (u32,), _: &[u8]| {
            come.lock().expect("no panic").push((call.source(), number));
        }
    });
    let long = handlers.any_mode().long({
        let come = come.clone();
        move |call, (number,): (u32,), _| {
            come.lock().expect("no panic").push((call.source(), number));
        }
    });
    let conduit = attached(handlers)?;
    let mut out_of_order = vec![[0; 4]; conduit.size() as usize];
    for round in 0..ROUNDS {
        // Each round sends either one kind of request or all kinds mixed.
        let kind = round % 4;
        for to in everyone(&conduit) {
            for number in 0..BURST {
                match (kind, number % 3) {
                    (0, _) | (3, 0) => conduit.request(to, short, (number,))?,
                    (1, _) | (3, 1) => {
                        conduit.request_medium(to, medium, (number,), &[0; 1000][..])?;
                    }
                    _ => {
                        let at = share(conduit.rank());
                        conduit.request_long(to, long, (number,), &[0; 1000][..], at)?;
                    }
                }
            }
        }
        conduit.quiesce()?;
        let come = std::mem::take(&mut *come.lock().expect("no panic"));
        for from in 0..conduit.size() {
            let mut numbers: Vec<_> = come.iter().filter(|(by, _)| *by == from).collect();
            out_of_order[from as usize][kind] += u32::from(!numbers.is_sorted());
            numbers.sort_unstable();
            let sent = (0..BURST).map(|number| (from, number));
            ensure!(
                numbers.into_iter().copied().eq(sent),
                "each is handled once"
            );
        }
        conduit.barrier()?;
    }
    let seen = out_of_order.iter().flatten().all(|&rounds| rounds > 0);
    ensure!(
        seen,
        "rounds out of order, by source and kind: {out_of_order:?} of {ROUNDS}"
    );
    Ok(conduit.finish()?)
}

/// If a request is sent after the reply to an earlier request has arrived, it is handled after that
/// earlier request.
pub(super) fn replies_make_an_order<M: Mode>() -> Result<()> {
    const ROUNDS: u32 = 40;
    let replied = Arc::new(AtomicU32::new(0));
    let mut handlers = Handlers::<M>::new();
    let done = handlers.any_mode().short({
        let replied = replied.clone();
        move |_, (number,): (u32,)| replied.store(number, Relaxed)
    });
    let last = Arc::new(Mutex::new(vec![0; 64]));
    let follows = move |from: Rank, number: u32| {
        let mut last = last.lock().expect("no panic");
        assert_eq!(number, last[from as usize] + 1, "a request of rank {from}");
        last[from as usize] = number;
    };
    let short = handlers.any_mode().short({
        let follows = follows.clone();
        move |call, (number,): (u32,)| {
            reply(call, done, number);
            // Counts only after the reply, because the handler must end before another one begins.
            follows(call.source(), number);
        }
    });
    let medium = handlers
        .any_mode()
        .medium(move |call, (number,): (u32,), _: &[u8]| {
            follows(call.source(), number);
            reply(call, done, number);
        });
    let conduit = attached(handlers)?;
    for to in everyone(&conduit) {
        for number in 1..=ROUNDS {
            // Mediums of more than one packet alternate with shorts, which would overtake them.
            match number % 2 {
                0 => conduit.request(to, short, (number,))?,
                _ => conduit.request_medium(to, medium, (number,), &[0; 6000][..])?,
            }
            conduit.wait_until(|| replied.load(Relaxed) == number)?;
        }
    }
    conduit.quiesce()?;
    Ok(conduit.finish()?)
}

// ---- data and its notification --------------------------------------------------------------

/// How data is put, and how its completion is waited for.
#[derive(Debug, Clone, Copy)]
enum Way {
    Blocking,
    Handle,
    Bulk,
    Implicit,
    Region,
    Scope,
}

const WAYS: [Way; 6] = [
    Way::Blocking,
    Way::Handle,
    Way::Bulk,
    Way::Implicit,
    Way::Region,
    Way::Scope,
];

impl Way {
    /// Puts the data and returns when it is at the target. Overwrites the source as soon as the
    /// call permits.
    fn put<M: Mode>(self, conduit: &Conduit<M>, to: Rank, at: usize, data: &[u8]) -> Result<()> {
        let mut source = data.to_vec();
        match self {
            Self::Blocking => conduit.put(to, at, &source[..])?,
            Self::Handle => {
                let handle = conduit.put_nb(to, at, &source[..])?;
                source.fill(0xEE);
                conduit.wait(handle)?;
            }
            Self::Bulk => {
                // SAFETY: `source` lives, unchanged, until the handle has been waited for.
                let handle = unsafe { conduit.put_nb_bulk(to, at, source.as_ptr(), source.len())? };
                conduit.wait(handle)?;
            }
            Self::Implicit => {
                conduit.put_nbi(to, at, &source[..])?;
                source.fill(0xEE);
                conduit.wait_puts()?;
            }
            Self::Region => {
                conduit.begin_region()?;
                let (first, second) = source.split_at_mut(data.len() / 2);
                conduit.put_nbi(to, at, &*first)?;
                conduit.put_nbi(to, at + first.len(), &*second)?;
                source.fill(0xEE);
                conduit.wait(conduit.end_region()?)?;
            }
            Self::Scope => conduit.scope(|scope| scope.put(to, at, &source[..]))?,
        }
        Ok(())
    }
}

/// If a rank puts data and waits for the put, the data is visible to any rank that sees a later
/// put, atomic or request of the first rank.
///
/// `news` is `put`, `atomic` or `request`.
pub(super) fn data_then_news<M: Mode>(news: &str) -> Result<()> {
    const ROUNDS: u64 = 30;
    // Each length is used in each way.
    let len = |round: u64| {
        if (round / 2).is_multiple_of(2) {
            DATA
        } else {
            MUCH
        }
    };
    let (own, told) = (
        Arc::new(OnceLock::<Own>::new()),
        Arc::new(AtomicU64::new(0)),
    );
    let mut handlers = Handlers::<M>::new();
    let tell = handlers.any_mode().short({
        let (own, told) = (own.clone(), told.clone());
        move |call, (round,): (u64,)| {
            let own = own.get().expect("set before the first request");
            let found = own.bytes(share(call.source()), len(round));
            assert!(
                found == pattern(call.source(), round as u32, len(round)),
                "round {round}"
            );
            assert_eq!(own.word(word(call.source(), 1)).load(Relaxed), round);
            told.store(round, Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let segment = Own::of(&conduit)?;
    ensure!(own.set(segment).is_ok());
    conduit.barrier()?;
    let rank = conduit.rank();
    for places in 1..=conduit.size() {
        let (to, from) = (
            after(&conduit, places),
            after(&conduit, conduit.size() - places),
        );
        for round in 1..=ROUNDS {
            let round = u64::from(places) * 1000 + round;
            let way = WAYS[round as usize % WAYS.len()];
            let data = pattern(rank, round as u32, len(round));
            // The atomic precedes the put, because its round trip would otherwise give the put time
            // to arrive.
            let atomic = conduit.atomic_nb(to, word(rank, 1), AtomicOp::Set, round)?;
            conduit.wait(atomic)?;
            way.put(&conduit, to, share(rank), &data)?;
            match news {
                "put" if round % 2 == 0 => conduit.put(to, word(rank, 0), &round)?,
                "put" => {
                    let handle = conduit.put_nb(to, word(rank, 0), &round)?;
                    conduit.wait(handle)?;
                }
                "atomic" if round % 2 == 0 => {
                    conduit.atomic(to, word(rank, 0), AtomicOp::Set, round)?;
                }
                "atomic" => {
                    conduit.atomic_fetch(to, word(rank, 0), AtomicOp::Max, round)?;
                }
                "request" => conduit.request(to, tell, (round,))?,
                other => bail!("unknown kind of news {other}"),
            }
            if news == "request" {
                conduit.wait_until(|| told.load(Relaxed) == round)?;
            } else {
                conduit.wait_until(|| segment.word(word(from, 0)).load(Acquire) == round)?;
                let found = segment.bytes(share(from), len(round));
                let set = segment.word(word(from, 1)).load(Relaxed);
                ensure!(
                    set == round,
                    "found the atomic of round {set} in round {round}"
                );
                same(
                    &format!("{way:?}, round {round}"),
                    &found,
                    &pattern(from, round as u32, len(round)),
                )?;
            }
            // After the barrier, the data of the next round may be put.
            conduit.barrier()?;
        }
    }
    Ok(conduit.finish()?)
}

/// If a rank puts data and waits for the put, the data is also visible to a third rank that gets it
/// after a message has notified it.
pub(super) fn data_for_a_third<M: Mode>() -> Result<()> {
    const ROUNDS: u32 = 30;
    let told = Arc::new(AtomicU32::new(0));
    let mut handlers = Handlers::<M>::new();
    let tell = handlers.any_mode().short({
        let told = told.clone();
        move |_, (round,): (u32,)| told.store(round, Relaxed)
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    for places in 1..size {
        // This rank puts to rank `to` and notifies rank `third`. The rank that notifies this one
        // has put to rank `at_of`.
        let (to, third) = (after(&conduit, places), after(&conduit, 1));
        let from = after(&conduit, size - 1);
        let at_of = (from + places) % size;
        for round in 1..=ROUNDS {
            let round = places * 1000 + round;
            let way = WAYS[round as usize % WAYS.len()];
            way.put(&conduit, to, share(rank), &pattern(rank, round, DATA))?;
            conduit.request(third, tell, (round,))?;
            conduit.wait_until(|| told.load(Relaxed) == round)?;
            let mut got = vec![0; DATA];
            conduit.get(&mut got[..], at_of, share(from))?;
            same("a third's get", &got, &pattern(from, round, DATA))?;
            conduit.barrier()?;
        }
    }
    Ok(conduit.finish()?)
}

/// A rank's own gets, atomics and puts see the data that the rank has put and waited for.
pub(super) fn own_operations<M: Mode>() -> Result<()> {
    let conduit = attached::<M>(Handlers::new())?;
    let rank = conduit.rank();
    for to in everyone(&conduit) {
        for round in 1..=30_u64 {
            let way = WAYS[round as usize % WAYS.len()];
            let data = pattern(rank, round as u32, DATA);
            way.put(&conduit, to, share(rank), &data)?;
            // A later put overwrites an earlier one.
            conduit.put(to, share(rank) + 100, &round)?;
            let mut got = vec![0; DATA];
            conduit.get(&mut got[..], to, share(rank))?;
            let expected = [&data[..100], &round.to_ne_bytes()[..], &data[108..]].concat();
            same("get", &got, &expected)?;
            conduit.put(to, word(rank, 1), &round)?;
            let before = conduit.atomic_fetch(to, word(rank, 1), AtomicOp::Add, 1000u64)?;
            ensure!(before == round, "the atomic found {before}");
            ensure!(conduit.get_value(to, word(rank, 1), 8)? == round + 1000);
        }
    }
    Ok(conduit.finish()?)
}

/// If an aligned word is put, or changed by an atomic, no load, get or atomic sees it partially
/// changed.
///
/// `target` tells whether the rank that owns the word `computes` or `polls` meanwhile.
pub(super) fn words_are_whole<M: Mode>(target: &str) -> Result<()> {
    const ROUNDS: u64 = 300;
    let conduit = attached::<M>(Handlers::new())?;
    let own = Own::of(&conduit)?;
    let rank = conduit.rank();
    /// Requires that the value is whole, and returns whether it is the last one.
    fn check(seen: u64) -> Result<bool> {
        let whole = (seen as u32).is_multiple_of(7) && seen >> 32 == u64::from(seen as u32);
        ensure!(whole, "a partially changed word was seen: {seen:#x}");
        Ok(seen as u32 == 7 * ROUNDS as u32)
    }
    for writes in 0..conduit.size() {
        conduit.barrier()?;
        let to = (writes + 1) % conduit.size();
        let at = word(writes, 0);
        if rank == writes {
            for round in 1..=ROUNDS {
                let value = 7 * (round << 32 | round);
                let half = 7 * round as u32;
                conduit.put(to, at + 8, &(half << 16 | half))?;
                conduit.put(to, at + 16, &[round as u8; 2])?;
                match round % 3 {
                    0 => conduit.put(to, at, &value)?,
                    1 => conduit.atomic(to, at, AtomicOp::Set, value)?,
                    _ => {
                        let handle = conduit.put_value_nb(to, at, value, 8)?;
                        conduit.wait(handle)?;
                    }
                }
            }
        } else if rank == to {
            while !check(own.word(at).load(Relaxed))? {
                let four = own.word(at + 8).load(Relaxed) as u32;
                ensure!(four >> 16 == four & 0xFFFF, "{four:#x} was seen");
                let two = own.word(at + 16).load(Relaxed) as u16;
                ensure!(two >> 8 == two & 0xFF, "{two:#x} was seen");
                if target == "polls" {
                    conduit.poll()?;
                }
            }
        } else {
            while !check(conduit.get_value(to, at, 8)?)? {
                check(conduit.atomic_get(to, at)?)?;
            }
        }
    }
    Ok(conduit.finish()?)
}

/// Atomics that all ranks, including the owner, run on one integer are atomic with respect to each
/// other.
pub(super) fn atomics_are_atomic<M: Mode>() -> Result<()> {
    const BOUTS: u64 = 15;
    const EACH: u64 = 20;
    const ROUNDS: u64 = BOUTS * EACH;
    let conduit = attached::<M>(Handlers::new())?;
    // All ranks run their atomics on the same integers at once.
    for _ in 0..BOUTS {
        conduit.barrier()?;
        for to in (0..conduit.size()).flat_map(|to| [to; EACH as usize]) {
            conduit.atomic(to, word(0, 0), AtomicOp::Add, 1u64)?;
            let mut seen = conduit.atomic_get::<u64>(to, word(0, 1))?;
            loop {
                let found = conduit.compare_swap(to, word(0, 1), seen, seen + 3)?;
                if found == seen {
                    break;
                }
                seen = found;
                // An atomic of the owner may return without polling, but the owner's peers need it
                // to poll.
                conduit.poll()?;
            }
        }
    }
    conduit.barrier()?;
    let expected = ROUNDS * u64::from(conduit.size());
    for to in everyone(&conduit) {
        let counts = [0, 1].map(|number| conduit.atomic_get::<u64>(to, word(0, number)));
        for (found, expected) in counts.into_iter().zip([expected, 3 * expected]) {
            let found = found?;
            ensure!(found == expected, "counted {found}, expected {expected}");
        }
    }
    Ok(conduit.finish()?)
}

/// The sender may change a payload as soon as the call returns. When the handler of a long runs,
/// the payload is in the segment.
pub(super) fn payloads_are_delivered_whole<M: Mode>() -> Result<()> {
    const ROUNDS: u32 = 40;
    /// The last length is longer than a chunk, so its data and header travel separately.
    const LENGTHS: [usize; 4] = [0, 40, 1500, 20_000];
    const _: () = assert!(LENGTHS[2] + LENGTHS[3] < SHARE);
    let (own, handled) = (
        Arc::new(OnceLock::<Own>::new()),
        Arc::new(AtomicU32::new(0)),
    );
    let mut handlers = Handlers::<M>::new();
    let medium = handlers.any_mode().medium({
        let handled = handled.clone();
        move |call, (round,): (u32,), bytes: &[u8]| {
            assert!(bytes == pattern(call.source(), round, bytes.len()));
            assert!(bytes.as_ptr().addr().is_multiple_of(16));
            handled.fetch_add(1, Relaxed);
        }
    });
    let long = handlers.any_mode().long({
        let (own, handled) = (own.clone(), handled.clone());
        move |call, (round,): (u32,), landed| {
            let own = own.get().expect("set before the first request");
            let found = own.bytes(landed.offset, landed.length);
            assert!(
                found == pattern(call.source(), round, landed.length),
                "a long of round {round}"
            );
            handled.fetch_add(1, Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    ensure!(own.set(Own::of(&conduit)?).is_ok());
    conduit.barrier()?;
    for round in 0..ROUNDS {
        let len = LENGTHS[round as usize % LENGTHS.len()];
        for to in everyone(&conduit) {
            let mut payload = pattern(conduit.rank(), round, len.min(conduit.max_medium()));
            conduit.request_medium(to, medium, (round,), &payload[..])?;
            payload.fill(0xEE);
            let mut payload = pattern(conduit.rank(), round, len);
            // The longs of two successive rounds may be in flight at once, so they must not
            // overlap.
            let at = share(conduit.rank()) + (round as usize % 2) * LENGTHS[2];
            conduit.request_long(to, long, (round,), &payload[..], at)?;
            payload.fill(0xEE);
        }
        if round % 2 == 1 {
            conduit.quiesce()?;
        }
    }
    ensure!(handled.load(Relaxed) == 2 * ROUNDS * conduit.size());
    Ok(conduit.finish()?)
}

// ---- guarantees of calls --------------------------------------------------------------------

/// After a barrier, everything is visible that any rank stored in its segment before the barrier,
/// or put and waited for.
pub(super) fn a_barrier_covers_stores_and_puts<M: Mode>() -> Result<()> {
    let conduit = attached::<M>(Handlers::new())?;
    let own = Own::of(&conduit)?;
    let rank = conduit.rank();
    for round in 1..=20_u32 {
        own.word(word(rank, 0)).store(round.into(), Relaxed);
        for to in everyone(&conduit) {
            let way = WAYS[(round + to) as usize % WAYS.len()];
            way.put(&conduit, to, share(rank), &pattern(rank, round, 900))?;
        }
        match round % 3 {
            0 => conduit.barrier()?,
            1 => conduit.barrier_named(round)?,
            _ => {
                conduit.barrier_notify(None)?;
                conduit.barrier_wait(None)?;
            }
        }
        for from in everyone(&conduit) {
            let found = own.bytes(share(from), 900);
            same("after the barrier", &found, &pattern(from, round, 900))?;
            let stored = conduit.get_value(from, word(from, 0), 8)?;
            ensure!(stored == u64::from(round), "{stored} stored on rank {from}");
        }
        // The barrier ends the checks before any rank puts the next round's data.
        conduit.barrier()?;
    }
    Ok(conduit.finish()?)
}

/// When `quiesce` returns, the handlers of all messages that any rank sent before the call have run
/// to their end. `quiesce` is also a barrier.
pub(super) fn quiesce_covers_messages<M: Mode>() -> Result<()> {
    const ROUNDS: u64 = 10;
    let (own, replies) = (
        Arc::new(OnceLock::<Own>::new()),
        Arc::new(AtomicU64::new(0)),
    );
    let mut handlers = Handlers::<M>::new();
    let done = handlers.any_mode().short({
        let replies = replies.clone();
        move |_, (_,): (u32,)| {
            replies.fetch_add(1, Relaxed);
        }
    });
    // The handler counts after its reply, because it may continue to run then.
    let count = {
        let own = own.clone();
        move |work: u32| {
            for _ in 0..work {
                std::hint::spin_loop();
            }
            let own = own.get().expect("set before the first request");
            own.word(word(0, 2)).fetch_add(1, Relaxed);
        }
    };
    let short = handlers.any_mode().short({
        let count = count.clone();
        move |call, (work,): (u32,)| {
            reply(call, done, work);
            count(work);
        }
    });
    let medium = handlers.any_mode().medium({
        let count = count.clone();
        move |_, (work,): (u32,), _: &[u8]| count(work)
    });
    let long = handlers.any_mode().long(move |call, (work,): (u32,), _| {
        reply(call, done, work);
        count(work);
    });
    let conduit = attached(handlers)?;
    let rank = conduit.rank();
    let size = u64::from(conduit.size());
    let segment = Own::of(&conduit)?;
    ensure!(own.set(segment).is_ok());
    conduit.barrier()?;
    let body = || -> Result<()> {
        for round in 1..=ROUNDS {
            for to in everyone(&conduit) {
                for number in 0..3 {
                    conduit.request(to, short, (number * 500,))?;
                    conduit.request_medium(to, medium, (number,), &[1; 3000][..])?;
                    conduit.request_long(to, long, (0,), &[1; 6000][..], share(rank))?;
                }
                conduit.put(to, word(rank, 3), &round)?;
            }
            conduit.quiesce()?;
            ensure!(replies.load(Relaxed) == round * size * 6, "replies");
            for peer in everyone(&conduit) {
                let handled = conduit.atomic_get::<u64>(peer, word(0, 2))?;
                ensure!(
                    handled == round * size * 9,
                    "{handled} messages handled on rank {peer}"
                );
                let put = segment.word(word(peer, 3)).load(Relaxed);
                ensure!(put == round, "found the put of round {put} by rank {peer}");
            }
            // The barrier ends the checks before any rank sends more.
            conduit.barrier()?;
        }
        Ok(())
    };
    body()?;
    // `finish` gives the same guarantee for the last messages.
    for to in everyone(&conduit) {
        conduit.request(to, short, (0,))?;
    }
    conduit.finish()?;
    let replies = replies.load(Relaxed);
    ensure!(
        replies == ROUNDS * size * 6 + size,
        "{replies} replies after finish"
    );
    Ok(())
}

/// `quiesce` covers all messages even while other threads poll, and therefore run handlers.
pub(super) fn quiesce_covers_other_threads() -> Result<()> {
    const ROUNDS: u64 = 50;
    let own = Arc::new(OnceLock::<Own>::new());
    let mut handlers = Handlers::<Par>::new();
    let done = handlers.any_mode().short(|_, (_,): (u32,)| {});
    let request = handlers.any_mode().short({
        let own = own.clone();
        move |call, (work,): (u32,)| {
            reply(call, done, work);
            for _ in 0..work {
                // The other threads run now. If one of them is in `quiesce`, it must not take this
                // pause for quiescence.
                std::thread::yield_now();
            }
            let own = own.get().expect("set before the first request");
            own.word(word(0, 2)).fetch_add(1, Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let segment = Own::of(&conduit)?;
    ensure!(own.set(segment).is_ok());
    conduit.barrier()?;
    with_pollers(&conduit, 1, || {
        for round in 1..=ROUNDS {
            for to in everyone(&conduit) {
                conduit.request(to, request, (30,))?;
            }
            conduit.quiesce()?;
            let handled = segment.word(word(0, 2)).load(Relaxed);
            let expected = round * u64::from(conduit.size());
            ensure!(handled == expected, "{handled} of {expected}");
            conduit.barrier()?;
        }
        Ok(())
    })?;
    Ok(conduit.finish()?)
}

/// Runs `body` while `count` other threads poll.
fn with_pollers(
    conduit: &Conduit<Par>,
    count: usize,
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pollers: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while !over.load(Relaxed) {
                        conduit.poll()?;
                    }
                    Ok(())
                })
            })
            .collect();
        let result = body();
        over.store(true, Relaxed);
        for poller in pollers {
            match poller.join() {
                Ok(polled) => polled?,
                Err(_) => bail!("a polling thread panicked"),
            }
        }
        result
    })
}

// ---- progress --------------------------------------------------------------------------------

/// Puts, gets and atomics complete while their target computes without making any call.
pub(super) fn a_computing_target<M: Mode>() -> Result<()> {
    let conduit = attached::<M>(Handlers::new())?;
    let own = Own::of(&conduit)?;
    own.word(word(0, 5)).store(77, Relaxed);
    conduit.barrier()?;
    // The ranks make the calls one after another.
    for works in 0..conduit.size() {
        if conduit.rank() != works {
            own.compute_until(word(works, 0), 1);
            let found = own.bytes(share(works), DATA);
            same(
                "the bytes put while the target computes",
                &found,
                &pattern(works, conduit.rank(), DATA),
            )?;
            continue;
        }
        for to in everyone(&conduit) {
            for way in WAYS {
                way.put(&conduit, to, share(works), &pattern(works, to, DATA))?;
            }
            ensure!(conduit.get_value(to, word(0, 5), 8)? == 77);
            let mut got = vec![0; DATA];
            conduit.get(&mut got[..], to, share(works))?;
            same("get", &got, &pattern(works, to, DATA))?;
            ensure!(conduit.atomic_fetch(to, word(works, 1), AtomicOp::Add, 5u64)? == 0);
            ensure!(conduit.compare_swap(to, word(works, 1), 5u64, 6)? == 5);
            conduit.put(to, word(works, 0), &1u64)?;
        }
    }
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// The operations that a rank has started are sent even if the rank then computes and makes no
/// call.
pub(super) fn a_computing_initiator<M: Mode>() -> Result<()> {
    let handled = Arc::new(AtomicU32::new(0));
    let mut handlers = Handlers::<M>::new();
    let short = handlers.any_mode().short({
        let handled = handled.clone();
        move |_, (_,): (u32,)| {
            handled.fetch_add(1, Relaxed);
        }
    });
    let medium = handlers.any_mode().medium({
        let handled = handled.clone();
        move |_, (_,): (u32,), _: &[u8]| {
            handled.fetch_add(1, Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let own = Own::of(&conduit)?;
    let rank = conduit.rank();
    conduit.barrier()?;
    for starts in 0..conduit.size() {
        let to = (starts + 1) % conduit.size();
        if rank == starts {
            let handle = conduit.put_nb(to, share(rank), &pattern(rank, 0, DATA)[..])?;
            conduit.request(to, short, (0,))?;
            conduit.request_medium(to, medium, (0,), &[0; 8000][..])?;
            // Computes until the target has all the data, which the target signals by a put.
            own.compute_until(word(to, 4), 1);
            conduit.wait(handle)?;
        } else if rank == to {
            let last = pattern(starts, 0, DATA);
            conduit.wait_until(|| {
                handled.load(Relaxed) == 2 && own.bytes(share(starts), DATA) == last
            })?;
            conduit.put(starts, word(to, 4), &1u64)?;
        }
        conduit.barrier()?;
    }
    Ok(conduit.finish()?)
}

/// Handlers run only in calls into Conduit, on the thread of the call. None runs on a rank that
/// computes, whatever has arrived there.
pub(super) fn handlers_run_in_calls<M: Mode>() -> Result<()> {
    let seen = Arc::new(Mutex::new(Vec::<ThreadId>::new()));
    let mut handlers = Handlers::<M>::new();
    let note = {
        let seen = seen.clone();
        move || {
            seen.lock()
                .expect("no panic")
                .push(std::thread::current().id());
            assert!(CALLING.get(), "a handler ran outside of a call");
        }
    };
    let done = handlers.any_mode().short({
        let note = note.clone();
        move |_, (_,): (u32,)| note()
    });
    let request = handlers.any_mode().short(move |call, (number,): (u32,)| {
        note();
        reply(call, done, number);
    });
    let conduit = attached(handlers)?;
    let own = Own::of(&conduit)?;
    let calls = |call: &dyn Fn() -> conduit::Result<()>| {
        CALLING.set(true);
        let result = call();
        CALLING.set(false);
        result
    };
    calls(&|| conduit.barrier())?;
    let mut expected = 0;
    for sends in 0..conduit.size() {
        let others: Vec<_> = everyone(&conduit)
            .filter(|&to| to != conduit.rank())
            .collect();
        if conduit.rank() == sends {
            for &to in &others {
                calls(&|| {
                    for number in 0..5 {
                        conduit.request(to, request, (number,))?;
                    }
                    // If nothing polls for the target, the put is sent as a message and completes
                    // without further calls.
                    conduit.put(to, word(sends, 0), &1u64)
                })?;
            }
            expected += 5 * others.len();
        } else {
            let before = seen.lock().expect("no panic").len();
            own.compute_until(word(sends, 0), 1);
            let now = seen.lock().expect("no panic").len();
            ensure!(
                now == before,
                "{} handlers ran without a call",
                now - before
            );
            expected += 5;
        }
        calls(&|| conduit.quiesce())?;
        let ran = seen.lock().expect("no panic").len();
        ensure!(ran == expected, "{ran} handlers ran, expected {expected}");
        // The barrier ends the checks before the next rank sends.
        calls(&|| conduit.barrier())?;
    }
    let this = std::thread::current().id();
    ensure!(
        seen.lock()
            .expect("no panic")
            .iter()
            .all(|&thread| thread == this)
    );
    CALLING.set(true);
    Ok(conduit.finish()?)
}

thread_local! {
    /// Whether this thread is in a call into Conduit.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

// ---- threads ---------------------------------------------------------------------------------

/// If several threads are in calls, at most one of them at a time runs a request handler, and at
/// most one at a time runs a reply handler. Threads outside calls never run handlers.
pub(super) fn one_handler_at_a_time() -> Result<()> {
    const ROUNDS: u32 = 25;
    /// The number of threads that are in handlers of one kind, and the ids of all threads that have
    /// run them.
    #[derive(Default)]
    struct Inside {
        now: AtomicU32,
        ever: Mutex<HashSet<ThreadId>>,
        runs: AtomicU32,
    }
    impl Inside {
        fn run(&self) {
            assert_eq!(self.now.fetch_add(1, SeqCst), 0, "two handlers at once");
            self.ever
                .lock()
                .expect("no panic")
                .insert(std::thread::current().id());
            for _ in 0..300 {
                std::hint::spin_loop();
            }
            self.runs.fetch_add(1, Relaxed);
            self.now.fetch_sub(1, SeqCst);
        }
    }
    let (requests, replies) = (Arc::new(Inside::default()), Arc::new(Inside::default()));
    let mut handlers = Handlers::<Par>::new();
    let done = handlers.any_mode().short({
        let replies = replies.clone();
        move |_, (_,): (u32,)| replies.run()
    });
    let short = handlers.any_mode().short({
        let requests = requests.clone();
        move |call, (number,): (u32,)| {
            reply(call, done, number);
            requests.run();
        }
    });
    let medium = handlers.any_mode().medium({
        let requests = requests.clone();
        move |call, (number,): (u32,), _: &[u8]| {
            reply(call, done, number);
            requests.run();
        }
    });
    let conduit = attached(handlers)?;
    let callers = Mutex::new(HashSet::from([std::thread::current().id()]));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    callers
                        .lock()
                        .expect("no panic")
                        .insert(std::thread::current().id());
                    for number in 0..ROUNDS {
                        for to in everyone(&conduit) {
                            conduit.request(to, short, (number,))?;
                            conduit.request_medium(to, medium, (number,), &[0; 2000][..])?;
                        }
                        conduit.poll()?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(())
    })?;
    conduit.quiesce()?;
    let callers = callers.into_inner().expect("no panic");
    for inside in [&requests, &replies] {
        ensure!(inside.runs.load(Relaxed) == 3 * 2 * ROUNDS * conduit.size());
        ensure!(inside.ever.lock().expect("no panic").is_subset(&callers));
    }
    Ok(conduit.finish()?)
}

/// Each thread has its own implicit operations, access regions and scopes. A wait of one thread
/// neither ends nor disturbs the operations of another.
pub(super) fn implicit_operations_are_the_threads() -> Result<()> {
    const THREADS: u32 = 3;
    const LEN: usize = 3000;
    let conduit = attached::<Par>(Handlers::new())?;
    let one = |thread: u32| -> Result<()> {
        let at = share(conduit.rank()) + thread as usize * LEN;
        for round in 0..60 {
            for to in everyone(&conduit) {
                let data = pattern(thread, round, LEN);
                let mut got = vec![0; LEN];
                match round % 3 {
                    0 => {
                        conduit.put_nbi(to, at, &data[..])?;
                        conduit.wait_puts()?;
                    }
                    1 => {
                        conduit.begin_region()?;
                        conduit.put_nbi(to, at, &data[..])?;
                        conduit.wait(conduit.end_region()?)?;
                    }
                    _ => conduit.scope(|scope| scope.put(to, at, &data[..]))?,
                }
                // SAFETY: `got` is neither moved nor accessed until the implicit gets have been
                // waited for.
                unsafe { conduit.get_nbi(got.as_mut_ptr(), to, at, LEN)? };
                conduit.wait_gets()?;
                same("get", &got, &data)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(())
    })?;
    Ok(conduit.finish()?)
}
