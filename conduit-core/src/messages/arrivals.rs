//! The queues that messages arrive in: so many requests a poll, each only with a reserve for its
//! reply, and replies, which never need what isn't there.

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

/// Where the events of the queue of replies and completions go.
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

/// Where the events of the request queue go. A type of its own, and not a closure, so that it is
/// inlined into the network's loop.
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

/// Where the events of the request queue go while requests are held back: what runs handlers is put
/// aside.
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
    /// Completions and replies, up to the limit.
    #[inline]
    pub(crate) fn poll_replies(self, on_completion: impl FnMut(Event<'_>)) -> u32 {
        let most = self.kernel().job.settings.most_completions();
        // Another thread that polls the queue has it; one that is not polled can't be polled here
        // either.
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

    /// At most so many requests, each only with a reserve ready for its reply.
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
    fn end_requests(self, inbox: &mut Inbox) {
        inbox.grant_counted(self.kernel(), &self.messages().credits);
        if !inbox.untold.is_empty() {
            inbox.tell(self.kernel());
        }
    }

    /// With `CONDUIT_SHUFFLE`: takes what the network has and there is room for. The rest of this
    /// poll, and later ones, handle it.
    #[cold]
    #[inline(never)]
    fn hold_back(self, mut sink: HeldBack<'_, R>) -> u32 {
        // A reply that the network would not take goes now if it can.
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

    /// Handles requests that have been held back for long enough. While some are held there is more
    /// to do: who waits does not sleep then.
    pub(crate) fn handle_held(self) -> u32 {
        if self.kernel().job.settings.shuffle.is_none() || self.kernel().job.is_child() {
            return 0;
        }
        let _polling = R::Mode::PARALLEL.then(|| self.kernel().job.polling.enter());
        // After `enter`, see `Polling`.
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
            // Not asleep while some are held, but not as if something had come either if nothing
            // can be handled.
            true => events.max(1),
            false => events,
        }
    }
}
