//! The negotiation of lanes, which decides which peers have a rank's lanes and when a lane moves to
//! another peer.

mod receive;
#[cfg(test)]
mod tests;

use crate::denials::Denials;
use crate::{Message, SAMPLE, Settings, SettingsError, Tracker, Weight};

/// The end that pays for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneKind {
    /// The receiver of the messages pays, and this rank is the receiver. It offers lanes to the
    /// peers with the most traffic.
    Owner,
    /// The receiver of the messages pays, and this rank is the sender. It accepts offers.
    Holder,
    /// Both ends pay. One asks the other, and both send on the lane.
    Both,
}

/// The state of a lane.
///
/// ```text
/// Free ── Ask sent ────> Asked ──── Offer came ──────────────> Connecting
/// Connecting ── connected, Taken sent ───────────────────────> Open
/// Free ── Offer sent ──> Offered ── Taken came ──────────────> Open
/// Open ── another peer beats it ──> Leaving ── drained, Recall sent ──> Recalled
/// Recalled ── Returned came, or the peer's Recall ──> Free
/// Open ── Recall came ──> Draining ── drained, Returned sent ──> Free
/// ```
///
/// A denial leads back to `Free`, and so do a failed connection and, from every state, the peer's
/// death. An owner sends nothing on its lanes, so it has nothing to drain and recalls them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The lane is unused.
    Free,
    /// The lane is reserved for a peer that was asked for one.
    Asked,
    /// The peer has offered the lane, and the connection is being established. This state exists
    /// only if both ends pay.
    Connecting,
    /// The lane is reserved for a peer to which it was offered.
    Offered,
    /// The lane is in use with a peer.
    Open,
    /// The lane is about to be recalled, and this end is leaving it first.
    Leaving,
    /// The lane was recalled, and this end has left it.
    Recalled,
    /// The peer has recalled the lane, and this end is leaving it.
    Draining,
}

/// An action that the caller must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to a peer. Messages to one peer may overtake each other.
    Send {
        /// The peer.
        to: u32,
        /// The message.
        message: Message,
    },
    /// Establish a connection with the peer, which has been waiting for it since the peer sent its
    /// offer. Then call [`Lanes::connected`] or [`Lanes::refused`]. This action occurs only if both
    /// ends pay.
    Connect {
        /// The lane's slot at this rank.
        slot: u16,
        /// The peer.
        peer: u32,
        /// The generation of the exchange.
        generation: u32,
    },
    /// Start to use the lane with the peer: call [`Outlet::open`](crate::Outlet::open).
    Open {
        /// The lane's slot at this rank.
        slot: u16,
        /// The peer.
        peer: u32,
        /// The generation to announce.
        generation: u32,
        /// The lane's slot at its owner, or at this rank if both ends pay.
        place: u16,
        /// The lane's size.
        size: u32,
    },
    /// Leave the lane: call [`Outlet::drain`](crate::Outlet::drain), and [`Lanes::drained`] once
    /// the lane is empty.
    Drain {
        /// The lane's slot at this rank.
        slot: u16,
        /// The peer.
        peer: u32,
    },
    /// Stop using the lane, which is free now. If the peer is dead, the lane's contents are lost.
    Close {
        /// The lane's slot at this rank.
        slot: u16,
        /// The peer that had the lane.
        peer: u32,
    },
}

/// A protocol violation by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {peer} violated the lane protocol: sent {message:?}")]
pub struct Violation {
    /// The peer.
    pub peer: u32,
    /// The message that the peer sent.
    pub message: Message,
}

/// A snapshot of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The lane's slot.
    pub slot: u16,
    /// The peer that has the lane or will get it.
    pub peer: u32,
    /// The generation of the exchange.
    pub generation: u32,
    /// The lane's state.
    pub state: State,
    /// Whether the receiver has to poll the lane for messages.
    pub is_watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    state: State,
    /// Whether the announcement has been received, so that this rank has to poll the lane.
    is_watched: bool,
    peer: u32,
    generation: u32,
    /// The round in which the slot was reserved or opened.
    since: u32,
    /// The weight stated in this rank's ask, by which asks are ordered until the answer arrives.
    asked: Weight,
}

impl Slot {
    const FREE: Self = Self {
        state: State::Free,
        is_watched: false,
        peer: 0,
        generation: 0,
        since: 0,
        asked: 0,
    };
}

/// A rank's lanes of one kind.
///
/// The caller must drop all messages from a peer that was reported dead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lanes {
    own: u32,
    pub(crate) kind: LaneKind,
    settings: Settings,
    slots: Box<[Slot]>,
    denials: Denials,
    /// While all lanes are in use, a peer may be asked whether it would share one. This is the peer
    /// that was asked, and the generation of that exchange.
    probe: Option<(u32, u32)>,
    /// The number of exchanges that this rank has begun.
    begun: u32,
    round: u32,
}

impl Lanes {
    /// Creates the lanes of rank `own`, all free.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range.
    pub fn new(own: u32, kind: LaneKind, settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            own,
            kind,
            slots: vec![Slot::FREE; settings.slots.into()].into_boxed_slice(),
            denials: Denials::new(own, settings.backoff),
            settings,
            probe: None,
            begun: 0,
            round: 0,
        })
    }

    /// Returns whether an ask for which no lane is reserved awaits its answer.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns the number of bytes that each lane takes in addition to the size of [`Lanes`]
    /// itself.
    #[must_use]
    pub fn slot_size(&self) -> usize {
        size_of_val(&*self.slots) / self.slots.len().max(1)
    }

    /// Returns all lanes that are not free.
    pub fn iter(&self) -> impl Iterator<Item = Lane> {
        let all = (0..).zip(&self.slots);
        all.filter(|(_, lane)| lane.state != State::Free)
            .map(|(slot, lane)| Lane {
                slot,
                peer: lane.peer,
                generation: lane.generation,
                state: lane.state,
                is_watched: lane.is_watched,
            })
    }

    /// Ends a round and reassigns lanes by weight. For [`LaneKind::Holder`], only ends the round.
    pub fn progress(&mut self, tracker: &Tracker, act: &mut dyn FnMut(Action)) {
        self.round = self.round.wrapping_add(1);
        self.denials.progress();
        if self.kind == LaneKind::Holder {
            return;
        }
        let mut coming = self.coming();
        let (count, heaviest) = tracker.heaviest(self.settings.least());
        for &(weight, peer) in &heaviest[..count] {
            let is_probed = self.probe.is_some_and(|(probed, _)| probed == peer);
            let is_out = peer == self.own || is_probed || self.of(peer).is_some();
            if is_out || self.denials.rests(peer, weight, self.round) {
                continue;
            }
            if let Some(at) = self.free() {
                self.begin(at, peer, weight, act);
            } else if coming > 0 {
                // A lane that is about to become free will serve this peer.
                coming -= 1;
            } else if let Some((victim, held)) = self.victim(tracker, weight) {
                // If both ends pay, a peer loses a lane in use only once another peer is known to
                // want it.
                if self.kind != LaneKind::Both || held < SAMPLE {
                    self.recall(victim, act);
                } else if self.probe.is_none() {
                    let generation = self.next_generation(peer);
                    self.probe = Some((peer, generation));
                    send(act, peer, Message::Ask { generation, weight });
                }
            } else {
                break;
            }
        }
    }

    /// Notes that a connection was established. Accepts the peer's offer and opens the lane.
    pub fn connected(&mut self, slot: u16, act: &mut dyn FnMut(Action)) {
        let at = usize::from(slot);
        if self.is_connecting(at) {
            let Slot {
                peer, generation, ..
            } = self.slots[at];
            send(act, peer, Message::Taken { generation });
            self.open(at, slot, self.settings.size, act);
        }
    }

    /// Notes that a connection could not be established. Denies the peer's offer, and does not ask
    /// that peer again for some rounds.
    pub fn refused(&mut self, slot: u16, act: &mut dyn FnMut(Action)) {
        let at = usize::from(slot);
        if self.is_connecting(at) {
            let Slot {
                peer, generation, ..
            } = self.slots[at];
            self.denials.note(peer, 0, self.settings.hold, self.round);
            self.deny(peer, generation, 0, self.settings.hold, act);
            self.close(at, act);
        }
    }

    fn is_connecting(&self, at: usize) -> bool {
        let slot = self.slots.get(at);
        slot.is_some_and(|slot| slot.state == State::Connecting)
    }

    /// Completes a drain. The caller must call this when the sender has left the lane and uses the
    /// base path.
    pub fn drained(&mut self, slot: u16, act: &mut dyn FnMut(Action)) {
        let at = usize::from(slot);
        let Some(&Slot {
            state,
            peer,
            generation,
            ..
        }) = self.slots.get(at)
        else {
            return;
        };
        match state {
            State::Leaving => {
                self.slots[at].state = State::Recalled;
                send(act, peer, Message::Recall { generation });
            }
            State::Draining => {
                // The peer needs the lane for another peer, so this rank does not ask it again at
                // once.
                self.denials.note(peer, 0, self.settings.hold, self.round);
                send(act, peer, Message::Returned { generation });
                self.close(at, act);
            }
            _ => {}
        }
    }

    /// Recalls an open lane, even if its peer has a high weight. This is for tests.
    pub fn recall_now(&mut self, slot: u16, act: &mut dyn FnMut(Action)) {
        let at = usize::from(slot);
        if self
            .slots
            .get(at)
            .is_some_and(|slot| slot.state == State::Open)
        {
            self.recall(at, act);
        }
    }

    /// Frees everything that waits for a dead peer. The caller must also call [`Tracker::forget`]
    /// and note no more of the peer's traffic, because otherwise the dead peer would be offered a
    /// lane.
    pub fn on_death(&mut self, peer: u32, act: &mut dyn FnMut(Action)) {
        self.denials.forget(peer);
        self.probe = self.probe.filter(|&(probed, _)| probed != peer);
        if let Some(at) = self.of(peer) {
            self.close(at, act);
        }
    }

    fn of(&self, peer: u32) -> Option<usize> {
        self.slots
            .iter()
            .position(|slot| slot.state != State::Free && slot.peer == peer)
    }

    fn free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.state == State::Free)
    }

    /// Returns the number of lanes that are about to become free.
    fn coming(&self) -> usize {
        let is_coming = |slot: &&Slot| {
            matches!(
                slot.state,
                State::Leaving | State::Recalled | State::Draining
            )
        };
        self.slots.iter().filter(is_coming).count()
    }

    fn next_generation(&mut self, peer: u32) -> u32 {
        self.begun = self.begun.wrapping_add(1);
        // The lowest bit makes two ranks that begin exchanges with each other at the same time pick
        // different generations.
        self.begun << 1 | u32::from(self.own > peer)
    }

    /// Begins an exchange about a free lane.
    fn begin(&mut self, at: usize, peer: u32, weight: Weight, act: &mut dyn FnMut(Action)) {
        let generation = self.next_generation(peer);
        match self.kind {
            LaneKind::Both => {
                self.reserve(at, State::Asked, peer, generation, weight);
                send(act, peer, Message::Ask { generation, weight });
            }
            LaneKind::Owner | LaneKind::Holder => self.offer(at, peer, generation, act),
        }
    }

    fn offer(&mut self, at: usize, peer: u32, generation: u32, act: &mut dyn FnMut(Action)) {
        self.reserve(at, State::Offered, peer, generation, 0);
        let message = Message::Offer {
            generation,
            slot: at as u16, // Lossless, because the number of slots is a `u16`.
            size: self.settings.size,
        };
        send(act, peer, message);
    }

    fn reserve(&mut self, at: usize, state: State, peer: u32, generation: u32, asked: Weight) {
        self.slots[at] = Slot {
            state,
            is_watched: false,
            peer,
            generation,
            since: self.round,
            asked,
        };
    }

    fn open(&mut self, at: usize, place: u16, size: u32, act: &mut dyn FnMut(Action)) {
        let slot = &mut self.slots[at];
        (slot.state, slot.since) = (State::Open, self.round);
        let (peer, generation) = (slot.peer, slot.generation);
        self.denials.forget(peer);
        act(Action::Open {
            slot: at as u16,
            peer,
            generation,
            place,
            size,
        });
    }

    fn close(&mut self, at: usize, act: &mut dyn FnMut(Action)) {
        let peer = self.slots[at].peer;
        self.slots[at] = Slot::FREE;
        act(Action::Close {
            slot: at as u16,
            peer,
        });
    }

    /// Recalls a lane. An owner recalls at once, because it has nothing to drain.
    fn recall(&mut self, at: usize, act: &mut dyn FnMut(Action)) {
        let slot = &mut self.slots[at];
        let (peer, generation) = (slot.peer, slot.generation);
        if self.kind == LaneKind::Both {
            slot.state = State::Leaving;
            act(Action::Drain {
                slot: at as u16,
                peer,
            });
        } else {
            slot.state = State::Recalled;
            send(act, peer, Message::Recall { generation });
        }
    }

    /// Returns the number of rounds for which the peer keeps the lane no matter how much traffic
    /// there is.
    fn held_for(&self, slot: &Slot) -> u32 {
        let age = self.round.wrapping_sub(slot.since);
        self.settings.hold.saturating_sub(age)
    }

    /// Returns the open lane with the lightest peer among those that satisfy `is_meant`, and that
    /// peer's weight.
    fn lightest(
        &self,
        tracker: &Tracker,
        is_meant: impl Fn(&Slot) -> bool,
    ) -> Option<(usize, Weight)> {
        let all = self.slots.iter().enumerate();
        all.filter(|(_, slot)| slot.state == State::Open && is_meant(slot))
            .map(|(at, slot)| (at, tracker.weight(slot.peer)))
            .min_by_key(|&(_, weight)| weight)
    }

    /// Returns the lane that a peer of this weight may take over, if any, and the weight of the
    /// lane's holder.
    fn victim(&self, tracker: &Tracker, weight: Weight) -> Option<(usize, Weight)> {
        let (at, held) = self.lightest(tracker, |slot| self.held_for(slot) == 0)?;
        self.settings.beats(weight, held).then_some((at, held))
    }
}

fn send(act: &mut dyn FnMut(Action), to: u32, message: Message) {
    act(Action::Send { to, message });
}
