//! The conversion of rows to text.

use std::fmt::{self, Write};

use super::{AND, ASKED, COLUMNS, Header, MAGIC, PeerRow, RankRow, ZERO_REPLY, word};

impl Header {
    /// Writes the first two lines of a file, which contain the facts and the names of the columns.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn write_csv(&self, out: &mut impl Write) -> fmt::Result {
        writeln!(
            out,
            "{MAGIC}job={} rank={} ranks={} loan={} banked={} epoch={}",
            word(&self.job),
            self.rank,
            self.ranks,
            self.loan,
            self.banked,
            self.epoch
        )?;
        writeln!(out, "{}", COLUMNS.join(","))
    }
}

impl RankRow {
    /// Writes the row of the rank.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn write_csv(&self, out: &mut impl Write) -> fmt::Result {
        self.write_time(out)?;
        writeln!(
            out,
            ",,{},{},{},{},{},{},{},{},,,,,,,",
            self.received,
            self.banked,
            self.lent,
            self.system_sent,
            self.system_received,
            self.returned,
            self.stalls,
            self.revoked
        )
    }

    /// Writes the cells that begin all rows of an epoch.
    fn write_time(&self, out: &mut impl Write) -> fmt::Result {
        write!(out, "{},", self.epoch)?;
        match self.time_us {
            Some(time_us) => write!(out, "{time_us}"),
            None => Ok(()),
        }
    }
}

impl PeerRow {
    /// Writes the row of a peer of `rank`, after that rank's own row.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn write_csv(&self, rank: &RankRow, out: &mut impl Write) -> fmt::Result {
        rank.write_time(out)?;
        write!(
            out,
            ",{},,,,,,,{},{},{},{},{},{},{},{},",
            self.peer,
            self.stalls,
            self.revoked,
            self.loan,
            self.send,
            self.in_use,
            self.max_in_use,
            self.requested,
            self.given
        )?;
        let flags = [(self.asked, ASKED), (self.zero_reply, ZERO_REPLY)];
        let mut first = true;
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            if !first {
                out.write_char(AND)?;
            }
            out.write_str(name)?;
            first = false;
        }
        out.write_char('\n')
    }
}

/// A writer of a rank's file. It omits the rows of peers that are in their initial state and were
/// in it at the end of the previous epoch. For that, it needs one bit for each rank of the job.
#[derive(Clone, Debug)]
pub struct Recorder {
    loan: u16,
    /// A bit for each peer that says whether its last state differed from its initial state.
    moved: Box<[u64]>,
}

impl Recorder {
    /// Creates the recorder and writes the file's first two lines.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn begin(header: &Header, out: &mut impl Write) -> Result<Self, fmt::Error> {
        header.write_csv(out)?;
        let words = header.ranks.div_ceil(u64::BITS) as usize;
        Ok(Recorder {
            loan: header.loan,
            moved: vec![0; words].into_boxed_slice(),
        })
    }

    /// Writes the rows of an epoch, which are the rank's row and the rows of those `peers` that
    /// need one. `peers` must contain each peer at most once. A peer that is not a rank of the job
    /// is omitted.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn epoch(
        &mut self,
        rank: &RankRow,
        peers: impl IntoIterator<Item = PeerRow>,
        out: &mut impl Write,
    ) -> fmt::Result {
        rank.write_csv(out)?;
        for row in peers {
            let Some(word) = self.moved.get_mut((row.peer / u64::BITS) as usize) else {
                continue;
            };
            let bit = 1 << (row.peer % u64::BITS);
            let moved = row != PeerRow::initial(row.peer, self.loan);
            if moved || *word & bit != 0 {
                row.write_csv(rank, out)?;
            }
            match moved {
                true => *word |= bit,
                false => *word &= !bit,
            }
        }
        Ok(())
    }
}
