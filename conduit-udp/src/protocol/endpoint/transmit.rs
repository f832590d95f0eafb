//! Packets to be sent, and whose turn it is.

use super::Endpoint;
use super::queues::Turn;
use crate::protocol::config::MAX_WINDOW;
use crate::protocol::contract::{Failure, FragmentHandler, Nanos, Seal, Transmit};
use crate::protocol::link::Burst;

/// After so many times packets with segments, an acknowledgement of its own goes before more of
/// them.
const MANY: u32 = 16;

impl Endpoint {
    /// Whether [`transmit`](Self::transmit) has nothing to make until something has been sent or
    /// received, or is due.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.queues.is_empty()
    }

    /// Makes the next packets to be sent, for one peer, at the begin of `buffer`; to be called
    /// until it gives nothing. The buffer has at least [`Config::packet`](super::Config::packet)
    /// bytes; 64 KiB let the system take many at once.
    ///
    /// First probes and tiny fragments of all links, then what is to be sent again and the data
    /// channel, link after link in turn, then acknowledgements that went with nothing (one of these
    /// now and then before more data, when there is no end of it).
    pub fn transmit<'u>(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        seal: &mut impl Seal,
        handler: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>> {
        if buffer.len() < self.config.packet {
            debug_assert!(false, "the buffer holds no packet");
            return None;
        }
        self.tell(now);
        if self.over_limit > 0 {
            self.make_room(now, handler);
        }
        self.ask_again(now, handler);
        if self.queues.is_empty() {
            return None;
        }
        let credits = self.credits(now, handler.room());
        self.notify_starved(now, credits);
        let mut burst = Burst::new(now, buffer, seal, credits);
        let turns = if self.bursts < MANY {
            [Turn::Control, Turn::Commands, Turn::Data, Turn::Acks]
        } else {
            self.bursts = 0;
            [Turn::Acks, Turn::Control, Turn::Commands, Turn::Data]
        };
        for turn in turns {
            while let Some((index, link)) = self.queues.next(turn, &mut self.links) {
                let config = &self.config;
                let again = match turn {
                    Turn::Control => {
                        link.send_control(&mut burst, config);
                        link.control_ready()
                    }
                    Turn::Commands => {
                        link.send_commands(&mut burst, config);
                        link.commands_ready(config)
                    }
                    Turn::Data => {
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
                    self.queues.enter(turn, index, link);
                }
                if link.advertised_credits == 0 {
                    self.queues.enter(Turn::Starved, index, link);
                }
                if let Some(at) = link.timeout_at(config) {
                    self.timers.schedule(index, at);
                }
                self.bursts = if turn == Turn::Acks {
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

    /// Segments that one of those who send at present may have under way.
    fn credits(&mut self, now: Nanos, room: usize) -> u16 {
        let share = room.min(self.config.socket_buffer) / self.senders.count(now) as usize;
        let least = usize::from(room >= self.config.packet);
        (share / self.config.packet).clamp(least, MAX_WINDOW as usize) as u16
    }

    /// Peers that were told that there is no room hear when there is some.
    fn notify_starved(&mut self, now: Nanos, credits: u16) {
        if credits == 0 {
            return;
        }
        while let Some((index, link)) = self.queues.next(Turn::Starved, &mut self.links) {
            if link.advertised_credits == 0 {
                // It is now; should the packet be lost, an answer to the peer's probe says it
                // again.
                link.advertised_credits = credits;
                link.ack_state.request_immediate();
                self.wake(now, index);
            }
        }
    }

    /// Asks the fragment handler for room again on behalf of a link or two.
    fn ask_again(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        for _ in 0..self.queues.length(Turn::Refused).min(2) {
            let Some((index, link)) = self.queues.next(Turn::Refused, &mut self.links) else {
                return;
            };
            match link.retry(&mut self.budget, handler) {
                Ok(()) => self.wake(now, index),
                Err(what) => self.fail(index, Failure::Broken(what), handler),
            }
        }
    }
}
