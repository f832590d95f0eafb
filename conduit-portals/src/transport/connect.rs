//! The contract between a layer that moves traffic to connections and back, and a network that
//! provides connections.

use conduit_core::ni::Rank;

use super::fragment::{Failure, Fragment, FragmentHandler, Refused};
use super::interface::Transport;

/// Number of channels of a link or connection: one for [copied](super::fragment::Payload::Copied)
/// fragments, and one for fragments whose bytes are [read](super::fragment::Payload::Read) in
/// place.
pub const CHANNELS: usize = 2;

/// A [`Transport`] that reaches all peers by its base path, and has faster *connections* to a few
/// of them.
///
/// A connection joins two ranks, under a number on which they have agreed. One rank
/// [expects](Self::expect) the connection, then the other [makes](Self::connect) it, which takes
/// time and may fail. Each rank closes its own end. Fragments on a connection arrive as those of
/// the transport do, but unordered with respect to those of the base path. These fragments count in
/// [`Transport::outstanding`], [`Transport::settle`] and [`Transport::abandon`], and a failed peer
/// has no connection any more.
pub trait Connect: Transport {
    /// Returns the maximum number of connections that a rank has at once; the network reserves
    /// resources for this many. The value is constant, and equal on all ranks.
    fn connections(&self) -> u16;
    /// Allows this peer alone to make a connection under this number, until this end is
    /// [ended](Self::disconnect). This rank must have no connection to the peer, and fewer than
    /// [`connections`](Self::connections) in total. This rank must send nothing on the connection
    /// before the peer has reported that the connection is made.
    fn expect(&mut self, peer: Rank, number: u32);
    /// Begins to make a connection that the peer expects under this number. This rank must have no
    /// connection to the peer, and fewer than [`connections`](Self::connections) in total.
    /// [`made`](Self::made) reports the result within bounded time.
    fn connect(&mut self, peer: Rank, number: u32);
    /// Returns whether a connection that was begun is established; returns `None` if the result is
    /// not known yet. A failed connection has to be [ended](Self::disconnect), as an established
    /// one has.
    fn made(&mut self, peer: Rank) -> Option<bool>;
    /// Closes this rank's end of a connection, if there is one. Unless the connection has failed or
    /// the peer is dead, each rank must have taken everything that the other sent on the
    /// connection.
    fn disconnect(&mut self, peer: Rank);
    /// Accepts a fragment for a connection, as [`Transport::send`] does for the base path.
    ///
    /// # Errors
    /// Same as for [`Transport::send`].
    fn send_connected(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// Delivers the fragments that have arrived on a channel of a connection; no other call
    /// delivers them. Until this call, the fragments wait and count as unacknowledged. Returns
    /// whether any had arrived.
    fn receive_connected(
        &mut self,
        peer: Rank,
        channel: usize,
        handler: &mut impl FragmentHandler,
    ) -> bool;
    /// Stops sending on a connection. After this call, the rank must send nothing more on the
    /// connection, and waits until the peer has [taken](Self::taken) everything that was sent.
    fn leave(&mut self, _peer: Rank) {}
    /// Returns how many fragments of each channel of a connection the peer's handler has taken in
    /// full, or were [abandoned](Transport::abandon), since the last call of this method. A network
    /// may report them late, unless this rank [leaves](Self::leave).
    fn taken(&mut self, peer: Rank) -> [u32; CHANNELS];
    /// Gives up a peer that has violated the protocol, and reports it as
    /// [failed](FragmentHandler::failed).
    fn give_up(&mut self, peer: Rank, failure: Failure, handler: &mut impl FragmentHandler);
}
