//! Delivery of completions at the initiator, which is the last step of an operation.

use std::ptr;

use conduit_core::ni::Event;
use conduit_core::ni::Sink;
use conduit_core::threads::{Lock, Mode};

use super::message::{ACK, FULL, Header, NO_MD, REPLY, REPLY_INLINE, SEND, STAGED};
use super::receive::{Message, PollBudget, Taken};
use super::{Shm, staging};
use conduit_portals::matching::outcome_of;

impl<M: Mode> Shm<M> {
    /// Handles a completion of this rank's own operation.
    pub(super) fn take_completion<S: Sink + ?Sized>(
        &self,
        message: &Message,
        header: &Header,
        budget: &mut PollBudget<'_, S>,
    ) -> Option<Taken> {
        let outcome = outcome_of(message.frame.index);
        let (token, length) = (header.token, header.length as usize);
        if message.frame.kind == REPLY && header.md != NO_MD && !self.bring_home(message, header)? {
            return Some(Taken::Done);
        }
        if header.md != NO_MD {
            self.descriptors.finish(header.md)?;
        }
        budget.event(match message.frame.kind {
            SEND => Event::Send { token },
            ACK => Event::Ack {
                token,
                outcome: outcome?,
                length,
            },
            _ => Event::Reply {
                token,
                outcome: outcome?,
                length,
                value: header.match_bits,
            },
        });
        Some(Taken::Done)
    }

    /// Moves a get's data to the descriptor, unless the target has already written it there.
    /// Returns `Some(false)` if all gets are abandoned, and `None` if the message is malformed.
    fn bring_home(&self, message: &Message, header: &Header) -> Option<bool> {
        let length = header.length as usize;
        let own = self.own();
        let bound = self.descriptors.bound(header.md)?;
        let end = usize::try_from(header.hdr_data).ok()?.checked_add(length)?;
        let from = if header.flags & REPLY_INLINE != 0 {
            message.payload(FULL, header.length)?
        } else if header.flags & STAGED != 0 {
            own.piece_state(usize::from(header.piece))?;
            if length > own.layout().piece_bytes {
                return None;
            }
            own.at(staging::offset(own, header.piece))
        } else {
            return Some(true);
        };
        if end > bound.len {
            return None;
        }
        // The lock is held during the copy, so that `abandon` returns only once the copy has ended.
        let abandoned = self.abandoned.lock();
        let is_wanted = !*abandoned;
        if is_wanted {
            // SAFETY: the destination lies within the descriptor, as just checked, and `md_bind`'s
            // caller guarantees that the descriptor's memory stays valid until its operations have
            // ended or are abandoned. The source lies within the message or the staging piece.
            unsafe { ptr::copy(from, bound.base.add(end - length), length) };
        }
        drop(abandoned);
        if header.flags & STAGED != 0 {
            staging::give_back(own, header.piece);
        }
        Some(is_wanted)
    }
}
