//! The format of the credit statistics that ranks write if `GASNET_PORTAL_CREDIT_STATS` is set.
//! They show where the credits are at the end of each epoch. This module converts them from and to
//! text, and does not access files.
//!
//! A file belongs to one rank and is named by [`file_name`]. Its first line starts with `#` and
//! describes the rank and its job; the rest is CSV with a line of column names. Each epoch has one
//! row for the rank itself, whose `peer` is empty, followed by rows for peers. Cells that do not
//! apply to a row are empty.
//!
//! ```text
//! # conduit-credits 1 job=71f3 rank=0 ranks=4 loan=8 banked=100 epoch=1024
//! epoch,time_us,peer,received,banked,lent,system_sent,system_received,returned,stalls,revoked,loan,send,in_use,max_in_use,requested,given,flags
//! 0,12,,0,100,32,0,0,0,0,0,,,,,,,
//! 1,5230,,1024,93,39,0,0,0,2,0,,,,,,,
//! 1,5230,2,,,,,,,2,0,15,8,4,8,1,7,asked
//! ```
//!
//! A peer has a row for an epoch if its state differs from its initial state, or differed from it
//! at the end of the previous epoch. A peer without a row is therefore in its initial state.
//! [`Recorder`] writes such rows, and [`Log`] reads them.
//!
//! A killed rank leaves a file whose last line may be cut off. [`Log::parse`] omits such a line and
//! reports its number.

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
    /// The job's unique name; see [`file_name`].
    pub job: String,
    /// The rank whose statistics these are.
    pub rank: u32,
    /// The number of ranks in the job.
    pub ranks: u32,
    /// The number of credits that each rank lends to every rank at the start.
    pub loan: u16,
    /// The number of credits banked at the start.
    pub banked: u32,
    /// The number of requests received per epoch, or 0 if there are no epochs.
    pub epoch: u32,
}

/// The state of a rank at the end of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankRow {
    /// The number of the epoch that ends, from 1, or 0 for the start. If the job ended during an
    /// epoch, the last row shows the state at that moment.
    pub epoch: u32,
    /// The number of microseconds since the rank's start, if the time is known.
    pub time_us: Option<u64>,
    /// The number of requests received since the start.
    pub received: u64,
    /// The number of credits in the bank.
    pub banked: u32,
    /// The total number of credits lent to all ranks.
    pub lent: u64,
    /// The number of system messages about credits, which are revokes and returns, sent since the
    /// start.
    pub system_sent: u64,
    /// The number of system messages about credits received since the start.
    pub system_received: u64,
    /// The number of credits that other ranks have given back to this rank since the start.
    pub returned: u64,
    /// The number of requests that stalled for credits since the start.
    pub stalls: u64,
    /// The number of credits that this rank has given back to others since the start.
    pub revoked: u64,
}

/// The state between the rank and one peer, which may be the rank itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerRow {
    /// The peer.
    pub peer: u32,
    /// The number of the rank's credits that the peer holds.
    pub loan: u16,
    /// The number of the peer's credits that the rank holds.
    pub send: u16,
    /// The number of credits in `send` that requests in flight use.
    pub in_use: u16,
    /// The recent maximum of `in_use`.
    pub max_in_use: u16,
    /// The number of requests to the peer that stalled for credits since the start.
    pub stalls: u64,
    /// The number of credits given back to the peer since the start.
    pub revoked: u64,
    /// The number of recent requests from the peer that asked for more credits.
    pub requested: u16,
    /// The number of credits recently given to the peer.
    pub given: u16,
    /// Whether a revoke to the peer is outstanding.
    pub asked: bool,
    /// Whether the peer had nothing to return in this epoch.
    pub zero_reply: bool,
}

impl PeerRow {
    /// Creates a row from a peer's credit state and from the numbers of stalls and revoked credits
    /// that [`FlowControl`](crate::FlowControl) has counted since the start.
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

    /// Creates the row of a peer with which nothing has happened yet.
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

/// Returns the name of a rank's file: `credits-<job>-<rank>.csv`. Characters of the job's name that
/// are unsuitable for file names are replaced, as in the [`Header`].
#[must_use]
pub fn file_name(job: &str, rank: u32) -> String {
    format!("credits-{}-{rank}.csv", word(job))
}

/// Turns the text into a word of letters, digits, `_`, `.` and `-`.
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
    /// The row of the rank itself.
    pub rank: RankRow,
    /// The rows of peers whose state differs from their initial state, or differed from it at the
    /// end of the previous epoch.
    pub peers: Vec<PeerRow>,
}

/// The statistics of one rank, as read from its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The facts of the first line.
    pub header: Header,
    /// The rows, by ascending epoch.
    pub epochs: Vec<Epoch>,
    /// The number of the last line, if it was cut off and omitted.
    pub cut_off: Option<usize>,
}

/// The start of a file. The number is the version of the format.
const MAGIC: &str = "# conduit-credits 1 ";

/// The names of the columns, in order.
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

/// The name of the flag [`PeerRow::asked`]. Flags are joined by [`AND`].
const ASKED: &str = "asked";
/// The name of the flag [`PeerRow::zero_reply`].
const ZERO_REPLY: &str = "zero_reply";
/// The character between two flags.
const AND: char = '+';
