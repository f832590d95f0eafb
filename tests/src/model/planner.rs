//! Turns the steps of a round into tasks that have valid places and lengths and don't conflict.

use am::{Category, limits};
use conduit_core::atomics::AtomicRequest;
use conduit_core::ni::{AtomicOp, AtomicType};

use super::claims::{Cells, Claims};
use super::plan::{Allowed, CELLS, Message, Part, Source, Task};
use super::schedule::{Action, Answer, Fetch, Sending, Step};

/// The offset from which operations other than atomics use the segment.
const DATA: usize = CELLS * 8;

/// Plans the steps of a round.
pub(super) struct Planner<'a> {
    pub(super) allowed: Allowed,
    pub(super) ranks: u32,
    pub(super) before: &'a [Vec<u8>],
    pub(super) after: Vec<Vec<u8>>,
    pub(super) claims: Vec<Claims>,
    pub(super) cells: Vec<Cells>,
    pub(super) messages: &'a mut Vec<Message>,
    pub(super) requests: &'a mut [u32],
    pub(super) replies: &'a mut [u32],
}

impl Planner<'_> {
    /// Maps a number to a place in a segment that has room for `len` bytes.
    fn at(&self, place: u16, len: usize) -> usize {
        let room = self.allowed.segment - DATA - len;
        // An eighth of the numbers map to the two ends of the range, because errors occur there
        // first.
        match place {
            0..=2047 => DATA,
            63_488.. => DATA + room,
            _ => DATA + usize::from(place) % (room + 1),
        }
    }

    fn reads(&mut self, rank: u32, at: usize, len: usize) -> bool {
        self.claims[rank as usize].read(at, len)
    }

    fn writes(&mut self, rank: u32, at: usize, bytes: &[u8]) -> bool {
        let claimed = self.claims[rank as usize].write(at, bytes.len());
        if claimed {
            self.after[rank as usize][at..at + bytes.len()].copy_from_slice(bytes);
        }
        claimed
    }

    fn was(&self, rank: u32, at: usize, len: usize) -> Vec<u8> {
        self.before[rank as usize][at..at + len].to_vec()
    }

    /// Returns the task of a step, or `None` if the task would conflict with others.
    pub(super) fn task(&mut self, rank: u32, step: &Step) -> Option<Task> {
        let target = u32::from(step.target) % self.ranks;
        let len = usize::from(step.len).min(self.allowed.segment - DATA);
        let at = self.at(step.place, len);
        let mut random =
            fastrand::Rng::with_seed(u64::from(step.place) << 16 | u64::from(step.own));
        Some(match step.action {
            Action::Put(way) => {
                let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
                self.writes(target, at, &bytes).then_some(())?;
                let source = Source::Private(bytes);
                Task::Put {
                    way,
                    target,
                    at,
                    source,
                }
            }
            Action::PutOwn(way) => {
                let own = self.at(step.own, len);
                let bytes = self.was(rank, own, len);
                self.reads(rank, own, len).then_some(())?;
                self.writes(target, at, &bytes).then_some(())?;
                let source = Source::Own { at: own, len };
                Task::Put {
                    way,
                    target,
                    at,
                    source,
                }
            }
            Action::PutValue(way) => {
                let bytes = 1 + usize::from(step.len) % 8;
                let at = self.at(step.place, bytes);
                let value = random.u64(..);
                self.writes(target, at, &value.to_le_bytes()[..bytes])
                    .then_some(())?;
                Task::PutValue {
                    way,
                    target,
                    at,
                    value,
                    bytes,
                }
            }
            Action::Fill(way) => {
                let byte = random.u8(..);
                self.writes(target, at, &vec![byte; len]).then_some(())?;
                Task::Fill {
                    way,
                    target,
                    at,
                    byte,
                    len,
                }
            }
            Action::Get(way) => {
                self.reads(target, at, len).then_some(())?;
                let expected = self.was(target, at, len);
                Task::Get {
                    way,
                    target,
                    at,
                    expected,
                    own: None,
                }
            }
            Action::GetOwn(way) => {
                let own = self.at(step.own, len);
                let expected = self.was(target, at, len);
                self.reads(target, at, len).then_some(())?;
                self.writes(rank, own, &expected).then_some(())?;
                Task::Get {
                    way,
                    target,
                    at,
                    expected,
                    own: Some(own),
                }
            }
            Action::GetValue => {
                let bytes = 1 + usize::from(step.len) % 8;
                let at = self.at(step.place, bytes);
                self.reads(target, at, bytes).then_some(())?;
                let mut expected = [0; 8];
                expected[..bytes].copy_from_slice(&self.was(target, at, bytes));
                let expected = u64::from_le_bytes(expected);
                Task::GetValue {
                    target,
                    at,
                    expected,
                    bytes,
                }
            }
            Action::Atomic(op, ty, fetch) => self.atomic(rank, target, step, (op, ty, fetch))?,
            Action::Request {
                category,
                nargs,
                sending,
                answer,
            } => self.request(rank, target, step, (category, nargs, sending, answer)),
            Action::Region => Task::Region,
            Action::Sync(sync) => Task::Sync(sync),
            Action::Barrier => Task::Barrier,
            Action::Poll => Task::Poll,
        })
    }

    fn atomic(
        &mut self,
        rank: u32,
        target: u32,
        step: &Step,
        (op, ty, fetch): (AtomicOp, AtomicType, Fetch),
    ) -> Option<Task> {
        let cell = usize::from(step.place) % CELLS;
        let at = cell * 8;
        let size = ty.size();
        let bytes = &mut self.after[target as usize][at..at + size];
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        let old = u64::from_le_bytes(word);
        let ends_later = !matches!(fetch, Fetch::Value | Fetch::No);
        let alone = self.cells[target as usize].claim(cell, rank, op, ty, ends_later)?;
        let request = AtomicRequest {
            op,
            ty,
            operand: u64::from(step.own) << 17 | u64::from(step.len),
            // Half of the swaps succeed if the old value is known.
            comparand: if step.len.is_multiple_of(2) {
                old
            } else {
                step.len.into()
            },
        };
        let new =
            crate::conformance::arithmetic::model(op, ty, old, request.operand, request.comparand);
        bytes.copy_from_slice(&new.to_le_bytes()[..size]);
        let expected = alone.then_some(old);
        Some(Task::Atomic {
            target,
            at,
            request,
            fetch,
            expected,
        })
    }

    /// Returns a part of a message that is within the limits. A long becomes a medium if its place
    /// in the segment is in use.
    fn part(
        &mut self,
        rank: u32,
        wanted: (Category, u8, u16, u16),
        most_long: usize,
    ) -> (Part, Vec<u8>) {
        let (category, nargs, len, place) = wanted;
        let nargs = usize::from(nargs);
        let len = usize::from(len);
        let number = self.messages.len() as u32;
        let is_reply = most_long != usize::MAX;
        if category == Category::Long {
            let len = len.min(most_long).min(self.allowed.segment - DATA);
            let part = Part {
                category,
                nargs,
                len,
                at: self.at(place, len),
            };
            let payload = part.payload(number, is_reply);
            if self.writes(rank, part.at, &payload) {
                return (part, payload);
            }
        }
        let category = if category == Category::Short {
            category
        } else {
            Category::Medium
        };
        let most = limits::max_medium(self.allowed.chunk, nargs);
        let len = if category == Category::Short {
            0
        } else {
            len.min(most)
        };
        let part = Part {
            category,
            nargs,
            len,
            at: 0,
        };
        (part, Vec::new())
    }

    fn request(
        &mut self,
        rank: u32,
        target: u32,
        step: &Step,
        (category, nargs, sending, answer): (Category, u8, Sending, Option<Answer>),
    ) -> Task {
        if sending == Sending::Cancelled {
            let len =
                usize::from(step.len).min(limits::max_medium(self.allowed.chunk, am::MAX_ARGS));
            return Task::Cancelled { target, len };
        }
        // A message without arguments can't carry its number, so such messages are only counted.
        let can_be_bare = category == Category::Short && answer.is_none();
        let nargs = if can_be_bare { nargs } else { nargs.max(1) };
        let (request, _) = self.part(target, (category, nargs, step.len, step.place), usize::MAX);
        let mut sending = sending;
        if sending == Sending::InPlace && request.category == Category::Short {
            sending = Sending::Plain;
        }
        let limit = limits::max_medium(self.allowed.chunk, am::MAX_ARGS);
        let mut request = request;
        if sending == Sending::InPlace && request.category == Category::Medium {
            request.len = request.len.min(limit);
        }
        // The source of a long in place may be reused only when the reply arrives.
        let needs_answer = sending == Sending::InPlace && request.category == Category::Long;
        let short = Answer {
            category: Category::Short,
            nargs: 1,
            len: 0,
            place: 0,
        };
        let answer = answer.or(needs_answer.then_some(short)).map(|answer| {
            let wanted = (answer.category, answer.nargs, answer.len, answer.place);
            self.part(rank, wanted, self.allowed.long_reply).0
        });
        self.requests[target as usize] += 1;
        self.replies[rank as usize] += u32::from(answer.is_some());
        let message = self.messages.len() as u32;
        self.messages.push(Message {
            from: rank,
            to: target,
            request,
            answer,
        });
        Task::Request { message, sending }
    }
}
