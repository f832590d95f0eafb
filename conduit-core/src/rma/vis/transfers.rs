//! The unanswered messages of puts and gets of many ranges, and the destinations of the data of
//! gets.

use crate::kernel::handle::OpId;
use crate::messages::payload::ProtocolError;
use crate::ni::Rank;
use crate::rma::vis::{Malformed, Message, copy_rows, walk};
use crate::threads::{Lock, Mode};

/// The number of low bits in a message's number that hold the message's index in the table.
const PLACE: u32 = 24;

/// An unanswered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    op: OpId,
    target: Rank,
    /// The number of bytes that the reply to a get brings. It is 0 for a put.
    brings: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of messages that have used this slot, which wraps. By it a second answer to the
    /// same message is detected.
    generation: u8,
    sent: Option<Sent>,
    /// The destinations of a get's data, as an encoded list of addresses in this process.
    list: Vec<u8>,
}

/// The slots of the table. Their number is the maximum number of messages that were in flight at
/// once, which is at most the limit of outstanding requests.
#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

/// The transfers of many ranges that a rank has in flight.
#[derive(Debug)]
pub(crate) struct Transfers<M: Mode> {
    slots: M::Lock<Slots>,
    /// The buffer in which the next message is assembled.
    room: M::Lock<Option<Message>>,
}

impl<M: Mode> Transfers<M> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Lock::new(Slots::default()),
            room: Lock::new(None),
        }
    }

    /// Takes a buffer in which to assemble a message. [`Self::give_room`] returns the buffer, so
    /// that its memory is reused.
    pub(crate) fn take_room(&self) -> Message {
        self.room.lock().take().unwrap_or_default()
    }

    pub(crate) fn give_room(&self, room: Message) {
        *self.room.lock() = Some(room);
    }

    /// Registers a message that is about to be sent, and returns the message's number. For a get,
    /// the `brings` bytes of the reply go to the places in the list.
    pub(crate) fn add(&self, op: OpId, target: Rank, brings: usize, list: &[u8]) -> u32 {
        let mut slots = self.slots.lock();
        let slots = &mut *slots;
        let place = slots.free.pop().unwrap_or_else(|| {
            slots.all.push(Slot::default());
            slots.all.len() as u32 - 1
        });
        let slot = &mut slots.all[place as usize];
        slot.sent = Some(Sent { op, target, brings });
        slot.list.clear();
        slot.list.extend_from_slice(list);
        u32::from(slot.generation) << PLACE | place
    }

    /// Handles the answer to a message and copies the bytes in it to their places. Returns the
    /// operation to which the message belongs.
    pub(crate) fn answer(
        &self,
        number: u32,
        source: Rank,
        data: &[u8],
    ) -> Result<OpId, ProtocolError> {
        let mut slots = self.slots.lock();
        let slots = &mut *slots;
        let (place, generation) = (number & ((1 << PLACE) - 1), (number >> PLACE) as u8);
        let slot = slots.all.get_mut(place as usize).filter(|slot| {
            slot.generation == generation
                && slot
                    .sent
                    .is_some_and(|sent| sent.target == source && sent.brings == data.len())
        });
        let Some((slot, sent)) = slot.and_then(|slot| slot.sent.take().map(|sent| (slot, sent)))
        else {
            return Err(ProtocolError::NoTransfer { bytes: data.len() });
        };
        slot.generation = slot.generation.wrapping_add(1);
        slots.free.push(place);
        walk(&slot.list, usize::MAX, data.len(), |group, at| {
            let to = std::ptr::with_exposed_provenance_mut(group.start as usize);
            let (len, count) = (group.len as usize, group.count as usize);
            // SAFETY: the runs are memory of the operation's caller, who guarantees that it is
            // valid for writes until the operation ends. The operation has not ended yet. `walk`
            // has checked that the data contains all runs of the group.
            unsafe {
                copy_rows(
                    (to, group.stride as isize),
                    (data.as_ptr().add(at), len as isize),
                    len,
                    count,
                )
            };
            Ok::<_, Malformed>(())
        })?;
        Ok(sent.op)
    }

    /// Drops all messages, so that no answer accesses callers' memory any more.
    pub(crate) fn forget(&self) {
        for slot in &mut self.slots.lock().all {
            slot.sent = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::vis::{Pieces, Places, Room, Shape};
    use crate::threads::Seq;

    #[test]
    fn an_answer_goes_to_its_places_once() {
        let transfers = Transfers::<Seq>::new();
        let mut memory = [0_u8; 64];
        let op = OpId::new(3, 0);
        let places = |origin, strides| Places {
            origin,
            unit: 1,
            shape: Shape::Strided {
                strides,
                counts: &[4],
                element: 2,
            },
        };
        let local = places(memory.as_mut_ptr().expose_provenance(), &[16]);
        let mut message = transfers.take_room();
        let room = Room {
            payload: 1024,
            shared: false,
        };
        let rest = message.fill(&mut Pieces::new(&local, &places(0, &[2])), room);
        assert_eq!((rest, message.data), (None, 8));
        let number = transfers.add(op, 1, 8, message.local.finish());
        let answer = |number, source, data: &[u8]| transfers.answer(number, source, data).ok();
        assert_eq!(
            answer(number, 2, &[1; 8]),
            None,
            "an answer from another rank"
        );
        assert_eq!(
            answer(number, 1, &[1; 7]),
            None,
            "an answer of another length"
        );
        assert_eq!(
            answer(number + 1, 1, &[1; 8]),
            None,
            "an answer to no message"
        );
        assert_eq!(answer(number, 1, &[1, 2, 3, 4, 5, 6, 7, 8]), Some(op));
        assert_eq!(answer(number, 1, &[1; 8]), None, "a second answer");
        let mut expected = [0; 64];
        for (row, pair) in [[1, 2], [3, 4], [5, 6], [7, 8]].iter().enumerate() {
            expected[row * 16..][..2].copy_from_slice(pair);
        }
        assert_eq!(memory, expected);
        let next = transfers.add(op, 1, 8, message.local.finish());
        assert_ne!(next, number);
        let place = |number| number & ((1 << PLACE) - 1);
        assert_eq!(place(next), place(number), "the index is reused");
        assert_eq!(
            answer(number, 1, &[1; 8]),
            None,
            "an answer to the previous message"
        );
        transfers.forget();
        assert_eq!(
            answer(next, 1, &[1; 8]),
            None,
            "an answer to a forgotten message"
        );
    }
}
