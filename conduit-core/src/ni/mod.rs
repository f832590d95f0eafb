//! The Ni contract: the interface, in terms of Portals, that every network offers the engine.
//!
//! It is the weakest contract that real networks keep, so that no network has to emulate missing
//! features:
//!
//! - **No order** between events of different operations, even between the same two ranks.
//! - The **token** alone identifies an operation; initiator events carry nothing else about it.
//! - A submission may take effect at once or later; [`Submit::Again`] means that *nothing
//!   happened*: poll and submit again.
//! - The **caller** accounts for the room in event queues: it submits an operation that raises
//!   events at the initiator only if it knows that the event queue has room for them.
//! - Data of a locally managed entry is valid **only during the event's delivery**; another
//!   [`Ni::me_append`] may reuse the entry's space after its [`Event::Free`].
//! - The network need not report dead peers: an operation on one may never raise its event.
//! - Memory that peers reach belongs to the network: [`Ni::region_create`]. An initiator's own
//!   memory may be anywhere; the network may access it until the operation's event, or until
//!   [`Ni::abandon`].
//!
//! The engine's speed rests on two shortcuts: [`Ni::window`] (a peer's region is mapped here, so
//! that put and get are stores and loads) and [`Reach`] (a peer's capabilities, from which the
//! engine picks the protocol).
//!
//! The conformance suite in `tests` states all of this as tests and runs for every network.

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

/// An error of a call on the network. It names the operation, which has had no effect.
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
    /// An index, identifier or option that does not exist or is of another kind.
    #[error("{operation}: {what} {value} does not exist")]
    NoSuchObject {
        /// The failed operation.
        operation: &'static str,
        /// The kind of object: "event queue", "match entry" …
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
    /// All objects of a kind are in use; `setting` names the setting that raises their number.
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
    /// The operating system refused.
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
        /// The peer's location and failure.
        reason: String,
    },
    /// A peer violated the protocol: its version or settings differ, or memory was overwritten.
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

/// The network's resources. Constant after start.
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
    /// The operations that a peer supports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// The peer's regions are mapped here: [`Ni::window`] returns them.
        const WINDOW = 1;
        /// The network, not a processor, does some atomics on the peer's memory. No processor may
        /// then do one there, including the peer's own, because neither kind is atomic with respect
        /// to the other. [`Ni::atomic`] does each in the right way. Either all ranks of a job have
        /// this capability or none.
        const NATIVE_ATOMICS = 2;
        /// A put with [`Ack::Remote`] is acknowledged only when its data is visible at the target.
        const REMOTE_COMPLETION = 4;
        /// Any memory of the peer's process is readable and writable; see [`Ni::memory_write`].
        const MEMORY = 8;
    }
}

/// The capabilities and limits of communication with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The operations that the peer supports.
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
/// Handles (`EqId`, `MdId` …) are small integers of this rank. Methods take `&self`; in
/// [`crate::threads::Par`] any number of threads may call them at once.
pub trait Ni {
    /// Returns this rank.
    fn rank(&self) -> Rank;
    /// Returns the number of ranks in the job.
    fn size(&self) -> u32;
    /// Returns the limits of this network.
    fn limits(&self) -> &Limits;
    /// Returns how `peer` is reached. The caller guarantees `peer < size()`; for other peers the
    /// result is an unreachable [`Reach`] (no capability, all sizes 0).
    fn reach(&self, peer: Rank) -> &Reach;

    /// Allocates zeroed, page-aligned memory that peers can reach, `len` rounded up to whole pages.
    fn region_create(&self, len: usize) -> Result<Region, NiError>;
    /// Creates a region as [`Ni::region_create`] does, and calls `prepare` with its first byte and
    /// length as soon as it is mapped here, before a network registers the memory with a device.
    fn region_create_prepared(
        &self,
        len: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Region, NiError> {
        let region = self.region_create(len)?;
        prepare(region.base, region.len);
        Ok(region)
    }
    /// Lets peers of this network reach memory owned by something else: a region of another network
    /// of this rank. It counts as a region of this network and is numbered together with those that
    /// the network creates. Not every network supports this.
    ///
    /// # Safety
    /// `[base, base + len)` must consist of whole pages and stay valid for reads and writes as long
    /// as the network lives, and no reference to it may be formed.
    unsafe fn region_adopt(&self, _base: *mut u8, _len: usize) -> Result<Region, NiError> {
        Err(NiError::System {
            operation: "region_adopt",
            rank: self.rank(),
            reason: "this network only supports its own memory".to_owned(),
        })
    }
    /// Returns the mapping of a peer's (or this rank's own) region. Returns `None` if the region is
    /// not mapped and must be reached by put and get. Regions that the peer created *before* some
    /// synchronisation are visible *after* it.
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window>;

    /// Creates a counted event queue with room for at least `slots` small events; a larger message
    /// takes more than one slot.
    fn eq_create(&self, slots: usize) -> Result<EqId, NiError>;
    /// Opens a portal table index for the match list. Without an event queue, its operations
    /// complete silently, in [`Ni::progress`]. Puts to an index that is not open get
    /// [`Submit::Again`] or arrive after it opens.
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError>;
    /// Appends an entry at the end of an index's match list.
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError>;
    /// Appends a use-once entry ([`MeOptions::USE_ONCE`]) that other networks of this rank have
    /// too. The entry takes a message only if it can take the claim. Once another network has taken
    /// the claim, the entry takes no message and raises no event, until [`Ni::me_unlink`]. Not
    /// every network supports this.
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
    /// Binds a descriptor to memory of the initiator: source of puts, destination of gets. Its
    /// completions go to `eq`.
    ///
    /// # Safety
    /// `[base, base + len)` must stay valid for reads (put) and writes (get) until
    /// [`Ni::md_release`] has returned [`Unlink::Done`], or [`Ni::abandon`] has returned.
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError>;
    /// Releases a memory descriptor. Returns [`Unlink::InUse`] while operations on it are in
    /// flight.
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError>;

    /// Moves bytes from a memory descriptor to the first matching entry of the target's index.
    ///
    /// # Safety
    /// The source bytes must not be written before the operation's [`Event::Send`] or
    /// [`Event::Ack`], or [`Ni::abandon`].
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError>;
    /// Sends a put without events at the initiator and copies its bytes before returning. At most
    /// [`Reach::inject_size`] bytes.
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError>;
    /// Moves bytes from the first matching entry of the target's index to a memory descriptor. Ends
    /// with [`Event::Reply`].
    ///
    /// # Safety
    /// The destination must be neither read nor written before the [`Event::Reply`], or
    /// [`Ni::abandon`].
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError>;
    /// Updates one aligned number in the first matching entry. Ends with [`Event::Reply`], which
    /// carries the old value, if it fetches; otherwise with [`Event::Ack`].
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError>;

    /// Gives up all operations of this rank permanently. After it returns, none of them accesses
    /// memory outside regions, whichever thread runs and whatever still arrives: no source is read
    /// again, not even for a retransmission, and no get writes its destination. Only calls that
    /// other threads are still executing may access the memory given to them, until they return.
    ///
    /// A put in flight arrives completely or not at all, with or without its event; a get ends
    /// without an event. A put or get submitted later may get [`Submit::Again`] indefinitely, or
    /// never end. The rank is still a target, and still sends [injects](Ni::inject) and puts
    /// without bytes, unless the network had to close itself to revoke a device's access to that
    /// memory; its peers then see it as gone. Any thread may call this, even repeatedly and from
    /// within a sink.
    fn abandon(&self);

    /// Copies to any memory of the target's process, by its address there, and returns when the
    /// data is there. An address that the target doesn't have is an error. Requires
    /// [`Capabilities::MEMORY`] in [`Reach`].
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
    /// Copies from any memory of the target's process. The counterpart of [`Ni::memory_write`].
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

    /// Checks quickly where a poll, or [`Ni::progress`], may find work. Elsewhere it would find
    /// none; a hit is not certain. If nothing is ready and early polling would delay expected
    /// messages, the network may first wait for a moment, shorter than their likely delay.
    #[inline]
    fn ready(&self) -> Ready {
        Ready::ALL
    }
    /// Delivers up to `limit` events of a queue to `sink` and returns their number. Further events
    /// may be left for the next call, or for a moment so that more of them come together. A call
    /// from within a sink of the same queue delivers nothing.
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32;
    /// Polls as [`Ni::poll`] does, for a [`Sink`], which can ask to be inlined into the network's
    /// loop.
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        let mut events = 0;
        while events < limit && sink.is_ready() && self.poll(eq, 1, |event| sink.event(event)) > 0 {
            events += 1;
        }
        events
    }
    /// Does the network's background work: responds to gets, completes operations on indices
    /// without a queue.
    fn progress(&self);
    /// Sleeps until something may have arrived, but at most for `limit`. May return early.
    fn wait(&self, limit: Duration);
    /// Announces that this rank is about to sleep for events of more than this network. From then
    /// on arrivals wake it in the way that the network was given at creation. Check [`Ni::ready`]
    /// once more after this call. Returns false if arrivals will not wake the rank.
    fn arm(&self) -> bool {
        false
    }
    /// Ends [`Ni::arm`].
    fn disarm(&self) {}
    /// Wakes a peer that sleeps in [`Ni::wait`], after stores into its window that it waits for.
    /// Cheap and therefore unreliable: a peer that falls asleep at the same moment may sleep until
    /// its own time limit.
    fn notify(&self, peer: Rank);
    /// Returns the first dead peer, if the network can detect that (by the contract, it need not).
    fn failed_peer(&self) -> Option<Rank>;
    /// Describes a [failed peer](Ni::failed_peer), as text to follow its name: its location and
    /// failure.
    fn failure(&self, _peer: Rank) -> String {
        "has died".to_owned()
    }
    /// Returns the first peer that violated the protocol; its messages may no longer arrive.
    fn bad_peer(&self) -> Option<Rank> {
        None
    }
}

/// Returns the error for a network without this operation.
fn no_memory(rank: Rank, operation: &'static str, target: Rank) -> NiError {
    NiError::System {
        operation,
        rank,
        reason: format!("this network only supports regions of rank {target}"),
    }
}
