//! What a transport carries, and what it and the layer above are to each other.

use std::fmt;

use conduit_core::ni::Rank;

/// Bytes of the longest header of a fragment.
pub const MAX_HEADER: usize = 64;
/// Bytes, header and payload, of the largest tiny fragment: those travel on the command channel (seed: tiny segments).
pub const MAX_TINY: usize = 768;

/// What is to be sent to a peer.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    /// At most [`MAX_HEADER`] bytes, the fragment handler's own.
    pub header: &'a [u8],
    /// What follows it.
    pub payload: Payload<'a>,
}

/// A fragment's bytes after the header.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Pieces to be copied before the call returns; with the header at most [`MAX_TINY`] bytes. The fragment goes on the
    /// command channel, and the fragment handler hears nothing more of it.
    Copied(&'a [&'a [u8]]),
    /// Bytes that stay the fragment handler's: read by [`FragmentHandler::read`] whenever a packet with some of them is made, until
    /// [`FragmentHandler::sent`]. The fragment goes on the data channel.
    Read {
        /// The fragment handler's name for the fragment.
        token: u64,
        /// Bytes.
        length: u32,
    },
}

/// Why a fragment was not taken. Nothing has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The link holds as many fragments as it may: make progress, ask again.
    Full,
    /// The peer has [failed](FragmentHandler::failed).
    Dead,
    /// The header is longer than [`MAX_HEADER`], or a copied fragment than [`MAX_TINY`]; no link takes such a fragment ever.
    TooLong,
    /// The job has no such rank.
    NoSuchRank,
}

/// The layer above the protocol. Its methods are called from within the protocol's, and must not call back.
///
/// On one channel of a link fragments are delivered in the order in which they were sent, each exactly once; between channels
/// and links there is no order.
pub trait FragmentHandler {
    /// Copies `into.len()` bytes of a [`Payload::Read`], from `offset` on, for a packet.
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]);
    /// `length` bytes of a [`Payload::Read`], from `offset` on, where they lie: a packet with many goes to the system without being
    /// copied together first. `None`: they may change meanwhile, or lie in no one place; they are [read](Self::read) instead.
    fn source(&self, _peer: Rank, _token: u64, _offset: usize, _length: usize) -> Option<&[u8]> {
        None
    }
    /// The peer's protocol has all of a [`Payload::Read`]; its bytes are not asked for again.
    fn sent(&mut self, peer: Rank, token: u64);
    /// A fragment that came in one segment. `false`: there is no room for it now; it was not received and comes again.
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool;
    /// A larger fragment begins: all fragments before it have been delivered, or have at least begun. Gives a name for the
    /// place where its bytes go; `None`: no room now, it comes again.
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64>;
    /// A chunk of a fragment that has begun; each byte of it comes once, in any order.
    fn place(&mut self, place: u64, offset: usize, bytes: &[u8]);
    /// All chunks of a fragment have been placed, and all fragments before it on its channel have been delivered.
    fn end(&mut self, place: u64);
    /// A [direct operation](crate::transport::Transport::write) has ended, all of it. `value`: what an atomic has found.
    fn done(&mut self, _peer: Rank, _token: u64, _value: u64) {}
    /// The peer is given up. None of its fragments, places or tokens is heard of again, and no direct operation touches this
    /// rank's memory any more.
    fn failed(&mut self, peer: Rank, failure: Failure);
    /// Nothing has been sent to a peer or has come from it for a while, and its link has given its memory back: a good moment
    /// to do the same. More may be sent and may come all the same.
    fn parked(&mut self, _peer: Rank) {}
    /// Bytes of arriving fragments for which there is room; told to the peers, who send no more than their part of it.
    fn room(&self) -> usize;
}

/// Why a peer is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It never answered, not even tiny packets.
    Unreachable,
    /// It answers tiny packets, but none with this many bytes (UDP payload) gets through.
    Mtu(usize),
    /// It has answered before and has been silent for so long, in milliseconds.
    Silent(u64),
    /// The network can't reach it any more: the system's error number.
    Lost(u32),
    /// The network can't reach it any more: the network's own words.
    Network(&'static str),
    /// It sent with a valid tag what the protocol does not allow.
    Broken(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("is unreachable: it answers no packet of any size"),
            Self::Mtu(bytes) => write!(
                f,
                "answers small packets, but none of {bytes} bytes gets through: the path's MTU is smaller"
            ),
            Self::Silent(ms) => write!(f, "has been silent for {ms} ms"),
            Self::Lost(error) => {
                // Fits: error numbers are small.
                let error = std::io::Error::from_raw_os_error(*error as i32);
                write!(f, "can't be reached any more: {error}")
            }
            Self::Network(words) => write!(f, "can't be reached any more: {words}"),
            Self::Broken(what) => write!(f, "breaks the protocol: {what}"),
        }
    }
}
