//! The conversion of text to rows.

use std::fmt;

use super::{AND, ASKED, COLUMNS, Epoch, Header, Log, MAGIC, PeerRow, RankRow, ZERO_REPLY};

/// The error for a file that violates the format, with the place and the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct ParseError {
    /// The file's name, as passed by the caller.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The position in the line, in bytes from 1, at which the problem is.
    pub column: usize,
    /// The problem.
    pub problem: Problem,
}

/// The ways in which a file can violate the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The first line is not that of a statistics file.
    #[error("the file does not contain credit statistics, which begin with \"{}\"", MAGIC.trim_end())]
    NotStatistics,
    /// The file ends within its first two lines, which happens if a rank was killed early.
    #[error("the file ends within its first two lines")]
    CutOff,
    /// The first line lacks a fact.
    #[error("{0}= is missing")]
    Missing(&'static str),
    /// The second line does not contain the expected columns.
    #[error("the columns are not those of this format")]
    Columns,
    /// A line has too few cells, or too many.
    #[error("the line has {0} cells, expected {len}", len = COLUMNS.len())]
    Cells(usize),
    /// A cell does not contain a number up to a limit.
    #[error("{name} is {text:?}, must be a number from 0 to {most}")]
    Number {
        /// The name of the column or of the fact.
        name: &'static str,
        /// The text found.
        text: String,
        /// The largest value.
        most: u64,
    },
    /// A cell has to be empty in a row of this kind.
    #[error("{0} must be empty here")]
    NotEmpty(&'static str),
    /// A name in the column of flags is not a flag.
    #[error("{0:?} is not a flag")]
    Flag(String),
    /// A row is about a rank that the job does not have.
    #[error("rank {rank} does not exist in a job of {ranks}")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// The number of ranks in the job.
        ranks: u32,
    },
    /// The epoch of a rank's row is not after the epoch of the rank's previous row.
    #[error("epoch {epoch} after epoch {before}")]
    EpochGoesBack {
        /// The row's epoch.
        epoch: u32,
        /// The epoch of the previous row.
        before: u32,
    },
    /// A row of a peer does not follow its rank's row.
    #[error("a row of a peer has no row of the rank for the same epoch")]
    PeerAlone,
}

/// The maximum number of a cell's characters that an error message repeats.
const MOST_SHOWN: usize = 40;

fn shown(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Log {
    /// Parses a file's text. The last line is omitted if it is not terminated.
    ///
    /// # Errors
    /// Returns the first problem found. The error contains `file` as the file's name.
    pub fn parse(file: &str, text: &str) -> Result<Self, ParseError> {
        let mut log = Log::default();
        let mut number = 0;
        for line in text.split_inclusive('\n') {
            number += 1;
            let Some(line) = line.strip_suffix('\n') else {
                log.cut_off = Some(number);
                break;
            };
            let line = line.strip_suffix('\r').unwrap_or(line);
            log.line(number, line).map_err(|(at, problem)| ParseError {
                file: file.to_owned(),
                line: number,
                column: line[..at].chars().count() + 1,
                problem,
            })?;
        }
        let lines = number - usize::from(log.cut_off.is_some());
        if lines >= 2 {
            return Ok(log);
        }
        let rest = text.rsplit('\n').next().unwrap_or(text);
        let problem = match lines {
            0 if MAGIC.starts_with(rest) || rest.starts_with(MAGIC) => Problem::CutOff,
            0 => Problem::NotStatistics,
            _ if COLUMNS.join(",").starts_with(rest) => Problem::CutOff,
            _ => Problem::Columns,
        };
        Err(ParseError {
            file: file.to_owned(),
            line: lines + 1,
            column: 1,
            problem,
        })
    }

    /// Adds a line. The error consists of the byte offset in the line at which the problem is, and
    /// of the problem.
    fn line(&mut self, number: usize, line: &str) -> Result<(), (usize, Problem)> {
        match number {
            1 => self.header = header(line)?,
            2 if line != COLUMNS.join(",") => return Err((0, Problem::Columns)),
            2 => {}
            _ => self.row(&Cells::new(line)?)?,
        }
        Ok(())
    }

    fn row(&mut self, cells: &Cells<'_>) -> Result<(), (usize, Problem)> {
        let epoch = cells.number(0, u32::MAX.into())? as u32;
        if cells.text(2).is_empty() {
            cells.empty(11..18)?;
            let before = self.epochs.last().map(|before| before.rank.epoch);
            if let Some(before) = before.filter(|before| epoch <= *before) {
                return Err((0, Problem::EpochGoesBack { epoch, before }));
            }
            self.epochs.push(Epoch {
                rank: cells.rank(epoch)?,
                peers: Vec::new(),
            });
            return Ok(());
        }
        cells.empty(3..9)?;
        let row = cells.peer()?;
        let ranks = self.header.ranks;
        if row.peer >= ranks {
            let rank = row.peer;
            return Err((cells.at(2), Problem::NoSuchRank { rank, ranks }));
        }
        match self.epochs.last_mut() {
            Some(last) if last.rank.epoch == epoch => last.peers.push(row),
            _ => return Err((0, Problem::PeerAlone)),
        }
        Ok(())
    }
}

/// Parses the facts of the first line.
fn header(line: &str) -> Result<Header, (usize, Problem)> {
    let Some(facts) = line.strip_prefix(MAGIC) else {
        return Err((0, Problem::NotStatistics));
    };
    // Returns the position and the text of a fact's value.
    let fact = |name: &'static str| {
        let mut at = MAGIC.len();
        for word in facts.split(' ') {
            let value = word
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('='));
            if let Some(value) = value {
                return Ok((at + name.len() + 1, value));
            }
            at += word.len() + 1;
        }
        Err((line.len(), Problem::Missing(name)))
    };
    let number = |name, most: u64| {
        let (at, text) = fact(name)?;
        parse(name, text, most).map_err(|problem| (at, problem))
    };
    let whole = u64::from(u32::MAX);
    let header = Header {
        job: fact("job")?.1.to_owned(),
        rank: number("rank", whole)? as u32,
        ranks: number("ranks", whole)? as u32,
        loan: number("loan", u16::MAX.into())? as u16,
        banked: number("banked", whole)? as u32,
        epoch: number("epoch", whole)? as u32,
    };
    if header.rank >= header.ranks {
        let (rank, ranks) = (header.rank, header.ranks);
        return Err((fact("rank")?.0, Problem::NoSuchRank { rank, ranks }));
    }
    Ok(header)
}

fn parse(name: &'static str, text: &str, most: u64) -> Result<u64, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && number <= most => Ok(number),
        _ => Err(Problem::Number {
            name,
            text: shown(text),
            most,
        }),
    }
}

/// The cells of a line.
struct Cells<'a> {
    line: &'a str,
    /// The offset of each cell's first byte, and the offset behind the comma that would follow the
    /// last cell.
    starts: [usize; COLUMNS.len() + 1],
}

impl fmt::Debug for Cells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line.fmt(f)
    }
}

impl<'a> Cells<'a> {
    fn new(line: &'a str) -> Result<Self, (usize, Problem)> {
        let mut starts = [0; COLUMNS.len() + 1];
        let mut count = 0;
        for (at, _) in line.match_indices(',').chain([(line.len(), "")]) {
            count += 1;
            if let Some(start) = starts.get_mut(count) {
                *start = at + 1;
            }
        }
        match count {
            _ if count == COLUMNS.len() => Ok(Cells { line, starts }),
            _ => Err((0, Problem::Cells(count))),
        }
    }

    fn at(&self, column: usize) -> usize {
        self.starts[column]
    }

    fn text(&self, column: usize) -> &'a str {
        &self.line[self.starts[column]..self.starts[column + 1] - 1]
    }

    fn number(&self, column: usize, most: u64) -> Result<u64, (usize, Problem)> {
        parse(COLUMNS[column], self.text(column), most)
            .map_err(|problem| (self.at(column), problem))
    }

    fn empty(&self, columns: std::ops::Range<usize>) -> Result<(), (usize, Problem)> {
        for column in columns {
            if !self.text(column).is_empty() {
                return Err((self.at(column), Problem::NotEmpty(COLUMNS[column])));
            }
        }
        Ok(())
    }

    fn rank(&self, epoch: u32) -> Result<RankRow, (usize, Problem)> {
        let time_us = match self.text(1) {
            "" => None,
            _ => Some(self.number(1, u64::MAX)?),
        };
        let count = |column| self.number(column, u64::MAX);
        Ok(RankRow {
            epoch,
            time_us,
            received: count(3)?,
            banked: self.number(4, u32::MAX.into())? as u32,
            lent: count(5)?,
            system_sent: count(6)?,
            system_received: count(7)?,
            returned: count(8)?,
            stalls: count(9)?,
            revoked: count(10)?,
        })
    }

    fn peer(&self) -> Result<PeerRow, (usize, Problem)> {
        let small = |column| Ok(self.number(column, u16::MAX.into())? as u16);
        let mut row = PeerRow {
            peer: self.number(2, u32::MAX.into())? as u32,
            stalls: self.number(9, u64::MAX)?,
            revoked: self.number(10, u64::MAX)?,
            loan: small(11)?,
            send: small(12)?,
            in_use: small(13)?,
            max_in_use: small(14)?,
            requested: small(15)?,
            given: small(16)?,
            ..PeerRow::default()
        };
        for name in self.text(17).split(AND).filter(|name| !name.is_empty()) {
            match name {
                ASKED => row.asked = true,
                ZERO_REPLY => row.zero_reply = true,
                _ => return Err((self.at(17), Problem::Flag(shown(name)))),
            }
        }
        Ok(row)
    }
}
