//! Networks whose peers come and go.
//!
//! A process opens its end of such a network alone, at any time, and others reach it by its
//! address. A [`Rank`] is then this process's own number for a peer, assigned to an address that it
//! [looked up](OpenTransport::connect), or to a process that reached it
//! ([`FragmentHandler::joined`]). A number is in use until [`OpenTransport::close`], and can be
//! assigned to another peer afterwards.
//!
//! Two processes that communicate have a session, set up by a handshake when one of them first
//! sends. Without a session, fragments are refused ([`Refused::Full`]), and the first attempt
//! starts the handshake. A session ends when the peer leaves, dies, can't be reached or was
//! restarted ([`FragmentHandler::failed`]). Data in flight are then lost. The peer keeps its
//! number, and the next fragment starts another session, with the process that has the address at
//! that time.
//!
//! [`Refused::Full`]: crate::transport::fragment::Refused::Full
//! [`FragmentHandler::joined`]: crate::transport::fragment::FragmentHandler::joined
//! [`FragmentHandler::failed`]: crate::transport::fragment::FragmentHandler::failed

use std::os::fd::BorrowedFd;

use conduit_core::ni::Rank;

use super::interface::Transport;

/// The maximum length of an address in bytes.
pub const MAX_ADDRESS: usize = 256;

/// The reason why a peer was not assigned a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The bytes are not an address of this network. The value is the reason.
    #[error("{0}")]
    Malformed(&'static str),
    /// The address is this process's own. A process does not send to itself through a network.
    #[error("it is this process's own address")]
    Own,
    /// The limit on peers with numbers is reached; `setting` names the setting that raises it.
    #[error("the limit of {limit} peers is reached (setting {setting})")]
    Exhausted {
        /// The limit.
        limit: u32,
        /// The setting that holds the limit.
        setting: &'static str,
    },
}

/// A transport whose peers come and go. See the [module](self).
///
/// The statements of [`Transport`] about the ranks of a job apply to the peers that have numbers.
/// Fragments to a number without a peer are refused with
/// [`Refused::NoSuchRank`](crate::transport::fragment::Refused::NoSuchRank).
pub trait OpenTransport: Transport {
    /// Returns this process's address, for others to [connect](Self::connect) to; at most
    /// [`MAX_ADDRESS`] bytes.
    fn address(&self) -> &[u8];
    /// Formats an address as text without spaces, for users to pass to each other. Returns `None`
    /// if these bytes are not an address.
    fn address_to_text(&self, address: &[u8]) -> Option<String>;
    /// Parses an address. This is the inverse of [`address_to_text`](Self::address_to_text).
    ///
    /// # Errors
    /// Returns [`ConnectError::Malformed`] if the text is not an address.
    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError>;
    /// Returns the number of the peer with this address, assigning one if it has none. This method
    /// sends nothing and doesn't wait, so a missing peer is only detected when something is sent to
    /// it.
    ///
    /// # Errors
    /// Returns a [`ConnectError`] if no number was assigned.
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError>;
    /// Returns the address of a peer that has a number.
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>>;
    /// Returns whether there is a session with a peer or a handshake with it is in progress.
    fn has_session(&self, peer: Rank) -> bool;
    /// Ends the session with a peer, if there is one, and notifies the peer. The handler gets no
    /// further calls for this session, not even one that reports its end, and none of the handler's
    /// bytes for the session are read any more. The peer keeps its number.
    fn end_session(&mut self, peer: Rank);
    /// Ends the session with a peer, as [`end_session`](Self::end_session) does, and frees its
    /// number, which may then be assigned to another peer.
    fn close(&mut self, peer: Rank);
    /// Announces to all peers that this process leaves, and ends all sessions. Before this call,
    /// the handler should wait for [outstanding](Transport::outstanding) data.
    fn leave(&mut self);
    /// Appends descriptors. At least one of them is readable when [`Transport::receive`] has
    /// something to do other than handle time-outs. The set is constant; an `epoll` descriptor may
    /// represent a set that changes.
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>);
    /// Announces to peers that this process is about to wait for its
    /// [descriptors](Self::descriptors) and has to be woken. Returns `false` if something has
    /// arrived meanwhile, in which case the process must not sleep. The next [`Transport::receive`]
    /// revokes the announcement.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// Returns whether [`copy_from`](Self::copy_from) and [`copy_to`](Self::copy_to) work with this
    /// peer. The answer may become `true` after the session has begun, but never becomes `false`
    /// again.
    fn can_copy(&self, _peer: Rank) -> bool {
        false
    }
    /// Copies from an address in a peer's process to memory of this process. The peer must have
    /// offered this memory to be copied, and must be waiting for an answer.
    ///
    /// # Errors
    /// Returns the system's error if the peer is gone or doesn't have this memory.
    ///
    /// # Safety
    /// `[local, local + length)` must be valid for writes.
    unsafe fn copy_from(
        &mut self,
        _peer: Rank,
        _remote: u64,
        _local: *mut u8,
        _length: usize,
    ) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
    /// Copies memory of this process to an address in a peer's process. In all other respects this
    /// method is the same as [`copy_from`](Self::copy_from).
    ///
    /// # Errors
    /// Same as for [`copy_from`](Self::copy_from).
    ///
    /// # Safety
    /// `[local, local + length)` must be valid for reads.
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
