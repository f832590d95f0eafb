//! The Ni contract: the interface, in terms of Portals, that every network provides to the engine.
//!
//! The contract is the weakest that real networks fulfil, so that no network has to emulate missing
//! features:
//!
//! - **No order** between events of different operations, even between the same two ranks.
//! - The **token** alone identifies an operation. Initiator events carry nothing else that
//!   identifies it.
//! - A submission may take effect at once or later. [`Submit::Again`] means that *nothing
//!   happened*: the caller must poll and submit again.
//! - The **caller** is responsible for the room in event queues. It may submit an operation that
//!   raises events at the initiator only if it knows that the event queue has room for them.
//! - The data of a locally managed entry is valid **only while the event is delivered**. After the
//!   entry's [`Event::Free`], another [`Ni::me_append`] may reuse its space.
//! - The network need not report dead peers. An operation on a dead peer may never raise its event.
//! - Memory that peers access belongs to the network ([`Ni::region_create`]). The initiator's own
//!   memory may be anywhere. The network may access it until the operation's event, or until
//!   [`Ni::abandon`].
//!
//! The engine's speed rests on two shortcuts: [`Ni::window`], by which a peer's region is mapped
//! here, so that puts and gets are stores and loads; and [`Reach`], a peer's capabilities, by which
//! the engine selects the protocol.
//!
//! The conformance suite in `tests` states the whole contract as tests and runs for every network.

mod apply;
mod event;
mod memory;
mod operation;
mod poll;

pub use apply::{apply_atomic, apply_atomic_at, atomic_result};
pub use event::{Event, Outcome, PutEvent};
pub use memory::{
    Claim, EqId, MatchEntry, MdId, MeEvents, MeId, MeMemory, MeOptions, PtIndex, Rank, Region,
    RegionId, Unlink, Window,
};
pub use operation::{Ack, Atomic, AtomicOp, AtomicType, Exchange, Get, Inject, Put, Submit};
pub use poll::{Closure, Ready, Sink};

use std::time::Duration;

/// An error of a call on the network. It names the operation. The operation has had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NiError {
    /// The target is not a rank of this job.
    #[error("{operation}: rank {rank} is not in a job of {size} ranks")]
    NoSuchRank {
        /// The failed operation.
        operation: &'static str,
        /// The rank given.
        rank: Rank,
        /// The number of ranks in the job.
        size: u32,
    },
    /// An index, identifier or option that does not exist or is of the wrong kind.
    #[error("{operation}: {what} {value} does not exist")]
    NoSuchObject {
        /// The failed operation.
        operation: &'static str,
        /// The kind of object, such as "event queue" or "match entry".
        what: &'static str,
        /// The identifier given.
        value: u64,
    },
    /// A length or offset beyond a limit.
    #[error("{operation}: {what} is {value}; at most {limit} is allowed")]
    OverLimit {
        /// The failed operation.
        operation: &'static str,
        /// The quantity that is too large.
        what: &'static str,
        /// The value given.
        value: u64,
        /// The maximum allowed.
        limit: u64,
    },
    /// All objects of a kind are in use. `setting` names the setting that raises their number.
    #[error("{operation}: all {limit} {what} are in use; raise {setting}")]
    Exhausted {
        /// The failed operation.
        operation: &'static str,
        /// The kind of object.
        what: &'static str,
        /// The number of objects.
        limit: u64,
        /// The setting that determines the limit.
        setting: &'static str,
    },
    /// The operating system refused the operation.
    #[error("{operation} on rank {rank}: {reason}")]
    System {
        /// The failed operation.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The system's description of the error.
        reason: String,
    },
    /// A peer has failed or can't be reached.
    #[error("{operation}: rank {rank} {reason}")]
    PeerFailed {
        /// The failed operation.
        operation: &'static str,
        /// The peer.
        rank: Rank,
        /// The peer's location, and what has failed.
        reason: String,
    },
    /// A peer violated the protocol: its version or settings differ, or its memory was overwritten.
    #[error("{operation}: rank {rank} {reason}")]
    BadPeer {
        /// The failed operation.
        operation: &'static str,
        /// The peer.
        rank: Rank,
        /// The violation.
        reason: String,
    },
}

/// The limits of the network's resources. They do not change after start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The number of portal table indices: `0..pt_indices`.
    pub pt_indices: u8,
    /// Maximum number of event queues.
    pub event_queues: u8,
    /// Maximum number of linked match entries, over all indices.
    pub match_entries: u32,
    /// Maximum number of bound memory descriptors.
    pub memory_descriptors: u32,
    /// Maximum number of regions.
    pub regions: u32,
    /// Maximum total size in bytes of a rank's regions.
    pub region_bytes: usize,
}

bitflags::bitflags! {
    /// The capabilities of a network with respect to one peer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// The peer's regions are mapped here: [`Ni::window`] returns them.
        const WINDOW = 1;
        /// The network, rather than a processor, performs some atomics on the peer's memory. No
        /// processor, including the peer's own, may then perform an atomic there, because neither
        /// kind is atomic with respect to the other. [`Ni::atomic`] performs each atomic in the
        /// right way. All ranks of a job have this capability, or none has.
        const NATIVE_ATOMICS = 2;
        /// A put with [`Ack::Remote`] is acknowledged only when its data is visible at the target.
        const REMOTE_COMPLETION = 4;
        /// Any memory of the peer's process can be read and written; see [`Ni::memory_write`].
        const MEMORY = 8;
    }
}

/// The capabilities and limits of communication with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The capabilities with respect to this peer.
    pub capabilities: Capabilities,
    /// Maximum size in bytes of an [`Ni::inject`]; 0 if the network can't inject.
    pub inject_size: usize,
    /// Maximum size in bytes of a put or get to a match entry.
    pub max_message: usize,
    /// Maximum size in bytes of a put to a locally managed entry.
    pub max_managed: usize,
}

/// A network interface: one rank's endpoint of one network.
///
/// Ids (`EqId`, `MdId` …) are small integers that are valid at this rank. Methods take `&self`. In
/// [`crate::threads::Par`] any number of threads may call them at once.
pub trait Ni {
    /// Returns this rank.
    fn rank(&self) -> Rank;
    /// Returns the number of ranks in the job.
    fn size(&self) -> u32;
    /// Returns the limits of this network.
    fn limits(&self) -> &Limits;
    /// Returns how `peer` is reached. If `peer` is not below `size()`, the result is an unreachable
    /// [`Reach`] (no capabilities, all sizes 0).
    fn reach(&self, peer: Rank) -> &Reach;

    /// Allocates zeroed, page-aligned memory that peers can access. `len` is rounded up to whole
    /// pages.
    fn region_create(&self, len: usize) -> Result<Region, NiError>;
    /// Creates a region as [`Ni::region_create`] does. Calls `prepare` with the region's first byte
    /// and length as soon as it is mapped here, before the network registers the memory with a
    /// device.
    fn region_create_prepared(
        &self,
        len: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Region, NiError> {
        let region = self.region_create(len)?;
        prepare(region.base, region.len);
        Ok(region)
    }
    /// Lets peers of this network access memory that something else owns, namely a region of
    /// another network of this rank. The memory counts as a region of this network and is numbered
    /// together with the regions that the network creates. Not every network supports this.
    ///
    /// # Safety
    /// `[base, base + len)` must consist of whole pages and must remain valid for reads and writes
    /// as long as the network lives. No reference to this memory may be formed.
    unsafe fn region_adopt(&self, _base: *mut u8, _len: usize) -> Result<Region, NiError> {
        Err(NiError::System {
            operation: "region_adopt",
            rank: self.rank(),
            reason: "this network only supports its own memory".to_owned(),
        })
    }
    /// Returns the mapping of a region of a peer or of this rank. Returns `None` if the region is
    /// not mapped and must be accessed by puts and gets. Regions that the peer created *before* a
    /// synchronisation are visible *after* it.
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window>;

    /// Creates a counted event queue with room for at least `slots` small events. A larger message
    /// takes more than one slot.
    fn eq_create(&self, slots: usize) -> Result<EqId, NiError>;
    /// Opens a portal table index, with an empty match list. Without an event queue, operations on
    /// the index complete silently, in [`Ni::progress`]. Puts to an index that is not open yet get
    /// [`Submit::Again`], or arrive once the index is open.
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError>;
    /// Appends an entry at the end of an index's match list.
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError>;
    /// Appends a use-once entry ([`MeOptions::USE_ONCE`]) that other networks of this rank share.
    /// The entry takes a message only if it can take the claim. If another network has taken the
    /// claim, the entry takes no message and raises no event; it remains until [`Ni::me_unlink`].
    /// Not every network supports this.
    fn me_append_claimed(
        &self,
        _index: PtIndex,
        _entry: MatchEntry,
        _claim: Claim,
    ) -> Result<MeId, NiError> {
        Err(NiError::System {
            operation: "me_append",
            rank: self.rank(),
            reason: "this network does not support shared use-once entries".to_owned(),
        })
    }
    /// Removes an entry from its list. Raises no event.
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError>;
    /// Binds a descriptor to memory of the initiator, which may be the source of puts and the
    /// destination of gets. Completions of these operations go to `eq`.
    ///
    /// # Safety
    /// `[base, base + len)` must remain valid for reads (put) and writes (get) until
    /// [`Ni::md_release`] has returned [`Unlink::Done`] or [`Ni::abandon`] has returned.
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError>;
    /// Releases a memory descriptor. Returns [`Unlink::InUse`] while operations on it are in
    /// flight.
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError>;

    /// Moves bytes from a memory descriptor to the first matching entry of the target's index.
    ///
    /// # Safety
    /// The source must be valid, and its bytes must not be written, until the operation has raised
    /// [`Event::Send`] or [`Event::Ack`], or [`Ni::abandon`] has returned.
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError>;
    /// Sends a put that raises no events at the initiator, and copies its bytes before returning.
    /// The put may have at most [`Reach::inject_size`] bytes.
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError>;
    /// Moves bytes from the first matching entry of the target's index to a memory descriptor. The
    /// operation ends with [`Event::Reply`].
    ///
    /// # Safety
    /// The destination must be neither read nor written until the operation has raised
    /// [`Event::Reply`] or [`Ni::abandon`] has returned.
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError>;
    /// Updates one aligned number in the first matching entry. A fetching atomic ends with
    /// [`Event::Reply`], which carries the old value; any other atomic ends with [`Event::Ack`].
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError>;

    /// Gives up all operations of this rank permanently. After this call has returned, none of them
    /// accesses memory outside regions, whichever thread runs and whatever still arrives: no source
    /// is read again, not even for a retransmission, and no get writes to its destination. Only
    /// calls that other threads are still executing may access the memory passed to them, until
    /// they return.
    ///
    /// A put in flight arrives either completely or not at all, and may or may not raise its event.
    /// A get ends without an event. A put or get that is submitted later may get [`Submit::Again`]
    /// indefinitely, or may never end. The rank remains a target, and can still send
    /// [injects](Ni::inject) and puts without bytes. The exception is a network that had to close
    /// itself to revoke a device's access to the memory; peers then see the rank as gone. Any
    /// thread may call this function, even repeatedly and in a sink.
    fn abandon(&self);

    /// Copies bytes to any memory of the target's process, given by its address there. The data is
    /// in place when this call returns. An address that the target doesn't have is an error.
    /// Requires [`Capabilities::MEMORY`] in the target's [`Reach`].
    ///
    /// # Safety
    /// `source` must be valid for reads of `len` bytes.
    unsafe fn memory_write(
        &self,
        target: Rank,
        _address: u64,
        _source: *const u8,
        _len: usize,
    ) -> Result<(), NiError> {
        Err(no_memory(self.rank(), "memory_write", target))
    }
    /// Copies bytes from any memory of the target's process. The counterpart of
    /// [`Ni::memory_write`].
    ///
    /// # Safety
    /// `destination` must be valid for writes of `len` bytes.
    unsafe fn memory_read(
        &self,
        _destination: *mut u8,
        target: Rank,
        _address: u64,
        _len: usize,
    ) -> Result<(), NiError> {
        Err(no_memory(self.rank(), "memory_read", target))
    }

    /// Returns, at low cost, the places where a poll or [`Ni::progress`] may find work. Places that
    /// are not returned have none; places that are returned may have none either. If nothing is
    /// ready and early polling would delay expected messages, the network may wait before it
    /// returns, for less time than the messages are likely to take.
    #[inline]
    fn ready(&self) -> Ready {
        Ready::ALL
    }
    /// Delivers up to `limit` events of a queue to `sink` and returns the number of events
    /// delivered. Further events may be left for the next call, or may be delayed briefly so that
    /// they can be delivered together. A call in a sink of the same queue delivers nothing.
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32;
    /// Polls as [`Ni::poll`] does, but for a [`Sink`], which can ask to be inlined into the
    /// network's loop.
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        let mut events = 0;
        while events < limit && sink.is_ready() && self.poll(eq, 1, |event| sink.event(event)) > 0 {
            events += 1;
        }
        events
    }
    /// Performs the network's background work: responds to gets, and completes operations on
    /// indices without a queue.
    fn progress(&self);
    /// Sleeps until something may have arrived, for at most `limit`. May return early.
    fn wait(&self, limit: Duration);
    /// Announces that this rank is about to sleep until any of several networks has events. From
    /// then on, arrivals wake the rank in the way that was specified when the network was created.
    /// The caller must check [`Ni::ready`] once more after this call. Returns false if arrivals
    /// will not wake the rank.
    fn arm(&self) -> bool {
        false
    }
    /// Reverses [`Ni::arm`].
    fn disarm(&self) {}
    /// Wakes a peer that sleeps in [`Ni::wait`], once the caller has stored something into the
    /// peer's window for which the peer waits. The call is cheap and therefore unreliable: a peer
    /// that falls asleep at the same moment may sleep until its own time limit.
    fn notify(&self, peer: Rank);
    /// Returns the first dead peer, if the network can detect dead peers, which the contract does
    /// not require.
    fn failed_peer(&self) -> Option<Rank>;
    /// Describes the location and the failure of a [failed peer](Ni::failed_peer), as text that
    /// follows the peer's name.
    fn failure(&self, _peer: Rank) -> String {
        "has died".to_owned()
    }
    /// Returns the first peer that has violated the protocol. Messages from this peer may no longer
    /// arrive.
    fn bad_peer(&self) -> Option<Rank> {
        None
    }
}

/// Returns the error of a network that does not support this operation.
fn no_memory(rank: Rank, operation: &'static str, target: Rank) -> NiError {
    NiError::System {
        operation,
        rank,
        reason: format!("this network can access only regions of rank {target}"),
    }
}
