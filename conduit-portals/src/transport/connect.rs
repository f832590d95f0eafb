//! The contract between a layer that moves traffic to connections and back, and a network that has
//! some.

use conduit_core::ni::Rank;

use super::fragment::{Failure, Fragment, FragmentHandler, Refused};
use super::interface::Transport;

/// Fragments travel on one of two channels of a link or connection: that of
/// [copied](super::fragment::Payload::Copied) ones, and that of those that are
/// [read](super::fragment::Payload::Read).
pub const CHANNELS: usize = 2;

/// A [`Transport`] that reaches all peers by its base path, and has faster *connections* to a few.
///
/// A connection is between two ranks, under a number on which they have agreed. One
/// [expects](Self::expect) it, then the other one [makes](Self::connect) it, which takes time and
/// may fail. Each ends its end. Its fragments come as the transport's do, without order between them and those of the base path.
/// They count in [`Transport::outstanding`], [`Transport::settle`] and [`Transport::abandon`], and
/// a peer that fails has no connection any more.
pub trait Connect: Transport {
    /// The most connections that a rank has at once: what they need is kept for so many. Constant,
    /// and equal on all ranks.
    fn connections(&self) -> u16;
    /// Lets a peer make a connection under this number, and nobody else, until this end is
    /// [ended](Self::disconnect). This rank has none with the peer, and fewer than
    /// [`connections`](Self::connections). It sends nothing by it before the peer has said that it
    /// is made.
    fn expect(&mut self, peer: Rank, number: u32);
    /// Begins to make a connection that the peer expects under this number. This rank has none with
    /// the peer, and fewer than [`connections`](Self::connections). Whether it came up says
    /// [`made`](Self::made), in bounded time.
    fn connect(&mut self, peer: Rank, number: u32);
    /// Whether a connection that was begun has come up; `None` if that is not known yet. One that
    /// failed has to be [ended](Self::disconnect) like one that came up.
    fn made(&mut self, peer: Rank) -> Option<bool>;
    /// Ends this rank's end of a connection, if there is one. Unless it has failed to come up, or
    /// the peer is dead, all that both have sent was taken.
    fn disconnect(&mut self, peer: Rank);
    /// Accepts a fragment for a connection, as [`Transport::send`] does for the base path.
    ///
    /// # Errors
    /// As for [`Transport::send`].
    fn send_connected(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// Hands over what has come by a channel of a connection; nothing else does. What has come
    /// waits until then, and counts as not acknowledged. Whether there was something.
    fn receive_connected(
        &mut self,
        peer: Rank,
        channel: usize,
        handler: &mut impl FragmentHandler,
    ) -> bool;
    /// This rank sends nothing more by a connection, and waits until the peer has
    /// [taken](Self::taken) all that it has sent.
    fn leave(&mut self, _peer: Rank) {}
    /// How many fragments of each channel of a connection the peer's handler has taken in full, or
    /// were [abandoned](Transport::abandon), since the last call. A network may learn of them late,
    /// unless this rank [leaves](Self::leave).
    fn taken(&mut self, peer: Rank) -> [u32; CHANNELS];
    /// Gives up a peer that has broken the protocol, as one that has [failed](FragmentHandler::failed).
    fn give_up(&mut self, peer: Rank, failure: Failure, handler: &mut impl FragmentHandler);
}
