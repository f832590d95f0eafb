//! The state of the two nodes, and the steps that are possible in it.

use std::hash::{DefaultHasher, Hash, Hasher};

use agent::host::{Event, Limit, Message, Operation, Outcome, Request, ReturnMode};
use agent::{AgentMachine, Code, Held};

use crate::Fault;
use crate::node::{Bytes, Node};
use crate::wire::{Arrival, End};
use crate::world::{Ask, What, World};

/// A step, with the index of its node, or of its request for [`Abandon`](Self::Abandon).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A process makes the next request of its node.
    Ask(usize),
    /// A process takes a message from its node's channel.
    Take(usize),
    /// The process that made a request gives it up.
    Abandon(usize),
    /// An agent makes progress.
    Progress(usize),
    /// A session begins.
    Meet,
    /// The next short fragment of a node reaches the other one.
    Short(usize),
    /// The next long fragment of a node begins to arrive or, if it has begun, finishes arriving.
    Long(usize),
    /// A node learns that a long fragment has arrived.
    Sent(usize),
    /// An agent dies; another one takes its place.
    Die(usize),
    /// The session is lost.
    Cut,
    /// A node learns that its session was lost.
    Hear(usize),
    /// A node's channel is destroyed.
    Destroy(usize),
    /// A node's clock advances to the next deadline.
    Tick(usize),
}

impl Step {
    /// Returns whether the step is certain to happen eventually, whatever else happens.
    fn is_fair(self) -> bool {
        use Step::{Abandon, Cut, Destroy, Die, Tick};
        !matches!(self, Die(_) | Cut | Destroy(_) | Abandon(_) | Tick(_))
    }
}

/// A rule that a step broke, described by how it was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A message arrived twice, was changed, or was never sent.
    Once,
    /// Messages of one handle arrived out of order.
    Order,
    /// More was held than the limits allow.
    Budget,
    /// A request was completed twice.
    Completed,
    /// A correct agent was accused of violating the protocol.
    Refused,
    /// The agent never runs out of work.
    Endless,
    /// A request never ends, although everything is delivered and there is room.
    Hangs,
    /// Resources are still held when no work is left.
    Held,
    /// The reported result of a send is wrong: its message never arrived, or arrived unexpectedly.
    Untrue,
}

/// The number of rounds of deliveries and clock ticks within which all requests must end.
const ROUNDS: u32 = 100;

/// A node and its agent.
#[derive(Clone, Hash)]
struct Place {
    machine: AgentMachine<Node>,
    node: Node,
    end: End,
    now: u64,
    /// Whether the agent may have work.
    is_awake: bool,
    /// The number of requests made.
    asked: usize,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ended {
    Done,
    Failed(Code),
}

/// The state of the nodes.
#[derive(Clone, Hash)]
#[expect(
    clippy::derived_hash_with_manual_eq,
    reason = "states with equal hashes are equal"
)]
pub struct State {
    places: [Place; 2],
    /// The number of the session in which the nodes can communicate, if any.
    live: Option<u32>,
    sessions: u32,
    /// The result of each request that has ended.
    ended: Vec<Option<Ended>>,
    /// Messages that came out of channels.
    out: Vec<usize>,
    /// How much of what the world allows has been used: takes, abandoned requests, deaths, lost
    /// sessions, destroyed channels, ticks.
    used: Used,
    /// The rule that the last step broke.
    pub broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Used {
    takes: u8,
    abandoned: bool,
    deaths: u8,
    cuts: u8,
    destroyed: bool,
    ticks: [u8; 2],
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.places.each_ref().map(|place| place.machine.held());
        write!(f, "{:?} {held:?} {:?}", self.ended, self.broken)
    }
}

impl PartialEq for State {
    /// Compares hashes, as the checker does.
    fn eq(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|state| {
            let mut hasher = DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        });
        one == two
    }
}

fn host_id(node: usize) -> u64 {
    0xabc0 + node as u64
}

impl Place {
    fn new(world: &World, own: usize, node: Node, now: u64) -> Self {
        let nodes = [0u32, 1].map(|node| agent::Node {
            host: host_id(node as usize),
            address: node.to_le_bytes().to_vec(),
        });
        let mut limits = world.limits.clone();
        if world.fault == Fault::Exceeds {
            limits.ejection *= 4;
            limits.getmsg *= 4;
            limits.injection *= 4;
        }
        Self {
            machine: AgentMachine::new(own as u32, nodes.to_vec(), limits, 1),
            node,
            // Fits: there are two nodes.
            end: End::new(world.fault, own as u32),
            now,
            is_awake: false,
            asked: 0,
        }
    }
}

/// Returns the bytes of a message.
fn content(request: usize, length: usize) -> Vec<u8> {
    // The bytes may wrap. They still differ between requests, because worlds have few requests.
    (0..length)
        .map(|at| (request * 31 + at + 1) as u8)
        .collect()
}

impl State {
    pub(crate) fn start(world: &World) -> Self {
        let place = |own| Place::new(world, own, Node::new(world.fault, world.capacity), 0);
        Self {
            places: [0, 1].map(place),
            live: None,
            sessions: 0,
            ended: vec![None; world.asks.len()],
            out: Vec::new(),
            used: Used::default(),
            broken: None,
        }
    }

    /// Returns all steps that are possible in this state.
    pub(crate) fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        let has_asked =
            self.ended.iter().any(Option::is_some) || self.places.iter().any(|p| p.asked > 0);
        for at in [0, 1] {
            let (place, other) = (&self.places[at], &self.places[1 - at]);
            let is_live = self.live.is_some();
            let mut when = |is_so: bool, step| steps.extend(is_so.then_some(step));
            when(world.of(at).nth(place.asked).is_some(), Step::Ask(at));
            let has_message = place
                .node
                .channel
                .as_ref()
                .is_some_and(|all| !all.is_empty());
            when(has_message && self.used.takes < world.takes, Step::Take(at));
            when(place.is_awake, Step::Progress(at));
            when(is_live && !place.end.short.is_empty(), Step::Short(at));
            when(is_live && !place.end.long.is_empty(), Step::Long(at));
            when(is_live && !place.end.arrived.is_empty(), Step::Sent(at));
            when(place.end.session.is_some() && !is_live, Step::Hear(at));
            when(has_asked && self.used.deaths < world.deaths, Step::Die(at));
            let is_there = place.node.channel.is_some();
            when(
                world.destroys && is_there && !self.used.destroyed && at == 1,
                Step::Destroy(at),
            );
            let is_due = !place.is_awake && self.due(at).is_some();
            when(is_due && self.used.ticks[at] < world.ticks, Step::Tick(at));
            if at == 0 {
                let is_wanted = [place, other]
                    .iter()
                    .any(|place| place.end.wants && place.end.session.is_none());
                when(is_wanted && !is_live, Step::Meet);
                when(is_live && self.used.cuts < world.cuts, Step::Cut);
                let is_open = self.places[0].asked > 0 && self.ended[0].is_none();
                when(
                    world.abandons && is_open && !self.used.abandoned,
                    Step::Abandon(0),
                );
            }
        }
        steps
    }

    fn due(&self, at: usize) -> Option<u64> {
        self.places[at].machine.due()
    }

    /// Returns the state after a step. If no further step is certain to happen, also checks that
    /// all requests end and nothing stays held.
    pub(crate) fn after(&self, world: &World, step: Step) -> Self {
        let mut next = self.clone();
        next.go(world, step);
        let is_quiet = |state: &Self| !state.steps(world).into_iter().any(Step::is_fair);
        if next.broken.is_none() && is_quiet(&next) {
            let mut last = next.clone();
            last.settle(world);
            next.broken = last.broken;
        }
        next
    }

    fn breaks(&mut self, rule: Broken) {
        self.broken.get_or_insert(rule);
    }

    fn go(&mut self, world: &World, step: Step) {
        match step {
            Step::Ask(at) => {
                let (request, ask) = world
                    .of(at)
                    .nth(self.places[at].asked)
                    .expect("an enabled step");
                let event = Event::Request(to_request(request, ask, self.places[at].now));
                let place = &mut self.places[at];
                place.asked += 1;
                place.node.events.push_back(event);
                place.is_awake = true;
            }
            Step::Take(at) => {
                self.used.takes += 1;
                self.take(world, at);
            }
            Step::Abandon(request) => {
                self.used.abandoned = true;
                self.abandon(world, request);
            }
            Step::Progress(at) => self.progress(world, at),
            Step::Meet => {
                self.sessions += 1;
                self.live = Some(self.sessions);
                for place in &mut self.places {
                    place.end.meet(self.sessions);
                    place.is_awake = true;
                }
            }
            Step::Short(at) => {
                let fragment = self.places[at].end.short.pop_front();
                let (header, payload) = fragment.expect("an enabled step");
                self.give(1 - at, Arrival::Short(header, payload));
            }
            Step::Long(at) => {
                let mut long = self.places[at]
                    .end
                    .long
                    .pop_front()
                    .expect("an enabled step");
                if long.has_begun {
                    self.places[at].end.arrived.push_back(long.token);
                    self.give(1 - at, Arrival::End);
                } else {
                    let (header, payload) =
                        (long.header.clone(), std::mem::take(&mut long.payload));
                    long.has_begun = true;
                    self.places[at].end.long.push_front(long);
                    self.give(1 - at, Arrival::Begin(header, payload));
                }
            }
            Step::Sent(at) => {
                self.places[at].end.sent();
                self.places[at].is_awake = true;
            }
            Step::Die(at) => {
                self.used.deaths += 1;
                self.live = None;
                let place = &mut self.places[at];
                let mut node = place.node.clone();
                // The old agent's receipts are meaningless to the new one.
                node.events.clear();
                for (_, receipt) in node.channel.iter_mut().flatten() {
                    *receipt = None;
                }
                let asked = place.asked;
                *place = Place::new(world, at, node, place.now);
                place.asked = asked;
                // The gateway reports the failure to the requesters.
                for (request, _) in world.of(at).take(asked) {
                    self.ended[request].get_or_insert(Ended::Failed(Code::FAILURE));
                }
            }
            Step::Cut => {
                self.used.cuts += 1;
                self.live = None;
            }
            Step::Hear(at) => {
                self.places[at].end.lose();
                self.places[at].is_awake = true;
            }
            Step::Destroy(at) => {
                self.used.destroyed = true;
                self.places[at].node.destroy();
                self.places[at].is_awake = true;
            }
            Step::Tick(at) => {
                self.used.ticks[at] += 1;
                self.tick(at);
            }
        }
    }

    fn give(&mut self, at: usize, arrival: Arrival) {
        self.places[at].end.inbox.push_back(arrival);
        self.places[at].is_awake = true;
    }

    fn tick(&mut self, at: usize) {
        if let Some(due) = self.due(at) {
            let place = &mut self.places[at];
            place.now = place.now.max(due);
            place.is_awake = true;
        }
    }

    fn abandon(&mut self, world: &World, request: usize) {
        let place = &mut self.places[world.asks[request].from];
        place
            .node
            .events
            .push_back(Event::Abandoned(request as u64));
        place.is_awake = true;
    }

    fn take(&mut self, world: &World, at: usize) -> bool {
        let place = &mut self.places[at];
        let message = place.node.take();
        place.is_awake = true;
        message.is_some_and(|message| {
            self.came_out(world, &message);
            true
        })
    }

    fn came_out(&mut self, world: &World, message: &Message<Bytes>) {
        // Fits if it is the number of a request. A faulty agent may send any value.
        let request = message.hints as usize;
        let is_right = world.asks.get(request).is_some_and(|ask| match ask.what {
            What::Send { length, .. } => message.memory.0 == content(request, length),
            _ => false,
        });
        if !is_right || self.out.contains(&request) {
            self.breaks(Broken::Once);
        }
        self.out.push(request);
        self.out.sort_unstable();
    }

    fn progress(&mut self, world: &World, at: usize) {
        let mut rounds = 0;
        loop {
            let place = &mut self.places[at];
            place.is_awake = false;
            let did = place
                .machine
                .progress(place.now, &mut place.node, &mut place.end);
            let held = place.machine.held();
            if !is_within(world, &held) {
                self.breaks(Broken::Budget);
            }
            rounds += 1;
            if !did {
                break;
            }
            if rounds > 50 {
                return self.breaks(Broken::Endless);
            }
        }
        let place = &mut self.places[at];
        // The agent may have ended its session itself.
        if place.end.session != self.live {
            self.live = None;
        }
        if place.machine.counters().protocol_errors > 0 {
            self.breaks(Broken::Refused);
        }
        let deposited = self.places[at].node.deposited.clone();
        for (nth, &message) in deposited.iter().enumerate() {
            let before = &deposited[..nth];
            if before.contains(&message) {
                self.breaks(Broken::Once);
            }
            let handle = |message: u64| world.asks.get(message as usize).map(Ask::handle);
            let is_later = |other: &u64| *other > message && handle(*other) == handle(message);
            if before.iter().any(is_later) {
                self.breaks(Broken::Order);
            }
        }
        for (request, outcome) in std::mem::take(&mut self.places[at].node.completed) {
            let ended = match outcome {
                Outcome::Got(message) => {
                    self.came_out(world, &message);
                    Ended::Done
                }
                Outcome::Sent | Outcome::Polled(..) => Ended::Done,
                Outcome::Failed(code) => Ended::Failed(code),
            };
            // Fits: the number of a request.
            let before = self.ended[request as usize].replace(ended);
            if before.is_some() {
                self.breaks(Broken::Completed);
            }
        }
    }

    /// Delivers everything, makes room, and finally gives up the remaining requests. Then every
    /// request must have ended, and nothing may be held.
    fn settle(&mut self, world: &World) {
        for round in 0..ROUNDS {
            let mut left = 1000;
            while let Some(step) = self.steps(world).into_iter().find(|step| step.is_fair()) {
                self.go(world, step);
                left -= 1;
                if left == 0 {
                    self.breaks(Broken::Endless);
                }
                if self.broken.is_some() {
                    return;
                }
            }
            let mut did = false;
            for at in [0, 1] {
                while self.take(world, at) {
                    did = true;
                }
                did |= self.due(at).is_some();
                self.tick(at);
                self.progress(world, at);
            }
            let open = self.ended.iter().position(Option::is_none);
            match open {
                Some(request) if round > ROUNDS / 2 || !did => self.abandon(world, request),
                None if !did => return self.end(world),
                _ => {}
            }
        }
        self.breaks(Broken::Hangs);
    }

    /// Checks the final state.
    fn end(&mut self, world: &World) {
        for place in &self.places {
            let held = place.machine.held();
            if held != Held::default() {
                return self.breaks(Broken::Held);
            }
        }
        let is_calm = self.used.deaths == 0 && self.used.cuts == 0 && !self.used.destroyed;
        for (request, ask) in world.asks.iter().enumerate() {
            let What::Send { mode, .. } = ask.what else {
                continue;
            };
            let came = self.places[ask.to]
                .node
                .deposited
                .contains(&(request as u64));
            let is_answered = matches!(mode, ReturnMode::Deposited | ReturnMode::Received);
            let is_true = match self.ended[request] {
                Some(Ended::Done) if is_answered => came,
                Some(Ended::Done) => came || !is_calm || ask.limit != Limit::Never,
                Some(Ended::Failed(_)) if is_calm => !came || mode == ReturnMode::Received,
                _ => true,
            };
            if !is_true {
                return self.breaks(Broken::Untrue);
            }
        }
    }

    /// Returns whether some request has failed with this code.
    pub(crate) fn has_failed(&self, code: Code) -> bool {
        self.ended.contains(&Some(Ended::Failed(code)))
    }

    /// Returns the agents' machines.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &AgentMachine<Node>> {
        self.places.iter().map(|place| &place.machine)
    }

    /// Returns whether all requests have ended successfully.
    pub(crate) fn is_done(&self) -> bool {
        self.ended.iter().all(|ended| *ended == Some(Ended::Done))
    }
}

fn is_within(world: &World, held: &Held) -> bool {
    let (limits, strip) = (&world.limits, u64::from(world.limits.strip));
    held.ejection <= limits.ejection.max(strip)
        && held.injection <= limits.injection.max(strip)
        && held.getmsg < limits.getmsg + world.longest()
        && held.eager <= limits.eager.max(2 * 2048)
}

fn to_request(id: usize, ask: &Ask, now: u64) -> Request<Bytes> {
    let operation = match ask.what {
        What::Send {
            handle,
            length,
            mode,
        } => Operation::Send {
            handle: handle.into(),
            message: Message {
                memory: Bytes(content(id, length)),
                hints: id as u64,
                client: 0,
            },
            mode,
            destination: None,
        },
        What::Get => Operation::Get,
        What::Poll(mask) => Operation::Poll { mask },
    };
    Request {
        id: id as u64,
        node: host_id(ask.to),
        channel: [0].into(),
        process: 0,
        limit: match ask.limit {
            Limit::At(time) => Limit::At(now + time),
            limit => limit,
        },
        operation,
    }
}
