//! Short puts to managed entries, nearly all that arrives: what the general way finds out step by step is found out in one go here.
//! What is not quite so goes the general way.

use conduit_core::ni::Rank;

use super::Nonsense;
use crate::fragment::MAX_TINY;
use crate::mailbox::LETTER;
use crate::queue::{Queued, QueuedPut};
use crate::state::{Portals, list};
use crate::window::Cost;
use crate::wire::{Put, Told};

impl Portals {
    /// A short put that is all there, and what its source has taken.
    #[inline]
    pub(crate) fn short_put_arrives(
        &mut self,
        source: Rank,
        put: &Put,
        told: Told,
        payload: &[u8],
    ) -> Result<(), Nonsense> {
        let length = payload.len();
        if length > self.config.max_message {
            return Err(Nonsense);
        }
        let cost = Cost::of_put(put.index, length, self.config.max_managed);
        let window = self.window;
        let link = self.links.get(source).ok_or(Nonsense)?;
        if !link.sent.hear(told) || !link.arrived.arrive(cost, window) {
            return Err(Nonsense);
        }
        // If the first managed entry of an open index does and stays linked; `None` says nothing, and nothing has happened.
        let mut usual = || {
            let index = self.indices.get_mut(usize::from(put.index))?;
            // Those are managed messages for certain, whatever is set.
            if length > MAX_TINY || !index.is_ready(self.attended) {
                return None;
            }
            let eq = index.open??;
            let number = usize::from(eq.0);
            let queue = self.queues.get_mut(number)?;
            let hit = index.list.accept_usual(source, put.match_bits, length)?;
            let event = put.event(source, (hit.tag, hit.offset), length, length);
            if let Some(mailbox) = self.mailboxes.get_mut(number)
                && length <= LETTER
                && source != self.rank
                && queue.is_empty()
                && mailbox.is_free()
            {
                mailbox.fill(|letter| letter.write(event, payload));
                self.flags.mailed(eq);
                // Taken, as far as the window goes: one short put of each queue is little.
                if link.arrived.take(cost, window) {
                    list(&mut self.outgoing, link);
                }
                return Some(());
            }
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
