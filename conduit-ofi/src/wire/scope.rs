//! What differs between the wire of a fixed job and that of an open network: whom frames name, and
//! who may send them.

use std::fmt;
use std::time::Duration;

use conduit_core::ni::Rank;
use seal::{Seal, Sealer};

use crate::wire::liveness::Nanos;
use crate::wire::neighbours::Neighbours;

/// Whose frames a wire carries. All of it is known at compile time, so that a fixed job pays
/// nothing for open networks.
pub trait Scope: Send + 'static {
    /// What the link to a peer has for it.
    type Session: Copy + Default + fmt::Debug + Send;
    /// What frames are sealed with.
    type Seal: Seal + Send;
    /// Links are added and removed as peers come and go. Otherwise a link is opened when it is first
    /// used, and idle ones are compressed.
    const OPEN: bool;
    /// Time between attempts to send what waits for room.
    const PAUSE: Duration;

    /// What frames to this peer name as their sender, and as their job.
    fn names(&self, session: &Self::Session) -> (Rank, u64);
    /// Whether this can be the job that a frame names.
    fn is_job(&self, job: u64) -> bool;
    /// Whether it is the one that frames of this peer name.
    fn is_session(session: &Self::Session, job: u64) -> bool;
    /// The address of a peer whose link can be opened at any time.
    fn address(&self, peer: Rank) -> Option<&[u8]>;
    /// Ranks of the job; 0 if there is none.
    fn size(&self) -> u32;
    /// A peer that is told of, if all are lost and none is known yet.
    fn any_peer(&self) -> Option<Rank>;
    /// Whose endpoint this is.
    fn owner(&self) -> String;
    /// Names the ranks that are known to have died, for the end of a message.
    fn gone(&self) -> String {
        String::new()
    }
    /// Where a peer is.
    fn place(&self, peer: Rank) -> Option<String>;
    /// Bytes of memory that this takes.
    fn memory(&self) -> usize;
    /// Nothing was heard of a peer since the last check, and nothing sent. Whether to ping it.
    fn on_quiet(_session: &mut Self::Session) -> Quiet {
        Quiet::Idle
    }
    /// Whether it is time to send again what the library has refused for now.
    fn may_retry(_session: &Self::Session, _now: impl FnOnce() -> Nanos) -> bool {
        true
    }
    /// The library has refused all that waits for a peer, while nothing was under way to it; or it
    /// has not (`is_stuck`).
    fn on_retried(_session: &mut Self::Session, _is_stuck: bool, _now: impl FnOnce() -> Nanos) {}
    /// Whether a peer may be pinged, from which something was heard in its session or not.
    fn may_ping(_session: &Self::Session, _is_known: bool) -> bool {
        true
    }
    /// A message that begins as no frame does. `false`: nor is it anything else.
    fn on_other(&mut self, _message: &[u8]) -> bool {
        false
    }
    /// A peer owes an answer for more than one check.
    fn on_late(&mut self, _peer: Rank) {}
}

/// What becomes of a link without traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// It may be made idle.
    Idle,
    /// It is quiet for the first time: what it keeps for traffic may be freed.
    Free,
    /// Nothing.
    Stay,
    /// The peer is pinged, since nobody else would notice its end.
    Probe,
}

/// The addresses of all ranks' endpoints, all of one length.
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
    /// By rank: the number of its host's name.
    pub(crate) of: Box<[u32]>,
    pub(crate) names: Vec<String>,
}

/// A job whose ranks are known from its start.
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
        // Fits: ranks.
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
