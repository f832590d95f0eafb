//! The request side of the poll: requests are taken only while what their replies may need is reserved.

use super::Handler;
use super::header_cache::HeaderCache;
use super::inbox::{AmSide, Inbox};
use super::message::Arrived;
use super::reserve::ReplyReserve;
use super::table::{index, tag};
use super::{Engine, Error};
use crate::ni::{Event, Ni, PutEvent, Puts, Rank, Sink};
use crate::threads::{Lock, Mode};

/// Where the events of the request queue go. A type of its own, and not a closure, so that the common case is inlined
/// into the network's loop.
struct Requests<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    headers: &'a mut HeaderCache<Handler<N, M>>,
    inbox: &'a mut Inbox,
    reserve: &'a ReplyReserve,
}

impl<N: Ni, M: Mode> Sink for Requests<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        self.engine
            .on_am(event, self.headers, self.inbox, self.reserve);
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.engine.replies.can_reply(self.reserve)
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        if put.tag == tag::REQ_RB
            && let Some(known) = self.headers.known(put.match_bits)
            && self
                .engine
                .run_known_single(known, &put, self.inbox, self.reserve)
        {
            return;
        }
        self.event(Event::Put(put));
    }

    #[inline(always)]
    fn puts<P: Puts>(&mut self, puts: &mut P) {
        let common = puts.common();
        while self.is_ready() {
            if common.tag == tag::REQ_RB
                && let Some(known) = self.headers.known(common.match_bits)
                && self.engine.run_known(known, puts, self.inbox, self.reserve)
            {
                return;
            }
            let Some(put) = puts.next() else { return };
            self.put(put);
        }
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// At most so many requests, each only with a reserve ready for its reply.
    #[inline]
    pub(super) fn poll_am(&self, most: u32) -> u32 {
        let Some(mut side) = self.am.try_lock() else {
            return 0;
        };
        let AmSide {
            reserve,
            inbox,
            headers,
        } = &mut *side;
        let mut events = 0;
        while events < most && self.replies.fill(&self.job, &self.tickets, reserve) {
            events += self.job.ni.poll_into(
                self.am_eq,
                most - events,
                &mut Requests {
                    engine: self,
                    headers: &mut *headers,
                    inbox: &mut *inbox,
                    reserve,
                },
            );
            if self.replies.can_reply(reserve) {
                // So the network has stopped by itself. Should it have left anything, the next poll gets it.
                break;
            }
        }
        inbox.grant_counted(&self.job, &self.credits);
        if !inbox.untold.is_empty() {
            inbox.tell(&self.job, &self.control);
        }
        events
    }

    /// Small, so that it is inlined into the network's poll with the common case. An event that is not handed on by
    /// reference from there never has to be in memory.
    #[inline(always)]
    fn on_am(
        &self,
        event: Event<'_>,
        headers: &mut HeaderCache<Handler<N, M>>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        match event {
            Event::Put(put) if put.tag == tag::REQ_RB => {
                let message = Arrived {
                    source: put.source,
                    match_bits: put.match_bits,
                    hdr_data: put.hdr_data,
                    data: put.data,
                };
                self.on_unknown_request(message, headers, inbox, reserve);
            }
            Event::Put(put) => {
                self.on_rare_put(
                    put.tag,
                    put.source,
                    (put.match_bits, put.hdr_data),
                    inbox,
                    reserve,
                );
            }
            Event::Free { tag: tag::REQ_RB } => {
                self.relink(index::AM, self.request_buffer(inbox.buffer_bytes));
            }
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
        reserve: &ReplyReserve,
    ) {
        match tag {
            tag::RARAM => self.on_long_data(source, match_bits, hdr_data, inbox, reserve),
            tag::CATCH_BASIN => {
                self.job.fail(Error::CatchBasin {
                    rank: self.job.rank,
                    peer: source,
                });
            }
            _ => {}
        }
    }
}
