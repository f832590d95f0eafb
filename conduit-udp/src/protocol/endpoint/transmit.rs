//! Sends packets, and decides which link sends next.

use super::Endpoint;
use super::queues::Queue;
use crate::protocol::config::MAX_WINDOW;
use crate::protocol::contract::{Failure, FragmentHandler, Nanos, Seal, Transmit};
use crate::protocol::link::Burst;

/// The number of bursts with segments after which a burst with only acknowledgements is sent first.
const MANY: u32 = 16;

impl Endpoint {
    /// Returns whether [`transmit`](Self::transmit) has nothing to do until the next call of
    /// another method.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.queues.is_empty()
    }

    /// Writes the next packets to send, which are all for one peer, to the beginning of `buffer`.
    /// Call this method until it returns `None`. The buffer must have at least
    /// [`Config::packet`](super::Config::packet) bytes, and 64 KiB allow the largest bursts.
    ///
    /// Probes and tiny fragments of all links are sent first, then retransmissions and the data
    /// channel, round robin, and finally acknowledgements in separate packets. Under constant load,
    /// an acknowledgement occasionally precedes data.
    pub fn transmit<'u>(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        seal: &mut impl Seal,
        handler: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>> {
        if buffer.len() < self.config.packet {
            debug_assert!(false, "the buffer is too small for a packet");
            return None;
        }
        self.advance(now);
        if self.over_limit > 0 {
            self.make_room(now, handler);
        }
        self.retry_refused(now, handler);
        if self.queues.is_empty() {
            return None;
        }
        let credits = self.credits(now, handler.room());
        self.notify_starved(now, credits);
        let mut burst = Burst::new(now, buffer, seal, credits);
        let order = if self.bursts < MANY {
            [Queue::Control, Queue::Commands, Queue::Data, Queue::Acks]
        } else {
            self.bursts = 0;
            [Queue::Acks, Queue::Control, Queue::Commands, Queue::Data]
        };
        for queue in order {
            while let Some((index, link)) = self.queues.next(queue, &mut self.links) {
                let config = &self.config;
                let again = match queue {
                    Queue::Control => {
                        link.send_control(&mut burst, config);
                        link.control_ready()
                    }
                    Queue::Commands => {
                        link.send_commands(&mut burst, config);
                        link.commands_ready(config)
                    }
                    Queue::Data => {
                        link.send_data(&mut burst, self.geometry, config, handler);
                        let at = link.data_at(config);
                        if let Some(at) = at.filter(|&at| at > now) {
                            self.timers.schedule(index, at);
                        }
                        at.is_some_and(|at| at <= now)
                    }
                    _ => {
                        link.send_acks(&mut burst, config);
                        false
                    }
                };
                let Some(transmit) = burst.transmit(link) else {
                    continue;
                };
                let source = burst.zero_copy();
                if again {
                    self.queues.enter(queue, index, link);
                }
                if link.advertised_credits == 0 {
                    self.queues.enter(Queue::Starved, index, link);
                }
                if let Some(at) = link.timeout_at(config) {
                    self.timers.schedule(index, at);
                }
                self.bursts = if queue == Queue::Acks {
                    0
                } else {
                    self.bursts + 1
                };
                return Some(match source {
                    None => transmit,
                    Some(source) => source.join(transmit, handler),
                });
            }
        }
        None
    }

    /// Returns the credits for a peer, which are the number of segments that the peer may have
    /// outstanding. They are its share of the buffers.
    fn credits(&mut self, now: Nanos, room: usize) -> u16 {
        let share = room.min(self.config.socket_buffer) / self.senders.count(now) as usize;
        let least = usize::from(room >= self.config.packet);
        (share / self.config.packet).clamp(least, MAX_WINDOW as usize) as u16
    }

    /// Notifies the peers without credits if there are credits now.
    fn notify_starved(&mut self, now: Nanos, credits: u16) {
        if credits == 0 {
            return;
        }
        while let Some((index, link)) = self.queues.next(Queue::Starved, &mut self.links) {
            if link.advertised_credits == 0 {
                // The credits count as granted from now on. If the packet is lost, the reply to the
                // peer's probe repeats them.
                link.advertised_credits = credits;
                link.ack_state.request_immediate();
                self.enqueue(now, index);
            }
        }
    }

    /// Retries delivery for at most two links for which the fragment handler had no room.
    fn retry_refused(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        for _ in 0..self.queues.length(Queue::Refused).min(2) {
            let Some((index, link)) = self.queues.next(Queue::Refused, &mut self.links) else {
                return;
            };
            match link.retry(&mut self.budget, handler) {
                Ok(()) => self.enqueue(now, index),
                Err(what) => self.fail(index, Failure::Broken(what), handler),
            }
        }
    }
}
