//! The queues in which messages arrive. A poll takes a limited number of requests, and takes each
//! request only with a reserve for its reply. Replies need no reserve.

use super::deliver::{Delivery, Receiver};
use super::inbox::{AmSide, Inbox};
use super::kind::MessageKind;
use super::reserve::ReplyReserve;
use super::shuffle::Shuffle;
use super::start::request_buffer;
use crate::kernel::error::Error;
use crate::kernel::portal_table::{index, tag};
use crate::ni::{Event, Ni, PutEvent, Sink};
use crate::threads::{Lock, Mode};

/// The sink for the queue of replies and completions.
struct ReplyEvents<'a, R, C> {
    delivery: Delivery<'a, R>,
    on_completion: C,
    last: &'a mut MessageKind,
}

impl<R: Receiver, C: FnMut(Event<'_>)> Sink for ReplyEvents<'_, R, C> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Put(put) => self.put(put),
            _ => (self.on_completion)(event),
        }
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        match put.tag {
            tag::CATCH_BASIN => (self.on_completion)(Event::Put(put)),
            _ => self.delivery.on_reply(&put, self.last),
        }
    }
}

/// The sink for the request queue. It is a type rather than a closure, so that it is inlined into
/// the network's loop.
struct RequestEvents<'a, R> {
    delivery: Delivery<'a, R>,
    last: &'a mut MessageKind,
    inbox: &'a mut Inbox,
    reserve: &'a ReplyReserve,
}

impl<R: Receiver> Sink for RequestEvents<'_, R> {
    #[inline(always)]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Put(put) => self.put(put),
            Event::Free { tag: tag::REQ_RB } => {
                let buffer = request_buffer(self.delivery.kernel(), self.inbox.buffer_bytes);
                self.delivery.kernel().relink(index::AM, buffer);
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.delivery.messages().replies.can_reply(self.reserve)
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        match put.tag {
            tag::REQ_RB => self
                .delivery
                .on_request(&put, self.last, self.inbox, self.reserve),
            tag::RARAM => self.delivery.on_long_data(&put, self.inbox, self.reserve),
            tag::CATCH_BASIN => self.delivery.kernel().job.fail(Error::CatchBasin {
                rank: self.delivery.kernel().job.rank,
                peer: put.source,
            }),
            _ => {}
        }
    }
}

/// The sink for the request queue while requests are held back. It sets aside the events that would
/// run handlers.
struct HeldBack<'a, R> {
    events: RequestEvents<'a, R>,
    shuffle: &'a mut Shuffle,
}

impl<R: Receiver> Sink for HeldBack<'_, R> {
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

impl<R: Receiver> Delivery<'_, R> {
    /// Polls the queue of completions and replies, up to the configured limit.
    #[inline]
    pub(crate) fn poll_replies(self, on_completion: impl FnMut(Event<'_>)) -> u32 {
        let most = self.kernel().job.settings.most_completions();
        // The lock is held if either another thread is polling the queue or this thread is doing so
        // further up its stack.
        let Some(mut last) = self.messages().last_reply.try_lock() else {
            return 0;
        };
        self.kernel().job.ni.poll_into(
            self.kernel().queues.safe,
            most,
            &mut ReplyEvents {
                delivery: self,
                on_completion,
                last: &mut last,
            },
        )
    }

    /// Polls at most `most` requests. Takes each request only while the resources for its reply are
    /// reserved.
    #[inline]
    pub(crate) fn poll_requests(self, most: u32) -> u32 {
        let Some(mut side) = self.messages().arriving.try_lock() else {
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
                delivery: self,
                last,
                inbox,
                reserve,
            };
            return self.hold_back(HeldBack { events, shuffle });
        }
        let mut events = 0;
        while events < most && self.messages().replies.fill(self.kernel(), reserve) {
            events += self.kernel().job.ni.poll_into(
                self.kernel().queues.am,
                most - events,
                &mut RequestEvents {
                    delivery: self,
                    last: &mut *last,
                    inbox: &mut *inbox,
                    reserve,
                },
            );
            if self.messages().replies.can_reply(reserve) {
                // The network stopped for a reason of its own. The next poll takes whatever is
                // left.
                break;
            }
        }
        self.end_requests(inbox);
        events
    }

    /// Returns credits to the senders of requests that have been handled.
    #[inline(always)]
    fn end_requests(self, inbox: &mut Inbox) {
        inbox.grant_counted(self.kernel(), &self.messages().credits);
        if !inbox.untold.is_empty() {
            inbox.tell(self.kernel());
        }
    }

    /// Takes as many messages from the network as there is room for and holds them back
    /// (`CONDUIT_SHUFFLE`). The rest of this poll and later polls handle them.
    #[cold]
    #[inline(never)]
    fn hold_back(self, mut sink: HeldBack<'_, R>) -> u32 {
        // This sends replies that the network refused earlier.
        self.messages()
            .replies
            .fill(self.kernel(), sink.events.reserve);
        let events = self
            .kernel()
            .job
            .ni
            .poll_into(self.kernel().queues.am, u32::MAX, &mut sink);
        if !sink.shuffle.is_empty() {
            self.kernel().job.want_poll();
        }
        events
    }

    /// Handles requests that have been held back long enough. A waiting rank does not sleep while
    /// requests are held.
    pub(crate) fn handle_held(self) -> u32 {
        if self.kernel().job.settings.shuffle.is_none() || self.kernel().job.is_child() {
            return 0;
        }
        let _polling = R::Mode::PARALLEL.then(|| self.kernel().job.polling.enter());
        // The fault must be checked after `enter`; see `Polling`.
        if !self.kernel().job.stands_for_all() {
            return 0;
        }
        let Some(mut side) = self.messages().arriving.try_lock() else {
            self.kernel().job.want_poll();
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
        let most = self.kernel().job.settings.most_requests();
        let mut events = 0;
        let mut can_reply = true;
        while events < most {
            can_reply = self.messages().replies.fill(self.kernel(), reserve);
            if !can_reply {
                break;
            }
            let Some(held) = shuffle.take() else { break };
            let mut sink = RequestEvents {
                delivery: self,
                last: &mut *last,
                inbox: &mut *inbox,
                reserve,
            };
            sink.put(held.put());
            events += 1;
        }
        self.end_requests(inbox);
        if !shuffle.is_empty() {
            self.kernel().job.want_poll();
        }
        match can_reply {
            // Prevents a sleep while requests are held, but does not report progress if none of
            // them can be handled.
            true => events.max(1),
            false => events,
        }
    }
}
