//! The differences between the wire of a fixed job and that of an open network: the names that
//! frames carry, and the processes that may send them.

use std::fmt;
use std::time::Duration;

use conduit_core::ni::Rank;
use seal::{Seal, Sealer};

use crate::wire::liveness::Nanos;
use crate::wire::neighbours::Neighbours;

/// The scope of a wire's frames. It is resolved at compile time, so that open networks cost a fixed
/// job nothing.
pub trait Scope: Send + 'static {
    /// The state of the session on a link.
    type Session: Copy + Default + fmt::Debug + Send;
    /// The seal of frames.
    type Seal: Seal + Send;
    /// Whether links are added and removed when peers come and go. Otherwise, a link is opened when
    /// it is first used, and idle links are compressed.
    const OPEN: bool;
    /// The time between two attempts to send frames that wait for room.
    const PAUSE: Duration;

    /// Returns the sender and the job that frames on a link with this session name.
    fn names(&self, session: &Self::Session) -> (Rank, u64);
    /// Returns whether a frame may name this job.
    fn is_job(&self, job: u64) -> bool;
    /// Returns whether frames of this session name this job.
    fn is_session(session: &Self::Session, job: u64) -> bool;
    /// Returns the address of a peer, if a link to the peer can be opened at any time.
    fn address(&self, peer: Rank) -> Option<&[u8]>;
    /// Returns the number of ranks of the job, or 0 in an open network.
    fn size(&self) -> u32;
    /// Returns a peer to report if all peers are lost and there is no link to any of them.
    fn any_peer(&self) -> Option<Rank>;
    /// Returns the owner of the endpoint as a possessive, for messages.
    fn owner(&self) -> String;
    /// Names the ranks that are known to have died, as text for the end of a message.
    fn gone(&self) -> String {
        String::new()
    }
    /// Returns a peer's location, as text for messages.
    fn place(&self, peer: Rank) -> Option<String>;
    /// Returns the number of bytes of memory used.
    fn memory(&self) -> usize;
    /// Decides how to treat a link on which there has been no traffic since the last check.
    fn on_quiet(_session: &mut Self::Session) -> Quiet {
        Quiet::Idle
    }
    /// Returns whether to retry sends that the library refused for now.
    fn may_retry(_session: &Self::Session, _now: impl FnOnce() -> Nanos) -> bool {
        true
    }
    /// Records a retry. `is_stuck` says whether the library refused all frames that wait for a
    /// peer, while no operation with the peer was in flight.
    fn on_retried(_session: &mut Self::Session, _is_stuck: bool, _now: impl FnOnce() -> Nanos) {}
    /// Returns whether a peer may be pinged. `_is_known` says whether something has been received
    /// in the session with the peer.
    fn may_ping(_session: &Self::Session, _is_known: bool) -> bool {
        true
    }
    /// Handles a message that does not begin in the same way as a frame. Returns `false` if the
    /// message is not valid for any other purpose.
    fn on_other(&mut self, _message: &[u8]) -> bool {
        false
    }
    /// Records that a peer has owed an answer for more than the time between two checks.
    fn on_late(&mut self, _peer: Rank) {}
}

/// The treatment of a link without traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// The link may be made idle.
    Idle,
    /// The link is quiet for the first time, so its buffers for traffic may be freed.
    Free,
    /// The link is left unchanged.
    Stay,
    /// The peer is pinged, because otherwise the end of its process would not be noticed.
    Probe,
}

/// The addresses of all ranks' endpoints, all of the same length.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) each: usize,
}

impl Addresses {
    pub(super) fn of(&self, rank: Rank) -> Option<&[u8]> {
        let begin = (rank as usize).checked_mul(self.each)?;
        self.bytes.get(begin..begin.checked_add(self.each)?)
    }
}

/// The names of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// The number of each rank's host name.
    pub(crate) of: Box<[u32]>,
    pub(crate) names: Vec<String>,
}

/// A job whose ranks are known from the start.
#[derive(Debug)]
pub struct FixedJob {
    pub(crate) rank: Rank,
    /// The job's number.
    pub(crate) job: u64,
    pub(crate) addresses: Addresses,
    pub(crate) hosts: Hosts,
    pub(crate) neighbours: Neighbours,
}

impl Scope for FixedJob {
    type Session = ();
    type Seal = Sealer;
    const OPEN: bool = false;
    const PAUSE: Duration = Duration::from_micros(50);

    #[inline(always)]
    fn names(&self, (): &()) -> (Rank, u64) {
        (self.rank, self.job)
    }
    #[inline(always)]
    fn is_job(&self, job: u64) -> bool {
        job == self.job
    }
    #[inline(always)]
    fn is_session((): &(), _job: u64) -> bool {
        true
    }
    fn address(&self, peer: Rank) -> Option<&[u8]> {
        self.addresses.of(peer)
    }
    fn size(&self) -> u32 {
        // The cast is lossless, because there is one host number per rank.
        self.hosts.of.len() as u32
    }
    fn any_peer(&self) -> Option<Rank> {
        Some((self.rank + 1) % self.size().max(1))
    }
    fn owner(&self) -> String {
        format!("rank {}'s", self.rank)
    }
    fn place(&self, peer: Rank) -> Option<String> {
        let number = *self.hosts.of.get(peer as usize)?;
        let host = self.hosts.names.get(number as usize)?;
        Some(format!("on host {host}"))
    }
    fn gone(&self) -> String {
        self.neighbours.gone()
    }
    fn memory(&self) -> usize {
        self.addresses.bytes.len() + self.neighbours.memory()
    }
}
