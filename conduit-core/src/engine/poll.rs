//! The poll: all of SYS, some of SAFE, and AM only while what a reply needs is reserved.

use crate::engine::Engine;
use crate::kernel::error::{Error, Result};
use crate::kernel::portal_table::{index, tag};
use crate::kernel::system::Message;
use crate::kernel::token::{Role, Token};
use crate::messages::flow::When;
use crate::messages::inbox::{AmSide, Inbox, WAITING};
use crate::messages::kind::Kind;
use crate::messages::reserve::ReplyReserve;
use crate::messages::shuffle::Shuffle;
use crate::ni::{Event, Ni, Outcome, PutEvent, Rank, Ready, Sink};
use crate::threads::{Lock, Mode};

/// Where the events of the queue of replies and completions go.
struct ReplyEvents<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    last: &'a mut Kind,
}

impl<N: Ni, M: Mode> Sink for ReplyEvents<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Put(put) => self.put(put),
            _ => self.engine.on_completion(event),
        }
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        match put.tag {
            tag::CATCH_BASIN => self.engine.on_completion(Event::Put(put)),
            _ => self.engine.on_reply(&put, self.last),
        }
    }
}

/// Where the events of the request queue go. A type of its own, and not a closure, so that it is
/// inlined into the network's loop.
struct RequestEvents<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    last: &'a mut Kind,
    inbox: &'a mut Inbox,
    reserve: &'a ReplyReserve,
}

impl<N: Ni, M: Mode> Sink for RequestEvents<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Put(put) => self.put(put),
            Event::Free { tag: tag::REQ_RB } => {
                let buffer = self.engine.request_buffer(self.inbox.buffer_bytes);
                self.engine.relink(index::AM, buffer);
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.engine.replies.can_reply(self.reserve)
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        match put.tag {
            tag::REQ_RB => self
                .engine
                .on_request(&put, self.last, self.inbox, self.reserve),
            tag::RARAM => self.engine.on_long_data(&put, self.inbox, self.reserve),
            tag::CATCH_BASIN => self.engine.job.fail(Error::CatchBasin {
                rank: self.engine.job.rank,
                peer: put.source,
            }),
            _ => {}
        }
    }
}

/// Where the events of the request queue go while requests are held back: what runs handlers is put
/// aside.
struct HeldBack<'a, N: Ni, M: Mode> {
    events: RequestEvents<'a, N, M>,
    shuffle: &'a mut Shuffle,
}

impl<N: Ni, M: Mode> Sink for HeldBack<'_, N, M> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Put(put) if matches!(put.tag, tag::REQ_RB | tag::RARAM) => {
                self.shuffle.add(&put);
            }
            _ => self.events.event(event),
        }
    }

    fn is_ready(&self) -> bool {
        self.shuffle.has_room()
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
    pub(crate) fn poll_once(&self) -> u32 {
        self.poll_for(limit(self.job.settings.am_limit))
    }

    /// The poll of a rank that waits.
    #[inline]
    pub(crate) fn poll_waiting(&self) -> u32 {
        self.poll_for(limit(self.job.settings.am_limit).saturating_mul(WAITING))
    }

    /// One poll, for so many requests. Most polls find nothing, so that is found out first.
    #[inline]
    fn poll_for(&self, requests: u32) -> u32 {
        let mut events = 0;
        let ready = self.job.ni.ready();
        if !ready.is_empty() || self.replies.is_waiting() {
            events += self.poll_queues(ready, requests);
        }
        if self.barriers.any_running() {
            events += u32::from(self.barriers.advance(&self.cells()));
        }
        if self.collectives.has_outgoing() {
            events += self.advance_collectives();
        }
        if self.job.wants_poll() {
            events += self.do_what_waits();
        }
        events
    }

    #[inline(never)]
    fn poll_queues(&self, ready: Ready, requests: u32) -> u32 {
        let _polling = M::PARALLEL.then(|| self.job.polling.enter());
        // After `enter`, see `Polling`.
        if !self.job.stands_for_all() {
            return self.poll_after_fault();
        }
        let mut events = 0;
        if ready.intersects(Ready::PROGRESS) {
            self.job.ni.progress();
        }
        if ready.intersects(self.sys_ready) {
            events += self.poll_sys();
        }
        if ready.intersects(self.safe_ready) {
            events += self.poll_safe();
        }
        if ready.intersects(self.am_ready) || self.replies.is_waiting() {
            events += self.poll_am(requests);
        }
        self.credits.write_statistics(&self.job, When::Epoch);
        events
    }

    #[inline]
    fn poll_sys(&self) -> u32 {
        self.job
            .ni
            .poll(self.sys_eq, limit(self.job.settings.sys_limit), |event| {
                self.on_system_event(&event)
            })
    }

    pub(crate) fn on_system_event(&self, event: &Event<'_>) {
        let Event::Put(put) = event else { return };
        match Message::decode(put.match_bits, put.hdr_data) {
            Some(Message::Exit { code }) => {
                self.send_system(put.source, Message::ExitSeen);
                self.job.exited(put.source, code);
            }
            Some(Message::ExitSeen) => {
                self.system.count_exit_answer();
            }
            Some(Message::BarrierCell { cell, word }) => {
                self.cells().receive(put.source, cell, word)
            }
            Some(Message::Credit(message)) => self.on_credit_message(put.source, message),
            None => {
                self.job.fail_by_message(
                    put.source,
                    format!("unknown system message {:#x}", put.match_bits),
                );
            }
        }
    }

    /// Sends a system message now or with a later poll.
    pub(crate) fn send_system(&self, target: Rank, message: Message) {
        self.system.send(&self.job, target, message);
    }

    /// What no event will tell of: tries again what could not be done before, and handles requests
    /// that were held back.
    #[cold]
    #[inline(never)]
    fn do_what_waits(&self) -> u32 {
        self.retry();
        self.handle_held()
    }

    /// What could not be done before: system messages, descriptors to release, and what flow
    /// control has to ask for.
    pub(crate) fn retry(&self) {
        if self.job.is_child() {
            return;
        }
        self.job.begin_retries();
        self.job.end_when_due();
        self.descriptors.release_delayed(&self.job);
        if self.system.flush(&self.job) {
            // What is not wanted or possible now comes up again with the next request that is short
            // of credits.
            while let Some((peer, message)) = self.credits.next_message(&self.job) {
                self.send_system(peer, Message::Credit(message));
            }
        }
    }

    fn on_credit_message(&self, source: Rank, message: credits::System) {
        match self
            .credits
            .on_message(&self.job, &self.control, source, message)
        {
            Ok(Some(answer)) => self.send_system(source, Message::Credit(answer)),
            Ok(None) => {}
            Err(error) => self.job.fail(error),
        }
    }

    /// After a fault only system messages are served. A call that fails gives its caller's buffers
    /// back although operations on them may be under way, so no completion may touch them any more.
    #[cold]
    fn poll_after_fault(&self) -> u32 {
        if self.job.is_child() {
            return 0;
        }
        self.job
            .ni
            .poll(self.sys_eq, u32::MAX, |event| self.on_system_event(&event))
    }

    /// Completions and replies, up to the limit.
    #[inline]
    fn poll_safe(&self) -> u32 {
        let most = limit(self.job.settings.safe_limit);
        // Another thread that polls the queue has it; one that is not polled can't be polled here
        // either.
        let Some(mut last) = self.safe.try_lock() else {
            return 0;
        };
        self.job.ni.poll_into(
            self.safe_eq,
            most,
            &mut ReplyEvents {
                engine: self,
                last: &mut last,
            },
        )
    }

    /// At most so many requests, each only with a reserve ready for its reply.
    #[inline]
    fn poll_am(&self, most: u32) -> u32 {
        let Some(mut side) = self.am.try_lock() else {
            return 0;
        };
        let AmSide {
            last,
            reserve,
            inbox,
            shuffle,
        } = &mut *side;
        if let Some(shuffle) = shuffle {
            let events = RequestEvents {
                engine: self,
                last,
                inbox,
                reserve,
            };
            return self.hold_back(HeldBack { events, shuffle });
        }
        let mut events = 0;
        while events < most && self.replies.fill(&self.job, reserve) {
            events += self.job.ni.poll_into(
                self.am_eq,
                most - events,
                &mut RequestEvents {
                    engine: self,
                    last: &mut *last,
                    inbox: &mut *inbox,
                    reserve,
                },
            );
            if self.replies.can_reply(reserve) {
                // So the network has stopped by itself. Should it have left anything, the next poll
                // gets it.
                break;
            }
        }
        self.end_requests(inbox);
        events
    }

    /// What senders of requests that have been handled get back.
    #[inline(always)]
    fn end_requests(&self, inbox: &mut Inbox) {
        inbox.grant_counted(&self.job, &self.credits);
        if !inbox.untold.is_empty() {
            inbox.tell(&self.job, &self.control);
        }
    }

    /// With `CONDUIT_SHUFFLE`: takes what the network has and there is room for. The rest of this
    /// poll, and later ones, handle it.
    #[cold]
    #[inline(never)]
    fn hold_back(&self, mut sink: HeldBack<'_, N, M>) -> u32 {
        // A reply that the network would not take goes now if it can.
        self.replies.fill(&self.job, sink.events.reserve);
        let events = self.job.ni.poll_into(self.am_eq, u32::MAX, &mut sink);
        if !sink.shuffle.is_empty() {
            self.job.want_poll();
        }
        events
    }

    /// Handles requests that have been held back for long enough. While some are held there is more
    /// to do: who waits does not sleep then.
    fn handle_held(&self) -> u32 {
        if self.job.settings.shuffle.is_none() || self.job.is_child() {
            return 0;
        }
        let _polling = M::PARALLEL.then(|| self.job.polling.enter());
        // After `enter`, see `Polling`.
        if !self.job.stands_for_all() {
            return 0;
        }
        let Some(mut side) = self.am.try_lock() else {
            self.job.want_poll();
            return 0;
        };
        let AmSide {
            last,
            reserve,
            inbox,
            shuffle: Some(shuffle),
        } = &mut *side
        else {
            return 0;
        };
        if shuffle.is_empty() {
            return 0;
        }
        shuffle.count_poll();
        let most = limit(self.job.settings.am_limit);
        let mut events = 0;
        let mut can_reply = true;
        while events < most {
            can_reply = self.replies.fill(&self.job, reserve);
            if !can_reply {
                break;
            }
            let Some(held) = shuffle.take() else { break };
            let mut sink = RequestEvents {
                engine: self,
                last: &mut *last,
                inbox: &mut *inbox,
                reserve,
            };
            sink.put(held.put());
            events += 1;
        }
        self.end_requests(inbox);
        if !shuffle.is_empty() {
            self.job.want_poll();
        }
        match can_reply {
            // Not asleep while some are held, but not as if something had come either if nothing
            // can be handled.
            true => events.max(1),
            false => events,
        }
    }

    pub(crate) fn relink(&self, index: crate::ni::PtIndex, entry: crate::ni::MatchEntry) {
        if let Err(error) = self.job.ni.me_append(index, entry) {
            self.job.fail(error.into());
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
                self.job.fail_by_message(put.source, reason);
            }
            _ => {}
        }
    }

    /// A network operation has ended: frees what it held and tells its operation.
    fn completed(&self, token: u64, outcome: Outcome, value: u64) {
        let Some(token) = Token::from_bits(token) else {
            return self.job.fail_by_message(
                self.job.rank,
                "a completion with an unknown token".to_owned(),
            );
        };
        if outcome != Outcome::Done {
            let outcome = if outcome == Outcome::NoMatch {
                "that nothing matched"
            } else {
                "out of range"
            };
            let refused = Error::Refused {
                rank: self.job.rank,
                outcome,
            };
            let no_memory = token.op.and_then(|op| self.memory.no_memory_asked(op));
            // It has not ended as its caller awaits: who waits for it gets the error.
            return self.job.fail(no_memory.unwrap_or(refused));
        }
        match token.role {
            Role::Ticket | Role::Direct => {}
            Role::Reply(chunk) => self.replies.buffer.give(&self.job, chunk),
            Role::BouncedPut(chunk) => self.req_sb.give(&self.job, chunk),
            Role::BouncedGet(chunk) => {
                let bounce = self.req_sb.bounce(chunk);
                // SAFETY: the chunk was held by this get, which has ended, so its first `length`
                // bytes are initialised and nobody writes them; `length` is at most a chunk; the
                // caller of the get keeps the destination valid until the get is synchronised,
                // which happens only after `finish` below.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.req_sb.at(chunk),
                        bounce.destination,
                        bounce.length,
                    );
                }
                self.req_sb.give(&self.job, chunk);
            }
            Role::Atomic => {
                if let Some(op) = token.op {
                    self.operations.set_value(op, value);
                }
            }
        }
        self.job.tickets.give(1);
        if let Some(op) = token.op {
            self.operations.finish(&self.job, &self.descriptors, op);
        }
    }

    /// A put event's bytes as a body: in place, or in the chunk that it came to.
    pub(crate) fn body<'a>(&'a self, put: &PutEvent<'a>) -> Option<&'a [u8]> {
        if put.tag == tag::RPL_RB {
            return Some(put.data);
        }
        let first = self.req_sb.in_chunk(put.offset, put.length)?;
        // SAFETY: inside the ReqSB chunks, as just checked. The network has written these bytes
        // before this event; the chunk belongs to the request that this reply answers and is freed
        // after the handler, so nobody writes it while the slice lives (a peer that does breaks the
        // protocol and the job with it).
        Some(unsafe { std::slice::from_raw_parts(first, put.length) })
    }
}
