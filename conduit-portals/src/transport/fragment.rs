//! Fragments, which a transport carries, and the contract between it and the layer above.

use std::fmt;

use conduit_core::ni::Rank;

/// The most bytes of a fragment's header.
pub const MAX_HEADER: usize = 64;
/// The most bytes, header and payload, of a tiny fragment. These travel on the command channel.
pub const MAX_TINY: usize = 768;

/// A message to a peer.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    /// At most [`MAX_HEADER`] bytes, which only the fragment handlers interpret.
    pub header: &'a [u8],
    /// The bytes after the header.
    pub payload: Payload<'a>,
}

/// A fragment's bytes after the header.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Pieces that are copied before the call returns; with the header at most [`MAX_TINY`] bytes.
    /// The fragment goes on the command channel, and its arrival is not reported.
    Copied(&'a [&'a [u8]]),
    /// Bytes in the fragment handler's memory, read by [`FragmentHandler::read`] for each packet
    /// with some of them, until [`FragmentHandler::sent`]. The fragment goes on the data channel.
    Read {
        /// Passed back to the fragment handler.
        token: u64,
        /// In bytes.
        length: u32,
    },
}

/// Why a fragment was refused, without any effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The link holds as many fragments as it may: make progress and try again.
    Full,
    /// The peer has [failed](FragmentHandler::failed).
    Dead,
    /// The header is longer than [`MAX_HEADER`], or a copied fragment than [`MAX_TINY`].
    TooLong,
    /// The job has no such rank.
    NoSuchRank,
}

/// The layer above a transport. The transport's methods call its methods, which must not call back.
///
/// On each channel of a link, fragments are delivered in the order in which they were sent, each
/// exactly once; between channels and links there is no order.
pub trait FragmentHandler {
    /// Copies `into.len()` bytes of a [`Payload::Read`], from `offset` on, for a packet.
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]);
    /// `length` bytes of a [`Payload::Read`], from `offset` on, in place, so that a packet goes to
    /// the system without a copy. `None` if they may change meanwhile or are not contiguous: then
    /// they are [read](Self::read).
    fn source(&self, _peer: Rank, _token: u64, _offset: usize, _length: usize) -> Option<&[u8]> {
        None
    }
    /// The peer has acknowledged all of a [`Payload::Read`]; its bytes are not read any more.
    fn sent(&mut self, peer: Rank, token: u64);
    /// Whether anything waits for [`sent`](Self::sent). Otherwise the transport may be told late
    /// that the bytes have come: with the peer's answer, if it has one.
    fn is_awaited(&self, _peer: Rank, _token: u64) -> bool {
        true
    }
    /// A fragment that came in one segment. `false` if there is no room for it now; it comes again.
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool;
    /// A larger fragment begins; all fragments before it have been delivered or have begun. Returns
    /// an id for [`place`](Self::place) and [`end`](Self::end), or `None` if there is no room now:
    /// then it comes again.
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64>;
    /// A chunk of a fragment that has begun. Each byte comes once; chunks come in any order.
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]);
    /// All chunks of a fragment have come, and all fragments before it on its channel were
    /// delivered.
    fn end(&mut self, id: u64);
    /// A [direct operation](crate::transport::Transport::write) has ended. `value`: what an atomic
    /// has fetched.
    fn done(&mut self, _peer: Rank, _token: u64, _value: u64) {}
    /// The peer is given up. Its fragments, ids and tokens are not mentioned again, and no direct
    /// operation accesses this rank's memory any more.
    fn failed(&mut self, peer: Rank, failure: Failure);
    /// A process that had no number has reached this one, which has given it this one. Only in
    /// [open networks](crate::transport::open).
    fn joined(&mut self, _peer: Rank) {}
    /// A link was without traffic for a while and has released its memory; the handler may do
    /// likewise. More may be sent and may come at any time.
    fn link_idle(&mut self, _peer: Rank) {}
    /// Bytes of arriving fragments for which there is room. Each peer is granted its share.
    fn room(&self) -> usize;
}

/// Why a peer was given up.
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
    /// The network can't reach it any more: the network's reason.
    Network(&'static str),
    /// It has sent, with a valid tag, what the protocol does not allow.
    Broken(&'static str),
    /// It has ended its session in good order. Only in [open networks](crate::transport::open).
    Left,
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
            Self::Left => f.write_str("has left"),
        }
    }
}
