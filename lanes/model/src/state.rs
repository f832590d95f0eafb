//! The state of a job, and the steps that are possible in it.

use std::collections::VecDeque;

use lanes::{Action, Lane, LaneKind, Lanes, Message, Outlet, Route, State as Stands, Tracker};

use crate::{Fault, World};

/// A possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A rank ends its round.
    Round(usize),
    /// A rank's traffic changes.
    Shift(usize),
    /// A sender sends the next fragment of a flow.
    Send(usize),
    /// The receiver takes the next item from a flow's base path.
    Base(usize),
    /// The receiver takes the next fragment from a flow's lane.
    ByLane(usize),
    /// A connection is established, or fails. The fields are the rank, the slot and whether the
    /// connection is established.
    Connect(usize, u16, bool),
    /// A sender reports that its lane is empty. The fields are the rank, the table and the slot.
    Leave(usize, usize, u16),
    /// A lane message arrives.
    Deliver(Control),
    /// A rank dies.
    Die(usize),
    /// The first rank learns that the second one is dead.
    Hear(usize, usize),
}

/// A lane message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Control {
    from: u32,
    to: u32,
    pub(crate) message: Message,
}

/// A rule that a step violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A fragment arrived out of order, or twice.
    Order,
    /// Fragments of one message took different paths.
    Torn,
    /// A rank uses a lane that the other end has not granted.
    Promised,
    /// A rank reported a protocol violation by an honest rank.
    Refused,
    /// A fragment never arrives.
    Lost,
    /// An ask, offer or recall is never answered.
    Unanswered,
    /// At rest, two ranks disagree about a lane.
    Disagree,
    /// Lanes keep moving although the traffic is constant.
    Endless,
}

/// A rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// The rank's lanes. If lanes cost both ends, there is one table; otherwise, there is a table
    /// of owned lanes and a table of held lanes.
    tables: Vec<Lanes>,
    phase: usize,
    rounds: u8,
    shifts: u8,
    is_dead: bool,
    /// For each rank, whether it is known to be dead.
    heard: Vec<bool>,
}

/// An item in the base path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Fragment(u8),
    Announcement(u32),
}

/// The progress of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Progress {
    outlet: Outlet,
    /// The number of messages that were sent completely.
    messages: usize,
    /// The number of fragments of the next message that were sent.
    fragments: u8,
    /// Whether the last fragment used the lane.
    by_lane: bool,
    /// The number of fragments that were sent.
    sent: u8,
    /// The number of fragments that the receiver has taken.
    taken: u8,
    base: VecDeque<Item>,
    lane: VecDeque<u8>,
}

/// The events that happened in the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Happened {
    pub(crate) by_lane: bool,
    pub(crate) waits: bool,
    pub(crate) crossed_asks: bool,
    pub(crate) crossed_recalls: bool,
    pub(crate) refused: bool,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    places: Vec<Place>,
    flows: Vec<Progress>,
    /// All lane messages in flight, sorted, so that equal bags compare equal. Any of the messages
    /// can arrive next.
    pub(crate) control: Vec<Control>,
    pub(crate) happened: Happened,
    /// The number of failed connections.
    refusals: u8,
    /// The rule that the last step violated, if any.
    pub broken: Option<Broken>,
}

/// The number of rounds after which lanes must be stable.
const SETTLED: usize = 24;
/// The number of further rounds in which the lanes must not change.
const WATCHED: usize = 8;

impl State {
    pub(crate) fn start(world: &World) -> Self {
        let place = |rank| {
            let table = |kind| Lanes::new(rank, kind, world.settings.clone());
            let tables = match world.kind {
                LaneKind::Both => vec![table(LaneKind::Both)],
                _ => vec![table(LaneKind::Owner), table(LaneKind::Holder)],
            };
            Place {
                tables: tables
                    .into_iter()
                    .map(|table| table.expect("worlds have valid settings"))
                    .collect(),
                phase: 0,
                rounds: 0,
                shifts: 0,
                is_dead: false,
                heard: vec![false; world.ranks as usize],
            }
        };
        Self {
            places: (0..world.ranks).map(place).collect(),
            flows: vec![Progress::default(); world.flows.len()],
            control: Vec::new(),
            happened: Happened::default(),
            refusals: 0,
            broken: None,
        }
    }

    /// Returns the table of the lanes that a rank sends on.
    fn sending(world: &World) -> usize {
        usize::from(world.kind != LaneKind::Both)
    }

    fn lane(&self, rank: usize, table: usize, peer: u32) -> Option<Lane> {
        self.places[rank].tables[table]
            .iter()
            .find(|lane| lane.peer == peer)
    }

    /// Returns the flow from one rank to another.
    fn flow(world: &World, from: usize, to: u32) -> Option<usize> {
        let flows = &world.flows;
        flows
            .iter()
            .position(|flow| flow.from as usize == from && flow.to == to)
    }

    /// Returns all steps that must happen eventually, which are all except rounds, changes of
    /// traffic and deaths.
    fn fair_steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_live = |rank: u32| !self.places[rank as usize].is_dead;
        for (at, (flow, progress)) in world.flows.iter().zip(&self.flows).enumerate() {
            if is_live(flow.from) && progress.messages < flow.fragments.len() {
                // A sender that waits is not tried again, because that would change nothing.
                let waits = progress.outlet.clone().route(true) == Route::Wait;
                steps.extend((!waits).then_some(Step::Send(at)));
            }
            if is_live(flow.to) {
                steps.extend((!progress.base.is_empty()).then_some(Step::Base(at)));
                let lane = self.lane(flow.to as usize, 0, flow.from);
                let looks = |lane: Lane| {
                    lane.is_watched
                        || world.fault == Fault::NoAnnouncement && lane.state != Stands::Asked
                };
                if !progress.lane.is_empty() && lane.is_some_and(looks) {
                    steps.push(Step::ByLane(at));
                }
            }
        }
        for (rank, place) in self.places.iter().enumerate().filter(|(_, p)| !p.is_dead) {
            for (table, lanes) in place.tables.iter().enumerate() {
                let connecting = lanes.iter().filter(|l| l.state == Stands::Connecting);
                // A connection with a dead rank always fails.
                steps.extend(
                    connecting.map(|lane| Step::Connect(rank, lane.slot, is_live(lane.peer))),
                );
                let leaves = lanes
                    .iter()
                    .filter(|lane| matches!(lane.state, Stands::Leaving | Stands::Draining));
                for lane in leaves {
                    let has_left = Self::flow(world, rank, lane.peer)
                        .is_none_or(|flow| self.flows[flow].outlet.clone().has_left());
                    if has_left || world.fault == Fault::EarlyReturn {
                        steps.push(Step::Leave(rank, table, lane.slot));
                    }
                }
            }
            let deaths = (0..).zip(&self.places).filter(|(_, other)| other.is_dead);
            steps.extend(
                deaths
                    .filter(|&(dead, _): &(usize, _)| !place.heard[dead])
                    .map(|(dead, _)| Step::Hear(rank, dead)),
            );
        }
        let distinct = (0..self.control.len())
            .filter(|&at| at == 0 || self.control[at - 1] != self.control[at]);
        steps.extend(distinct.map(|at| Step::Deliver(self.control[at])));
        steps
    }

    pub(crate) fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = self.fair_steps(world);
        let deaths = self.places.iter().filter(|place| place.is_dead).count();
        for (rank, place) in self.places.iter().enumerate().filter(|(_, p)| !p.is_dead) {
            let has_traffic = world.phases[place.phase]
                .iter()
                .any(|&(of, ..)| of as usize == rank);
            let mut when = |is_so: bool, step| steps.extend(is_so.then_some(step));
            when(
                has_traffic && place.rounds < world.rounds,
                Step::Round(rank),
            );
            when(
                has_traffic && place.rounds > 0 && place.shifts < world.shifts,
                Step::Shift(rank),
            );
            when(deaths < world.deaths.into(), Step::Die(rank));
            for lane in place.tables[0].iter() {
                let may_fail = lane.state == Stands::Connecting && self.refusals < world.refusals;
                when(may_fail, Step::Connect(rank, lane.slot, false));
            }
        }
        steps
    }

    /// Returns the state after a step. If nothing more has to happen after the step, also checks
    /// that the job is at rest.
    pub(crate) fn after(&self, world: &World, step: Step) -> Self {
        let mut next = self.clone();
        next.happened = Happened::default();
        next.go(world, step);
        if next.broken.is_none() && next.fair_steps(world).is_empty() {
            next.check_rest(world);
            let is_out = |place: &Place| {
                place.is_dead || place.rounds == world.rounds && place.shifts == world.shifts
            };
            if next.broken.is_none() && next.places.iter().all(is_out) {
                next.broken = next.clone().settle(world);
            }
        }
        next
    }

    fn breaks(&mut self, rule: Broken) {
        self.broken.get_or_insert(rule);
    }

    fn go(&mut self, world: &World, step: Step) {
        match step {
            Step::Round(rank) => {
                self.places[rank].rounds += 1;
                self.round(world, rank);
            }
            Step::Shift(rank) => {
                let place = &mut self.places[rank];
                place.shifts += 1;
                place.phase = (place.phase + 1) % world.phases.len();
            }
            Step::Send(flow) => self.send(world, flow),
            Step::Base(flow) => {
                let (from, to) = (world.flows[flow].from, world.flows[flow].to as usize);
                match self.flows[flow].base.pop_front() {
                    Some(Item::Announcement(generation)) => {
                        let generation = self.as_known(world, to, 0, from, generation);
                        self.on(world, to, 0, |lanes, _, act| {
                            let _ = lanes.on_announced(from, generation, act);
                        });
                    }
                    Some(Item::Fragment(number)) => self.take(flow, number),
                    None => {}
                }
            }
            Step::ByLane(flow) => {
                if let Some(number) = self.flows[flow].lane.pop_front() {
                    self.flows[flow].outlet.taken(1);
                    self.happened.by_lane = true;
                    self.take(flow, number);
                }
            }
            Step::Leave(rank, table, slot) => {
                if world.fault == Fault::EarlyReturn {
                    let lanes = &self.places[rank].tables[table];
                    let peer = lanes
                        .iter()
                        .find(|lane| lane.slot == slot)
                        .map(|lane| lane.peer);
                    if let Some(flow) = peer.and_then(|peer| Self::flow(world, rank, peer)) {
                        self.flows[flow].outlet = Outlet::default();
                    }
                } else {
                    let lane = self.places[rank].tables[table]
                        .iter()
                        .find(|lane| lane.slot == slot);
                    if let Some(flow) = lane.and_then(|lane| Self::flow(world, rank, lane.peer)) {
                        self.flows[flow].outlet.has_left();
                    }
                }
                self.on(world, rank, table, |lanes, _, act| lanes.drained(slot, act));
            }
            Step::Connect(rank, slot, is_there) => {
                self.happened.refused = !is_there;
                self.refusals += u8::from(!is_there);
                self.on(world, rank, 0, |lanes, _, act| match is_there {
                    true => lanes.connected(slot, act),
                    false => lanes.refused(slot, act),
                });
            }
            Step::Deliver(control) => self.deliver(world, control),
            Step::Die(rank) => {
                self.places[rank].is_dead = true;
                self.control.retain(|control| control.to as usize != rank);
            }
            Step::Hear(rank, dead) => self.hear(world, rank, dead),
        }
        self.check_promises(world);
    }

    fn round(&mut self, world: &World, rank: usize) {
        self.on(world, rank, 0, |lanes, tracker, act| {
            lanes.progress(tracker, act);
        });
    }

    fn send(&mut self, world: &World, flow: usize) {
        let fragments = world.flows[flow].fragments[self.flows[flow].messages];
        let progress = &mut self.flows[flow];
        let is_last = progress.fragments + 1 == fragments;
        let mut route = progress
            .outlet
            .route(is_last || world.fault == Fault::TornMessage);
        if let Route::Announce { generation } = route {
            if world.fault != Fault::NoAnnouncement {
                progress.base.push_back(Item::Announcement(generation));
            }
            route = progress.outlet.route(is_last);
        }
        let by_lane = match route {
            Route::Base => {
                progress.base.push_back(Item::Fragment(progress.sent));
                false
            }
            Route::Lane => {
                progress.lane.push_back(progress.sent);
                true
            }
            Route::Wait | Route::Announce { .. } => return,
        };
        let is_torn = progress.fragments > 0 && by_lane != progress.by_lane;
        progress.by_lane = by_lane;
        progress.sent += 1;
        progress.fragments += 1;
        if is_last {
            progress.messages += 1;
            progress.fragments = 0;
        }
        if is_torn {
            self.breaks(Broken::Torn);
        }
    }

    fn take(&mut self, flow: usize, number: u8) {
        let progress = &mut self.flows[flow];
        let is_next = progress.taken == number;
        progress.taken += 1;
        if !is_next {
            self.breaks(Broken::Order);
        }
    }

    fn deliver(&mut self, world: &World, control: Control) {
        let Ok(at) = self.control.binary_search(&control) else {
            return;
        };
        self.control.remove(at);
        let Control { from, to, message } = control;
        let rank = to as usize;
        let table = match world.kind {
            LaneKind::Both => 0,
            _ => usize::from(!message.is_for_owner()),
        };
        let lane = self.lane(rank, table, from).map(|lane| lane.state);
        self.happened.crossed_asks =
            matches!((message, lane), (Message::Ask { .. }, Some(Stands::Asked)));
        self.happened.crossed_recalls = matches!(
            (message, lane),
            (Message::Recall { .. }, Some(Stands::Recalled))
        );
        let generation = self.as_known(world, rank, table, from, message.generation());
        let message = with_generation(message, generation);
        let mut is_refused = false;
        self.on(world, rank, table, |lanes, tracker, act| {
            is_refused = lanes.on_message(from, message, tracker, act).is_err();
        });
        if is_refused {
            self.breaks(Broken::Refused);
        }
    }

    /// Returns a message's generation as a rank sees it. With [`Fault::SameGeneration`], it is
    /// replaced with the generation of the rank's current exchange with the peer.
    fn as_known(
        &self,
        world: &World,
        rank: usize,
        table: usize,
        peer: u32,
        generation: u32,
    ) -> u32 {
        match self.lane(rank, table, peer) {
            Some(lane) if world.fault == Fault::SameGeneration => lane.generation,
            _ => generation,
        }
    }

    fn hear(&mut self, world: &World, rank: usize, dead: usize) {
        self.places[rank].heard[dead] = true;
        self.control
            .retain(|control| (control.from as usize, control.to as usize) != (dead, rank));
        for (flow, progress) in world.flows.iter().zip(&mut self.flows) {
            if (flow.from as usize, flow.to as usize) == (dead, rank) {
                (progress.base, progress.lane) = Default::default();
            }
            if (flow.from as usize, flow.to as usize) == (rank, dead) {
                progress.messages = flow.fragments.len();
                progress.outlet = Outlet::default();
            }
        }
        if world.fault != Fault::Deaf {
            for table in 0..self.places[rank].tables.len() {
                self.on(world, rank, table, |lanes, _, act| {
                    lanes.on_death(dead as u32, act);
                });
            }
        }
    }

    /// Runs a step of one of a rank's tables and carries out its actions.
    fn on(
        &mut self,
        world: &World,
        rank: usize,
        table: usize,
        run: impl FnOnce(&mut Lanes, &Tracker, &mut dyn FnMut(Action)),
    ) {
        let place = &mut self.places[rank];
        let mut tracker = world.tracker(place.phase, rank as u32);
        for (dead, _) in (0..).zip(&place.heard).filter(|(_, has_heard)| **has_heard) {
            tracker.forget(dead);
        }
        let mut actions = Vec::new();
        run(&mut place.tables[table], &tracker, &mut |action| {
            actions.push(action);
        });
        for action in actions {
            self.act(world, rank, table, action);
        }
    }

    fn act(&mut self, world: &World, rank: usize, table: usize, action: Action) {
        let outlet = |peer| {
            let flow = Self::flow(world, rank, peer);
            flow.filter(|_| table == Self::sending(world))
        };
        match action {
            Action::Send { to, message } => {
                let is_silent =
                    world.fault == Fault::SilentDenial && matches!(message, Message::Denied { .. });
                if is_silent || self.places[to as usize].is_dead {
                    return;
                }
                let control = Control {
                    from: rank as u32,
                    to,
                    message,
                };
                let at = self.control.partition_point(|other| *other < control);
                self.control.insert(at, control);
            }
            Action::Open {
                peer, generation, ..
            } => {
                if let Some(flow) = outlet(peer) {
                    self.flows[flow].outlet.open(generation);
                }
            }
            Action::Drain { peer, .. } => {
                if let Some(flow) = outlet(peer) {
                    self.flows[flow].outlet.drain();
                    let waits = self.flows[flow].outlet.clone().route(true) == Route::Wait;
                    self.happened.waits |= waits;
                }
            }
            // A later step carries these actions out.
            Action::Connect { .. } | Action::Close { .. } => {}
        }
    }

    /// Checks that each lane in use has been granted by its other end. If so, no rank promises more
    /// lanes than it has.
    fn check_promises(&mut self, world: &World) {
        let is_kept = self.places.iter().enumerate().all(|(rank, place)| {
            let table = Self::sending(world);
            place.is_dead
                || place.tables[table].iter().all(|lane| {
                    let peer = lane.peer as usize;
                    let is_used = matches!(
                        lane.state,
                        Stands::Open | Stands::Leaving | Stands::Draining
                    );
                    let is_gone = self.places[peer].is_dead || self.places[peer].heard[rank];
                    let other = self.lane(peer, 0, rank as u32);
                    !is_used
                        || is_gone
                        || other.is_some_and(|other| other.generation == lane.generation)
                })
        });
        if !is_kept {
            self.breaks(Broken::Promised);
        }
    }

    /// Checks the conditions that must hold when nothing more has to happen.
    fn check_rest(&mut self, world: &World) {
        let live = |rank: u32| !self.places[rank as usize].is_dead;
        let has_come = world.flows.iter().zip(&self.flows).all(|(flow, progress)| {
            let all: u8 = flow.fragments.iter().sum();
            !(live(flow.from) && live(flow.to)) || progress.taken == all
        });
        let (mut is_answered, mut agrees) = (true, true);
        for (rank, place) in self.places.iter().enumerate().filter(|(_, p)| !p.is_dead) {
            for (table, lanes) in place.tables.iter().enumerate() {
                is_answered &= !lanes.is_probing();
                for lane in lanes.iter() {
                    is_answered &= lane.state == Stands::Open;
                    let others = place.tables.len() - 1 - table;
                    let other = self.lane(lane.peer as usize, others, rank as u32);
                    agrees &= other.is_some_and(|other| other.generation == lane.generation);
                }
            }
        }
        for (is_so, rule) in [
            (is_answered, Broken::Unanswered),
            (agrees, Broken::Disagree),
            (has_come, Broken::Lost),
        ] {
            if !is_so {
                self.breaks(rule);
            }
        }
    }

    /// Runs rounds with constant traffic and checks that the lanes become stable.
    fn settle(mut self, world: &World) -> Option<Broken> {
        let lanes = |state: &Self| -> Vec<Lane> {
            let tables = state.places.iter().flat_map(|place| &place.tables);
            tables.flat_map(Lanes::iter).collect()
        };
        let mut settled = Vec::new();
        for round in 0..SETTLED + WATCHED {
            for rank in 0..self.places.len() {
                if !self.places[rank].is_dead {
                    self.round(world, rank);
                }
            }
            while let Some(&step) = self.fair_steps(world).first() {
                self.go(world, step);
            }
            self.check_rest(world);
            if round == SETTLED {
                settled = lanes(&self);
            }
            if self.broken.is_none() && round > SETTLED && lanes(&self) != settled {
                self.broken = Some(Broken::Endless);
            }
        }
        self.broken
    }

    /// Returns whether a message that satisfies `is_meant` is in flight.
    pub(crate) fn has(&self, is_meant: impl Fn(Message) -> bool) -> bool {
        self.control.iter().any(|control| is_meant(control.message))
    }
}

fn with_generation(mut message: Message, new: u32) -> Message {
    match &mut message {
        Message::Ask { generation, .. }
        | Message::Offer { generation, .. }
        | Message::Taken { generation }
        | Message::Denied { generation, .. }
        | Message::Recall { generation }
        | Message::Returned { generation } => *generation = new,
    }
    message
}
