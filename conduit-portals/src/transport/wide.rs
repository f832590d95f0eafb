//! Wide windows for the few peers that send most.
//!
//! In a large job the windows of all have the least size, whoever sends much: two of the largest
//! messages. So each rank has lanes ([`lanes`]) to give away, which are wide windows here.
//! A lane is a number: the peer's limit is raised when it takes the offer, and lowered when the
//! lane is recalled; it is returned once what is under way fits a window as all have it. What is
//! consumed is reported as before, so this may lag behind and does no harm.
//!
//! Traffic is noted when a report of it goes to the peer, so messages cost nothing more.

use ::lanes::{Action, Kind, Lanes, Message, ROWS, Sampler, State, Statistics, Tracker};
use conduit_core::ni::Rank;

use super::buffers::UNIT;
use super::config::PortalsConfig;
use super::control::Control;
use super::inbound::ProtocolError;
use super::link::Links;
use super::state::{Portals, schedule};
use super::window::WindowSize;

/// The most messages that an honest peer can leave without an answer, or with an answer that hasn't
/// gone yet: one about a lane of its own and one about a lane of this rank.
const MOST_QUEUED: usize = 2;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct WideWindows {
    sampler: Sampler,
    tracker: Tracker,
    /// Samples in a round.
    samples: u32,
    /// The lanes of this rank, and those that it has of others.
    owned: Lanes,
    held: Lanes,
    /// Lanes that this rank leaves: their places among those that it has, and whose they are.
    draining: Vec<(u16, Rank)>,
}

impl WideWindows {
    /// `None` where all windows are wider than they must be, or no lane is wider than those.
    pub(crate) fn new(rank: Rank, window: WindowSize, config: &PortalsConfig) -> Option<Self> {
        let mut settings = config.lanes.clone();
        let is_wider = window.widened(settings.size) != window;
        if settings.slots == 0 || !is_wider || !window.is_least(config.max_managed) {
            return None;
        }
        // One message is worth one sample at most. Fits: there are few.
        let largest = config.max_managed.div_ceil(UNIT) as u32;
        settings.interval = settings.interval.max(largest);
        let holding = ::lanes::Settings {
            slots: ROWS as u16,
            ..settings.clone()
        };
        Some(Self {
            sampler: Sampler::new(settings.interval, rank),
            tracker: Tracker::new(settings.decay),
            samples: settings.samples,
            owned: Lanes::new(rank, Kind::Owner, settings).ok()?,
            held: Lanes::new(rank, Kind::Holder, holding).ok()?,
            draining: Vec::with_capacity(ROWS),
        })
    }

    /// Who has lanes here, and where this rank has some.
    pub(crate) fn describe(&self) -> String {
        let ranks = |lanes: &Lanes| {
            let open = lanes.iter().filter(|lane| lane.state == State::Open);
            let ranks: Vec<String> = open.map(|lane| lane.peer.to_string()).collect();
            ranks.join(", ")
        };
        let all = [("here of", &self.owned), ("at", &self.held)].map(|(where_, lanes)| {
            let ranks = ranks(lanes);
            (!ranks.is_empty()).then(|| format!("wide windows {where_} ranks {ranks}"))
        });
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// What actions change.
struct Ends<'a> {
    links: &'a mut Links,
    outgoing: &'a mut Vec<Rank>,
    statistics: &'a mut Statistics,
    base: WindowSize,
}

impl Ends<'_> {
    fn send(&mut self, to: Rank, message: Message) {
        if let Some(link) = self.links.get(to) {
            link.control.push_back(Control::Lane(message));
            schedule(self.outgoing, link);
        }
    }

    /// Of a lane of this rank.
    fn owner(&mut self, action: Action) {
        match action {
            Action::Send { to, message } => {
                self.statistics.count(&action);
                if let Message::Offer { size, .. } = message
                    && let Some(link) = self.links.get(to)
                {
                    // What is sent by the lane may come before the answer.
                    link.receive_size = self.base.widened(size);
                }
                self.send(to, message);
            }
            Action::Close { peer, .. } => {
                // Of one that has left, what it sent by the lane may still come.
                if let Some(link) = self.links.get(peer).filter(|link| link.is_up()) {
                    link.receive_size = self.base;
                }
            }
            // The peer counts it as its promotion. An owner has nothing to drain.
            Action::Connect { .. } | Action::Open { .. } | Action::Drain { .. } => {}
        }
    }

    /// Of a lane that this rank has of another.
    fn holder(&mut self, action: Action, draining: &mut Vec<(u16, Rank)>) {
        self.statistics.count(&action);
        match action {
            Action::Send { to, message } => self.send(to, message),
            Action::Open { peer, size, .. } => {
                if let Some(link) = self.links.get(peer) {
                    link.send_size = self.base.widened(size);
                }
            }
            Action::Drain { slot, peer } => {
                if let Some(link) = self.links.get(peer) {
                    link.send_size = self.base;
                    draining.push((slot, peer));
                    schedule(self.outgoing, link);
                }
            }
            Action::Close { peer, .. } => draining.retain(|(_, draining)| *draining != peer),
            Action::Connect { .. } => {}
        }
    }
}

impl Portals {
    /// The lanes, and what they change.
    fn wide(&mut self) -> Option<(&mut WideWindows, Ends<'_>)> {
        let wide = self.wide.as_deref_mut()?;
        let ends = Ends {
            links: &mut self.links,
            outgoing: &mut self.outgoing,
            statistics: &mut self.counters.lanes,
            base: self.window,
        };
        Some((wide, ends))
    }

    /// So many units of a peer's messages were reported to it as consumed.
    #[inline]
    pub(crate) fn reported(&mut self, peer: Rank, units: u16) {
        if self.wide.is_some() {
            self.note(peer, units);
        }
    }

    #[cold]
    fn note(&mut self, peer: Rank, units: u16) {
        let Some((wide, mut ends)) = self.wide() else {
            return;
        };
        let samples = wide.sampler.pass(units.into());
        if samples == 0 || !ends.links.get(peer).is_some_and(|link| link.is_up()) {
            return;
        }
        wide.tracker.touch(peer, samples);
        if wide.tracker.samples() >= wide.samples {
            wide.tracker.progress();
            let act = &mut |action| ends.owner(action);
            wide.owned.progress(&wide.tracker, act);
        }
    }

    /// A peer has sent a message about a lane.
    pub(crate) fn lane_message_arrives(
        &mut self,
        peer: Rank,
        message: Message,
    ) -> Result<(), ProtocolError> {
        let (wide, mut ends) = self.wide().ok_or(ProtocolError)?;
        let link = ends.links.get(peer).ok_or(ProtocolError)?;
        if !link.is_up() {
            return Ok(());
        }
        let control = link.control.iter();
        let queued = control.filter(|control| matches!(control, Control::Lane(_)));
        if queued.count() >= MOST_QUEUED {
            return Err(ProtocolError);
        }
        let WideWindows {
            tracker,
            owned,
            held,
            draining,
            ..
        } = wide;
        let result = match message.is_for_owner() {
            true => owned.on_message(peer, message, tracker, &mut |action| ends.owner(action)),
            false => held.on_message(peer, message, tracker, &mut |action| {
                ends.holder(action, draining);
            }),
        };
        result.map_err(|_| ProtocolError)
    }

    /// Whether this rank is leaving no lane of this peer any more. It has left one when what is
    /// under way fits a window as all have it.
    pub(crate) fn has_drained(&mut self, peer: Rank) -> bool {
        let Some((wide, mut ends)) = self.wide() else {
            return true;
        };
        let Some(&(slot, _)) = wide.draining.iter().find(|(_, of)| *of == peer) else {
            return true;
        };
        let base = ends.base;
        let has_left = ends.links.get(peer).is_some_and(|link| link.send.fit(base));
        if has_left {
            // Which closes the lane, and so takes it from those that are draining.
            let act = &mut |action| ends.holder(action, &mut wide.draining);
            wide.held.drained(slot, act);
        }
        has_left
    }

    /// A peer has failed or left: nothing of it is waited for, and it gets no lane.
    pub(crate) fn lanes_lost(&mut self, peer: Rank) {
        let Some((wide, mut ends)) = self.wide() else {
            return;
        };
        wide.tracker.forget(peer);
        wide.owned.on_death(peer, &mut |action| ends.owner(action));
        let act = &mut |action| ends.holder(action, &mut wide.draining);
        wide.held.on_death(peer, act);
    }
}
