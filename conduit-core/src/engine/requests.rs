//! The request side of the poll: requests are taken only while what their replies may need is reserved.

use super::inbox::{AmSide, Inbox};
use super::kind::Kind;
use super::reserve::ReplyReserve;
use super::table::{index, tag};
use super::{Engine, Error};
use crate::ni::{Event, Ni, PutEvent, Sink};
use crate::threads::{Lock, Mode};

/// Where the events of the request queue go. A type of its own, and not a closure, so that it is inlined into the network's loop.
struct Requests<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    last: &'a mut Kind,
    inbox: &'a mut Inbox,
    reserve: &'a ReplyReserve,
}

impl<N: Ni, M: Mode> Sink for Requests<'_, N, M> {
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

impl<N: Ni, M: Mode> Engine<N, M> {
    /// At most so many requests, each only with a reserve ready for its reply.
    #[inline]
    pub(super) fn poll_am(&self, most: u32) -> u32 {
        let Some(mut side) = self.am.try_lock() else {
            return 0;
        };
        let AmSide {
            last,
            reserve,
            inbox,
        } = &mut *side;
        let mut events = 0;
        while events < most && self.replies.fill(&self.job, &self.tickets, reserve) {
            events += self.job.ni.poll_into(
                self.am_eq,
                most - events,
                &mut Requests {
                    engine: self,
                    last: &mut *last,
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
}
