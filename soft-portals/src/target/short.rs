//! Short puts to managed entries, nearly all that arrives: what the general way finds out step by step is found out in one go here.
//! What is not quite so goes the general way.

use conduit_core::ni::{PtIndex, PutEvent, Rank};

use super::Nonsense;
use crate::fragment::MAX_TINY;
use crate::queue::{Queued, QueuedPut};
use crate::state::Portals;
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
        if self.take_usual(source, put, payload, cost).is_some() {
            return Ok(());
        }
        // SAFETY: the bytes of a slice.
        unsafe { self.put_arrives(source, put, payload.as_ptr(), length, cost) }
    }

    /// Takes a put if the first managed entry of an open index does and stays linked; `None` says nothing, and nothing has happened.
    #[inline(always)]
    fn take_usual(&mut self, source: Rank, put: &Put, payload: &[u8], cost: Cost) -> Option<()> {
        let length = payload.len();
        let index = self.indices.get_mut(usize::from(put.index))?;
        // Those are managed messages for certain, whatever is set.
        if length > MAX_TINY || !index.is_ready(self.attended) {
            return None;
        }
        let eq = index.open??;
        let queue = self.queues.get_mut(usize::from(eq.0))?;
        let hit = index.list.accept_usual(source, put.match_bits, length)?;
        let mut data = self.pool.take(length);
        data.bytes_mut().copy_from_slice(payload);
        let event = PutEvent {
            index: PtIndex(put.index),
            tag: hit.tag,
            source,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            offset: hit.offset,
            length,
            requested: length,
            data: &[],
        };
        queue.push_back(Queued::Put(QueuedPut {
            event,
            data: Some(data),
            cost,
        }));
        self.flags.set(eq);
        Some(())
    }
}
