//! The poll: all of SYS, some of SAFE, and AM only while what a reply needs is in hand.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use am::lid::LidCache;

use super::deliver::{Arrived, PendingLong};
use super::flow::Returned;
use super::hand::{Hand, MOST_IN_HAND};
use super::operations::OpId;
use super::plain::{Counted, Recent};
use super::token::{Role, Token};
use super::{Engine, Error, Result, index, tag};
use crate::ni::{Event, Ni, Outcome, PutEvent, Rank, Sink, Unlink};
use crate::threads::{Lock, Mode};

/// The request side of the poll; one thread at a time has it.
#[derive(Debug)]
pub(crate) struct AmSide<N: Ni, M: Mode> {
    hand: Hand,
    pub(crate) inbox: Inbox,
    recent: Recent<N, M>,
}

/// What arriving requests change.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Longs of which one half is still under way.
    pub(crate) longs: LidCache<PendingLong>,
    /// What this rank has given back to each peer by counter, and which peers have yet to be told.
    returned: Box<[Returned]>,
    /// Requests since the last look that need no reply message.
    pub(super) counted: Counted,
    untold: Vec<Rank>,
    /// Drained request buffers to link again.
    drained: u32,
    buffer_bytes: usize,
}

impl<N: Ni, M: Mode> AmSide<N, M> {
    /// `longs`: most longs of which one half may be under way; `buffer_bytes`: the size of a request buffer.
    pub(crate) fn new(size: u32, longs: usize, buffer_bytes: usize, am_limit: u32) -> Self {
        let inbox = Inbox {
            longs: LidCache::new(longs),
            returned: vec![Returned::default(); size as usize].into(),
            counted: Counted::default(),
            untold: Vec::with_capacity(am_limit as usize + 1),
            drained: 0,
            buffer_bytes,
        };
        Self {
            hand: Hand::new(),
            inbox,
            recent: Recent::new(),
        }
    }

    /// Tickets and chunks that are ready for the next replies, and longs of which one half is there.
    pub(crate) fn held(&self) -> (u32, u32, u32) {
        (
            self.hand.tickets.get(),
            self.hand.count.get(),
            self.inbox.longs.len() as u32,
        )
    }
}

impl Inbox {
    /// Coalesces implied replies. Told at the end of the poll.
    pub(super) fn give_back(&mut self, peer: Rank, requests: u32, credits: u32) {
        let counter = &mut self.returned[peer as usize];
        *counter = counter.add(requests, credits);
        if self.untold.last() != Some(&peer) && !self.untold.contains(&peer) {
            self.untold.push(peer);
        }
    }
}

/// Where the events of the request queue go. A type of its own, and not a closure, so that the common case is inlined
/// into the network's loop.
struct Requests<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    recent: &'a mut Recent<N, M>,
    inbox: &'a mut Inbox,
    hand: &'a Hand,
}

impl<N: Ni, M: Mode> Sink for Requests<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        self.engine.on_am(event, self.recent, self.inbox, self.hand);
    }
}

/// Where the events of the queue of replies and completions go.
struct Replies<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
}

impl<N: Ni, M: Mode> Sink for Replies<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        self.engine.on_safe(&event);
    }
}

/// `0` means no limit.
fn limit(setting: u32) -> u32 {
    if setting == 0 { u32::MAX } else { setting }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Serves the network once: system messages, completions and replies, requests. Runs handlers.
    ///
    /// Not in a handler.
    #[inline]
    pub fn poll(&self) -> Result<()> {
        self.check_context("poll", am::Operation::Poll)?;
        if self.poll_once() == 0 {
            self.polled_idly();
        }
        self.check_fault()
    }

    /// As [`Engine::poll`]; has anything been found?
    #[inline]
    pub fn poll_some(&self) -> Result<bool> {
        self.check_context("poll", am::Operation::Poll)?;
        let found = self.poll_once() > 0;
        self.check_fault()?;
        Ok(found)
    }

    /// One poll; the number of events. Most polls find nothing, so that is found out first.
    #[inline]
    pub(super) fn poll_once(&self) -> u32 {
        let mut events = 0;
        if !self.ni.is_idle() || self.reply_waiting.load(Relaxed) {
            events += self.poll_queues();
        }
        if self.barriers.any_running() {
            events += u32::from(self.advance_barrier());
        }
        if self.collectives.has_outgoing() {
            events += self.advance_collectives();
        }
        if self.system_waits() {
            self.flush_system();
        }
        events
    }

    #[inline(never)]
    fn poll_queues(&self) -> u32 {
        let _polling = M::PARALLEL.then(|| self.polling.enter());
        // After `enter`, see `Polling`.
        if self.failed.load(SeqCst) {
            return self.poll_after_fault();
        }
        self.ni.progress();
        let mut events = self.poll_sys();
        events += self.poll_safe();
        events += self.poll_am();
        if self.credit_statistics.is_some() {
            self.write_credit_statistics(super::credit_statistics::When::Epoch);
        }
        events
    }

    #[inline]
    fn poll_sys(&self) -> u32 {
        self.ni
            .poll(self.sys_eq, limit(self.settings.sys_limit), |event| {
                self.on_system_event(&event)
            })
    }

    /// After a fault only system messages are served. A call that fails gives its caller's buffers back although
    /// operations on them may be under way, so no completion may touch them any more.
    #[cold]
    fn poll_after_fault(&self) -> u32 {
        self.ni
            .poll(self.sys_eq, u32::MAX, |event| self.on_system_event(&event))
    }

    /// Completions and replies, up to the limit.
    #[inline]
    fn poll_safe(&self) -> u32 {
        let most = limit(self.settings.safe_limit);
        self.ni
            .poll_into(self.safe_eq, most, &mut Replies { engine: self })
    }

    /// Requests, up to the limit, each only with a hand ready for its reply.
    #[inline]
    fn poll_am(&self) -> u32 {
        let Some(mut side) = self.am.try_lock() else {
            return 0;
        };
        let AmSide {
            hand,
            inbox,
            recent,
        } = &mut *side;
        let most = limit(self.settings.am_limit);
        let mut events = 0;
        while events < most {
            let ready = self.fill_hand(hand).min(most - events);
            if ready == 0 {
                break;
            }
            let got = self.ni.poll_into(
                self.am_eq,
                ready,
                &mut Requests {
                    engine: self,
                    recent: &mut *recent,
                    inbox: &mut *inbox,
                    hand,
                },
            );
            events += got;
            while inbox.drained > 0 {
                inbox.drained -= 1;
                self.relink(index::AM, self.request_buffer(inbox.buffer_bytes));
            }
            if got < ready {
                break;
            }
        }
        self.grant_counted(inbox, hand);
        if !inbox.untold.is_empty() {
            self.tell_returns(inbox);
        }
        events
    }

    /// Writes the counters of coalesced returns where their peers will look.
    #[inline]
    fn tell_returns(&self, inbox: &mut Inbox) {
        while let Some(peer) = inbox.untold.pop() {
            if let Some(word) = self.control.returned_to(peer) {
                // SYNC: Release, so that a peer that sees its credits back may rely on its request being handled.
                word.store(inbox.returned[peer as usize].bits(), Release);
                self.ni.notify(peer);
            }
        }
    }

    /// Fills the hand as far as there are chunks and tickets; how many replies it can now send without waiting.
    #[inline]
    fn fill_hand(&self, hand: &Hand) -> u32 {
        if hand.count.get() >= MOST_IN_HAND
            && hand.tickets.get() >= MOST_IN_HAND
            && !self.reply_waiting.load(Relaxed)
        {
            return MOST_IN_HAND;
        }
        self.refill_hand(hand)
    }

    #[cold]
    fn refill_hand(&self, hand: &Hand) -> u32 {
        if self.reply_waiting.load(Relaxed) && !self.send_all_deferred(hand) {
            return 0;
        }
        if hand.count.get() < MOST_IN_HAND {
            let mut pool = self.rpl_sb.lock();
            while hand.count.get() < MOST_IN_HAND
                && let Some(chunk) = pool.take()
            {
                hand.add_chunk(chunk);
            }
        }
        while hand.tickets.get() < MOST_IN_HAND && self.tickets.take(1) {
            hand.give_ticket();
        }
        hand.count.get().min(hand.tickets.get())
    }

    /// Sends the replies that are still in hand; false if the network doesn't take them yet.
    fn send_all_deferred(&self, hand: &Hand) -> bool {
        loop {
            let Some(reply) = hand.deferred.borrow_mut().pop() else {
                self.reply_waiting.store(false, Relaxed);
                return true;
            };
            if !self.send_deferred(reply, hand) {
                return false;
            }
        }
    }

    fn relink(&self, index: crate::ni::PtIndex, entry: crate::ni::MatchEntry) {
        if let Err(error) = self.ni.me_append(index, entry) {
            self.fail(error.into());
        }
    }

    /// Small, so that it is inlined into the network's poll with the common case. An event that is not handed on by
    /// reference from there never has to be in memory.
    #[inline(always)]
    fn on_am(&self, event: Event<'_>, recent: &mut Recent<N, M>, inbox: &mut Inbox, hand: &Hand) {
        match event {
            Event::Put(put) if put.tag == tag::REQ_RB => {
                let message = Arrived {
                    source: put.source,
                    match_bits: put.match_bits,
                    hdr_data: put.hdr_data,
                    data: put.data,
                };
                self.on_request(message, recent, inbox, hand);
            }
            Event::Put(put) => {
                self.on_rare_put(
                    put.tag,
                    put.source,
                    (put.match_bits, put.hdr_data),
                    inbox,
                    hand,
                );
            }
            Event::Free { tag: tag::REQ_RB } => inbox.drained += 1,
            _ => {}
        }
    }

    #[inline(never)]
    fn on_rare_put(
        &self,
        tag: u64,
        source: Rank,
        (match_bits, hdr_data): (u64, u64),
        inbox: &mut Inbox,
        hand: &Hand,
    ) {
        match tag {
            tag::RARAM => self.on_long_data(source, match_bits, hdr_data, inbox, hand),
            tag::CATCH_BASIN => {
                self.fail(Error::CatchBasin {
                    rank: self.rank,
                    peer: source,
                });
            }
            _ => {}
        }
    }

    /// Completions and replies: may be handled at any time, as they never need what isn't there.
    #[inline(always)]
    fn on_safe(&self, event: &Event<'_>) {
        match *event {
            Event::Put(ref put) if put.tag != tag::CATCH_BASIN => self.on_reply(put),
            _ => self.on_completion(*event),
        }
    }

    #[inline(never)]
    fn on_completion(&self, event: Event<'_>) {
        match event {
            Event::Send { token } => self.completed(token, Outcome::Done, 0),
            Event::Ack { token, outcome, .. } => self.completed(token, outcome, 0),
            Event::Reply {
                token,
                outcome,
                value,
                ..
            } => self.completed(token, outcome, value),
            // At once: another thread may be polling already, and the other buffers may be full.
            Event::Free { tag: tag::RPL_RB } => self.relink(index::SAFE, self.reply_buffer()),
            Event::Put(put) => {
                let reason = "a reply found no buffer".to_owned();
                self.fail(self.bad_message(put.source, reason));
            }
            _ => {}
        }
    }

    /// A network operation has ended: frees what it held and tells its operation.
    fn completed(&self, token: u64, outcome: Outcome, value: u64) {
        let Some(token) = Token::from_bits(token) else {
            return self.fail(
                self.bad_message(self.rank, "a completion with an unknown token".to_owned()),
            );
        };
        if outcome != Outcome::Done {
            let outcome = if outcome == Outcome::NoMatch {
                "that nothing matched"
            } else {
                "out of range"
            };
            self.fail(Error::Refused {
                rank: self.rank,
                outcome,
            });
        }
        match token.role {
            Role::Ticket | Role::Direct => {}
            Role::Reply(chunk) => self.free_chunk(&self.rpl_sb, chunk),
            Role::BouncedPut(chunk) => self.free_chunk(&self.req_sb, chunk),
            Role::BouncedGet(chunk) => {
                let bounce = self.req_sb.lock().bounce(chunk);
                // SAFETY: the chunk was held by this get, which has ended, so its first `length` bytes are initialised and
                // nobody writes them; `length` is at most a chunk; the caller of the get keeps the destination valid until
                // the get is synchronised, which happens only after `finish` below.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.req_chunk(chunk),
                        bounce.destination,
                        bounce.length,
                    );
                }
                self.free_chunk(&self.req_sb, chunk);
            }
            Role::Atomic => {
                if let Some(op) = token.op {
                    self.operations.lock().set_value(op, value);
                }
            }
        }
        self.tickets.give(1);
        if let Some(op) = token.op {
            self.finish(op);
        }
    }

    pub(super) fn free_chunk(&self, pool: &M::Lock<super::ChunkPool>, chunk: u32) {
        if !pool.lock().give(chunk) {
            self.fail(self.bad_message(self.rank, format!("chunk {chunk} was freed twice")));
        }
    }

    /// One piece of an operation has ended.
    pub(super) fn finish(&self, op: OpId) {
        let ended = self.operations.lock().finish(op);
        if let Some(md) = ended.and_then(|ended| ended.md) {
            match self.ni.md_release(md) {
                Ok(Unlink::Done) => self.tmpmd.give(1),
                // Nothing of it is under way any more, so this is the network's delay: the next poll asks again.
                Ok(Unlink::InUse) => self.release_later(md),
                Err(error) => self.fail(error.into()),
            }
        }
    }

    pub(super) fn bad_message(&self, source_rank: Rank, reason: String) -> Error {
        Error::BadMessage {
            rank: self.rank,
            source_rank,
            reason,
        }
    }

    /// A put event's bytes as a body: in place, or in the chunk that it came to.
    pub(super) fn body<'a>(&'a self, put: &PutEvent<'a>) -> Option<&'a [u8]> {
        if put.tag == tag::RPL_RB {
            return Some(put.data);
        }
        let (offset, length) = (usize::try_from(put.offset).ok()?, put.length);
        let bytes = self.settings.sb_chunks as usize * self.chunk;
        let in_one_chunk = offset < bytes && length <= self.chunk - offset % self.chunk;
        // SAFETY: inside the ReqSB chunks, as just checked. The network has written these bytes before this event; the
        // chunk belongs to the request that this reply answers and is freed after the handler, so nobody writes it while
        // the slice lives (a peer that does breaks the protocol and the job with it).
        in_one_chunk
            .then(|| unsafe { std::slice::from_raw_parts(self.chunks.base.add(offset), length) })
    }
}
