//! The default numbers of credits that a rank lends and banks, depending on the size of the job.
//!
//! The tables are those of the original conduit's last release. One is for chunks of 1 KiB, with
//! which a full medium costs 4 credits, the other for chunks of 2 KiB, with which it costs 8.
//! Between rows, and for costs between 4 and 8, the numbers are interpolated linearly. Small jobs
//! lend more than the tables say; see [`SMALL_JOB_CREDITS`].

use crate::Scale;

/// The number of chunks in one request buffer.
pub const BUFFER_CHUNKS: u32 = 1024;

/// The original's limit on the dynamic credits lent to one rank. It is now the lower bound of the
/// default limit; see [`max_per_peer`].
pub const MAX_PER_PEER: u16 = 400;

/// The divisor of the bank that gives the default limit: one rank is lent at most the bank's
/// credits at the start, divided by this number.
pub const BANK_SHARE: u32 = 16;

/// The largest default limit that follows from [`BANK_SHARE`]. A loan that has become large grows
/// on to the limit, so a rank with bursts of half this size has few stalls before it is at rest.
/// Six partners with such loans take an eighth of the largest bank in the tables.
pub const MAX_OF_BANK: u16 = 1024;

/// The minimum number of credits that a rank lends in total, as far as [`SMALL_JOB_BYTES`] of
/// buffers allow. In jobs of up to 20 ranks, an even share of this number is more than the tables
/// give each rank, and more than [`MAX_PER_PEER`].
///
/// The tables are for a network whose sender is slower than its receiver. If both are processors, a
/// sender that may be ahead by 200 shorts waits for the receiver's cache lines most of the time. A
/// sender that may be ahead by about 2,000 shorts is as fast as without flow control.
pub const SMALL_JOB_CREDITS: u32 = 8192;

/// The maximum number of bytes of request buffers for [`SMALL_JOB_CREDITS`].
pub const SMALL_JOB_BYTES: u32 = 32 << 20;

/// The number of requests received per epoch.
pub const EPOCH: u32 = 1024;

/// The maximum number of credits that a rank gives back to one lender within an epoch.
pub const REVOKE_LIMIT: u16 = 32;

/// The maximum number of credits that a rank lends to one peer within an epoch.
pub const LENDER_LIMIT: u16 = 32;

/// The number of peers asked for credits at a time.
pub const SCAVENGE: u32 = 6;

/// A row of a table. It says that, in jobs of `ranks` ranks, each rank is lent `per_peer` credits
/// and `banked` credits are banked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of ranks in the job.
    pub ranks: u32,
    /// The number of credits lent to each rank.
    pub per_peer: u32,
    /// The number of credits in the bank.
    pub banked: u32,
}

const fn row(ranks: u32, per_peer: u32, banked: u32) -> Row {
    Row {
        ranks,
        per_peer,
        banked,
    }
}

/// The table for chunks of 1 KiB, with which a full medium costs 4 credits.
pub const COST_4: [Row; 10] = [
    row(1, 200, 400),
    row(64, 170, 25_600),
    row(128, 170, 51_200),
    row(512, 64, 51_200),
    row(1024, 32, 51_200),
    row(2048, 16, 51_200),
    row(3072, 12, 51_200),
    row(4096, 8, 51_200),
    row(5120, 4, 51_200),
    row(20_480, 4, 51_200),
];

/// The table for chunks of 2 KiB, with which a full medium costs 8 credits.
pub const COST_8: [Row; 9] = [
    row(1, 200, 200),
    row(64, 170, 12_800),
    row(128, 170, 25_600),
    row(512, 64, 25_600),
    row(1024, 32, 25_600),
    row(2048, 16, 25_600),
    row(3072, 12, 25_600),
    row(4096, 8, 25_600),
    row(20_480, 8, 25_600),
];

/// Returns the default maximum number of dynamic credits lent to one rank, given that `banked`
/// credits are in the bank at the start.
///
/// The limit costs no memory, because credits exist whether lent or not. It keeps one rank from
/// taking what others need, but if it is smaller than a burst in flight, requests stall again and
/// again. Therefore it grows with the bank.
#[must_use]
pub fn max_per_peer(banked: u32) -> u16 {
    let share = u16::try_from(banked / BANK_SHARE).unwrap_or(u16::MAX);
    share.clamp(MAX_PER_PEER, MAX_OF_BANK)
}

/// Returns the default numbers of credits per peer and in the bank for a job of `ranks` ranks.
///
/// No peer is lent fewer than a full medium costs. The credits that small jobs lend in addition to
/// those in the tables come from the bank first.
#[must_use]
pub fn credits(ranks: u32, scale: Scale) -> Row {
    let (four, eight) = (look_up(&COST_4, ranks), look_up(&COST_8, ranks));
    let cost = u32::from(scale.full_cost());
    let per_peer = between((4, four.per_peer), (8, eight.per_peer), cost);
    let banked = between((4, four.banked), (8, eight.banked), cost);
    let small = SMALL_JOB_CREDITS.min(SMALL_JOB_BYTES / scale.bytes_per_credit()) / ranks.max(1);
    let more = if small > u32::from(MAX_PER_PEER) {
        small.saturating_sub(per_peer)
    } else {
        0
    };
    Row {
        ranks,
        per_peer: (per_peer + more).max(cost),
        // If `more` is not zero, the product is at most `SMALL_JOB_CREDITS`.
        banked: banked.saturating_sub(more.saturating_mul(ranks)),
    }
}

/// Returns the interpolated numbers per peer and in the bank for `ranks` ranks. Below the first row
/// and above the last one, the numbers of that row apply.
fn look_up(table: &[Row], ranks: u32) -> Row {
    let mut below = table[0];
    for &above in table {
        if ranks <= above.ranks {
            let between = |low, high| {
                if ranks <= below.ranks {
                    low
                } else {
                    between((below.ranks, low), (above.ranks, high), ranks)
                }
            };
            return Row {
                ranks,
                per_peer: between(below.per_peer, above.per_peer),
                banked: between(below.banked, above.banked),
            };
        }
        below = above;
    }
    Row { ranks, ..below }
}

/// Returns the value at `x` on the straight line through two points, rounded down. `x0` must be
/// less than `x1`.
fn between((x0, y0): (u32, u32), (x1, y1): (u32, u32), x: u32) -> u32 {
    let (x0, y0, x1, y1, x) = (
        i64::from(x0),
        i64::from(y0),
        i64::from(x1),
        i64::from(y1),
        i64::from(x),
    );
    // The cast is lossless: `x` lies between `x0` and `x1`, so the result lies between two values
    // of `u32`.
    (y0 + ((y1 - y0) * (x - x0)).div_euclid(x1 - x0)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ranks: u32, chunk: u32) -> (u32, u32) {
        let row = credits(ranks, Scale::for_chunk(chunk).unwrap());
        (row.per_peer, row.banked)
    }

    #[test]
    fn each_row_is_its_own_default() {
        for (table, chunk) in [(&COST_4[..], 1024), (&COST_8[..], 2048)] {
            for row in &table[1..] {
                assert_eq!(
                    numbers(row.ranks, chunk),
                    (row.per_peer, row.banked),
                    "{row:?}"
                );
            }
        }
    }

    #[test]
    fn between_rows_lies_a_straight_line_and_beyond_them_the_last_row() {
        assert_eq!(numbers(320, 1024), (117, 51_200));
        assert_eq!(numbers(96, 1024), (170, 38_400));
        assert_eq!(numbers(768, 2048), (48, 25_600));
        assert_eq!(numbers(1_000_000, 1024), (4, 51_200));
        assert_eq!(numbers(1_000_000, 2048), (8, 25_600));
    }

    #[test]
    fn small_jobs_lend_more_from_the_bank_first() {
        let mut before = u32::MAX;
        for ranks in 0..64 {
            for chunk in [1024, 2048, 17 * 1024, 65_536] {
                let scale = Scale::for_chunk(chunk).unwrap();
                let (per_peer, banked) = numbers(ranks, chunk);
                let table = if scale.full_cost() == 4 {
                    look_up(&COST_4, ranks)
                } else if scale.full_cost() == 8 {
                    look_up(&COST_8, ranks)
                } else {
                    continue;
                };
                let total = table.per_peer * ranks + table.banked;
                let raised = per_peer > table.per_peer;
                assert_eq!(raised, ranks <= if chunk == 65_536 { 10 } else { 20 });
                assert!(per_peer * ranks + banked >= total.min(SMALL_JOB_CREDITS));
                if raised {
                    assert!(per_peer * ranks * scale.bytes_per_credit() <= SMALL_JOB_BYTES);
                    assert!(per_peer * ranks + banked <= total.max(SMALL_JOB_CREDITS));
                } else {
                    assert_eq!((per_peer, banked), (table.per_peer, table.banked));
                }
            }
            let (per_peer, _) = numbers(ranks, 1024);
            assert!(per_peer <= before, "fewer for each in larger jobs");
            before = per_peer;
        }
        assert_eq!(numbers(2, 1024), (4096, 0));
        assert_eq!(numbers(2, 17 * 1024), (4096, 0));
        assert_eq!(numbers(2, 65_536).0, 2048);
        assert_eq!(numbers(8, 17 * 1024).0, 1024);
    }

    #[test]
    fn larger_chunks_use_the_column_of_their_cost() {
        assert_eq!(numbers(64, 65_536), numbers(64, 2048));
        // A chunk of 1536 bytes costs 6 credits, which is half way between the two tables.
        assert_eq!(numbers(64, 1536), (170, 19_200));
    }

    #[test]
    fn a_peer_can_always_send_a_full_medium() {
        for chunk in [1024, 1280, 1536, 1792, 2048, 65_536] {
            for ranks in (1..30_000).step_by(97) {
                let least = u32::from(Scale::for_chunk(chunk).unwrap().full_cost());
                assert!(
                    numbers(ranks, chunk).0 >= least,
                    "{ranks} ranks, chunks of {chunk}"
                );
            }
        }
    }
}
