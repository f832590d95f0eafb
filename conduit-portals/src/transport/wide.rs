//! Wide windows for the few peers that send the most.
//!
//! In a large job all windows have the minimum size, which is two of the largest messages, no
//! matter how much a peer sends. Each rank therefore has lanes ([`lanes`]) to lend, which are wide
//! windows here. A lane only changes a limit: the peer's limit is raised when it accepts the offer,
//! and lowered when the lane is recalled. The peer returns the lane once its messages in flight fit
//! in a window of the common size. Consumption is reported in the same way as without a lane; these
//! reports may lag behind without harm.
//!
//! A peer's traffic is counted when its consumption is reported to the peer, so single messages
//! have no extra cost.

use ::lanes::{Action, Carrier, Driver, Lane, LaneKind, Message, ROWS, State};
use conduit_core::ni::Rank;

use super::buffers::UNIT;
use super::config::PortalsConfig;
use super::control::Control;
use super::inbound::ProtocolError;
use super::link::Links;
use super::state::{Portals, schedule};
use super::window::WindowSize;

/// The maximum number of messages about lanes that may wait to be sent to an honest peer when it
/// sends another one: one about a lane of the peer and one about a lane of this rank.
const MOST_QUEUED: usize = 2;

/// Creates the driver. Returns `None` if all windows are wider than the minimum, or if a lane would
/// not be wider than a window.
pub(crate) fn driver(rank: Rank, window: WindowSize, config: &PortalsConfig) -> Option<Driver> {
    let mut settings = config.lanes.clone();
    let is_wider = window.widened(settings.size) != window;
    if settings.slots == 0 || !is_wider || !window.is_least(config.max_managed) {
        return None;
    }
    // The interval is at least the largest message, so that a message counts as at most one sample.
    // The cast is lossless: `max_managed` is at most 4096 units.
    let largest = config.max_managed.div_ceil(UNIT) as u32;
    settings.interval = settings.interval.max(largest);
    Driver::new(rank, settings, Some(ROWS as u16), 0).ok()
}

/// Returns a text that lists the holders of this rank's lanes, and the owners of the lanes that
/// this rank holds.
pub(crate) fn describe(wide: &Driver) -> String {
    let list = |place, lanes: &mut dyn Iterator<Item = Lane>| {
        let open = lanes.filter(|lane| lane.state == State::Open);
        let ranks: Vec<String> = open.map(|lane| lane.peer.to_string()).collect();
        (!ranks.is_empty()).then(|| format!("wide windows {place} ranks {}", ranks.join(", ")))
    };
    let all = [
        list("here of", &mut wide.lent()),
        list("at", &mut wide.held()),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The part of the state that the lanes' driver changes.
struct Ends<'a> {
    links: &'a mut Links,
    outgoing: &'a mut Vec<Rank>,
    base: WindowSize,
}

impl Carrier for Ends<'_> {
    const COUNTS_LENT: bool = false;

    fn send(&mut self, to: Rank, message: Message) -> bool {
        if let Some(link) = self.links.get(to) {
            if let Message::Offer { size, .. } = message {
                // Messages that use the lane may arrive before the answer to the offer.
                link.receive_size = self.base.widened(size);
            }
            link.control.push_back(Control::Lane(message));
            schedule(self.outgoing, link);
        }
        true
    }

    fn act(&mut self, kind: LaneKind, action: Action) {
        let peer = match action {
            Action::Send { .. } | Action::Connect { .. } => return,
            Action::Open { peer, .. } | Action::Drain { peer, .. } | Action::Close { peer, .. } => {
                peer
            }
        };
        let Some(link) = self.links.get(peer) else {
            return;
        };
        match (kind, action) {
            // If the peer has left, messages for which it used the lane may still arrive, so the
            // window stays wide.
            (LaneKind::Owner, Action::Close { .. }) if link.is_up() => {
                link.receive_size = self.base
            }
            (LaneKind::Holder, Action::Open { size, .. }) => {
                link.send_size = self.base.widened(size)
            }
            (LaneKind::Holder, Action::Drain { .. }) => {
                link.send_size = self.base;
                schedule(self.outgoing, link);
            }
            _ => {}
        }
    }

    /// Returns `true` once the messages in flight fit a window of the common size.
    fn has_left(&mut self, _: u16, peer: Rank) -> bool {
        let link = self.links.get(peer);
        link.is_some_and(|link| link.send.fit(self.base))
    }
}

impl Portals {
    /// Returns the lanes' driver and the state that it changes.
    fn wide(&mut self) -> Option<(&mut Driver, Ends<'_>)> {
        let ends = Ends {
            links: &mut self.links,
            outgoing: &mut self.outgoing,
            base: self.window,
        };
        Some((self.wide.as_deref_mut()?, ends))
    }

    /// Records that this many units of a peer's messages were reported to it as consumed.
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
        if samples > 0 && ends.links.get(peer).is_some_and(|link| link.is_up()) {
            wide.tracker.touch(peer, samples);
            if wide.is_round_over() {
                wide.end_round(&mut ends);
            }
        }
    }

    /// Handles a peer's message about a lane.
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
        let result = wide.on_message(peer, message, &mut ends);
        result.map_err(|_| ProtocolError)
    }

    /// Returns whether this rank has finished leaving all lanes of this peer.
    pub(crate) fn has_drained(&mut self, peer: Rank) -> bool {
        let is_draining = |lane: Lane| lane.peer == peer && lane.state == State::Draining;
        self.wide()
            .is_none_or(|(wide, mut ends)| wide.advance(&mut ends) || !wide.held().any(is_draining))
    }

    /// Handles the loss of a peer, which has failed or left. This rank expects no more messages
    /// about lanes from the peer, and lends it no lane.
    pub(crate) fn lanes_lost(&mut self, peer: Rank) {
        if let Some((wide, mut ends)) = self.wide() {
            wide.on_death(peer, &mut ends);
        }
    }
}
