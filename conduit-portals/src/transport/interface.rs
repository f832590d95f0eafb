//! What carries fragments between ranks, as the portals see it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use rustix::event::Timespec;

use crate::transport::fragment::{Fragment, FragmentHandler, Refused};

/// A place in memory that a rank has [exposed](Transport::expose), as its network names it to peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Which memory.
    pub key: u64,
    /// Where in it: counted as the owner's transport counts, and advanced by bytes.
    pub address: u64,
}

/// A piece of a peer's memory, and the bytes for it or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Its first byte there.
    pub remote: Remote,
    /// Its first byte here.
    pub memory: *mut u8,
    /// Bytes, at least one.
    pub length: usize,
    /// The fragment handler's name for the operation.
    pub token: u64,
}

/// An atomic on an aligned integer in a peer's memory. Values as in [`Atomic`](conduit_core::ni::Atomic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeAtomic {
    /// What to do.
    pub op: AtomicOp,
    /// On what.
    pub ty: AtomicType,
    /// The operand.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
    /// Whether the old value is wanted.
    pub fetch: bool,
    /// The fragment handler's name for the operation.
    pub token: u64,
}

/// The reliability protocol with its driver, or something in its place.
///
/// One thread at a time is inside; it may be any. The rules of [`FragmentHandler`] hold for what is handed to it: in order on each of a
/// link's channels, each fragment once, no order between channels and links.
pub trait Transport: Send {
    /// A [copied](crate::transport::fragment::Payload::Copied) fragment goes out when it is taken. One that the network has no room for goes with
    /// the next [`Transport::transmit`], of which there is nothing to be had sooner than at the next [`Transport::receive`].
    const AT_ONCE: bool = false;
    /// Takes a fragment. It need not go out before [`Transport::transmit`].
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// Hands over what has arrived and does what is due by time; at most one system call when there is nothing. Says whether
    /// something has arrived.
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool;
    /// Hands to the system what may go out now.
    fn transmit(&mut self, handler: &mut impl FragmentHandler);
    /// Whether nothing that was sent to a peer waits to go out or to be acknowledged: what is sent next had better go at once.
    fn is_idle(&self, peer: Rank) -> bool {
        self.outstanding(peer) == 0
    }
    /// How much that is: parts of what was sent to the peer, of whatever size. It gets less as they reach the peer, and is zero when the
    /// peer is [idle](Self::is_idle).
    fn outstanding(&self, peer: Rank) -> usize;
    /// From here on a peer is [idle](Self::is_idle) only when it has everything that was sent to it: this rank is about to end.
    fn settle(&mut self, _peer: Rank) {}
    /// Time until [`Transport::receive`] wants to be called although nothing arrives. Ask just before sleeping: what has been received
    /// may go on to end sleeps until then.
    fn timeout(&self) -> Option<Duration>;
    /// Sleeps until something arrives; apart, because nobody is inside meanwhile.
    fn waiter(&self) -> Arc<dyn Wait>;
    /// Gives up what touches the fragment handler's memory on behalf of these peers, for good: when this returns no byte of a
    /// [`Payload::Read`](crate::transport::fragment::Payload::Read) to one of them is asked for or read again, where it lies or elsewhere, and no
    /// [write](Self::write) or [read](Self::read) there touches memory here. What of that has not arrived may never do so, and
    /// then neither does any fragment behind it; more of them are [refused](Refused::Full). Copied ones go on, unless the transport
    /// had to give up the peers, or all, for this. May wait for a moment, and hand over what arrives meanwhile.
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler);
    /// Where a peer is, for errors: its host and address.
    fn describe(&self, peer: Rank) -> String;

    /// Whether this transport reaches peers' memory directly, and lets them reach this rank's. Constant, and the same on all ranks.
    fn has_direct(&self) -> bool {
        false
    }
    /// Lets peers reach memory directly. `Ok(None)`: this transport has no such thing. The address is a multiple of 8 where `base` is.
    ///
    /// # Errors
    /// The network's words, for instance about the limit of locked memory.
    ///
    /// # Safety
    /// `[base, base + len)` stays valid for reads and writes as long as the transport lives.
    unsafe fn expose(&mut self, _base: *mut u8, _len: usize) -> Result<Option<Remote>, String> {
        Ok(None)
    }
    /// Writes to a peer's memory. Begins at once, or with the next [`Transport::receive`] or [`Transport::transmit`]; ends with
    /// [`FragmentHandler::done`], or with the peer's [failure](FragmentHandler::failed). Done means that the bytes can be seen at the
    /// peer. An operation under way counts in [`Transport::is_idle`].
    ///
    /// # Errors
    /// [`Refused::TooLong`]: it can't be done directly, now or ever. Nothing has happened after any of them.
    ///
    /// # Safety
    /// The memory here is valid for reads, and not written, until the operation has ended.
    unsafe fn write(&mut self, _peer: Rank, _access: &Access) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }
    /// Reads from a peer's memory; the rest as for [`Transport::write`].
    ///
    /// # Errors
    /// As for [`Transport::write`].
    ///
    /// # Safety
    /// The memory here is valid for writes, and nobody else looks at it, until the operation has ended.
    unsafe fn read(&mut self, _peer: Rank, _access: &Access) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }
    /// Whether the network does this atomic, with the old value or without. Constant, and the same on all ranks.
    fn has_atomic(&self, _op: AtomicOp, _ty: AtomicType, _fetch: bool) -> bool {
        false
    }
    /// Does an atomic that there [is](Transport::has_atomic) on a peer's memory, or on this rank's own (`peer` is then this rank),
    /// indivisible towards all others that this network does. Ends with [`FragmentHandler::done`] and, if it fetches, the old value; the
    /// rest as for [`Transport::write`].
    ///
    /// # Errors
    /// [`Refused::Full`] or [`Refused::Dead`]; nothing has happened.
    fn atomic(
        &mut self,
        _peer: Rank,
        _remote: Remote,
        _atomic: &NativeAtomic,
    ) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }
}

/// Sleeping beside a [`Transport`].
pub trait Wait: Send + Sync {
    /// Returns when something may have arrived since the transport's last [`Transport::receive`], when `also` is readable, or after
    /// `limit` (`None`: never); it may return early. Says whether something may have arrived.
    ///
    /// Whatever it says, the transport must receive before the next wait: until then it may not wait at all.
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool;
}

/// A wait's length as the system wants it; the longest there is for what exceeds it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
