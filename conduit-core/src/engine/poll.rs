//! The poll: all of SYS, some of SAFE, and AM only while what a reply needs is in hand.

use std::sync::atomic::Ordering::Relaxed;

use super::operations::OpId;
use super::plain::Recent;
use super::token::{Role, Token};
use super::{Engine, Error, Result, index, tag};
use crate::ni::{Event, Ni, Outcome, PutEvent, Rank, Ready, Sink, Unlink};
use crate::threads::{Lock, Mode};

/// A rank that waits takes as many times what a poll takes from the queue of requests before it looks at the others and at
/// what it waits for.
pub(super) const WAITING: u32 = 4;

/// Where the events of the queue of replies and completions go.
struct Replies<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    recent: &'a mut Recent<N, M>,
}

impl<N: Ni, M: Mode> Sink for Replies<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Put(put) => self.put(put),
            _ => self.engine.on_completion(event),
        }
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        if put.tag == tag::RPL_RB
            && let Some(known) = self.recent.known(put.match_bits)
            && self.engine.run_known_reply(known, &put)
        {
            return;
        }
        self.other_put(put);
    }
}

impl<N: Ni, M: Mode> Replies<'_, N, M> {
    /// A reply that is not known, or what is no reply. By itself, so that no other has to be in memory.
    #[inline(never)]
    fn other_put(&mut self, put: PutEvent<'_>) {
        match put.tag {
            tag::CATCH_BASIN => self.engine.on_completion(Event::Put(put)),
            _ => self.engine.on_unknown_reply(&put, self.recent),
        }
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
        self.check_outside("poll", am::Operation::Poll)?;
        if self.poll_once() == 0 {
            self.polled_idly();
        }
        self.check_fault()
    }

    /// As [`Engine::poll`]; has anything been found?
    #[inline]
    pub fn poll_some(&self) -> Result<bool> {
        self.check_outside("poll", am::Operation::Poll)?;
        let found = self.poll_once() > 0;
        self.check_fault()?;
        Ok(found)
    }

    /// One poll; the number of events.
    #[inline]
    pub(super) fn poll_once(&self) -> u32 {
        self.poll_for(limit(self.settings.am_limit))
    }

    /// The poll of a rank that waits.
    #[inline]
    pub(super) fn poll_waiting(&self) -> u32 {
        self.ni.hold_off();
        self.poll_for(limit(self.settings.am_limit).saturating_mul(WAITING))
    }

    /// One poll, for so many requests. Most polls find nothing, so that is found out first.
    #[inline]
    fn poll_for(&self, requests: u32) -> u32 {
        let mut events = 0;
        let ready = self.ni.ready();
        if !ready.is_empty() || self.reply_waiting.load(Relaxed) {
            events += self.poll_queues(ready, requests);
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
    fn poll_queues(&self, ready: Ready, requests: u32) -> u32 {
        let _polling = M::PARALLEL.then(|| self.polling.enter());
        // After `enter`, see `Polling`.
        if !self.standing.stands_for_all() {
            return self.poll_after_fault();
        }
        let mut events = 0;
        if ready.intersects(Ready::PROGRESS) {
            self.ni.progress();
        }
        if ready.intersects(self.sys_ready) {
            events += self.poll_sys();
        }
        if ready.intersects(self.safe_ready) {
            events += self.poll_safe();
        }
        if ready.intersects(self.am_ready) || self.reply_waiting.load(Relaxed) {
            events += self.poll_am(requests);
        }
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
        if self.is_child() {
            return 0;
        }
        self.ni
            .poll(self.sys_eq, u32::MAX, |event| self.on_system_event(&event))
    }

    /// Completions and replies, up to the limit.
    #[inline]
    fn poll_safe(&self) -> u32 {
        let most = limit(self.settings.safe_limit);
        // Another thread that polls the queue has it; one that is not polled can't be polled here either.
        let Some(mut recent) = self.recent_replies.try_lock() else {
            return 0;
        };
        let mut replies = Replies {
            engine: self,
            recent: &mut recent,
        };
        self.ni.poll_into(self.safe_eq, most, &mut replies)
    }

    pub(super) fn relink(&self, index: crate::ni::PtIndex, entry: crate::ni::MatchEntry) {
        if let Err(error) = self.ni.me_append(index, entry) {
            self.fail(error.into());
        }
    }

    /// May be handled at any time, as they never need what isn't there.
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
            let refused = Error::Refused {
                rank: self.rank,
                outcome,
            };
            let no_memory = token.op.and_then(|op| self.no_memory_asked(op));
            // It has not ended as its caller awaits: who waits for it gets the error.
            return self.fail(no_memory.unwrap_or(refused));
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
