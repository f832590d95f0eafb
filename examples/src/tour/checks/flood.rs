//! A flood from all ranks to one: flow control keeps it within the receiver's buffers.

use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, ensure};

use super::stage::Stage;

const SHORTS: u64 = 40_000;
const MEDIUMS: u64 = 4_000;

/// Sends from all ranks, including the receiver, to rank 0 as fast as possible.
pub(super) fn flood(stage: &Stage) -> Result<u64> {
    let (conduit, inbox) = (&stage.conduit, &stage.inbox);
    inbox.counted.store(0, Relaxed);
    inbox.sum.store(0, Relaxed);
    conduit.barrier()?;
    for number in 0..SHORTS {
        conduit.request(0, stage.messages.count, (number,))?;
    }
    let most = conduit.max_medium();
    for number in 0..MEDIUMS {
        let length = number as usize * 37 % (most + 1);
        let bytes = vec![number as u8; length];
        conduit.request_medium(0, stage.messages.count_medium, (number,), &bytes)?;
    }
    if stage.rank() == 0 {
        let ranks = u64::from(stage.size());
        stage.counted(ranks * (SHORTS + MEDIUMS))?;
        let expected = ranks * (SHORTS * (SHORTS - 1) + MEDIUMS * (MEDIUMS - 1)) / 2;
        let sum = inbox.sum.load(Relaxed);
        ensure!(
            sum == expected,
            "the numbers of all messages add up to {sum}, not {expected}"
        );
    }
    Ok(SHORTS + MEDIUMS)
}
