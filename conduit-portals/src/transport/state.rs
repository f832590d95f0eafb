//! The state of a rank's portals, except the transport. The lock guards both this state and the
//! transport.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ::lanes::Driver;
use atomic::Atomic;
use conduit_core::ni::{
    Claim, EqId, Event, MatchEntry, MeId, NiError, PtIndex, Rank, Ready, Unlink,
};
use conduit_core::threads::ParSync;
use slab::Slab;

use crate::matching::{
    Descriptors, Entry, EntryId, MatchList, PT_INDICES, entry_start, no_such_index,
};
use crate::transport::fragment::{Failure, MAX_TINY};

use super::buffers::Pool;
use super::config::PortalsConfig;
use super::direct::{DirectAccess, Exported, Native};
use super::inbound::{Arrival, Held, InUse, LongReply};
use super::link::{Links, TransportLink};
use super::mailbox::{InlinePut, Writer};
use super::operation::{OperationKind, Operations};
use super::queue::{QUEUES, Queued};
use super::regions::Regions;
use super::wide;
use super::window::{Cost, WindowSize};
use super::wire::{Left, SHORT_HEADER};

/// The maximum number of match entries linked at once.
pub(crate) const ENTRIES: u32 = 4096;
/// Stands for "no rank" in `Flags`.
pub(crate) const NOBODY: u32 = u32::MAX;

/// State that may be read without the lock.
#[derive(Debug)]
pub(crate) struct Flags {
    /// Queues with undelivered events. Queues whose mailbox was emptied since may still be
    /// included. This field and the next are written only under the lock.
    ready: Atomic<Ready>,
    /// Queues with events that did not go through the mailbox.
    queued: Atomic<Ready>,
    /// The first peer that has failed.
    pub(crate) failed: AtomicU32,
    /// The first peer that has violated the protocol.
    pub(crate) protocol_error: AtomicU32,
}

impl Flags {
    pub(crate) fn new() -> Self {
        Self {
            ready: Atomic::new(Ready::NONE),
            queued: Atomic::new(Ready::NONE),
            failed: AtomicU32::new(NOBODY),
            protocol_error: AtomicU32::new(NOBODY),
        }
    }

    #[inline]
    pub(crate) fn ready(&self) -> Ready {
        self.ready.load(Ordering::Relaxed)
    }

    /// Returns whether a queue has events besides the one in its mailbox.
    #[inline]
    pub(crate) fn is_queued(&self, queue: usize) -> bool {
        self.queued.load(Ordering::Relaxed).intersects(bit(queue))
    }

    /// Returns whether any queue has events besides the one in its mailbox.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.load(Ordering::Relaxed).is_empty()
    }

    /// Clears the flag of a queue whose events have all been delivered.
    #[inline]
    pub(crate) fn clear(&self, queue: usize) {
        change(&self.ready, |ready| ready.without(bit(queue)));
    }

    /// Moves the events of a queue, whose mailbox must be empty, to `events`, which must be empty,
    /// for delivery. Returns `false` if there are no events.
    #[inline]
    pub(crate) fn hand_over(
        &self,
        number: usize,
        queue: &mut VecDeque<Queued>,
        events: &mut VecDeque<Queued>,
    ) -> bool {
        if queue.is_empty() {
            self.clear(number);
            return false;
        }
        change(&self.queued, |queued| queued.without(bit(number)));
        std::mem::swap(queue, events);
        true
    }

    /// Records that a queue's mailbox has been filled.
    #[inline]
    pub(crate) fn mailed(&self, eq: EqId) {
        change(&self.ready, |ready| ready.union(Ready::queue(eq)));
    }

    /// Records that an event was put into a queue.
    #[inline]
    pub(crate) fn queued(&self, eq: EqId) {
        self.mailed(eq);
        change(&self.queued, |queued| queued.union(Ready::queue(eq)));
    }
}

/// Changes flags. Only the thread that holds the lock writes them, so no read-modify-write
/// operation is needed.
#[inline(always)]
fn change(flags: &Atomic<Ready>, change: impl FnOnce(Ready) -> Ready) {
    flags.store(change(flags.load(Ordering::Relaxed)), Ordering::Relaxed);
}

#[inline]
fn bit(queue: usize) -> Ready {
    // The cast is lossless: there are at most `QUEUES` queues.
    Ready::queue(EqId(queue as u8))
}

/// Returns the value of [`Flags::failed`] or [`Flags::protocol_error`].
pub(crate) fn first(rank: &AtomicU32) -> Option<Rank> {
    let rank = rank.load(Ordering::Acquire);
    (rank != NOBODY).then_some(rank)
}

/// A portal table index.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) list: MatchList,
    /// `None` until the index is opened; afterwards `Some` of the index's queue, if it has one.
    pub(crate) open: Option<Option<EqId>>,
    /// Whether the index has ever had an entry.
    pub(crate) used: bool,
    /// Entries whose bytes are still being written or read.
    pub(crate) in_use: Vec<InUse>,
    /// Messages that arrived before the index was opened.
    pub(crate) held: VecDeque<Held>,
    /// Number of linked entries.
    linked: u32,
    /// The first entry, if it is exportable.
    pub(crate) exported: Option<Exported>,
}

/// Counters since start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortalsCounters {
    /// Messages that matched no entry.
    pub unmatched: u64,
    /// Fragments that violated the protocol.
    pub protocol_errors: u64,
    /// Window updates that were sent in separate fragments.
    pub window_updates: u64,
    /// Submissions that ended with [`Submit::Again`](conduit_core::ni::Submit::Again) because of
    /// the window at the peer.
    pub waited_for_peer: u64,
    /// Submissions that ended with `Submit::Again` because of this rank's link, tables or pools.
    pub waited_for_room: u64,
    /// Operations that were performed by direct access.
    pub direct: u64,
    /// Advertisements of entries that were sent to peers.
    pub advertised: u64,
    /// Atomics on this rank's memory, received by message or submitted by this rank itself, for
    /// which this rank used its network instead of its processor.
    pub native_for_peers: u64,
    /// Statistics of wide windows. The promotions and demotions are those of this rank at its
    /// peers.
    pub lanes: ::lanes::Statistics,
}

impl PortalsCounters {
    /// Returns all counters with their names.
    pub fn each(&self) -> [(&'static str, u64); 13] {
        [
            ("unmatched", self.unmatched),
            ("protocol_errors", self.protocol_errors),
            ("window_updates", self.window_updates),
            ("waited_for_peer", self.waited_for_peer),
            ("waited_for_room", self.waited_for_room),
            ("direct", self.direct),
            ("advertised", self.advertised),
            ("native_for_peers", self.native_for_peers),
            ("lanes_offered", self.lanes.offers),
            ("lanes_denied", self.lanes.denials),
            ("lanes_recalled", self.lanes.recalls),
            ("promotions", self.lanes.promotions),
            ("demotions", self.lanes.demotions),
        ]
    }
}

/// The state of a rank's portals; see the [module](self).
pub(crate) struct Portals {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) config: PortalsConfig,
    pub(crate) window: WindowSize,
    /// The maximum length of a put in a tiny fragment to a managed entry, in bytes.
    pub(crate) short: usize,
    pub(crate) flags: Arc<Flags>,
    pub(crate) regions: Regions,
    /// The memory descriptors. Their mode is `ParSync` because the lock guards them.
    pub(crate) descriptors: Descriptors<ParSync>,
    pub(crate) indices: Box<[Index]>,
    /// Number of linked entries of all indices.
    entries: u32,
    pub(crate) queues: Vec<VecDeque<Queued>>,
    /// For each queue, the writer for a put that arrives while the queue is empty.
    pub(crate) mailboxes: Box<[Writer<InlinePut>]>,
    pub(crate) pool: Pool,
    /// Number of bytes that further injects may have in flight.
    pub(crate) inject_room: usize,
    pub(crate) operations: Operations,
    pub(crate) links: Links,
    /// Wide windows, if there are any.
    pub(crate) wide: Option<Box<Driver>>,
    pub(crate) direct: DirectAccess,
    pub(crate) native: Native,
    /// Fragments whose arrival has begun.
    pub(crate) arrivals: Slab<Arrival>,
    /// Replies whose bytes the transport may still read.
    pub(crate) long_replies: Slab<LongReply>,
    /// Links to be flushed.
    pub(crate) outgoing: Vec<Rank>,
    /// Number of messages in all [`Index::held`].
    pub(crate) held: usize,
    /// Whether this rank has announced that it leaves.
    pub(crate) leaving: bool,
    /// Whether memory outside of regions must not be accessed any more, because `Ni::abandon` was
    /// called.
    pub(crate) abandoned: bool,
    /// Whether the progress thread makes progress instead of the rank.
    pub(crate) on_progress_thread: bool,
    pub(crate) counters: PortalsCounters,
}

impl Portals {
    pub(crate) fn new(rank: Rank, size: u32, config: &PortalsConfig, flags: Arc<Flags>) -> Self {
        let config = config.clone().bounded();
        let window = WindowSize::new(
            config.window,
            config.arrival_bytes,
            config.max_managed,
            size.saturating_sub(1) as usize,
        );
        let index = || Index {
            list: MatchList::new(),
            open: None,
            used: false,
            in_use: Vec::new(),
            held: VecDeque::new(),
            linked: 0,
            exported: None,
        };
        Self {
            rank,
            size,
            window,
            short: config
                .inject_size
                .min(config.max_managed)
                .min(MAX_TINY - SHORT_HEADER),
            flags,
            regions: Regions::new(rank, config.region_bytes),
            descriptors: Descriptors::new(),
            indices: (0..PT_INDICES).map(|_| index()).collect(),
            entries: 0,
            queues: Vec::new(),
            mailboxes: Box::default(),
            pool: Pool::default(),
            inject_room: config.inject_bytes,
            operations: Operations::new(config.operations),
            links: Links::new(size, window),
            wide: wide::driver(rank, window, &config).map(Box::new),
            direct: DirectAccess::default(),
            native: Native::default(),
            arrivals: Slab::new(),
            long_replies: Slab::new(),
            outgoing: Vec::new(),
            held: 0,
            leaving: false,
            abandoned: false,
            on_progress_thread: false,
            counters: PortalsCounters::default(),
            config,
        }
    }

    pub(crate) fn create_queue(&mut self) -> Result<EqId, NiError> {
        if self.queues.len() == QUEUES {
            return Err(exhausted("eq_create", "event queues", QUEUES as u64));
        }
        self.queues.push(VecDeque::new());
        // The cast is lossless: there are at most `QUEUES` queues.
        Ok(EqId(self.queues.len() as u8 - 1))
    }

    /// Refuses a queue that doesn't exist.
    pub(crate) fn check_queue(&self, operation: &'static str, eq: EqId) -> Result<(), NiError> {
        match usize::from(eq.0) < self.queues.len() {
            true => Ok(()),
            false => Err(NiError::NoSuchObject {
                operation,
                what: "event queue",
                value: u64::from(eq.0),
            }),
        }
    }

    pub(crate) fn open_index(&mut self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        const OPERATION: &str = "pt_open";
        if let Some(eq) = eq {
            self.check_queue(OPERATION, eq)?;
        }
        let Some(pt) = self.indices.get_mut(usize::from(index.0)) else {
            return Err(no_such_index(OPERATION, index));
        };
        if pt.open.is_some() {
            return Err(NiError::NoSuchObject {
                operation: OPERATION,
                what: "unopened portal table index",
                value: u64::from(index.0),
            });
        }
        pt.open = Some(eq);
        Ok(())
    }

    pub(crate) fn append_entry(
        &mut self,
        index: PtIndex,
        entry: &MatchEntry,
        claim: Option<Claim>,
    ) -> Result<MeId, NiError> {
        const OPERATION: &str = "me_append";
        let Some(pt) = self.indices.get_mut(usize::from(index.0)) else {
            return Err(no_such_index(OPERATION, index));
        };
        let start = entry_start(entry.memory, |id| self.regions.find(id))?;
        let exported = match pt.linked == 0 && claim.is_none() {
            true => Exported::of(entry, |id| self.regions.remote(id)),
            false => None,
        };
        let entry = Entry::new(entry, start.map_or(0, |start| start.addr()));
        let id = match self.entries < ENTRIES {
            true => pt.list.append_claimed(entry, claim),
            false => None,
        };
        let id = id.ok_or_else(|| exhausted(OPERATION, "match entries", ENTRIES.into()))?;
        pt.used = true;
        pt.linked += 1;
        self.entries += 1;
        let me = id.me(index.0);
        if let Some(mut exported) = exported {
            exported.advertisement.entry = me;
            pt.exported = Some(exported);
        }
        Ok(me)
    }

    pub(crate) fn unlink_entry(&mut self, me: MeId) -> Result<Unlink, NiError> {
        let (number, id) = EntryId::of(me);
        let raises_event = self.direct.enabled && self.withdraw(me);
        let index = self.indices.get_mut(usize::from(number));
        if let Some(index) = index {
            if raises_event || index.in_use.iter().any(|in_use| in_use.id == id) {
                return Ok(Unlink::InUse);
            }
            if index.list.unlink(id) {
                index
                    .exported
                    .take_if(|exported| exported.advertisement.entry == me);
                index.linked -= 1;
                self.entries -= 1;
                return Ok(Unlink::Done);
            }
        }
        Err(NiError::NoSuchObject {
            operation: "me_unlink",
            what: "match entry",
            value: u64::from(me.0),
        })
    }

    /// Records that an entry of an index has unlinked itself.
    pub(crate) fn entry_left(&mut self, index: u8) {
        if let Some(index) = self.indices.get_mut(usize::from(index)) {
            index.linked -= 1;
        }
        self.entries -= 1;
    }

    /// Puts an event without data into a queue.
    #[inline]
    pub(crate) fn post_event(&mut self, eq: EqId, event: Event<'static>) {
        self.queue(eq, Queued::Other(event));
    }

    #[inline]
    pub(crate) fn queue(&mut self, eq: EqId, event: Queued) {
        if let Some(queue) = self.queues.get_mut(usize::from(eq.0)) {
            queue.push_back(event);
            self.flags.queued(eq);
        }
    }

    /// Counts an operation as consumed, because the queues hold nothing of it any more.
    #[inline]
    pub(crate) fn consumed(&mut self, source: Rank, cost: Cost) {
        let (own, window) = (self.rank, self.window);
        let Some(link) = self.links.get(source) else {
            return;
        };
        let is_due = link.receive.consume(cost, window);
        if source == own {
            let update = link.receive.update();
            link.receive.update_sent(update);
            link.send.apply(update);
        } else if is_due {
            schedule(&mut self.outgoing, link);
        }
    }

    /// Records that a peer has violated the protocol.
    #[cold]
    pub(crate) fn protocol_error(&mut self, peer: Rank) {
        self.counters.protocol_errors += 1;
        // Only the first offender is kept.
        let _ = self.flags.protocol_error.compare_exchange(
            NOBODY,
            peer,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Gives up the operations whose memory lies outside of regions. Returns the targets of those
    /// operations whose memory the transport may still access.
    pub(crate) fn abandon_operations(&mut self) -> Vec<Rank> {
        self.abandoned = true;
        let Self {
            operations,
            regions,
            ..
        } = self;
        let mut targets = Vec::new();
        for operation in operations.all() {
            if operation.md.is_none() || regions.holds(operation.memory) {
                continue;
            }
            operation.abandoned = true;
            if operation.unsent || matches!(operation.kind, OperationKind::Direct(..)) {
                targets.push(operation.target);
            }
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Gives up a peer, with everything in flight to and from it.
    #[cold]
    pub(crate) fn peer_failed(&mut self, peer: Rank, failure: Failure) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        if link.failure.replace(failure).is_some() {
            return;
        }
        let left = link.left;
        let control = std::mem::take(&mut link.control);
        self.lanes_lost(peer);
        self.forget_direct(peer);
        self.native.forget(peer);
        self.drop_control(control);
        let ended: Vec<_> = self
            .long_replies
            .iter()
            .filter(|(_, reply)| reply.to == peer)
            .map(|(at, _)| at)
            .collect();
        for at in ended {
            let reply = self.long_replies.remove(at);
            self.end_long_reply(reply, false);
        }
        self.drop_arrivals_of(peer);
        let mut awaited = false;
        for operation in self.operations.remove_all_to(peer) {
            if operation.completion.is_some() {
                self.finish_operation(operation);
            } else {
                awaited |= operation.is_awaited();
                self.release_operation(operation);
            }
        }
        // A peer that has left has not failed, unless it left alone and owed a response, because
        // this rank would await that response forever.
        let has_failed = match left {
            None => true,
            Some(Left::Unfinished) => awaited,
            Some(Left::Finished) => false,
        };
        if has_failed && !self.leaving {
            let _ = self.flags.failed.compare_exchange(
                NOBODY,
                peer,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }
}

/// Adds a link to those to be flushed.
#[inline]
pub(crate) fn schedule(outgoing: &mut Vec<Rank>, link: &mut TransportLink) {
    if !link.scheduled {
        link.scheduled = true;
        outgoing.push(link.peer);
    }
}

pub(crate) fn exhausted(operation: &'static str, what: &'static str, limit: u64) -> NiError {
    NiError::Exhausted {
        operation,
        what,
        limit,
        setting: "none: a constant of this network",
    }
}
