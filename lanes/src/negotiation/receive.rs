//! The handling of messages from other ranks.

use std::cmp::Reverse;

use super::{Action, LaneKind, Lanes, State, Violation, send};
use crate::{Message, Tracker, Weight};

impl Lanes {
    /// Handles a message from a peer. The tracker must be the one that is passed to
    /// [`progress`](Self::progress). A [`LaneKind::Holder`] does not use it.
    ///
    /// # Errors
    /// Returns an error if no honest peer would send this message. In that case, the message has no
    /// effect.
    pub fn on_message(
        &mut self,
        from: u32,
        message: Message,
        tracker: &Tracker,
        act: &mut dyn FnMut(Action),
    ) -> Result<(), Violation> {
        let is_meant = match (self.kind, message) {
            // The asking rank began the exchange, which the generation's lowest bit must confirm.
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
        // A message about a finished exchange matches no slot.
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
            // This rank has given up its ask in the meantime.
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
                // A denied offer is not recorded if both ends pay, because the denial only means
                // that the peer no longer wants the lane that it asked for.
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
            // A recall in this state means that both ends have recalled the lane. Each recalls it
            // only after leaving it, so it is free.
            (Message::Recall { .. }, Some((at, State::Recalled)))
            | (Message::Returned { .. }, Some((at, State::Recalled))) => self.close(at, act),
            (Message::Recall { .. }, Some((at, State::Offered))) => {
                // The peer's recall has overtaken its answer to the offer.
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

    /// Handles the announcement, received on the base path, that the following messages use a lane.
    /// Returns the lane if the peer still has it. The receiver must poll the lane from now on.
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
            // In these states, the peer cannot have the lane yet.
            State::Asked | State::Connecting => return None,
            // The announcement has overtaken the peer's answer to the offer.
            State::Offered => self.taken(at, act),
            _ => {}
        }
        self.slots[at].is_watched = true;
        Some(at as u16)
    }

    /// Handles the offer of a peer that was asked while all lanes were in use. If no lane is free
    /// now, recalls one and denies the offer, and asks the peer again later. Without the denial,
    /// the peer would have to wait until another rank has left the recalled lane.
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

    /// Starts a connection with a peer that has accepted the ask.
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

    /// Recalls a lane for a later ask from this peer, unless a lane is about to become free.
    /// Returns whether a lane will become free.
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

    /// Answers an ask for a lane that takes a slot at this rank.
    ///
    /// The weight in the ask suffices for a free lane. Whether another peer loses its lane depends
    /// on the traffic that this rank itself sees with each of the two, because a rank's samples are
    /// fractions of its own traffic and cannot be compared with those of a faster or slower rank.
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
            // If the two ranks' asks crossed, the lower rank's ask counts. In any other state, one
            // end has not finished with the previous lane.
            match self.slots[at].state {
                State::Asked if from < self.own => self.offer(at, from, generation, act),
                _ => self.deny(from, generation, 0, 1, act),
            }
        } else if let Some(free) = self.free() {
            self.offer(free, from, generation, act);
        } else if let Some(weaker) = self.weaker_ask(from, weight) {
            // This replaces the ask to another peer, whose answer will match no slot.
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

    /// Returns the slot of this rank's lowest ask, if that ask yields to another rank's. All ranks
    /// order asks identically, so in every cycle of waiting asks, one ask takes precedence over the
    /// others.
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
