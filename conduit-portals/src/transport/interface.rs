//! The contract between the portals and the carrier of fragments between ranks.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::{AtomicOp, AtomicType, Rank};
use rustix::event::Timespec;

use crate::transport::fragment::{Fragment, FragmentHandler, Refused};

/// An address in memory that a rank has [exposed](Transport::expose), in the form that peers pass
/// to their network. For RDMA these are the key and the remote address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Selects the exposed memory.
    pub key: u64,
    /// Address in bytes, counted from an origin that the owner's transport chooses.
    pub address: u64,
}

/// A direct write or read, which names a piece of a peer's memory and an equally long piece of this
/// rank's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The first byte at the peer.
    pub remote: Remote,
    /// The first byte here.
    pub memory: *mut u8,
    /// Length in bytes, at least one.
    pub length: usize,
    /// Token passed back to [`FragmentHandler::done`].
    pub token: u64,
}

/// An atomic on an aligned integer in a peer's memory. Values have the form of those in
/// [`Atomic`](conduit_core::ni::Atomic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeAtomic {
    /// The operation.
    pub op: AtomicOp,
    /// The type of the integer.
    pub ty: AtomicType,
    /// The operand.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
    /// Whether to fetch the old value.
    pub fetch: bool,
    /// Token passed back to [`FragmentHandler::done`].
    pub token: u64,
}

/// A carrier of fragments: a reliability protocol over datagrams, or a reliable network.
///
/// Calls come from one thread at a time, which may be any thread. Fragments are delivered according
/// to [`FragmentHandler`]: each exactly once, in order on each of a link's channels, and in any
/// order between channels and links.
pub trait Transport: Send {
    /// Whether [`Transport::send`] itself transmits
    /// [copied](crate::transport::fragment::Payload::Copied) fragments. If the network then has no
    /// room for one, calling [`Transport::transmit`] before the next [`Transport::receive`] gains
    /// nothing.
    const AT_ONCE: bool = false;
    /// Accepts a fragment. The fragment may wait until [`Transport::transmit`].
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// Delivers the fragments that have arrived, and runs timers that are due; when nothing has
    /// arrived, makes at most one system call. Returns whether something has arrived.
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool;
    /// Passes to the system everything that may be sent now.
    fn transmit(&mut self, handler: &mut impl FragmentHandler);
    /// Returns whether nothing sent to a peer waits for transmission or acknowledgement. If so, the
    /// next fragment has nothing to be batched with, and should be transmitted at once.
    fn is_idle(&self, peer: Rank) -> bool {
        self.outstanding(peer) == 0
    }
    /// Returns the amount that was sent to a peer and is not acknowledged, in units that the
    /// transport chooses. The amount decreases as parts of it reach the peer, and is zero when the
    /// peer is [idle](Self::is_idle).
    fn outstanding(&self, peer: Rank) -> usize;
    /// Announces that this rank is about to end: from here on, a peer may be [idle](Self::is_idle)
    /// only once it has everything sent to it.
    fn settle(&mut self, _peer: Rank) {}
    /// Returns the time until [`Transport::receive`] has to be called even if nothing arrives. Call
    /// this just before sleeping; without this call, packets that were already received may end the
    /// sleep at once.
    fn timeout(&self) -> Option<Duration>;
    /// Returns the object that sleeps until something arrives. It is a separate object because the
    /// lock is not held during the sleep.
    fn waiter(&self) -> Arc<dyn Wait>;
    /// Stops all access to the fragment handler's memory on behalf of these peers, permanently.
    /// When this returns, no byte of a [`Payload::Read`](crate::transport::fragment::Payload::Read)
    /// to one of them is read any more, and no direct [write](Self::write) or [read](Self::read) at
    /// one of them accesses memory here. Fragments cut off by this call may never arrive, nor may
    /// any fragments behind them; further fragments are [refused](Refused::Full). Copied fragments
    /// continue, unless the transport had to give up these peers, or all peers, to stop the access.
    /// May block for a moment, and deliver arrivals meanwhile.
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler);
    /// Returns a peer's host and address, for error messages.
    fn describe(&self, peer: Rank) -> String;

    /// Returns whether ranks have direct access to each other's memory. The answer is constant, and
    /// equal on all ranks.
    fn has_direct(&self) -> bool {
        false
    }
    /// Exposes memory to direct access by peers; returns `Ok(None)` if the network has no direct
    /// access. The remote address is a multiple of 8 if `base` is.
    ///
    /// # Errors
    /// Returns the network's reason, for instance the limit on locked memory.
    ///
    /// # Safety
    /// `[base, base + len)` must stay valid for reads and writes for the transport's lifetime.
    unsafe fn expose(&mut self, _base: *mut u8, _len: usize) -> Result<Option<Remote>, String> {
        Ok(None)
    }
    /// Writes to a peer's memory. The write begins at once, or with the next [`Transport::receive`]
    /// or [`Transport::transmit`], and ends with [`FragmentHandler::done`], or with the peer's
    /// [failure](FragmentHandler::failed). When it is done, the bytes are visible at the peer.
    /// While it is in progress, the peer is not [idle](Self::is_idle).
    ///
    /// # Errors
    /// Returns [`Refused::TooLong`] if the write can't be done directly, now or ever. A refused
    /// write has no effect.
    ///
    /// # Safety
    /// The memory here must be valid for reads, and must not be written, until the operation has
    /// ended.
    unsafe fn write(&mut self, _peer: Rank, _access: &Access) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }
    /// Reads from a peer's memory; otherwise the same as [`Transport::write`].
    ///
    /// # Errors
    /// Same as for [`Transport::write`].
    ///
    /// # Safety
    /// The memory here must be valid for writes, and must not be accessed otherwise, until the
    /// operation has ended.
    unsafe fn read(&mut self, _peer: Rank, _access: &Access) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }
    /// Returns whether the network has this atomic in the fetching or non-fetching variant. The
    /// answer is constant, and equal on all ranks.
    fn has_atomic(&self, _op: AtomicOp, _ty: AtomicType, _fetch: bool) -> bool {
        false
    }
    /// Performs an atomic that the network [has](Transport::has_atomic) on a peer's memory, or on
    /// this rank's own (`peer` is then this rank). The operation is atomic with respect to all
    /// other atomics that this network performs. It ends with [`FragmentHandler::done`], which
    /// receives the old value if the operation fetches. In all other respects it is the same as
    /// [`Transport::write`].
    ///
    /// # Errors
    /// Returns [`Refused::Full`] or [`Refused::Dead`]; a refused atomic has no effect.
    fn atomic(
        &mut self,
        _peer: Rank,
        _remote: Remote,
        _atomic: &NativeAtomic,
    ) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }
}

/// Sleeps until a [`Transport`] has something to receive.
pub trait Wait: Send + Sync {
    /// Sleeps until something may have arrived since the last [`Transport::receive`], `also` is
    /// readable, or `limit` has passed; `None` means no limit. May return earlier. Returns whether
    /// something may have arrived.
    ///
    /// Whatever this method returns, call [`Transport::receive`] before the next wait; otherwise,
    /// the next wait may return at once.
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool;
}

/// Converts a duration for system calls, clamped to the longest that they accept.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
