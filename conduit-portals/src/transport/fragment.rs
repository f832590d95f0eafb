//! Fragments, the messages of a transport, and the contract between the transport and the layer
//! above.

use std::fmt;

use conduit_core::ni::Rank;

/// The maximum length of a fragment's header in bytes.
pub const MAX_HEADER: usize = 64;
/// The maximum length of a tiny fragment in bytes, including the header. Tiny fragments travel on
/// the command channel.
pub const MAX_TINY: usize = 768;

/// A message to a peer.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    /// The header of at most [`MAX_HEADER`] bytes, which only the fragment handlers interpret.
    pub header: &'a [u8],
    /// The bytes after the header.
    pub payload: Payload<'a>,
}

/// A fragment's bytes after the header.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Pieces that are copied before the call returns. Header and pieces together have at most
    /// [`MAX_TINY`] bytes. The fragment uses the command channel, and its arrival is not reported.
    Copied(&'a [&'a [u8]]),
    /// Bytes in the fragment handler's memory. [`FragmentHandler::read`] reads them for each packet
    /// that carries some of them, until [`FragmentHandler::sent`] is called. The fragment uses the
    /// data channel.
    Read {
        /// Token passed back to the fragment handler.
        token: u64,
        /// Length in bytes.
        length: u32,
    },
}

/// The reason why a fragment was refused, without any effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The link already holds as many fragments as it may. Make progress and try again.
    Full,
    /// The peer has [failed](FragmentHandler::failed).
    Dead,
    /// The header is longer than [`MAX_HEADER`], or a copied fragment is longer than [`MAX_TINY`].
    TooLong,
    /// The job has no such rank.
    NoSuchRank,
}

/// The layer above a transport. The transport's methods call this trait's methods, which must not
/// call back.
///
/// On each channel of a link, fragments are delivered in the order in which they were sent, each
/// exactly once; between channels and links there is no order.
pub trait FragmentHandler {
    /// Copies `into.len()` bytes of a [`Payload::Read`], from `offset` on, for a packet.
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]);
    /// Returns `length` bytes of a [`Payload::Read`], from `offset` on, in place, so that a packet
    /// goes to the system without a copy. Returns `None` if the bytes may change meanwhile or are
    /// not contiguous; the transport then [reads](Self::read) them.
    fn source(&self, _peer: Rank, _token: u64, _offset: usize, _length: usize) -> Option<&[u8]> {
        None
    }
    /// Reports that the peer has acknowledged all of a [`Payload::Read`]; its bytes are not read
    /// any more.
    fn sent(&mut self, peer: Rank, token: u64);
    /// Returns whether anything waits for [`sent`](Self::sent). If nothing does, the transport need
    /// not learn early that the bytes have arrived, so the peer may acknowledge them with its
    /// answer, if there is one.
    fn is_awaited(&self, _peer: Rank, _token: u64) -> bool {
        true
    }
    /// Delivers a fragment that arrived in one segment. Returns `false` if there is no room for it
    /// now; the transport delivers it again later.
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool;
    /// Begins the delivery of a larger fragment; all fragments before it have been delivered or
    /// have begun. Returns an id for [`place`](Self::place) and [`end`](Self::end), or `None` if
    /// there is no room now; the transport then tries again later.
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64>;
    /// Delivers a chunk of a fragment that has begun. Each byte is delivered once; chunks come in
    /// any order.
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]);
    /// Ends the delivery of a fragment: all its chunks, and all fragments before it on its channel,
    /// were delivered.
    fn end(&mut self, id: u64);
    /// Reports the end of a [direct operation](crate::transport::Transport::write). `value` is the
    /// value that an atomic has fetched.
    fn done(&mut self, _peer: Rank, _token: u64, _value: u64) {}
    /// Reports that a peer is given up. The transport makes no further calls about the peer's
    /// fragments, ids and tokens, and direct operations with the peer no longer access this rank's
    /// memory.
    fn failed(&mut self, peer: Rank, failure: Failure);
    /// Reports that a new process has reached this one and was assigned this number. Called only in
    /// [open networks](crate::transport::open).
    fn joined(&mut self, _peer: Rank) {}
    /// Reports that a link was without traffic for a while and has released its memory; the handler
    /// may do likewise. Fragments may be sent and may arrive at any time.
    fn link_idle(&mut self, _peer: Rank) {}
    /// Returns the number of bytes of arriving fragments for which there is room. Each peer is
    /// granted its share of them.
    fn room(&self) -> usize;
}

/// The reason why a peer was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer never answered, not even tiny packets.
    Unreachable,
    /// The peer answers tiny packets, but no packet with a UDP payload of this many bytes gets
    /// through.
    Mtu(usize),
    /// The peer answered before, and has now been silent for this many milliseconds.
    Silent(u64),
    /// The network can't reach the peer any more. The value is the system's error number.
    Lost(u32),
    /// The network can't reach the peer any more. The value is the network's reason.
    Network(&'static str),
    /// The peer has violated the protocol in an authenticated message.
    Broken(&'static str),
    /// The peer has ended its session in good order. Occurs only in [open
    /// networks](crate::transport::open).
    Left,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("is unreachable: it answers no packet of any size"),
            Self::Mtu(bytes) => write!(
                f,
                "answers small packets, but no packet of {bytes} bytes gets through: the path's MTU is smaller"
            ),
            Self::Silent(ms) => write!(f, "has been silent for {ms} ms"),
            Self::Lost(error) => {
                // The cast is lossless: error numbers are small.
                let error = std::io::Error::from_raw_os_error(*error as i32);
                write!(f, "can no longer be reached: {error}")
            }
            Self::Network(words) => write!(f, "can no longer be reached: {words}"),
            Self::Broken(what) => write!(f, "violated the protocol: {what}"),
            Self::Left => f.write_str("has left"),
        }
    }
}
