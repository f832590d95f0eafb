//! The driver, which runs a rank's lanes on behalf of a network.

use crate::{
    Action, Lane, LaneKind, Lanes, Message, ROWS, Sampler, Settings, SettingsError, State,
    Statistics, Tracker, Violation,
};

/// A network with lanes, run by a [`Driver`].
pub trait Carrier {
    /// Whether the owner of a lane also counts the lane's promotions and demotions. Otherwise, only
    /// the holder does.
    const COUNTS_LENT: bool;

    /// Sends a message on the base path. Returns `false` if there is no room. In that case, the
    /// driver keeps the message and tries again later.
    fn send(&mut self, to: u32, message: Message) -> bool;

    /// Carries out an action on a lane. `kind` is the lane's kind at this rank. An [`Action::Send`]
    /// is passed to this method before its message is passed to [`send`](Self::send).
    fn act(&mut self, kind: LaneKind, action: Action);

    /// Returns whether the connection with this peer has been established, or `None` while the
    /// attempt is in progress.
    fn made(&mut self, _peer: u32) -> Option<bool> {
        None
    }

    /// Returns whether the peer has received everything sent on a lane that this rank is leaving.
    /// If so, later messages use the base path.
    fn has_left(&mut self, slot: u16, peer: u32) -> bool;
}

/// A rank's lanes, its traffic, and the messages about lanes that wait for room.
#[derive(Debug)]
pub struct Driver {
    /// The sampler, for networks that count all traffic in one place.
    pub sampler: Sampler,
    /// The sampled traffic.
    pub tracker: Tracker,
    /// The settings.
    pub settings: Settings,
    /// For tests, the number of uses after which each lane is recalled, even if its peer has a high
    /// weight. With 0, lanes are not recalled for this reason.
    force: u32,
    /// The number of uses of each owned or shared lane since it was opened, by slot.
    used: Box<[u32]>,
    /// The table of owned lanes and the table of held lanes, or a single table of lanes that cost
    /// both ends.
    tables: Vec<Lanes>,
    /// Whether a lane may be connecting or draining.
    is_moving: bool,
    /// The messages that wait for room, with their destinations.
    outbox: Vec<(u32, Message)>,
    /// The counters of lane events.
    pub statistics: Statistics,
}

impl Driver {
    /// Creates the driver of rank `own`, which owns `settings.slots` lanes and holds at most `held`
    /// lanes of other ranks. If `held` is `None`, lanes cost both ends.
    ///
    /// For tests, a nonzero `force` recalls each lane after that many uses and lowers the threshold
    /// to its minimum.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range.
    pub fn new(
        own: u32,
        mut settings: Settings,
        held: Option<u16>,
        force: u32,
    ) -> Result<Self, SettingsError> {
        if force > 0 {
            settings = settings.forced();
        }
        let table = |kind, slots| {
            let settings = settings.clone();
            Lanes::new(own, kind, Settings { slots, ..settings })
        };
        let tables = match held {
            None => vec![table(LaneKind::Both, settings.slots)?],
            Some(held) => vec![
                table(LaneKind::Owner, settings.slots)?,
                table(LaneKind::Holder, held)?,
            ],
        };
        Ok(Self {
            sampler: Sampler::new(settings.interval, own),
            tracker: Tracker::new(settings.decay),
            tables,
            used: vec![0; settings.slots.into()].into(),
            force,
            settings,
            is_moving: false,
            outbox: Vec::new(),
            statistics: Statistics::default(),
        })
    }

    /// Returns whether the current round has enough samples.
    #[must_use]
    pub fn is_round_over(&self) -> bool {
        self.tracker.samples() >= self.settings.samples
    }

    /// Ends a round.
    pub fn end_round(&mut self, carrier: &mut impl Carrier) {
        self.tracker.progress();
        self.on(0, carrier, |lanes, tracker, act| {
            lanes.progress(tracker, act)
        });
    }

    /// Handles a message from a peer.
    ///
    /// # Errors
    /// Returns an error if the message violates the protocol. In that case, the message has no
    /// effect.
    pub fn on_message(
        &mut self,
        from: u32,
        message: Message,
        carrier: &mut impl Carrier,
    ) -> Result<(), Violation> {
        let table = usize::from(!message.is_for_owner()).min(self.sending());
        self.on(table, carrier, |lanes, tracker, act| {
            lanes.on_message(from, message, tracker, act)
        })
    }

    /// Calls [`Lanes::on_announced`].
    pub fn on_announced(
        &mut self,
        from: u32,
        generation: u32,
        carrier: &mut impl Carrier,
    ) -> Option<u16> {
        self.on(0, carrier, |lanes, _, act| {
            lanes.on_announced(from, generation, act)
        })
    }

    /// Forgets a dead peer (see [`Lanes::on_death`]) and drops the messages that wait for it.
    pub fn on_death(&mut self, peer: u32, carrier: &mut impl Carrier) {
        self.tracker.forget(peer);
        for table in 0..self.tables.len() {
            self.on(table, carrier, |lanes, _, act| lanes.on_death(peer, act));
        }
        self.outbox.retain(|(to, _)| *to != peer);
    }

    /// Calls [`Lanes::recall_now`] for a lane that this rank owns or shares. This is for tests.
    pub fn recall_now(&mut self, slot: u16, carrier: &mut impl Carrier) {
        self.on(0, carrier, |lanes, _, act| lanes.recall_now(slot, act));
    }

    /// Counts uses of a lane that this rank owns or shares.
    pub fn used(&mut self, place: usize, uses: u32) {
        self.used[place] = self.used[place].saturating_add(uses);
    }

    /// Completes the transitions of lanes that have connected or drained. Returns `false` if
    /// `advance` must be called again, because a transition is pending or tests force recalls.
    pub fn advance(&mut self, carrier: &mut impl Carrier) -> bool {
        let is_forced = self.force > 0 && self.lent().next().is_some();
        if is_forced {
            for place in 0..self.used.len() {
                if self.used[place] >= self.force {
                    // The cast is lossless, because a rank has at most `u16::MAX` lanes.
                    self.recall_now(place as u16, carrier);
                }
            }
        }
        if !std::mem::take(&mut self.is_moving) {
            return !is_forced;
        }
        let sending = self.sending();
        for slot in 0..ROWS as u16 {
            let Some(Lane { peer, state, .. }) = self.held().find(|lane| lane.slot == slot) else {
                continue;
            };
            let is_through = match state {
                State::Connecting => carrier.made(peer),
                State::Leaving | State::Draining => carrier.has_left(slot, peer).then_some(true),
                _ => continue,
            };
            let Some(is_made) = is_through else {
                self.is_moving = true;
                continue;
            };
            self.on(sending, carrier, |lanes, _, act| match (state, is_made) {
                (State::Connecting, true) => lanes.connected(slot, act),
                (State::Connecting, false) => lanes.refused(slot, act),
                _ => lanes.drained(slot, act),
            });
        }
        !self.is_moving && !is_forced
    }

    /// Tries again to send the messages that wait for room.
    pub fn flush(&mut self, carrier: &mut impl Carrier) {
        self.outbox
            .retain(|&(to, message)| !carrier.send(to, message));
    }

    /// Returns the destinations of the messages that wait for room.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = u32> {
        self.outbox.iter().map(|(to, _)| *to)
    }

    /// Returns the lanes in use that this rank owns or shares.
    pub fn lent(&self) -> impl Iterator<Item = Lane> {
        self.tables[0].iter()
    }

    /// Returns the lanes in use on which this rank sends.
    pub fn held(&self) -> impl Iterator<Item = Lane> {
        self.tables[self.sending()].iter()
    }

    fn sending(&self) -> usize {
        self.tables.len() - 1
    }

    /// Runs a step of one table and carries out its actions.
    fn on<C: Carrier, R>(
        &mut self,
        table: usize,
        carrier: &mut C,
        run: impl FnOnce(&mut Lanes, &Tracker, &mut dyn FnMut(Action)) -> R,
    ) -> R {
        let lanes = &mut self.tables[table];
        let kind = lanes.kind;
        run(lanes, &self.tracker, &mut |action| {
            if C::COUNTS_LENT || kind != LaneKind::Owner || matches!(action, Action::Send { .. }) {
                self.statistics.count(&action);
            }
            carrier.act(kind, action);
            match action {
                Action::Send { to, message } => {
                    if matches!(message, Message::Ask { .. }) {
                        // An older ask to the same peer that still waits for room is dropped,
                        // because the lanes have given it up.
                        self.outbox.retain(|(other, message)| {
                            *other != to || !matches!(message, Message::Ask { .. })
                        });
                    }
                    if !carrier.send(to, message) {
                        self.outbox.push((to, message));
                    }
                }
                Action::Connect { .. } | Action::Drain { .. } => self.is_moving = true,
                Action::Close { slot, .. } if kind != LaneKind::Holder => {
                    self.used[usize::from(slot)] = 0;
                }
                Action::Open { .. } | Action::Close { .. } => {}
            }
        })
    }
}
