//! The request side of the poll: requests are taken only while what their replies may need is in hand.

use super::Handler;
use super::hand::Hand;
use super::inbox::{AmSide, Inbox};
use super::known::Recent;
use super::message::Arrived;
use super::table::{index, tag};
use super::{Engine, Error};
use crate::ni::{Event, Ni, PutEvent, Puts, Rank, Sink};
use crate::threads::{Lock, Mode};

/// Where the events of the request queue go. A type of its own, and not a closure, so that the common case is inlined
/// into the network's loop.
struct Requests<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    recent: &'a mut Recent<Handler<N, M>>,
    inbox: &'a mut Inbox,
    hand: &'a Hand,
}

impl<N: Ni, M: Mode> Sink for Requests<'_, N, M> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        self.engine.on_am(event, self.recent, self.inbox, self.hand);
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.engine.replies.can_reply(self.hand)
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        if put.tag == tag::REQ_RB
            && let Some(known) = self.recent.known(put.match_bits)
            && self
                .engine
                .run_known_single(known, &put, self.inbox, self.hand)
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
                && let Some(known) = self.recent.known(common.match_bits)
                && self.engine.run_known(known, puts, self.inbox, self.hand)
            {
                return;
            }
            let Some(put) = puts.next() else { return };
            self.put(put);
        }
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// At most so many requests, each only with a hand ready for its reply.
    #[inline]
    pub(super) fn poll_am(&self, most: u32) -> u32 {
        let Some(mut side) = self.am.try_lock() else {
            return 0;
        };
        let AmSide {
            hand,
            inbox,
            recent,
        } = &mut *side;
        let mut events = 0;
        while events < most && self.replies.fill(&self.job, &self.tickets, hand) {
            events += self.job.ni.poll_into(
                self.am_eq,
                most - events,
                &mut Requests {
                    engine: self,
                    recent: &mut *recent,
                    inbox: &mut *inbox,
                    hand,
                },
            );
            if self.replies.can_reply(hand) {
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
        recent: &mut Recent<Handler<N, M>>,
        inbox: &mut Inbox,
        hand: &Hand,
    ) {
        match event {
            Event::Put(put) if put.tag == tag::REQ_RB => {
                let message = Arrived {
                    source: put.source,
                    match_bits: put.match_bits,
                    hdr_data: put.hdr_data,
                    data: put.data,
                };
                self.on_unknown_request(message, recent, inbox, hand);
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
        hand: &Hand,
    ) {
        match tag {
            tag::RARAM => self.on_long_data(source, match_bits, hdr_data, inbox, hand),
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
