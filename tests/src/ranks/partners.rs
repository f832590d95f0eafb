//! A program in which ranks take turns at sending many messages to one rank, which checks them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use conduit::{Handlers, Seq};

use super::attached;

/// The number of messages that each of the other ranks sends in a turn.
const FEW: u64 = 20;

/// Runs `turns` turns. In each of them, one rank sends `messages` full mediums to rank 0, while all
/// others send a few. The sending rank changes with every turn.
pub(super) fn partners(turns: &str, messages: &str) -> Result<()> {
    let turns: u32 = turns.parse().context("turns")?;
    let messages: u64 = messages.parse().context("messages")?;
    let mut handlers = Handlers::<Seq>::new();
    let come: Arc<[AtomicU64; 64]> = Arc::new([const { AtomicU64::new(0) }; 64]);
    let wrong = Arc::new(AtomicU64::new(0));
    let take = handlers.medium({
        let (come, wrong) = (Arc::clone(&come), Arc::clone(&wrong));
        move |call, (number,): (u64,), bytes: &[u8]| {
            let expected = come[call.source() as usize].fetch_add(1, Relaxed);
            let is_right = number == expected && bytes.iter().all(|byte| *byte == number as u8);
            wrong.fetch_add(u64::from(!is_right), Relaxed);
        }
    });
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    ensure!((2..=64).contains(&size), "2 to 64 ranks");
    let mut sent = vec![0u64; size as usize];
    for turn in 0..turns {
        for (from, sent) in (0..).zip(&mut sent) {
            let is_hot = from == 1 + turn % (size - 1);
            let until = *sent + if is_hot { messages } else { FEW };
            if from == rank {
                for number in *sent..until {
                    let bytes = vec![number as u8; conduit.max_medium()];
                    conduit.request_medium(0, take, (number,), &bytes[..])?;
                }
            }
            *sent = until;
        }
        let has_all = || {
            (0..)
                .zip(&sent)
                .all(|(from, sent)| come[from].load(Relaxed) == *sent)
        };
        conduit.wait_until(|| rank != 0 || has_all())?;
        conduit.barrier()?;
    }
    ensure!(
        wrong.load(Relaxed) == 0,
        "a message was changed or arrived out of order"
    );
    Ok(conduit.finish()?)
}
