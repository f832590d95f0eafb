//! The poll. By default it serves all events of the queue SYS, and a limited number of events of
//! each of the queues SAFE and AM. It takes a request from AM only while the resources for the
//! reply are reserved.
//!
//! The poll routes events to their subjects by queue, tag and role. Event sinks are force-inlined
//! into the network's loop, because a function call per message is expensive.

use crate::barrier::state::receive;
use crate::engine::Engine;
use crate::kernel::error::Result;
use crate::kernel::portal_table::{index, tag};
use crate::kernel::system::Message;
use crate::messages::deliver::Delivery;
use crate::messages::flow::When;
use crate::messages::start::reply_buffer;
use crate::ni::{Event, Ni, Outcome, Ready};
use crate::threads::Mode;

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Serves the network once: system messages, then completions and replies, then requests.
    /// Handlers run inside this call.
    ///
    /// Returns an error if it is called in a handler.
    #[inline]
    pub fn poll(&self) -> Result<()> {
        self.check_outside("poll", am::Operation::Poll)?;
        if self.poll_for(1) == 0 {
            self.polled_idly();
        }
        self.check_fault()
    }

    /// Polls like [`Engine::poll`], but does not yield if it finds no event. Returns whether it
    /// found one. Intended for callers that have other work to do.
    #[inline]
    pub fn poll_some(&self) -> Result<bool> {
        self.check_outside("poll", am::Operation::Poll)?;
        let found = self.poll_for(1) > 0;
        self.check_fault()?;
        Ok(found)
    }

    /// Polls once, serving at most `times` times the configured number of requests. Returns the
    /// number of events. Most polls find nothing, so that case is checked first.
    #[inline]
    pub(crate) fn poll_for(&self, times: u32) -> u32 {
        let requests = self.kernel.job.settings.most_requests();
        let requests = requests.saturating_mul(times);
        let mut events = 0;
        let ready = self.kernel.job.ni.ready();
        if !ready.is_empty() || self.messages.replies.is_waiting() {
            events += self.poll_queues(ready, requests);
        }
        if self.barriers.any_running() {
            events += u32::from(self.barriers.advance(&self.kernel));
        }
        if self.collectives.has_outgoing() {
            events += self.collectives().advance_collectives();
        }
        if self.kernel.job.wants_poll() {
            events += self.do_what_waits();
        }
        events
    }

    #[inline(never)]
    fn poll_queues(&self, ready: Ready, requests: u32) -> u32 {
        let kernel = &self.kernel;
        let _polling = M::PARALLEL.then(|| kernel.job.polling.enter());
        // The fault must be checked after `enter`; see `Polling`.
        if !kernel.job.stands_for_all() {
            // After a fault only system messages are served. A call that fails returns its buffers
            // to its caller even if operations on these buffers are in flight, so no completion may
            // access them from then on.
            return match kernel.job.is_child() {
                true => 0,
                false => self.poll_system(u32::MAX),
            };
        }
        let mut events = 0;
        if ready.intersects(Ready::PROGRESS) {
            kernel.job.ni.progress();
        }
        if ready.intersects(kernel.queues.sys_ready) {
            events += self.poll_system(kernel.job.settings.most_system_messages());
        }
        if ready.intersects(kernel.queues.safe_ready) {
            let on_completion = |event: Event<'_>| self.on_completion(event);
            events += Delivery(self).poll_replies(on_completion);
        }
        if ready.intersects(kernel.queues.am_ready) || self.messages.replies.is_waiting() {
            events += Delivery(self).poll_requests(requests);
        }
        self.messages.credits.write_statistics(kernel, When::Epoch);
        events
    }

    #[inline]
    pub(crate) fn poll_system(&self, most: u32) -> u32 {
        let kernel = &self.kernel;
        let on_event = |event: Event<'_>| {
            let Event::Put(put) = event else { return };
            let source = put.source;
            match Message::decode(put.match_bits, put.hdr_data) {
                Some(Message::Exit { code }) => {
                    kernel.send_system(source, Message::ExitSeen);
                    kernel.job.exited(source, code);
                }
                Some(Message::ExitSeen) => kernel.system.count_exit_answer(),
                Some(Message::BarrierCell { cell, word }) => receive(kernel, source, cell, word),
                Some(Message::Credit(message)) => {
                    self.messages.credits.answer(kernel, source, message);
                }
                None => {
                    let reason = format!("unknown system message {:#x}", put.match_bits);
                    kernel.job.fail_by_message(source, reason);
                }
            }
        };
        kernel.job.ni.poll(kernel.queues.sys, most, on_event)
    }

    /// Performs the work that no event announces: retries, and requests that were held back.
    #[cold]
    #[inline(never)]
    fn do_what_waits(&self) -> u32 {
        self.messages.credits.retry(&self.kernel);
        Delivery(self).handle_held()
    }

    /// Handles a completion. Completions need no resources for replies, so they are always handled.
    #[inline(never)]
    fn on_completion(&self, event: Event<'_>) {
        let (token, outcome, value) = match event {
            Event::Send { token } => (token, Outcome::Done, 0),
            Event::Ack { token, outcome, .. } => (token, outcome, 0),
            Event::Reply {
                token,
                outcome,
                value,
                ..
            } => (token, outcome, value),
            // The buffer is relinked at once, because another thread may be polling and the other
            // buffers may be full.
            Event::Free { tag: tag::RPL_RB } => {
                return self.kernel.relink(index::SAFE, reply_buffer(&self.kernel));
            }
            Event::Put(put) => {
                let reason = "a reply found no buffer".to_owned();
                return self.kernel.job.fail_by_message(put.source, reason);
            }
            _ => return,
        };
        let on_reply_sent = |chunk| self.messages.replies.buffer.give(&self.kernel.job, chunk);
        let asked = |op| self.memory.no_memory_asked(op);
        self.kernel
            .complete(token, outcome, value, on_reply_sent, asked);
    }
}
