//! The fast path for short puts to managed entries; nearly all fragments are such puts. Everything
//! that this path doesn't handle takes the general path.

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
    /// Puts a short put into its queue's mailbox, if the queue is empty, as it is in a ping-pong.
    /// In all other cases returns `false`, and has no effect other than to apply the window update.
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
        // The general path may apply the window update again without harm.
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
        let Some(hit) = index.list.accept_fast(source, put.match_bits, length) else {
            return false;
        };
        let event = put.event(source, (hit.tag, hit.offset), length, length);
        mailbox.fill(|inline| inline.write(&event, payload));
        self.flags.mailed(eq);
        // The put counts as consumed already, because one short put per queue takes little memory.
        if link.receive.arrive_consumed(cost, window) {
            schedule(&mut self.outgoing, link);
        }
        true
    }

    /// Queues a short put; unusual puts take the general path.
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
        let link = self.links.get(source).ok_or(ProtocolError)?;
        if !link.send.apply(update) || !link.receive.arrive(cost, link.receive_size) {
            return Err(ProtocolError);
        }
        // Returns `None`, without any effect, unless the put is for the first managed entry of an
        // open index.
        let mut fast = || {
            let index = self.indices.get_mut(usize::from(put.index))?;
            // A put up to `MAX_TINY` is within the limit for managed entries in any configuration.
            if length > MAX_TINY || !index.is_ready(self.on_progress_thread) {
                return None;
            }
            let eq = index.open??;
            let queue = self.queues.get_mut(usize::from(eq.0))?;
            let hit = index.list.accept_fast(source, put.match_bits, length)?;
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
        if fast().is_some() {
            return Ok(());
        }
        // SAFETY: `payload` is a slice of `length` bytes.
        unsafe { self.put_arrives(source, put, payload.as_ptr(), length, cost) }
    }
}
