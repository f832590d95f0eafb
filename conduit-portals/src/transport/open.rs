//! Networks whose peers come and go.
//!
//! A process opens its end of such a network alone, at any time, and others reach it by its
//! address. A [`Rank`] is then this process's own number for a peer, which it gave to an address
//! that it [looked up](OpenTransport::connect), or to a process that reached it
//! ([`FragmentHandler::joined`]). A number is in use until [`OpenTransport::close`], and can be
//! given to another peer after that.
//!
//! Two processes that communicate have a session, set up by a handshake when one of them first
//! sends. While there is none, fragments are refused ([`Refused::Full`]), and the first attempt starts
//! the handshake. A session ends when the peer leaves, dies, can't be reached or was restarted
//! ([`FragmentHandler::failed`]): what was under way is lost, the number stays, and the next
//! fragment starts another session, with whoever is at that address then.
//!
//! [`Refused::Full`]: crate::transport::fragment::Refused::Full
//! [`FragmentHandler::joined`]: crate::transport::fragment::FragmentHandler::joined
//! [`FragmentHandler::failed`]: crate::transport::fragment::FragmentHandler::failed

use std::os::fd::BorrowedFd;

use conduit_core::ni::Rank;

use super::interface::Transport;

/// The most bytes of an address.
pub const MAX_ADDRESS: usize = 256;

/// Why a peer was not given a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// These bytes are no address of this network; what is wrong with them.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is this process's own address: nobody sends to oneself by a network.
    #[error("it is this process's own address")]
    Own,
    /// So many peers have numbers already; `setting` names what raises the number.
    #[error("{limit} peers are known already (setting {setting})")]
    Exhausted {
        /// How many there can be.
        limit: u32,
        /// The setting that holds the limit.
        setting: &'static str,
    },
}

/// A transport whose peers come and go. See the [module](self).
///
/// What [`Transport`] says of the ranks of a job is so of the peers that have numbers.
/// [`Refused::NoSuchRank`](crate::transport::fragment::Refused::NoSuchRank) is the answer for a
/// number without a peer.
pub trait OpenTransport: Transport {
    /// This process's address, for others to [connect](Self::connect) to; at most [`MAX_ADDRESS`]
    /// bytes.
    fn address(&self) -> &[u8];
    /// An address as text without spaces, as users pass it to each other; `None`: these bytes are
    /// no address.
    fn address_to_text(&self, address: &[u8]) -> Option<String>;
    /// The opposite of [`address_to_text`](Self::address_to_text).
    ///
    /// # Errors
    /// [`ConnectError::Malformed`].
    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError>;
    /// The number of the peer with this address, which gets one if it has none. Sends nothing and
    /// doesn't wait: whether there is such a peer shows when something is sent to it.
    ///
    /// # Errors
    /// [`ConnectError`]: nothing has happened.
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError>;
    /// The address of a peer that has a number.
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>>;
    /// Whether there is a session with a peer, or a handshake is under way.
    fn has_session(&self, peer: Rank) -> bool;
    /// Ends the session with a peer, if there is one, and tells the peer. The handler hears nothing
    /// of this session any more, not even that it has ended; no byte that it keeps for it is read.
    /// The number stays.
    fn end_session(&mut self, peer: Rank);
    /// [Ends the session](Self::end_session) with a peer, whose number may be given to another one.
    fn close(&mut self, peer: Rank);
    /// Tells all peers that this process leaves, and ends all sessions. The handler should have
    /// waited for what is [outstanding](Transport::outstanding).
    fn leave(&mut self);
    /// Appends the descriptors of which one is readable when [`Transport::receive`] has something
    /// to do, besides time-outs. The set is constant; an `epoll` descriptor may stand for a set
    /// that changes.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
    /// Whether peers are woken by this process only if they sleep, so that a process which is about
    /// to wait for its [descriptors](Self::descriptors) has to say so. Returns `false` if something
    /// has arrived meanwhile: it must not sleep. Undone by the next [`Transport::receive`].
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// Whether [`copy_from`](Self::copy_from) and [`copy_to`](Self::copy_to) work with this peer.
    /// May become true after the session has begun, not false.
    fn can_copy(&self, _peer: Rank) -> bool {
        false
    }
    /// Copies from any memory of a peer's process to memory here, by addresses. The peer has given
    /// this memory for that, and waits for an answer.
    ///
    /// # Errors
    /// The system's words: the peer is gone, or doesn't have this memory.
    ///
    /// # Safety
    /// `[local, local + length)` is valid for writes.
    unsafe fn copy_from(
        &mut self,
        _peer: Rank,
        _remote: u64,
        _local: *mut u8,
        _length: usize,
    ) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    /// Copies memory here to any memory of a peer's process; otherwise as
    /// [`copy_from`](Self::copy_from).
    ///
    /// # Errors
    /// As for [`copy_from`](Self::copy_from).
    ///
    /// # Safety
    /// `[local, local + length)` is valid for reads.
    unsafe fn copy_to(
        &mut self,
        _peer: Rank,
        _remote: u64,
        _local: *const u8,
        _length: usize,
    ) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
