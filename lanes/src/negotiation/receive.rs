//! What comes from other ranks.

use std::cmp::Reverse;

use super::{Action, LaneKind, Lanes, State, Violation, send};
use crate::{Message, Tracker, Weight};

impl Lanes {
    /// A message has come from a peer. The tracker is the one of [`progress`](Self::progress); a
    /// [`LaneKind::Holder`] needs nothing of it.
    ///
    /// # Errors
    /// No honest peer sends that; it changes nothing.
    pub fn on_message(
        &mut self,
        from: u32,
        message: Message,
        tracker: &Tracker,
        act: &mut dyn FnMut(Action),
    ) -> Result<(), Violation> {
        let is_meant = match (self.kind, message) {
            // Whoever asks has begun it, as the generation says.
            (LaneKind::Both, Message::Ask { generation, .. }) => {
                generation & 1 == u32::from(from > self.own)
            }
            (LaneKind::Both, _) => true,
            (_, Message::Ask { .. }) => false,
            (LaneKind::Owner, _) => message.is_for_owner(),
            (LaneKind::Holder, _) => !message.is_for_owner(),
        };
        if !is_meant || from == self.own {
            return Err(Violation {
                peer: from,
                message,
            });
        }
        let generation = message.generation();
        let at = self.of(from);
        // What is about an exchange that is over finds no slot.
        let current = at.filter(|&at| self.slots[at].generation == generation);
        let state = current.map(|at| (at, self.slots[at].state));
        match (message, state) {
            (Message::Ask { weight, .. }, _) => {
                self.on_ask(from, generation, weight, at, tracker, act);
            }
            (Message::Offer { .. }, Some((at, State::Asked))) => self.connect(at, act),
            (Message::Offer { slot, size, .. }, None) if self.kind == LaneKind::Holder => {
                match self.free() {
                    Some(free) if at.is_none() => {
                        self.reserve(free, State::Open, from, generation, 0);
                        send(act, from, Message::Taken { generation });
                        self.open(free, slot, size, act);
                    }
                    _ => self.deny(from, generation, 0, self.settings.hold, act),
                }
            }
            (Message::Offer { .. }, None) if self.probe == Some((from, generation)) => {
                self.probe = None;
                self.on_willing(from, generation, tracker, act);
            }
            // The ask was given up meanwhile.
            (Message::Offer { .. }, _) => self.deny(from, generation, 0, 0, act),
            (Message::Taken { .. }, Some((at, State::Offered))) => self.taken(at, act),
            (Message::Denied { price, rest, .. }, None)
                if self.probe == Some((from, generation)) =>
            {
                self.probe = None;
                self.denials.note(from, price, rest.into(), self.round);
            }
            (
                Message::Denied { price, rest, .. },
                Some((at, state @ (State::Asked | State::Connecting | State::Offered))),
            ) => {
                self.close(at, act);
                // An offer that answered an ask is denied by those who don't want it any more.
                if state != State::Offered || self.kind == LaneKind::Owner {
                    self.denials.note(from, price, rest.into(), self.round);
                }
            }
            (Message::Recall { .. }, Some((at, State::Open | State::Leaving))) => {
                self.slots[at].state = State::Draining;
                act(Action::Drain {
                    slot: at as u16,
                    peer: from,
                });
            }
            // Both have recalled it, and have left it before.
            (Message::Recall { .. }, Some((at, State::Recalled)))
            | (Message::Returned { .. }, Some((at, State::Recalled))) => self.close(at, act),
            (Message::Recall { .. }, Some((at, State::Offered))) => {
                // It has overtaken the answer.
                send(act, from, Message::Returned { generation });
                self.close(at, act);
            }
            (Message::Recall { .. }, None) => send(act, from, Message::Returned { generation }),
            (
                Message::Taken { .. }
                | Message::Denied { .. }
                | Message::Recall { .. }
                | Message::Returned { .. },
                _,
            ) => {}
        }
        Ok(())
    }

    /// By the base path it was announced that what comes next comes by a lane: which one, if it is
    /// still that peer's. It has to be looked at from now on.
    pub fn on_announced(
        &mut self,
        from: u32,
        generation: u32,
        act: &mut dyn FnMut(Action),
    ) -> Option<u16> {
        let at = self
            .of(from)
            .filter(|&at| self.slots[at].generation == generation)?;
        match self.slots[at].state {
            // Nobody could have been given it.
            State::Asked | State::Connecting => return None,
            // It has overtaken the answer.
            State::Offered => self.taken(at, act),
            _ => {}
        }
        self.slots[at].is_watched = true;
        Some(at as u16)
    }

    /// A peer that was asked while all lanes were in use has one to share. If there is none now one
    /// is made free, and asked for again: the peer must not wait until somebody else has left it.
    fn on_willing(
        &mut self,
        from: u32,
        generation: u32,
        tracker: &Tracker,
        act: &mut dyn FnMut(Action),
    ) {
        let has_none = self.of(from).is_none();
        if let Some(free) = self.free().filter(|_| has_none) {
            self.reserve(free, State::Asked, from, generation, 0);
            self.connect(free, act);
            return;
        }
        if has_none {
            self.make_room(from, tracker, act);
        }
        self.deny(from, generation, 0, 0, act);
    }

    /// A peer that was asked is willing.
    fn connect(&mut self, at: usize, act: &mut dyn FnMut(Action)) {
        let slot = &mut self.slots[at];
        slot.state = State::Connecting;
        act(Action::Connect {
            slot: at as u16,
            peer: slot.peer,
            generation: slot.generation,
        });
    }

    fn taken(&mut self, at: usize, act: &mut dyn FnMut(Action)) {
        self.open(at, at as u16, self.settings.size, act);
    }

    /// Whether a lane becomes free that a peer may have if it comes again.
    fn make_room(&mut self, peer: u32, tracker: &Tracker, act: &mut dyn FnMut(Action)) -> bool {
        if self.coming() > 0 {
            return true;
        }
        let victim = self.victim(tracker, tracker.weight(peer));
        if let Some((victim, _)) = victim {
            self.recall(victim, act);
        }
        victim.is_some()
    }

    /// Somebody wants a lane that costs a slot here.
    ///
    /// What the ask says is enough for a free one. Whether another peer loses its lane follows from
    /// what this rank sees of both: a rank's samples are parts of its own traffic, and no measure
    /// beside a faster or slower rank's.
    fn on_ask(
        &mut self,
        from: u32,
        generation: u32,
        weight: Weight,
        at: Option<usize>,
        tracker: &Tracker,
        act: &mut dyn FnMut(Action),
    ) {
        if let Some(at) = at {
            // Each has asked the other: the lower one's counts. Else one end is not through with
            // the lane before.
            match self.slots[at].state {
                State::Asked if from < self.own => self.offer(at, from, generation, act),
                _ => self.deny(from, generation, 0, 1, act),
            }
        } else if let Some(free) = self.free() {
            self.offer(free, from, generation, act);
        } else if let Some(weaker) = self.weaker_ask(from, weight) {
            // Its answer finds nothing.
            self.offer(weaker, from, generation, act);
        } else if self.make_room(from, tracker, act) {
            self.deny(from, generation, 0, 1, act);
        } else {
            let lightest = self.lightest(tracker, |_| true);
            let (price, rest) = lightest.map_or((0, 1), |(at, held)| {
                (
                    self.settings.price(held),
                    self.held_for(&self.slots[at]).max(1),
                )
            });
            self.deny(from, generation, price, rest, act);
        }
    }

    /// An ask of this rank's that goes back behind another rank's. All ranks put asks in the same
    /// order, so among asks that wait for each other in a ring there is always one that none of
    /// them goes before.
    fn weaker_ask(&self, from: u32, weight: Weight) -> Option<usize> {
        let order = |peer: u32, weight| (weight, Reverse((self.own.min(peer), self.own.max(peer))));
        let asks = self.slots.iter().enumerate();
        let (at, slot) = asks
            .filter(|(_, slot)| slot.state == State::Asked)
            .min_by_key(|(_, slot)| order(slot.peer, slot.asked))?;
        (order(from, weight) > order(slot.peer, slot.asked)).then_some(at)
    }

    pub(super) fn deny(
        &mut self,
        to: u32,
        generation: u32,
        price: Weight,
        rest: u32,
        act: &mut dyn FnMut(Action),
    ) {
        let rest = u16::try_from(rest).unwrap_or(u16::MAX);
        let message = Message::Denied {
            generation,
            price,
            rest,
        };
        send(act, to, message);
    }
}
