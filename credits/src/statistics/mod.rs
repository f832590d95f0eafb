//! Where the credits are, written down at the end of each epoch: the format of the files that
//! `GASNET_PORTAL_CREDIT_STATS` asks for, without the files.
//!
//! A file is of one rank, is named by [`file_name`] and is CSV: a line of facts about the rank and its job, which begins
//! with `#`; a line of column names; then for each epoch a row of the rank, whose `peer` is empty, and rows of peers. A
//! cell that a row has no value for is empty.
//!
//! ```text
//! # conduit-credits 1 job=71f3 rank=0 ranks=4 loan=8 banked=100 epoch=1024
//! epoch,time_us,peer,received,banked,lent,system_sent,system_received,returned,stalls,revoked,loan,send,in_use,max_in_use,requested,given,flags
//! 0,12,,0,100,32,0,0,0,0,0,,,,,,,
//! 1,5230,,1024,93,39,0,0,0,2,0,,,,,,,
//! 1,5230,2,,,,,,,2,0,15,8,4,8,1,7,asked
//! ```
//!
//! A peer has a row if its state is not what it was at the start, or was not in the row before; so the state of a peer
//! without a row is that of its last row, or that at the start. [`Recorder`] writes such rows, [`Log`] reads them.
//!
//! A rank that was killed leaves a file whose last line may be cut off: [`Log::parse`] leaves such a line out and says so.

mod parse;
#[cfg(test)]
mod tests;
mod write;

pub use parse::{ParseError, Problem};
pub use write::Recorder;

use crate::PeerState;

/// The facts in a file's first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The job's name, unique to it; see [`file_name`].
    pub job: String,
    /// The rank whose statistics these are.
    pub rank: u32,
    /// Ranks in the job.
    pub ranks: u32,
    /// Credits lent to each rank, and by each, at the start.
    pub loan: u16,
    /// Credits banked at the start.
    pub banked: u32,
    /// Requests received that make an epoch; 0 where there are no epochs.
    pub epoch: u32,
}

/// A rank at the end of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankRow {
    /// The number of the epoch that ends, from 1; 0 is the start. The last row may be in the middle of its epoch, where
    /// the job ended.
    pub epoch: u32,
    /// Microseconds since the rank's start, if somebody has a clock.
    pub time_us: Option<u64>,
    /// Requests received since the start.
    pub received: u64,
    /// Credits in the bank.
    pub banked: u32,
    /// Credits lent to all ranks.
    pub lent: u64,
    /// System messages about credits sent since the start: revokes and returns.
    pub system_sent: u64,
    /// System messages about credits received since the start.
    pub system_received: u64,
    /// Credits that ranks have given back to this one since the start.
    pub returned: u64,
    /// Requests to any rank that stalled for credits since the start.
    pub stalls: u64,
    /// Credits that this rank has given back to any since the start.
    pub revoked: u64,
}

/// What is between the rank and one peer, itself among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerRow {
    /// The peer.
    pub peer: u32,
    /// Credits of ours that it has.
    pub loan: u16,
    /// Credits of its that we have.
    pub send: u16,
    /// Of these, in flight.
    pub in_use: u16,
    /// The most in flight recently.
    pub max_in_use: u16,
    /// Requests to it that stalled for credits since the start.
    pub stalls: u64,
    /// Credits given back to it since the start.
    pub revoked: u64,
    /// Requests from it that asked for more recently.
    pub requested: u16,
    /// Credits given to it recently.
    pub given: u16,
    /// A revoke is under way to it.
    pub asked: bool,
    /// It had nothing to return in this epoch.
    pub zero_reply: bool,
}

impl PeerRow {
    /// From the state of dynamic credits, with what [`FlowControl`](crate::FlowControl) counts since the start.
    #[must_use]
    pub fn new(peer: u32, state: &PeerState, stalls: u64, revoked: u64) -> Self {
        PeerRow {
            peer,
            loan: state.loan,
            send: state.send,
            in_use: state.in_use,
            max_in_use: state.max,
            stalls,
            revoked,
            requested: state.requested.into(),
            given: state.given,
            asked: state.asked,
            zero_reply: state.zero_reply,
        }
    }

    /// The row of a peer with which nothing has happened yet.
    #[must_use]
    pub fn initial(peer: u32, loan: u16) -> Self {
        PeerRow {
            peer,
            loan,
            send: loan,
            ..PeerRow::default()
        }
    }
}

/// The name of a rank's file: `credits-<job>-<rank>.csv`. Characters of the job's name that files should not have in
/// their names are replaced, as in the [`Header`].
#[must_use]
pub fn file_name(job: &str, rank: u32) -> String {
    format!("credits-{}-{rank}.csv", word(job))
}

/// The text as a word of letters, digits, `_`, `.` and `-`.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if text.is_empty() {
        return "_".to_owned();
    }
    text.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

/// All rows of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// The rank itself.
    pub rank: RankRow,
    /// Peers whose state is not as it was at the start, or as in the row before.
    pub peers: Vec<PeerRow>,
}

/// The statistics of one rank, as read from its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The facts.
    pub header: Header,
    /// The rows, by rising epoch.
    pub epochs: Vec<Epoch>,
    /// The number of the last line, if it was cut off and left out.
    pub cut_off: Option<usize>,
}

/// What begins a file; the number is the format's.
const MAGIC: &str = "# conduit-credits 1 ";

/// Names of the columns, in order.
const COLUMNS: [&str; 18] = [
    "epoch",
    "time_us",
    "peer",
    "received",
    "banked",
    "lent",
    "system_sent",
    "system_received",
    "returned",
    "stalls",
    "revoked",
    "loan",
    "send",
    "in_use",
    "max_in_use",
    "requested",
    "given",
    "flags",
];

/// The flags by their names, which stand joined by [`AND`].
const ASKED: &str = "asked";
const ZERO_REPLY: &str = "zero_reply";
const AND: char = '+';
