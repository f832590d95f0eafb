//! The checks of one rank: all ranks perform each operation on all ranks, and compare every result.

mod atomics;
mod barriers;
mod flood;
mod messages;
mod overlap;
mod rma;
mod stage;
mod together;

use anyhow::{Context, Result};
use conduit::AtomicOp;

use stage::{SEGMENT_FIXED, SLOT, Stage, TOTALS};

/// The prefix of a line that announces a check, for the progress display.
pub(super) const BEGINS: &str = "> ";

/// A check, which returns the number of this rank's operations whose results it has compared.
type Check = fn(&Stage) -> Result<u64>;

const CHECKS: [(&str, Check); 15] = [
    ("puts and gets, blocking", rma::blocking),
    ("puts and gets of register values, memset", rma::values),
    ("puts and gets with explicit handles", overlap::explicit),
    (
        "implicit puts and gets, access regions, scopes",
        overlap::implicit,
    ),
    (
        "shorts with 0 to 16 arguments, and their replies",
        messages::shorts,
    ),
    (
        "mediums of 0 bytes to the largest, and their replies",
        messages::mediums,
    ),
    (
        "mediums written in place: prepared, committed, cancelled",
        messages::prepared,
    ),
    (
        "longs, longs sent asynchronously, and their replies",
        messages::longs,
    ),
    (
        "requests without a reply, immediate requests",
        messages::implied,
    ),
    (
        "a flood of shorts and mediums from all ranks to one",
        flood::flood,
    ),
    (
        "barriers: anonymous, named, split-phase, mismatch detected",
        barriers::barriers,
    ),
    (
        "remote atomics: fetching and not, 32 and 64 bits",
        atomics::atomics,
    ),
    (
        "puts with signals, atomics of handlers on their own segment",
        together::signals,
    ),
    (
        "broadcasts, reductions to one and to all, and by a function",
        together::collectives,
    ),
    (
        "teams: scatter, gather, exchange, reductions, barriers",
        together::teams,
    ),
];

/// Joins the job and performs all checks. Rank 0 writes a line for each check to standard output.
/// An error names the failed check and ends the job.
pub(super) fn run() -> Result<()> {
    let job = conduit::start()?;
    let (handlers, messages, inbox) = stage::handlers();
    let bytes = SEGMENT_FIXED + 2 * job.size() as usize * SLOT;
    let conduit = job.attach(handlers, bytes)?;
    let stage = Stage {
        conduit,
        messages,
        inbox,
    };
    let (rank, size) = (stage.rank(), stage.size());
    if rank == 0 {
        let windows = if stage.conduit.window(size - 1)?.is_some() {
            "mapped"
        } else {
            "not mapped"
        };
        println!("{size} ranks, segments of {} KiB, {windows}", bytes >> 10);
    }
    for (index, (name, check)) in CHECKS.iter().enumerate() {
        if rank == 0 {
            println!("{BEGINS}{name}");
        }
        stage.conduit.barrier()?;
        let operations = check(&stage).with_context(|| format!("rank {rank}: {name}"))?;
        let total = TOTALS + index * size_of::<u64>();
        stage.conduit.atomic(0, total, AtomicOp::Add, operations)?;
        stage.conduit.barrier()?;
        if rank == 0 {
            let operations = stage.conduit.get_value(0, total, size_of::<u64>())?;
            println!("{:>12} verified: {name}", grouped(operations));
        }
    }
    Ok(stage.conduit.finish()?)
}

/// Formats a number with a comma after every three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_are_grouped_by_three() {
        let text: Vec<_> = [0, 12, 999, 1000, 1_234_567].map(grouped).into();
        assert_eq!(text, ["0", "12", "999", "1,000", "1,234,567"]);
    }
}
