//! Active messages of all categories, with replies.

use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, ensure};

use super::stage::{SLOT, Stage, compare, lock, pattern};

/// Checks shorts with no arguments, three mixed arguments, and sixteen words.
pub(super) fn shorts(stage: &Stage) -> Result<u64> {
    let (conduit, messages, inbox) = (&stage.conduit, &stage.messages, &stage.inbox);
    let mut operations = 0;
    for round in 0..500u64 {
        for peer in stage.peers() {
            let before = inbox.replies.load(Relaxed);
            conduit.request(peer, messages.empty, ())?;
            conduit.request(peer, messages.mixed, (round as u32, round as f64 / 3.0, -7))?;
            let full = (round, round << 40, 3, u64::MAX, 5, 6, 7, -(round as i64));
            conduit.request(peer, messages.full, full)?;
            stage.replied(before, 3)?;
            let expected = (round as u32 + 1, round as f64 / 3.0 * 2.0, 7);
            ensure!(
                *lock(&inbox.mixed) == expected,
                "mixed arguments changed in transit"
            );
            ensure!(
                *lock(&inbox.full) == full,
                "sixteen arguments changed in transit"
            );
            operations += 6;
        }
    }
    Ok(operations)
}

/// Checks mediums with payloads from zero bytes to the largest size.
pub(super) fn mediums(stage: &Stage) -> Result<u64> {
    let (conduit, inbox) = (&stage.conduit, &stage.inbox);
    let most = conduit.max_medium();
    let sizes = [0, 1, 7, 64, 500, 1024, most / 2, most - 1, most];
    let mut operations = 0;
    for round in 0..40 {
        for size in sizes.into_iter().filter(|&size| size <= most) {
            let bytes = pattern(stage.rank(), round, size);
            for peer in stage.peers() {
                let before = inbox.replies.load(Relaxed);
                conduit.request_medium(peer, stage.messages.medium, (round as u64,), &bytes)?;
                stage.replied(before, 1)?;
                let (number, got) = &*lock(&inbox.medium);
                ensure!(
                    *number == round as u64 + 1,
                    "the argument of a medium reply is {number}"
                );
                compare("medium", got, &bytes)?;
                operations += 2;
            }
        }
    }
    Ok(operations)
}

/// Checks mediums whose payload is written where it is sent from.
pub(super) fn prepared(stage: &Stage) -> Result<u64> {
    let (conduit, inbox) = (&stage.conduit, &stage.inbox);
    let most = conduit.max_medium();
    let mut operations = 0;
    for round in 0..200 {
        for peer in stage.peers() {
            let length = round * most / 200;
            let before = inbox.replies.load(Relaxed);
            let abandoned = conduit.prepare_medium(peer, 0, most)?;
            abandoned.cancel();
            let mut medium = conduit.prepare_medium(peer, length, most)?;
            let bytes = pattern(stage.rank(), round, length);
            medium.payload()[..length].copy_from_slice(&bytes);
            medium.commit(stage.messages.medium, (round as u64,), length)?;
            stage.replied(before, 1)?;
            compare("prepared medium", &lock(&inbox.medium).1, &bytes)?;
            operations += 2;
        }
    }
    Ok(operations)
}

/// Checks longs, whose payload lands in the segment before their handler runs.
pub(super) fn longs(stage: &Stage) -> Result<u64> {
    let (conduit, inbox, rank) = (&stage.conduit, &stage.inbox, stage.rank());
    let mut operations = 0;
    for round in 0..60 {
        for size in [0, 1, 100, 1000, 20_000, SLOT] {
            let bytes = pattern(rank, round, size);
            for peer in stage.peers() {
                let before = inbox.replies.load(Relaxed);
                let (to, back) = (stage.slot(rank), stage.reply_slot(peer));
                if round % 2 == 0 {
                    conduit.request_long(peer, stage.messages.long, (back,), &bytes[..], to)?;
                } else {
                    // SAFETY: `bytes` lives and does not change until the reply has arrived, just
                    // below. If waiting fails, the job has failed and the network no longer reads
                    // it.
                    unsafe {
                        let (base, len) = (bytes.as_ptr(), bytes.len());
                        conduit.request_long_async(
                            peer,
                            stage.messages.long,
                            (back,),
                            base,
                            len,
                            to,
                        )?;
                    }
                }
                stage.replied(before, 1)?;
                let landed = *lock(&inbox.long);
                let length = size.min(100);
                ensure!(
                    landed == (back, length),
                    "a long reply landed at {landed:?}"
                );
                let mut reply = vec![0; length];
                conduit.get(&mut reply[..], rank, back)?;
                compare("long reply", &reply, &vec![to as u8; length])?;
                let mut got = vec![0; size];
                conduit.get(&mut got[..], peer, to)?;
                compare("long", &got, &bytes)?;
                operations += 2;
            }
        }
    }
    Ok(operations)
}

/// Checks requests whose handler sends no reply: Conduit sends an implied one, which returns the
/// credits.
pub(super) fn implied(stage: &Stage) -> Result<u64> {
    const EACH: u64 = 2000;
    let (conduit, inbox) = (&stage.conduit, &stage.inbox);
    inbox.counted.store(0, Relaxed);
    inbox.sum.store(0, Relaxed);
    conduit.barrier()?;
    for number in 0..EACH {
        for peer in stage.peers() {
            if number % 2 == 0 {
                conduit.request(peer, stage.messages.count, (number,))?;
            } else {
                // The immediate form returns false instead of waiting; this rank then does
                // something else, here polling.
                while !conduit.try_request(peer, stage.messages.count, (number,))? {
                    conduit.poll()?;
                }
            }
        }
    }
    stage.counted(EACH * u64::from(stage.size()))?;
    let expected = u64::from(stage.size()) * (EACH - 1) * EACH / 2;
    let sum = inbox.sum.load(Relaxed);
    ensure!(
        sum == expected,
        "the numbers of all requests add up to {sum}, not {expected}"
    );
    Ok(EACH * u64::from(stage.size()))
}
