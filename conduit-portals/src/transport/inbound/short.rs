//! Short puts to managed entries, nearly all that arrives: what the general way finds out step by step is found out in one go here.
//! What is not quite so goes the general way.

use std::collections::VecDeque;

use conduit_core::ni::Rank;

use super::ProtocolError;
use crate::transport::fragment::MAX_TINY;
use crate::transport::mailbox::{MAX_INLINE, Writer};
use crate::transport::queue::{Queued, QueuedPut};
use crate::transport::state::{Portals, schedule};
use crate::transport::window::Cost;
use crate::transport::wire::{Put, WindowUpdate};

impl Portals {
    /// A short put while nothing else waits in its queue, as each of a round trip comes. False: it is something else, and nothing
    /// has happened.
    #[inline(always)]
    pub(crate) fn mail_short_put(
        &mut self,
        source: Rank,
        put: &Put,
        update: WindowUpdate,
        payload: &[u8],
    ) -> bool {
        let length = payload.len();
        if length > MAX_INLINE.min(self.short) || source == self.rank {
            return false;
        }
        let Some(link) = self.links.get(source) else {
            return false;
        };
        // Heard twice is heard once.
        if !link.send.apply(update) {
            return false;
        }
        let Some(index) = self.indices.get_mut(usize::from(put.index)) else {
            return false;
        };
        let (true, Some(Some(eq))) = (index.is_ready(self.on_progress_thread), index.open) else {
            return false;
        };
        let number = usize::from(eq.0);
        let Some(mailbox) = self.mailboxes.get_mut(number).and_then(Writer::vacant) else {
            return false;
        };
        if !self.queues.get(number).is_some_and(VecDeque::is_empty) {
            return false;
        }
        let cost = Cost::of_short(put.index, length);
        let window = self.window;
        if !link.receive.has_room(cost, window) {
            return false;
        }
        let Some(hit) = index.list.accept_usual(source, put.match_bits, length) else {
            return false;
        };
        let event = put.event(source, (hit.tag, hit.offset), length, length);
        mailbox.fill(|inline| inline.write(&event, payload));
        self.flags.mailed(eq);
        // Taken, as far as the window goes: one short put of each queue is little.
        if link.receive.arrive_consumed(cost, window) {
            schedule(&mut self.outgoing, link);
        }
        true
    }

    /// A short put that is all there, and what its source has taken.
    pub(crate) fn short_put_arrives(
        &mut self,
        source: Rank,
        put: &Put,
        update: WindowUpdate,
        payload: &[u8],
    ) -> Result<(), ProtocolError> {
        let length = payload.len();
        if length > self.config.max_message {
            return Err(ProtocolError);
        }
        let cost = Cost::of_put(put.index, length, self.config.max_managed);
        let window = self.window;
        let link = self.links.get(source).ok_or(ProtocolError)?;
        if !link.send.apply(update) || !link.receive.arrive(cost, window) {
            return Err(ProtocolError);
        }
        // If the first managed entry of an open index does and stays linked; `None` says nothing, and nothing has happened.
        let mut usual = || {
            let index = self.indices.get_mut(usize::from(put.index))?;
            // Those are managed messages for certain, whatever is set.
            if length > MAX_TINY || !index.is_ready(self.on_progress_thread) {
                return None;
            }
            let eq = index.open??;
            let queue = self.queues.get_mut(usize::from(eq.0))?;
            let hit = index.list.accept_usual(source, put.match_bits, length)?;
            let event = put.event(source, (hit.tag, hit.offset), length, length);
            let mut data = self.pool.take(length);
            data.bytes_mut().copy_from_slice(payload);
            self.flags.queued(eq);
            queue.push_back(Queued::Put(QueuedPut {
                event,
                data: Some(data),
                cost,
            }));
            Some(())
        };
        if usual().is_some() {
            return Ok(());
        }
        // SAFETY: the bytes of a slice.
        unsafe { self.put_arrives(source, put, payload.as_ptr(), length, cost) }
    }
}
