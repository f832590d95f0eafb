//! A job's statistics as functions of time.

use std::collections::HashMap;

use credits::statistics::{Header, Log, RankRow};

/// The statistics of a job's ranks, or of some of them.
#[derive(Clone, Debug)]
pub struct Job {
    /// The facts that all ranks share.
    pub(crate) header: Header,
    /// Whether all rows have times. If not, the epoch numbers of each rank serve as times.
    pub(crate) clock: bool,
    /// The histories of the ranks, by ascending rank.
    pub(crate) tracks: Vec<Track>,
    /// The time of the last row, which is more than 0.
    pub(crate) end: f64,
}

/// The history of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) rank: u32,
    /// The loan to each peer at the start.
    loan: u16,
    rows: Vec<RankRow>,
    /// The changes of loans, in the order of their rows.
    moves: Vec<Move>,
}

/// A change of a loan. From row `row` on, the peer has the loan `loan`.
#[derive(Clone, Copy, Debug)]
struct Move {
    row: u32,
    peer: u32,
    loan: u16,
}

impl Track {
    /// Extracts the data that a picture needs from a log.
    pub(crate) fn new(log: &Log) -> Self {
        let Header {
            rank, loan, banked, ..
        } = log.header;
        let mut rows = Vec::with_capacity(log.epochs.len() + 1);
        if log.epochs.first().is_none_or(|first| first.rank.epoch > 0) {
            rows.push(RankRow {
                time_us: Some(0),
                banked,
                ..RankRow::default()
            });
        }
        let mut loans = HashMap::new();
        let mut moves = Vec::new();
        for epoch in &log.epochs {
            // The cast is lossless: a row takes far more than one byte of its file, so there are
            // fewer than 2^32 rows.
            let row = rows.len() as u32;
            // The times are made monotonic, even if those in the file are not.
            let before = rows.last().and_then(|before: &RankRow| before.time_us);
            rows.push(RankRow {
                time_us: epoch
                    .rank
                    .time_us
                    .max(before.filter(|_| epoch.rank.time_us.is_some())),
                ..epoch.rank
            });
            for peer in &epoch.peers {
                if loans.insert(peer.peer, peer.loan).unwrap_or(loan) != peer.loan {
                    let (peer, loan) = (peer.peer, peer.loan);
                    moves.push(Move { row, peer, loan });
                }
            }
        }
        Track {
            rank,
            loan,
            rows,
            moves,
        }
    }

    fn time(&self, row: &RankRow, clock: bool) -> f64 {
        match row.time_us {
            Some(time) if clock => time as f64,
            _ => f64::from(row.epoch),
        }
    }

    /// Returns the value of a column at the time `at`, interpolated linearly between the rows
    /// before and after that time.
    pub(crate) fn value(&self, clock: bool, at: f64, column: impl Fn(&RankRow) -> f64) -> f64 {
        let after = self.rows.partition_point(|row| self.time(row, clock) <= at);
        let Some(before) = after.checked_sub(1) else {
            return self.rows.first().map_or(0.0, &column);
        };
        let (t0, y0) = (
            self.time(&self.rows[before], clock),
            column(&self.rows[before]),
        );
        match self.rows.get(after) {
            Some(row) => y0 + (column(row) - y0) * (at - t0) / (self.time(row, clock) - t0),
            None => y0,
        }
    }

    /// Returns the value of a column in the last row.
    pub(crate) fn last(&self, column: fn(&RankRow) -> u64) -> u64 {
        self.rows.last().map_or(0, column)
    }

    /// Calls `look` for each of the ascending times, with the index of the time and the loans that
    /// have differed from the initial loan by then.
    pub(crate) fn loans_at(
        &self,
        clock: bool,
        times: &[f64],
        mut look: impl FnMut(usize, &HashMap<u32, u16>),
    ) {
        let mut loans = HashMap::new();
        let mut moves = self.moves.iter().peekable();
        for (number, at) in times.iter().enumerate() {
            while let Some(next) = moves.next_if(|next| {
                let row = &self.rows[next.row as usize];
                self.time(row, clock) <= *at
            }) {
                loans.insert(next.peer, next.loan);
            }
            look(number, &loans);
        }
    }

    /// Returns the sum of the absolute differences between the last loans and the initial ones.
    pub(crate) fn moved(&self) -> u64 {
        let mut sum = 0;
        self.loans_at(false, &[f64::INFINITY], |_, loans| {
            let far = |loan: &u16| u64::from(loan.abs_diff(self.loan));
            sum = loans.values().map(far).sum();
        });
        sum
    }

    /// Returns all loans that ever existed, except those at the start.
    pub(crate) fn all_loans(&self) -> impl Iterator<Item = u16> {
        self.moves.iter().map(|change| change.loan)
    }
}

impl Job {
    pub(crate) fn new(header: Header, tracks: Vec<Track>) -> Self {
        let clock = tracks
            .iter()
            .all(|track| track.rows.iter().all(|row| row.time_us.is_some()));
        let ends = tracks.iter().filter_map(|track| {
            let last = track.rows.last()?;
            Some(track.time(last, clock))
        });
        let end = ends.fold(0.0, f64::max);
        Job {
            header,
            clock,
            end: if end > 0.0 { end } else { 1.0 },
            tracks,
        }
    }

    /// Creates a job from its logs, which must belong to different ranks. Returns `None` if there
    /// are no logs.
    #[must_use]
    pub fn from_logs(logs: &[Log]) -> Option<Self> {
        let header = logs.first()?.header.clone();
        let mut tracks: Vec<_> = logs.iter().map(Track::new).collect();
        tracks.sort_unstable_by_key(|track| track.rank);
        Some(Job::new(header, tracks))
    }

    /// Returns the smallest and the largest loan that ever existed.
    pub(crate) fn range(&self) -> (u16, u16) {
        let loans = self.tracks.iter().flat_map(Track::all_loans);
        loans.fold(
            (self.header.loan, self.header.loan),
            |(least, most), loan| (least.min(loan), most.max(loan)),
        )
    }

    /// Returns the index of the track whose loans have changed the most. Of several such tracks,
    /// the first counts.
    pub(crate) fn busiest(&self) -> Option<usize> {
        (0..self.tracks.len())
            .rev()
            .max_by_key(|track| self.tracks[*track].moved())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use credits::statistics::Epoch;

    fn log(rank: u32, rows: &[(u32, Option<u64>, u64)]) -> Log {
        let epochs = rows.iter().map(|&(epoch, time_us, received)| Epoch {
            rank: RankRow {
                epoch,
                time_us,
                received,
                ..RankRow::default()
            },
            peers: Vec::new(),
        });
        Log {
            header: Header {
                rank,
                ranks: 2,
                loan: 8,
                banked: 50,
                ..Header::default()
            },
            epochs: epochs.collect(),
            cut_off: None,
        }
    }

    #[test]
    fn between_rows_values_lie_on_a_straight_line() {
        let logs = [log(0, &[(1, Some(100), 10), (3, Some(300), 20)])];
        let job = Job::from_logs(&logs).unwrap();
        assert!(job.clock && job.end == 300.0);
        let received = |at| job.tracks[0].value(job.clock, at, |row| row.received as f64);
        // The state at the start is known from the header.
        assert_eq!(
            job.tracks[0].value(true, 0.0, |row| row.banked.into()),
            50.0
        );
        for (at, value) in [
            (0.0, 0.0),
            (50.0, 5.0),
            (100.0, 10.0),
            (200.0, 15.0),
            (999.0, 20.0),
        ] {
            assert_eq!(received(at), value);
        }
        assert_eq!(job.tracks[0].last(|row| row.received), 20);
    }

    #[test]
    fn without_all_times_epochs_count() {
        let logs = [
            log(0, &[(0, Some(0), 0), (7, Some(300), 20)]),
            log(1, &[(0, None, 0), (4, None, 8)]),
        ];
        let job = Job::from_logs(&logs).unwrap();
        assert!(!job.clock && job.end == 7.0);
        assert_eq!(
            job.tracks[1].value(false, 2.0, |row| row.received as f64),
            4.0
        );
    }

    #[test]
    fn time_that_goes_back_or_stands_still_does_no_harm() {
        let rows = [
            (0, Some(50), 1),
            (1, Some(20), 2),
            (2, Some(50), 3),
            (3, Some(60), 4),
        ];
        let job = Job::from_logs(&[log(0, &rows)]).unwrap();
        for at in 0..70 {
            let value = job.tracks[0].value(true, at.into(), |row| row.received as f64);
            assert!((1.0..=4.0).contains(&value), "{at}: {value}");
        }
    }

    #[test]
    fn a_job_without_rows_has_a_length() {
        let job = Job::from_logs(&[log(0, &[])]).unwrap();
        assert!(job.end > 0.0 && job.range() == (8, 8));
        assert!(Job::from_logs(&[]).is_none());
    }
}
