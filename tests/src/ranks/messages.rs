//! Programs that send active messages of all categories between all ranks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, ensure};
use conduit::threads::Mode;
use conduit::{Call, Conduit, Handlers, Long, Medium, Par, Seq, Short};

use super::{SHARE, attached, pattern};

/// The counts of messages that this rank has received, and the handlers of its requests.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    count: Arc<Counts>,
    short: Short<(u32, u64)>,
    medium: Medium<(u32,)>,
    long: Long<(u32, u32)>,
    silent: Short<(u32,)>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    replies: AtomicU64,
    wrong: AtomicU64,
}

impl Counts {
    fn check(&self, right: bool) {
        self.wrong.fetch_add(u64::from(!right), Relaxed);
    }
}

/// The number of requests of each kind to every rank.
const ROUNDS: u32 = 30;
/// The payload bytes of a long reply.
const REPLIED: usize = 500;

/// Returns the offset in the requester's segment at which long replies from `from` land. The offset
/// lies in the second half of the share for `from` and differs for each round, because messages
/// have no order.
fn replied_at(from: u32, number: u32) -> usize {
    const { assert!(ROUNDS as usize * REPLIED <= SHARE / 2) };
    from as usize * SHARE + SHARE / 2 + number as usize * REPLIED
}

/// Registers handlers that reply in the request's category, and one that doesn't reply.
pub(super) fn handlers<M: Mode>() -> (Handlers<M>, Seen) {
    let count = Arc::new(Counts::default());
    let mut handlers = Handlers::new();
    let reply_short = handlers.any_mode().short({
        let count = count.clone();
        move |call: &Call<'_, M>, (number, wide): (u32, u64)| {
            count.check(wide == u64::from(number) << 33 && !call.is_request());
            count.replies.fetch_add(1, Relaxed);
        }
    });
    let reply_medium = handlers.any_mode().medium({
        let count = count.clone();
        move |call: &Call<'_, M>, (number,): (u32,), bytes: &[u8]| {
            count.check(bytes == pattern(number, call.source(), bytes.len()));
            count.replies.fetch_add(1, Relaxed);
        }
    });
    let reply_long = handlers.any_mode().long({
        let count = count.clone();
        move |call: &Call<'_, M>, (len,): (u64,), landed| {
            count.check(landed.length as u64 == len && !call.is_request());
            count.replies.fetch_add(1, Relaxed);
        }
    });
    let short = handlers.any_mode().short({
        let count = count.clone();
        move |call: &Call<'_, M>, (number, wide): (u32, u64)| {
            count.check(wide == u64::from(number) << 33 && call.is_request());
            count.check(call.reply(reply_short, (number, wide)).is_ok());
            count.check(call.reply(reply_short, (number, wide)).is_err());
            count.requests.fetch_add(1, Relaxed);
        }
    });
    let medium = handlers.any_mode().medium({
        let count = count.clone();
        move |call: &Call<'_, M>, (to,): (u32,), bytes: &[u8]| {
            count.check(bytes == pattern(call.source(), to, bytes.len()));
            let back = pattern(call.source(), to, bytes.len());
            count.check(
                call.reply_medium(reply_medium, (call.source(),), &back)
                    .is_ok(),
            );
            count.requests.fetch_add(1, Relaxed);
        }
    });
    let long = handlers.any_mode().long({
        let count = count.clone();
        move |call: &Call<'_, M>, (to, number): (u32, u32), landed| {
            count.check(landed.offset == call.source() as usize * SHARE);
            let back = pattern(number, to, REPLIED);
            let at = replied_at(to, number);
            let len = REPLIED as u64;
            count.check(call.reply_long(reply_long, (len,), &back[..], at).is_ok());
            count.requests.fetch_add(1, Relaxed);
        }
    });
    let silent = handlers.any_mode().short({
        let count = count.clone();
        move |_: &Call<'_, M>, (_,): (u32,)| {
            count.requests.fetch_add(1, Relaxed);
        }
    });
    let seen = Seen {
        count,
        short,
        medium,
        long,
        silent,
    };
    (handlers, seen)
}

/// Sends requests of each kind to every rank. The caller must keep the returned payloads until all
/// replies have arrived.
fn send<M: Mode>(conduit: &Conduit<M>, seen: &Seen) -> Result<Vec<Vec<u8>>> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let at = rank as usize * SHARE;
    let mut payloads = Vec::new();
    for number in 0..ROUNDS {
        for to in 0..size {
            conduit.request(to, seen.short, (number, u64::from(number) << 33))?;
            while !conduit.try_request(to, seen.silent, (number,))? {
                conduit.poll()?;
            }
            let len = (number as usize * 97) % conduit.max_medium();
            let bytes = pattern(rank, to, len);
            conduit.request_medium(to, seen.medium, (to,), &bytes)?;
            while !conduit.try_request_medium(to, seen.medium, (to,), &bytes)? {
                conduit.poll()?;
            }
            let mut prepared = conduit.prepare_medium(to, len, conduit.max_medium())?;
            prepared.payload()[..len].copy_from_slice(&bytes);
            prepared.commit(seen.medium, (to,), len)?;
            conduit.prepare_medium(to, 0, 10)?.cancel();
            if let Some(prepared) = conduit.try_prepare_medium(to, 1, 10)? {
                drop(prepared);
            }
            conduit.request_long(to, seen.long, (to, number), &bytes[..len.min(4096)], at)?;
            payloads.push(pattern(rank, to, 2000));
            let source = payloads.last().map_or(&[][..], Vec::as_slice);
            // SAFETY: the caller keeps `payloads`, unchanged, until all replies have arrived.
            unsafe {
                conduit.request_long_async(
                    to,
                    seen.long,
                    (to, number),
                    source.as_ptr(),
                    source.len(),
                    at,
                )?;
            }
        }
    }
    Ok(payloads)
}

/// Sends requests of each kind to every rank, and waits until the requests and their replies have
/// been handled.
pub(super) fn all<M: Mode>(conduit: &Conduit<M>, seen: &Seen) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let payloads = send(conduit, seen)?;
    let expected = u64::from(ROUNDS * size);
    let count = &seen.count;
    conduit.wait_until(|| {
        count.requests.load(Relaxed) == 7 * expected && count.replies.load(Relaxed) == 6 * expected
    })?;
    drop(payloads);
    conduit.barrier()?;
    ensure!(count.wrong.load(Relaxed) == 0, "messages arrived changed");
    let mut got = vec![0; REPLIED];
    for to in 0..size {
        for number in 0..ROUNDS {
            conduit.get(&mut got[..], rank, replied_at(to, number))?;
            super::same("long reply", &got, &pattern(number, to, REPLIED))?;
        }
    }
    conduit.barrier()?;
    Ok(())
}

/// When `quiesce` or `finish` returns, all messages sent before the call have been handled.
pub(super) fn delivered<M: Mode>() -> Result<()> {
    const TIMES: u64 = 4;
    let (handlers, seen) = handlers();
    let conduit = attached::<M>(handlers)?;
    let each = u64::from(ROUNDS * conduit.size());
    let check = |times| {
        let handled = [&seen.count.requests, &seen.count.replies, &seen.count.wrong];
        let handled = handled.map(|count| count.load(Relaxed));
        let expected = [7 * each * times, 6 * each * times, 0];
        ensure!(
            handled == expected,
            "{handled:?} handled, expected {expected:?}"
        );
        Ok(())
    };
    conduit.quiesce()?;
    for times in 1..TIMES {
        let payloads = send(&conduit, &seen)?;
        conduit.quiesce()?;
        check(times)?;
        drop(payloads);
        // The barrier keeps this rank from sending more before the others have checked their
        // counts.
        conduit.barrier()?;
    }
    let payloads = send(&conduit, &seen)?;
    conduit.finish()?;
    check(TIMES)?;
    drop(payloads);
    Ok(())
}

/// When `quiesce` or `finish` returns, handlers that continued after their reply have also ended,
/// on all ranks and all threads.
pub(super) fn delivered_whole() -> Result<()> {
    const ROUNDS: u64 = 200;
    const WORK: u32 = 2_000;
    let mut handlers = Handlers::<Par>::new();
    let (counter, over) = (Arc::new(OnceLock::new()), AtomicBool::new(false));
    let reply = handlers.short(|_, ()| {});
    let request = handlers.short({
        let counter = counter.clone();
        move |call, ()| {
            call.reply(reply, ()).expect("the first reply");
            for _ in 0..WORK {
                std::hint::spin_loop();
            }
            let counter: &usize = counter.get().expect("set before the first request");
            // SAFETY: the address is that of an aligned word in this rank's segment, which is
            // accessed only by atomics.
            unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(*counter)) }
                .fetch_add(1, Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let address = conduit.segment().as_ptr().expose_provenance();
    counter.set(address).expect("set once");
    conduit.barrier()?;
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| -> Result<()> {
            while !over.load(Relaxed) {
                conduit.poll()?;
            }
            Ok(())
        });
        let rounds = || -> Result<()> {
            for round in 1..=ROUNDS {
                for to in 0..conduit.size() {
                    conduit.request(to, request, ())?;
                }
                conduit.quiesce()?;
                let expected = round * u64::from(conduit.size());
                for peer in 0..conduit.size() {
                    let handled: u64 = conduit.atomic_get(peer, 0)?;
                    ensure!(handled == expected, "rank {peer}: {handled} of {expected}");
                }
                conduit.barrier()?;
            }
            Ok(())
        };
        let result = rounds();
        over.store(true, Relaxed);
        let polled = poller.join();
        result.and(polled.unwrap_or_else(|_| Err(anyhow::anyhow!("the poller panicked"))))
    })?;
    Ok(conduit.finish()?)
}

/// All ranks send as much as they can to all ranks, and every request gets a reply. Requests that
/// wait for room must not hold back the replies that would make room.
pub(super) fn mutual() -> Result<()> {
    const EACH: u64 = 20_000;
    let mut handlers = Handlers::<Seq>::new();
    let (requests, replies) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let reply = handlers.short({
        let replies = replies.clone();
        move |_, (_,): (u64,)| {
            replies.fetch_add(1, Relaxed);
        }
    });
    let request = handlers.short({
        let requests = requests.clone();
        move |call, (number,): (u64,)| {
            requests.fetch_add(1, Relaxed);
            call.reply(reply, (number,)).expect("the first reply");
        }
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    conduit.barrier()?;
    for number in 0..EACH {
        // Some requests go to the sender itself.
        let step = 1 + number as u32 % size;
        conduit.request((rank + step) % size, request, (number,))?;
    }
    conduit.wait_until(|| requests.load(Relaxed) == EACH && replies.load(Relaxed) == EACH)?;
    Ok(conduit.finish()?)
}

/// All ranks send as many shorts and full mediums as they can to rank 0, which is slow.
pub(super) fn flood() -> Result<()> {
    const EACH: u64 = 20_000;
    let mut handlers = Handlers::<Seq>::new();
    let count = Arc::new(AtomicU64::new(0));
    let short = handlers.short({
        let count = count.clone();
        move |_, (number,): (u64,)| {
            // The handler is busy in one call of 64, so that requests pile up.
            for _ in 0..if number % 64 == 0 { 20_000 } else { 0 } {
                std::hint::spin_loop();
            }
            count.fetch_add(1, Relaxed);
        }
    });
    let medium = handlers.medium({
        let count = count.clone();
        move |_, (_,): (u64,), bytes: &[u8]| {
            count.fetch_add(u64::from(bytes.len() > 1), Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let payload = vec![1; conduit.max_medium()];
    for number in 0..EACH {
        if number % 100 == 99 {
            conduit.request_medium(0, medium, (number,), &payload)?;
        } else {
            conduit.request(0, short, (number,))?;
        }
    }
    if conduit.rank() == 0 {
        let expected = EACH * u64::from(conduit.size());
        conduit.wait_until(|| count.load(Relaxed) == expected)?;
    }
    Ok(conduit.finish()?)
}
