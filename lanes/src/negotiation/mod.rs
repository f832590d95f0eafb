//! Who has a rank's lanes, and when that changes.

mod receive;
#[cfg(test)]
mod tests;

use crate::denials::Denials;
use crate::{Message, SAMPLE, Settings, SettingsError, Tracker, Weight};

/// Who pays for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneKind {
    /// The one that messages go to, and this is that end: it offers lanes to the peers that it
    /// hears from most.
    Owner,
    /// The one that messages go to, and this is the other end: it takes what it is offered.
    Holder,
    /// Both ends: one asks the other, and both use the lane.
    Both,
}

/// Where a lane stands.
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
/// A denial leads back to `Free`, and so do a connection that fails and the peer's death, from
/// everywhere and at once. An owner sends nothing by its lanes, so it has nothing to drain and recalls at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody's.
    Free,
    /// Kept for a peer that was asked for a lane.
    Asked,
    /// A peer has offered it, and the connection is being made. Only where both ends pay.
    Connecting,
    /// Kept for a peer that was offered it.
    Offered,
    /// A peer's.
    Open,
    /// To be recalled: this end leaves it first.
    Leaving,
    /// Recalled, and this end has left it.
    Recalled,
    /// Recalled by the peer: this end leaves it.
    Draining,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A message has to go to a peer. Messages to one peer may overtake each other.
    Send {
        /// The peer.
        to: u32,
        /// The message.
        message: Message,
    },
    /// A connection has to be made with the peer, which waits for it since it has sent its offer;
    /// then [`Lanes::connected`] or [`Lanes::refused`]. Only where both ends pay.
    Connect {
        /// The lane's place here.
        slot: u16,
        /// The peer.
        peer: u32,
        /// The exchange that it is about.
        generation: u32,
    },
    /// The peer has the lane, which can be used: [`Outlet::open`](crate::Outlet::open).
    Open {
        /// The lane's place here.
        slot: u16,
        /// The peer.
        peer: u32,
        /// What has to be announced.
        generation: u32,
        /// The lane's place at its owner; where both ends pay, here.
        place: u16,
        /// What it is worth.
        size: u32,
    },
    /// The lane has to be left: [`Outlet::drain`](crate::Outlet::drain), and [`Lanes::drained`]
    /// once nothing is in it.
    Drain {
        /// The lane's place here.
        slot: u16,
        /// The peer.
        peer: u32,
    },
    /// The lane is nobody's. If the peer is dead what was in it is lost.
    Close {
        /// The lane's place here.
        slot: u16,
        /// The peer that it was for.
        peer: u32,
    },
}

/// A peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {peer} sends {message:?}, which an honest rank never does")]
pub struct Violation {
    /// The peer.
    pub peer: u32,
    /// What it has sent.
    pub message: Message,
}

/// A lane as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its place.
    pub slot: u16,
    /// The peer that it is for.
    pub peer: u32,
    /// The exchange that it is about.
    pub generation: u32,
    /// Where it stands.
    pub state: State,
    /// Whether it has to be looked at for messages.
    pub is_watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    state: State,
    /// The receiver has met the announcement, and looks at the lane.
    is_watched: bool,
    peer: u32,
    generation: u32,
    /// The round in which it came to this state, as far as that matters.
    since: u32,
    /// What an ask says; it counts until it is answered.
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

/// The lanes of a rank, of one kind.
///
/// What comes from a peer that was reported dead must not be passed on to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lanes {
    own: u32,
    pub(crate) kind: LaneKind,
    settings: Settings,
    slots: Box<[Slot]>,
    denials: Denials,
    /// Where all lanes are in use: a peer that was asked whether it has one to share, and the
    /// generation.
    probe: Option<(u32, u32)>,
    /// Exchanges begun.
    begun: u32,
    round: u32,
}

impl Lanes {
    /// Those of rank `own`, all free.
    ///
    /// # Errors
    /// The settings can't be.
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

    /// Whether an answer is awaited to an ask that no lane is kept for.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Bytes that each lane takes, beside those of the type itself.
    #[must_use]
    pub fn slot_size(&self) -> usize {
        size_of_val(&*self.slots) / self.slots.len().max(1)
    }

    /// All lanes that are not free.
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

    /// A round is over: looks who should have a lane. [`LaneKind::Holder`] has nothing to look for.
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
                // That one will do when it is there.
                coming -= 1;
            } else if let Some((victim, held)) = self.victim(tracker, weight) {
                // Nobody loses a lane that is in use before the other one is known to be willing.
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

    /// The connection that had to be made is there: the peer is told that its offer was taken.
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

    /// The connection that had to be made can't be: the peer's offer is denied, and it is not asked
    /// at once again.
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

    /// The sender has left a lane that it had to leave, and goes on by the base path.
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
                // It needed the lane for somebody else: not at once again.
                self.denials.note(peer, 0, self.settings.hold, self.round);
                send(act, peer, Message::Returned { generation });
                self.close(at, act);
            }
            _ => {}
        }
    }

    /// For tests: takes a lane back that is open, whatever it is worth.
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

    /// A peer is dead: nothing waits for it any more. [`Tracker::forget`] it as well, and note no more
    /// of its traffic: it would be offered a lane.
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

    /// Lanes that will be free soon.
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
        // So that those of two ranks that begin at the same time differ.
        self.begun << 1 | u32::from(self.own > peer)
    }

    /// Begins an exchange for a lane that is free.
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
            slot: at as u16, // Fits: there are fewer slots.
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

    /// Takes a lane back. An owner has nothing in it.
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

    /// Rounds for which a lane stays whatever comes.
    fn held_for(&self, slot: &Slot) -> u32 {
        let age = self.round.wrapping_sub(slot.since);
        self.settings.hold.saturating_sub(age)
    }

    /// The open lane of the lightest peer, among those that `is_meant`.
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

    /// Whose lane a peer of this weight may have, and what that one's weight is.
    fn victim(&self, tracker: &Tracker, weight: Weight) -> Option<(usize, Weight)> {
        let (at, held) = self.lightest(tracker, |slot| self.held_for(slot) == 0)?;
        self.settings.beats(weight, held).then_some((at, held))
    }
}

fn send(act: &mut dyn FnMut(Action), to: u32, message: Message) {
    act(Action::Send { to, message });
}
