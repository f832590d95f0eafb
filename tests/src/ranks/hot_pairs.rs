//! A program in which pairs of ranks exchange much traffic, and the pairs change. Each message must
//! arrive once, and requests must arrive in order. Replies may arrive out of order, because a reply
//! in the slot of its request may overtake replies in rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use conduit::{Handlers, Seq};

use super::attached;

/// The number of requests of a pair while it is hot.
const MESSAGES: u64 = 4000;
/// One in this many requests is a medium.
const MEDIUM: u64 = 7;
/// One in this many requests gets a reply.
const ANSWERED: u64 = 5;
const LENGTH: usize = 700;

/// The numbers received from one rank. Each number arrives exactly once. Requests arrive in order.
#[derive(Debug, Default)]
struct Row {
    next: AtomicU64,
    wrong: AtomicU64,
    sum: AtomicU64,
}

impl Row {
    fn note(&self, number: u64) {
        let expected = self.next.fetch_add(1, Relaxed);
        self.wrong.fetch_add(u64::from(number != expected), Relaxed);
        self.sum.fetch_add(number, Relaxed);
    }

    fn check(&self, whose: &str, rank: u32, expected: u64, in_order: bool) -> Result<()> {
        let (next, sum) = (self.next.load(Relaxed), self.sum.load(Relaxed));
        let wrong = if in_order {
            self.wrong.load(Relaxed)
        } else {
            0
        };
        let right = expected * expected.saturating_sub(1) / 2;
        ensure!(
            (next, sum, wrong) == (expected, right, 0),
            "{next} {whose} of rank {rank}, {wrong} of them out of order, sum {sum}; not {expected}"
        );
        Ok(())
    }
}

/// Runs `rounds` rounds. In each of them, every rank floods one rank, which replies to some of the
/// requests.
pub(super) fn hot_pairs(rounds: &str) -> Result<()> {
    let rounds: u64 = rounds.parse().context("a number of rounds")?;
    // The maximum number of ranks. The tables are created before the actual number is known.
    const MOST: usize = 64;
    let rows = || Arc::new(std::array::from_fn::<Row, MOST, _>(|_| Row::default()));
    let (requests, answers) = (rows(), rows());
    let mut handlers = Handlers::<Seq>::new();
    let answer = handlers.short({
        let rows = Arc::clone(&answers);
        move |call, (number,): (u64,)| rows[call.source() as usize].note(number)
    });
    let short = handlers.short({
        let rows = Arc::clone(&requests);
        move |call, (number, reply): (u64, u64)| {
            rows[call.source() as usize].note(number);
            if reply != u64::MAX {
                // If the reply fails, the job ends, and the next call reports that.
                let _ = call.reply(answer, (reply,));
            }
        }
    });
    let medium = handlers.medium({
        let rows = Arc::clone(&requests);
        move |call, (number,): (u64,), bytes: &[u8]| {
            let number = if bytes == [7; LENGTH] {
                number
            } else {
                u64::MAX
            };
            rows[call.source() as usize].note(number);
        }
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    ensure!(size as usize <= MOST, "at most {MOST} ranks");
    let (mut sent, mut asked) = ([0u64; MOST], [0u64; MOST]);
    // The targets form a Latin square, so every rank knows which rank floods which. In one round of
    // three, all ranks flood the same rank.
    let target = |rank: u32, round: u64| match round % 3 {
        0 => (round % u64::from(size)) as u32,
        _ => ((u64::from(rank) + 1 + round) % u64::from(size)) as u32,
    };
    for round in 0..rounds {
        let to = target(rank, round);
        let (sent, asked) = (&mut sent[to as usize], &mut asked[to as usize]);
        for at in 0..MESSAGES {
            if at % MEDIUM == 0 {
                conduit.request_medium(to, medium, (*sent,), &[7; LENGTH][..])?;
            } else {
                let wants = at % ANSWERED == 0;
                let reply = if wants { *asked } else { u64::MAX };
                conduit.request(to, short, (*sent, reply))?;
                *asked += u64::from(wants);
            }
            *sent += 1;
        }
    }
    let from = |source: u32| {
        (0..rounds)
            .filter(|&round| target(source, round) == rank)
            .count() as u64
    };
    let all_came = || {
        let mut ranks = 0..size;
        ranks.all(|peer| {
            let at = peer as usize;
            requests[at].next.load(Relaxed) >= from(peer) * MESSAGES
                && answers[at].next.load(Relaxed) >= asked[at]
        })
    };
    conduit.wait_until(all_came)?;
    conduit.barrier()?;
    for peer in 0..size {
        requests[peer as usize].check("requests", peer, from(peer) * MESSAGES, true)?;
        answers[peer as usize].check("answers", peer, asked[peer as usize], false)?;
    }
    Ok(conduit.finish()?)
}
