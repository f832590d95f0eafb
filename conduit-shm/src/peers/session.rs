//! The session of two processes after their handshake. It consists of the rings in both directions,
//! and records which side waits for records or for room.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use conduit_core::ni::Rank;
use conduit_core::process_memory::Pid;

use crate::ready_set;
use crate::ring::{Consumer, Discipline, Next, Producer, RingView, SLOT, Slots};
use conduit_portals::sync::Ordering;
use conduit_portals::transport::fragment::{FragmentHandler, MAX_HEADER, MAX_TINY, Refused};

use super::memory::{CHANNELS, COMMANDS, DATA, FrontPage, Pair};
use super::packet::Packet;
use super::record::{self, BEGIN, CHUNK, Record, WHOLE};
use super::socket;

/// The maximum number of records taken from a ring before other rings get their turn.
const BATCH: u32 = 64;
/// The maximum number of fragments that may wait to be read.
const MAX_QUEUE: usize = 64;

/// A fragment whose bytes are read when the ring has room.
#[derive(Debug)]
struct Outgoing {
    header: [u8; MAX_HEADER],
    header_length: u8,
    token: u64,
    length: u32,
    /// The number of payload bytes written so far, or `None` if not even the header has been
    /// written.
    gone: Option<u32>,
}

/// A long fragment that is arriving.
#[derive(Debug)]
struct Arriving {
    id: u64,
    length: u32,
    offset: u32,
}

/// The receiving end of one ring.
#[derive(Debug)]
struct Inbound {
    ring: Consumer<RingView>,
    /// The position up to which the peer was notified of room.
    told: u64,
    /// Whether the handler has refused the record at the head.
    is_refused: bool,
    /// Whether the last drain took a record from this ring.
    has_brought: bool,
}

/// Whether and how a peer's memory can be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copying {
    No,
    /// The memory can be copied, by the process with this id.
    Of(Pid),
}

/// A session; see the [module](self).
#[derive(Debug)]
pub(super) struct Session {
    pub(super) socket: OwnedFd,
    /// Distinguishes this session's events from those of an earlier one.
    pub(super) generation: u32,
    /// Whether the Welcome has yet to be sent to the peer.
    pub(super) is_welcome_due: bool,
    pub(super) copying: Copying,
    /// Whether this process polls the rings from this peer.
    pub(super) is_watched: bool,
    /// Whether the peer is listed for another drain.
    pub(super) is_pending: bool,
    /// Whether the peer is in the list of peers with fragments to read.
    pub(super) is_sending: bool,
    /// Whether the peer is in the list of peers that may wait for room.
    pub(super) is_wanting: bool,
    /// Whether the handler's memory must no longer be read for this peer.
    is_abandoned: bool,
    /// The peer's front page.
    front: FrontPage,
    /// The number of this process's bit in the peer's front page.
    number: u32,
    inbound: [Inbound; CHANNELS],
    outbound: [Producer<RingView>; CHANNELS],
    /// For each outbound ring, its head at the time when it was too full, or `None` if it is not
    /// known to be full.
    full: [Option<u64>; CHANNELS],
    queue: VecDeque<Outgoing>,
    arriving: Option<Arriving>,
    /// The memory of the rings in `inbound` and `outbound`.
    pair: Pair,
}

impl Session {
    /// Creates a session over unused rings. `number` is the number of this process's bit in the
    /// peer's front page.
    pub(super) fn new(
        socket: OwnedFd,
        generation: u32,
        pair: Pair,
        (front, number): (FrontPage, u32),
        copying: Copying,
    ) -> Self {
        let extent = pair.extent();
        // SAFETY: the session owns the rings and the pair and drops them together, so no view is
        // used after the pair is dropped.
        let ring = |is_outbound, channel| unsafe { pair.ring(is_outbound, channel) };
        let inbound = [COMMANDS, DATA].map(|channel| Inbound {
            ring: Consumer::new(ring(false, channel), extent),
            told: 0,
            is_refused: false,
            has_brought: false,
        });
        let outbound = [COMMANDS, DATA]
            .map(|channel| Producer::new(ring(true, channel), extent, Discipline::Thread));
        Self {
            socket,
            generation,
            is_welcome_due: false,
            copying,
            is_watched: false,
            is_pending: false,
            is_sending: false,
            is_wanting: false,
            is_abandoned: false,
            front,
            number,
            inbound,
            outbound,
            full: [None; CHANNELS],
            queue: VecDeque::new(),
            arriving: None,
            pair,
        }
    }

    /// Wakes the peer if it sleeps, because there is something for the peer to do.
    #[cold]
    fn wake(&self) {
        // An error is only logged, because a peer whose queue of packets is full has been woken
        // already, and the socket shows if the peer is gone.
        if let Err(error) = socket::send(&self.socket, &Packet::Wake, &[]) {
            tracing::debug!(%error, "cannot wake a peer");
        }
    }

    /// Notifies the peer after a record was published.
    #[inline]
    fn notify(&self) {
        let watched = &self.pair.outbound().watched;
        if self.front.ready_set().notify(watched, self.number) {
            self.wake();
        }
    }

    /// Sends a fragment of copied pieces.
    #[inline]
    pub(super) fn send(&mut self, header: &[u8], pieces: &[&[u8]]) -> Result<(), Refused> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if header.len() > MAX_HEADER || header.len() + bytes > MAX_TINY {
            return Err(Refused::TooLong);
        }
        let is_written = self.try_write(COMMANDS, |ring| {
            record::write(ring, (WHOLE, bytes as u32), header, bytes, |mut into| {
                for piece in pieces {
                    // Cannot panic, because `bytes` is the sum of the pieces' lengths.
                    let (place, rest) = into.split_at_mut(piece.len());
                    place.copy_from_slice(piece);
                    into = rest;
                }
            })
        });
        if !is_written {
            return Err(Refused::Full);
        }
        self.notify();
        Ok(())
    }

    /// Writes into a ring. If there is no room, records that the ring is full.
    #[inline]
    fn try_write(
        &mut self,
        channel: usize,
        mut write: impl FnMut(&Producer<RingView>) -> bool,
    ) -> bool {
        let ring = &self.outbound[channel];
        if write(ring) {
            return true;
        }
        // The head is read before another attempt to write, so that a
        // different head seen later means new room.
        let head = ring.slots().head().load(Ordering::Relaxed);
        if write(ring) {
            return true;
        }
        self.full[channel] = Some(head);
        false
    }

    /// Queues a fragment whose bytes [`Self::stream`] will read.
    pub(super) fn queue(&mut self, header: &[u8], token: u64, length: u32) -> Result<(), Refused> {
        let mut copy = [0; MAX_HEADER];
        match copy.get_mut(..header.len()) {
            Some(into) => into.copy_from_slice(header),
            None => return Err(Refused::TooLong),
        }
        if self.is_abandoned || self.queue.len() >= MAX_QUEUE {
            return Err(Refused::Full);
        }
        self.queue.push_back(Outgoing {
            header: copy,
            header_length: header.len() as u8,
            token,
            length,
            gone: None,
        });
        Ok(())
    }

    /// Reads fragments into the ring while there is room. Returns whether all fragments have been
    /// written.
    pub(super) fn stream(&mut self, peer: Rank, handler: &mut impl FragmentHandler) -> bool {
        // A chunk takes at most half of the slots that a record may have, so that the peer can take
        // one chunk while the next is read.
        let slots = self.outbound[DATA].max_slots() / 2;
        while let Some(mut first) = self.queue.pop_front() {
            let header = &first.header[..usize::from(first.header_length)];
            let is_whole = first.length as usize <= record::room(slots, header.len());
            let (kind, gone) = match first.gone {
                Some(gone) => (CHUNK, gone),
                None if is_whole => (WHOLE, 0),
                None => (BEGIN, 0),
            };
            let left = (first.length - gone) as usize;
            let (length, bytes, header) = match kind {
                BEGIN => (first.length, 0, header),
                WHOLE => (first.length, left, header),
                _ => {
                    let bytes = left.min(record::room(slots, 0));
                    (bytes as u32, bytes, &[][..])
                }
            };
            let is_written = self.try_write(DATA, |ring| {
                record::write(ring, (kind, length), header, bytes, |into| {
                    handler.read(peer, first.token, gone as usize, into);
                })
            });
            if !is_written {
                self.queue.push_front(first);
                return false;
            }
            self.notify();
            let gone = gone + bytes as u32;
            if kind != BEGIN && gone == first.length {
                // The bytes are in the ring, so the handler's memory is not read again.
                handler.sent(peer, first.token);
            } else {
                first.gone = Some(gone);
                self.queue.push_front(first);
            }
        }
        true
    }

    /// Stops reading the handler's memory.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
        self.queue.clear();
    }

    /// Returns the approximate number of bytes that the peer has not taken yet.
    pub(super) fn outstanding(&self) -> usize {
        let queued = self.queue.iter().map(|fragment| {
            // A fragment without bytes also counts.
            1 + (fragment.length - fragment.gone.unwrap_or(0)) as usize
        });
        let slots: u64 = self.outbound.iter().map(Producer::unfreed).sum();
        queued.sum::<usize>() + slots as usize * SLOT
    }

    /// Sets the heads of the outbound rings, as a hostile peer might.
    #[cfg(test)]
    pub(super) fn set_head_for_test(&self, head: u64) {
        for ring in &self.outbound {
            ring.slots().head().store(head, Ordering::Relaxed);
        }
    }

    /// Returns whether fragments wait to be written and the ring for them is not known to be full.
    pub(super) fn could_stream(&self) -> bool {
        !self.queue.is_empty() && self.full[DATA].is_none()
    }

    /// Hands over the records that have arrived. Returns whether any had arrived, or the peer's
    /// protocol error.
    #[inline]
    pub(super) fn drain(
        &mut self,
        peer: Rank,
        handler: &mut impl FragmentHandler,
    ) -> Result<bool, &'static str> {
        let [commands, data] = &self.inbound;
        if commands.ring.is_ready() || data.ring.is_ready() {
            return self.drain_ready(peer, handler);
        }
        // If there is room to publish, this drain only publishes it and hands over no records, so
        // that messages that the handler sends need not wait for the publication.
        if commands.ring.position() != commands.told || data.ring.position() != data.told {
            self.inbound
                .iter_mut()
                .for_each(|inbound| inbound.has_brought = false);
            self.publish_room();
        }
        Ok(false)
    }

    fn drain_ready(
        &mut self,
        peer: Rank,
        handler: &mut impl FragmentHandler,
    ) -> Result<bool, &'static str> {
        let mut any = false;
        let mut publishes = !self.is_watched;
        for channel in [COMMANDS, DATA] {
            let inbound = &mut self.inbound[channel];
            if !inbound.ring.is_ready() {
                continue;
            }
            // Checking for another record takes a cache line away from the sender, and the next
            // message that the handler sends would wait for this transfer. A single record is
            // therefore handed over without that check.
            let looks_on = inbound.has_brought || !self.is_watched;
            inbound.has_brought = true;
            for _ in 0..BATCH {
                let (slot, frame) = match inbound.ring.next() {
                    Next::Empty => break,
                    Next::Broken => return Err("a ring contains an invalid record"),
                    Next::Message { slot, frame } => (slot, frame),
                };
                let record = record::read(&inbound.ring, slot, frame)
                    .ok_or("a record has invalid lengths")?;
                let is_taken = take(channel, &record, &mut self.arriving, peer, handler)?;
                inbound.is_refused = !is_taken;
                if !is_taken {
                    break;
                }
                inbound.ring.release(frame);
                any = true;
                if !looks_on || !inbound.ring.is_ready() {
                    break;
                }
            }
            let freed = inbound.ring.position().wrapping_sub(inbound.told);
            publishes |= freed >= 1 << (self.pair.shift() - 2);
        }
        // If nothing was taken, the handler has no room for the record at the head, and the slots
        // freed so far are published.
        if publishes || !any {
            self.publish_room();
        }
        Ok(any)
    }

    /// Frees the slots of the records that were handed over, and notifies the peer if the peer
    /// waits for room.
    pub(super) fn publish_room(&mut self) {
        let mut any = false;
        for inbound in &mut self.inbound {
            let position = inbound.ring.position();
            if position != inbound.told {
                inbound.ring.publish();
                inbound.told = position;
                any = true;
            }
        }
        if any
            && ready_set::has_waiter(&self.pair.inbound().waiting)
            && self.front.ready_set().set(self.number)
        {
            self.wake();
        }
    }

    /// Drains the rings of a peer that is gone, until no records are left or the handler has no
    /// room.
    pub(super) fn drain_last(&mut self, peer: Rank, handler: &mut impl FragmentHandler) {
        // The number of drains is bounded by the rings' slots, in case the peer is not gone.
        for _ in 0..=(1 << self.pair.shift()) / BATCH {
            if self.drain(peer, handler) != Ok(true) {
                break;
            }
        }
    }

    /// Returns whether records wait, including those that the handler has refused.
    pub(super) fn has_records(&self) -> bool {
        self.inbound.iter().any(|inbound| inbound.ring.is_ready())
    }

    /// Returns whether records wait whose announcement has not reached this process.
    pub(super) fn is_overlooked(&self) -> bool {
        !self.is_watched && !self.is_pending && self.has_new_records()
    }

    /// Returns whether records wait that the handler has not refused.
    pub(super) fn has_new_records(&self) -> bool {
        (self.inbound.iter()).any(|inbound| inbound.ring.is_ready() && !inbound.is_refused)
    }

    /// Starts polling the rings from this peer.
    pub(super) fn watch(&mut self) {
        ready_set::watch(&self.pair.inbound().watched);
        self.is_watched = true;
        // Several records may have arrived before the ring was watched, so the next drain takes
        // all.
        self.inbound
            .iter_mut()
            .for_each(|inbound| inbound.has_brought = true);
    }

    /// Stops polling the rings. The caller must check them once more.
    pub(super) fn unwatch(&mut self) {
        ready_set::unwatch(&self.pair.inbound().watched);
        self.is_watched = false;
    }

    /// Returns whether a ring was too full.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full != [None; CHANNELS]
    }

    /// Asks the peer to notify this process of room. Must be called before this process sleeps.
    pub(super) fn ask_for_room(&self) {
        ready_set::ask_for_room(&self.pair.outbound().waiting);
    }

    /// Returns whether a ring that was too full has room again.
    pub(super) fn has_room_again(&self) -> bool {
        let mut rings = self.outbound.iter().zip(self.full);
        // SYNC: the ordering is Acquire, as it is when the producer reads the head.
        rings.any(|(ring, full)| {
            full.is_some_and(|head| ring.slots().head().load(Ordering::Acquire) != head)
        })
    }

    /// Records that no ring is known to be full. Returns whether any was.
    pub(super) fn forget_full(&mut self) -> bool {
        std::mem::take(&mut self.full) != [None; CHANNELS]
    }
}

/// Hands over a record. Returns `Ok(false)` if the handler has no room.
#[inline]
fn take(
    channel: usize,
    record: &Record<'_>,
    arriving: &mut Option<Arriving>,
    peer: Rank,
    handler: &mut impl FragmentHandler,
) -> Result<bool, &'static str> {
    let &Record {
        kind,
        length,
        header,
        payload,
    } = record;
    match (kind, &mut *arriving) {
        (WHOLE, _) if channel == COMMANDS => match header.len() + payload.len() <= MAX_TINY {
            true => Ok(handler.fragment(peer, header, payload)),
            false => Err("a copied fragment is too long"),
        },
        (WHOLE, None) => Ok(handler.fragment(peer, header, payload)),
        (BEGIN, None) if channel == DATA && length > 0 => {
            let id = handler.begin(peer, header, length as usize);
            *arriving = id.map(|id| Arriving {
                id,
                length,
                offset: 0,
            });
            Ok(id.is_some())
        }
        (CHUNK, Some(fragment))
            if channel == DATA && length <= fragment.length - fragment.offset =>
        {
            handler.place(fragment.id, fragment.offset as usize, payload);
            fragment.offset += length;
            if fragment.offset == fragment.length {
                handler.end(fragment.id);
                *arriving = None;
            }
            Ok(true)
        }
        _ => Err("a record does not follow from those before it"),
    }
}
