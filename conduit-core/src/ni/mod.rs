//! The Ni contract: what every network gives the engine, in Portals' words.
//!
//! It is the weakest contract that real networks keep, so that none has to fake what it can't do:
//!
//! - **No order** between events of different operations, also between the same two ranks.
//! - An operation is known by its **token** alone; initiator events carry nothing else of it.
//! - Submission may take effect at once or later; [`Submit::Again`] means *nothing happened*, poll
//!   and ask again.
//! - A queue's room is the **caller's** affair: an operation that will raise events at its
//!   initiator is submitted only while the caller knows that its event queue has room for them.
//! - Data of a locally managed entry is valid **during the event's delivery only**; the entry's
//!   space may be given again (by another [`Ni::me_append`]) after its [`Event::Free`].
//! - The network tells nobody of a dead peer: operations to it may stay without an event for ever.
//! - Memory that peers reach belongs to the network: [`Ni::region_create`]. An initiator's own
//!   memory may be anywhere; it is the network's to touch until the operation's event, or until
//!   [`Ni::abandon`].
//!
//! Two short cuts carry the engine's speed: [`Ni::window`] (a peer's region is mapped here: put and
//! get are stores and loads) and [`Reach`] (what a peer can be asked for, so that the engine picks
//! the protocol).
//!
//! The suite in `tests` (`conformance`) states all of this as tests, run for every network.

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

/// What a call on the network can refuse. Each names its operation; nothing has happened when it is
/// returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NiError {
    /// The target is not a rank of this job.
    #[error("{operation}: rank {rank} is not in a job of {size} ranks")]
    NoSuchRank {
        /// What was asked.
        operation: &'static str,
        /// The rank that was named.
        rank: Rank,
        /// The job's size.
        size: u32,
    },
    /// An index, identifier or option that names nothing, or something of another kind.
    #[error("{operation}: {what} {value} does not exist")]
    NoSuchObject {
        /// What was asked.
        operation: &'static str,
        /// The kind of object: "event queue", "match entry" …
        what: &'static str,
        /// The identifier that was given.
        value: u64,
    },
    /// A length or offset beyond a limit.
    #[error("{operation}: {what} is {value}, the limit is {limit}")]
    OverLimit {
        /// What was asked.
        operation: &'static str,
        /// Which quantity is too large.
        what: &'static str,
        /// What was given.
        value: u64,
        /// What is allowed.
        limit: u64,
    },
    /// All objects of a kind are in use; `setting` names what raises the number.
    #[error("{operation}: all {limit} {what} are in use (setting {setting})")]
    Exhausted {
        /// What was asked.
        operation: &'static str,
        /// The kind of object.
        what: &'static str,
        /// How many there are.
        limit: u64,
        /// The setting that holds the limit.
        setting: &'static str,
    },
    /// The operating system refused.
    #[error("{operation} on rank {rank}: {reason}")]
    System {
        /// What was asked.
        operation: &'static str,
        /// This rank.
        rank: Rank,
        /// The system's words.
        reason: String,
    },
    /// A peer has failed: it can't be reached.
    #[error("{operation}: rank {rank} {reason}")]
    PeerFailed {
        /// What was asked.
        operation: &'static str,
        /// The peer.
        rank: Rank,
        /// Where it is, and what is wrong with it.
        reason: String,
    },
    /// What a peer wrote makes no sense: another version, other settings, or memory overwritten.
    #[error("{operation}: rank {rank} {reason}")]
    BadPeer {
        /// What was being done.
        operation: &'static str,
        /// The peer.
        rank: Rank,
        /// What is wrong with it.
        reason: String,
    },
}

/// What this network offers at all. Constant after start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Portal table indices: `0..pt_indices`.
    pub pt_indices: u8,
    /// Event queues that can be created.
    pub event_queues: u8,
    /// Match entries that can be linked at once, over all indices.
    pub match_entries: u32,
    /// Memory descriptors that can be bound at once.
    pub memory_descriptors: u32,
    /// Regions that can be created.
    pub regions: u32,
    /// Bytes that all regions of a rank can have together.
    pub region_bytes: usize,
}

bitflags::bitflags! {
    /// What a peer can be asked for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// The peer's regions are mapped here: [`Ni::window`] gives them.
        const WINDOW = 1;
        /// Some atomics on the peer's memory are done by the network, not by a processor: no
        /// processor may do one there, also not the peer's own, for neither is atomic towards the
        /// other. [`Ni::atomic`] does each in the way that is right. All ranks of a job have it or
        /// none.
        const NATIVE_ATOMICS = 2;
        /// A put with [`Ack::Remote`] is acknowledged after its data can be seen at the target.
        const REMOTE_COMPLETION = 4;
        /// Any memory of the peer's process can be read and written, see [`Ni::memory_write`].
        const MEMORY = 8;
    }
}

/// How a peer is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// What it can be asked for.
    pub capabilities: Capabilities,
    /// Bytes of the largest [`Ni::inject`]; 0 where the network has none.
    pub inject_size: usize,
    /// Bytes of the largest put or get to a match entry.
    pub max_message: usize,
    /// Bytes of the largest put to a locally managed entry.
    pub max_managed: usize,
}

/// A network interface: one rank's end of one network.
///
/// Handles (`EqId`, `MdId` …) are small integers of this rank. Methods take `&self`: in
/// [`crate::threads::Par`] any number of threads call them at once.
pub trait Ni {
    /// This rank.
    fn rank(&self) -> Rank;
    /// Ranks in the job.
    fn size(&self) -> u32;
    /// What there is of everything.
    fn limits(&self) -> &Limits;
    /// How `peer` is reached; `peer < size()` is the caller's duty, a peer beyond it gives an
    /// unreachable [`Reach`] (no capability, all sizes 0).
    fn reach(&self, peer: Rank) -> &Reach;

    /// Zeroed, page-aligned memory that peers can reach, `len` rounded up to whole pages.
    fn region_create(&self, len: usize) -> Result<Region, NiError>;
    /// As [`Ni::region_create`], and calls `prepare` with the region's first byte and length as
    /// soon as it is mapped here: before a network that registers memory with a device does so.
    fn region_create_prepared(
        &self,
        len: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Region, NiError> {
        let region = self.region_create(len)?;
        prepare(region.base, region.len);
        Ok(region)
    }
    /// Lets peers of this network reach memory that something else keeps: a region of another
    /// network of this rank. Counts as a region of this network, numbered with those that it
    /// creates. Not every network can.
    ///
    /// # Safety
    /// `[base, base + len)`, whole pages, stays valid for reads and writes as long as the network
    /// lives; no reference to it is formed.
    unsafe fn region_adopt(&self, _base: *mut u8, _len: usize) -> Result<Region, NiError> {
        Err(NiError::System {
            operation: "region_adopt",
            rank: self.rank(),
            reason: "this network reaches only memory of its own".to_owned(),
        })
    }
    /// Where a peer's region (or one's own) is mapped here. `None`: it is not, use put and get.
    /// What the peer created *before* some synchronisation is seen *after* it.
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window>;

    /// A counted event queue with room for `slots` small events at least; a larger message takes
    /// more than one slot.
    fn eq_create(&self, slots: usize) -> Result<EqId, NiError>;
    /// Opens a portal table index for the match list. Without an event queue, its operations
    /// complete unseen, in [`Ni::progress`]. Puts to an index that is not open are answered with
    /// [`Submit::Again`] or arrive after it opens.
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError>;
    /// Appends an entry at the end of an index's match list.
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError>;
    /// Appends an entry that is used once ([`MeOptions::USE_ONCE`]) and that other networks of this
    /// rank have too: it takes a message only if it can take the claim. Once another has, it takes
    /// none and raises nothing, until [`Ni::me_unlink`]. Not every network can.
    fn me_append_claimed(
        &self,
        _index: PtIndex,
        _entry: MatchEntry,
        _claim: Claim,
    ) -> Result<MeId, NiError> {
        Err(NiError::System {
            operation: "me_append",
            rank: self.rank(),
            reason: "this network can't share entries that are used once".to_owned(),
        })
    }
    /// Takes an entry out of its list. Raises no event.
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError>;
    /// Describes memory of the initiating side: source of puts, destination of gets. Its
    /// completions go to `eq`.
    ///
    /// # Safety
    /// `[base, base + len)` stays valid for reads (put) and writes (get) until [`Ni::md_release`]
    /// has returned [`Unlink::Done`], or [`Ni::abandon`] has returned.
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError>;
    /// Ends a memory descriptor; [`Unlink::InUse`] while operations on it are under way.
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError>;

    /// Moves bytes of a memory descriptor to the first matching entry of the target's index.
    ///
    /// # Safety
    /// The source bytes are not written before the operation's [`Event::Send`] or [`Event::Ack`],
    /// or [`Ni::abandon`].
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError>;
    /// A put without events at the initiator, whose bytes are copied before it returns. At most
    /// [`Reach::inject_size`] bytes.
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError>;
    /// Moves bytes of the first matching entry of the target's index into a memory descriptor. Ends
    /// with [`Event::Reply`].
    ///
    /// # Safety
    /// The destination is neither read nor written before the [`Event::Reply`], or [`Ni::abandon`].
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError>;
    /// Changes one aligned integer in the first matching entry. Ends with [`Event::Reply`] carrying
    /// the old value when it fetches, otherwise with [`Event::Ack`].
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError>;

    /// Gives up all operations of this rank, for good. When it returns, none touches memory outside
    /// of regions any more, by whatever thread and whatever still arrives: nothing of a source is
    /// read again, also not to send it once more, and nothing of a get is written. Only calls that
    /// other threads are inside of may still touch what was given to them, until they return.
    ///
    /// A put that was under way arrives as it was or not at all. It may end with its event or
    /// without; a get ends without. A put or get that is submitted later may be answered with
    /// [`Submit::Again`] for ever, or never end. The rank stays a target, and goes on sending
    /// [injects](Ni::inject) and puts without bytes, unless the network had to close itself to call
    /// back what has access to that memory; then its peers find it gone. May be called again, by
    /// any thread, also from within a sink.
    fn abandon(&self);

    /// Copies to any memory of the target's process, by its address there, and returns when it is
    /// there. An address that the target doesn't have is an error. Only where [`Reach`] has
    /// [`Capabilities::MEMORY`].
    ///
    /// # Safety
    /// `source` is valid for reads of `len` bytes.
    unsafe fn memory_write(
        &self,
        target: Rank,
        _address: u64,
        _source: *const u8,
        _len: usize,
    ) -> Result<(), NiError> {
        Err(no_memory(self.rank(), "memory_write", target))
    }
    /// The opposite of [`Ni::memory_write`].
    ///
    /// # Safety
    /// `destination` is valid for writes of `len` bytes.
    unsafe fn memory_read(
        &self,
        _destination: *mut u8,
        target: Rank,
        _address: u64,
        _len: usize,
    ) -> Result<(), NiError> {
        Err(no_memory(self.rank(), "memory_read", target))
    }

    /// A quick look before polling: where a poll, or [`Ni::progress`], would find something to do.
    /// Elsewhere it would not; what is in here is not certain. If nothing is there, the network may
    /// first let a moment pass, of less than what it is likely to take, where something is expected
    /// that polling early would delay.
    #[inline]
    fn ready(&self) -> Ready {
        Ready::ALL
    }
    /// Delivers up to `limit` events of a queue to `sink`, and says how many; others that are there
    /// may be left to the next call, or for a moment so that more of them come together. A call
    /// from within a sink of the same queue delivers nothing.
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32;
    /// [`Ni::poll`] for a [`Sink`], which can ask to be inlined into the network's loop.
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        let mut events = 0;
        while events < limit && sink.is_ready() && self.poll(eq, 1, |event| sink.event(event)) > 0 {
            events += 1;
        }
        events
    }
    /// Does what a network has to do unasked: answers gets, completes operations on indices without
    /// a queue.
    fn progress(&self);
    /// Sleeps until something may have arrived, at most `limit`. May return early.
    fn wait(&self, limit: Duration);
    /// This rank is about to sleep for something else than this network alone: from here on what
    /// arrives wakes it there, by a way that the network was given when it was made. Look at
    /// [`Ni::ready`] once more after this. False: nothing will wake it.
    fn arm(&self) -> bool {
        false
    }
    /// Ends [`Ni::arm`].
    fn disarm(&self) {}
    /// Wakes a peer that sleeps in [`Ni::wait`], after stores into its window that it waits for.
    /// Cheap, and therefore not certain: a peer that falls asleep at the same moment may be woken
    /// by its own time limit only.
    fn notify(&self, peer: Rank);
    /// The first peer found dead, where the network can know it (see the module's contract: it need
    /// not).
    fn failed_peer(&self) -> Option<Rank>;
    /// What is known of a [failed peer](Ni::failed_peer), to be said behind its name: where it is,
    /// what is wrong.
    fn failure(&self, _peer: Rank) -> String {
        "has died".to_owned()
    }
    /// The first peer that was found to write what makes no sense: nothing it sends is certain to
    /// arrive any more.
    fn bad_peer(&self) -> Option<Rank> {
        None
    }
}

/// The network can't do it.
fn no_memory(rank: Rank, operation: &'static str, target: Rank) -> NiError {
    NiError::System {
        operation,
        rank,
        reason: format!("this network reaches only regions of rank {target}"),
    }
}
