//! Explores all event sequences between two ends, with a few restarts, losses, duplicates and
//! time-outs.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use conduit_core::ni::Rank;

use super::toy::Toy;
use crate::peers::address::Address;
use crate::peers::handshake::{Event, HandshakeState, Handshakes};
use crate::protocol::Nanos;

const MS: Nanos = 1_000_000;
const DEAD_TIME: Nanos = 30_000 * MS;

fn address(end: usize) -> Address {
    Address::of([10, 0, 0, 1].into(), 1 + end as u16)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Datagram {
    Message(Vec<u8>),
    /// A packet of a session, with the receiver's number for the sender and the session's id.
    Packet(Rank, [u8; 8]),
}

/// The number of times that each kind of event may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    begins: u8,
    losses: u8,
    duplicates: u8,
    restarts: u8,
    closes: u8,
    packets: u8,
    timeouts: u8,
}

#[derive(Debug, Clone)]
struct Model {
    now: Nanos,
    ends: [Handshakes<Toy>; 2],
    /// The datagrams in flight, each with its receiving end.
    under_way: Vec<(usize, Datagram)>,
    budget: Budget,
    processes: u64,
    /// The sessions that each end has begun, including those that the end's processes began before
    /// restarts.
    begun: [BTreeSet<[u8; 8]>; 2],
    /// The actions so far. Each is given by its index among the actions that were possible at the
    /// time.
    path: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Begin(usize),
    Deliver(usize),
    Duplicate(usize),
    Lose(usize),
    Restart(usize),
    Close(usize),
    Packet(usize),
    Timeout(usize),
}

fn end(end: usize, process: u64) -> Handshakes<Toy> {
    // The handshake of the second end prevails if both ends begin.
    let toy = Toy::new(process, 2 - end as u8);
    Handshakes::new(toy, address(end), 4, DEAD_TIME)
}

impl Model {
    fn new(budget: Budget) -> Self {
        Self {
            now: 1_000 * MS,
            ends: [end(0, 1), end(1, 2)],
            under_way: Vec::new(),
            budget,
            processes: 2,
            begun: Default::default(),
            path: Vec::new(),
        }
    }

    /// Returns the number that an end has for the other.
    fn number(&self, end: usize) -> Option<Rank> {
        self.ends[end].peers.find(&address(1 - end))
    }

    fn state(&self, end: usize) -> &HandshakeState {
        let state = self
            .number(end)
            .and_then(|peer| self.ends[end].peers.state(peer));
        state.unwrap_or(&HandshakeState::Closed)
    }

    fn session(&self, end: usize) -> Option<[u8; 8]> {
        match self.state(end) {
            HandshakeState::Open(session) => Some(session.id),
            _ => None,
        }
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let budget = &self.budget;
        for (at, datagram) in self.under_way.iter().enumerate() {
            // Equal datagrams lead to equal states, so only the first of them is considered.
            if self.under_way[..at].contains(datagram) {
                continue;
            }
            actions.push(Action::Deliver(at));
            if budget.duplicates > 0 {
                actions.push(Action::Duplicate(at));
            }
            if budget.losses > 0 {
                actions.push(Action::Lose(at));
            }
        }
        for end in 0..2 {
            let state = self.state(end);
            if budget.begins > 0 && *state == HandshakeState::Closed {
                actions.push(Action::Begin(end));
            }
            if budget.restarts > 0 {
                actions.push(Action::Restart(end));
            }
            if budget.closes > 0 && self.number(end).is_some() {
                actions.push(Action::Close(end));
            }
            if budget.packets > 0 && matches!(state, HandshakeState::Open(_)) {
                actions.push(Action::Packet(end));
            }
            if budget.timeouts > 0 && self.ends[end].timeout().is_some() {
                actions.push(Action::Timeout(end));
            }
        }
        actions
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Begin(end) => {
                self.budget.begins -= 1;
                self.begin(end);
            }
            Action::Deliver(at) => self.deliver(at),
            Action::Duplicate(at) => {
                self.budget.duplicates -= 1;
                self.under_way.push(self.under_way[at].clone());
                self.deliver(at);
            }
            Action::Lose(at) => {
                self.budget.losses -= 1;
                self.under_way.remove(at);
            }
            Action::Restart(at) => {
                self.budget.restarts -= 1;
                self.processes += 1;
                self.ends[at] = end(at, self.processes);
            }
            Action::Close(end) => {
                self.budget.closes -= 1;
                if let Some(peer) = self.number(end) {
                    self.ends[end].close(peer);
                }
            }
            Action::Packet(end) => {
                self.budget.packets -= 1;
                self.send_packet(end);
            }
            Action::Timeout(end) => {
                self.budget.timeouts -= 1;
                if let Some(at) = self.ends[end].timeout() {
                    self.now = self.now.max(at);
                    self.ends[end].on_timeout(self.now);
                }
            }
        }
        self.collect();
    }

    /// Returns the state after one of the possible actions.
    fn after(&self, at: usize) -> Self {
        let action = self.actions()[at];
        let mut after = self.clone();
        after.path.push(at as u16);
        after.act(action);
        // Check that no datagram, however old, ends a session that both ends have.
        let session = self
            .session(0)
            .filter(|_| self.session(0) == self.session(1));
        if session.is_some() && !matches!(action, Action::Restart(_) | Action::Close(_)) {
            let sessions = [after.session(0), after.session(1)];
            assert_eq!(sessions, [session; 2], "{action:?}");
        }
        after
    }

    fn begin(&mut self, end: usize) {
        if let Some(peer) = self.ends[end].connect(address(1 - end)) {
            self.ends[end].begin(self.now, peer);
        }
    }

    fn send_packet(&mut self, end: usize) {
        if let HandshakeState::Open(session) = self.state(end) {
            let packet = Datagram::Packet(session.name, session.id);
            self.under_way.push((1 - end, packet));
        }
    }

    fn deliver(&mut self, at: usize) {
        let (to, datagram) = self.under_way.remove(at);
        let source = address(1 - to);
        match datagram {
            Datagram::Message(bytes) => {
                assert!(self.ends[to].receive(self.now, &source, &bytes));
            }
            Datagram::Packet(name, id) => {
                let opens = self.ends[to].is_session(name, &source) && self.session(to) == Some(id);
                if !opens {
                    self.ends[to].on_unknown_packet(self.now, &source, name);
                }
            }
        }
    }

    /// Puts all datagrams that the ends have to send in flight, and checks the ends' events.
    fn collect(&mut self) {
        for end in 0..2 {
            while let Some((to, message)) = self.ends[end].next_message() {
                assert_eq!(to, address(1 - end));
                let datagram = Datagram::Message(message.bytes().to_vec());
                self.under_way.push((1 - end, datagram));
            }
            while let Some(event) = self.ends[end].next_event() {
                if let Event::Began(_) = event {
                    let id = self.session(end).expect("a session");
                    assert!(self.begun[end].insert(id), "a session began twice");
                }
            }
        }
    }

    /// Runs without further faults until the ends agree and are idle. All datagrams arrive, time
    /// passes, and each end that has a session uses the session.
    fn settle(mut self) -> Self {
        for _ in 0..1_000 {
            if !self.under_way.is_empty() {
                self.deliver(0);
                self.collect();
                continue;
            }
            let is_busy = |end| match self.state(end) {
                HandshakeState::Closed => false,
                HandshakeState::Opening(_) => true,
                HandshakeState::Open(session) => session.check.is_some(),
            };
            let agree = self.session(0) == self.session(1);
            if agree && !is_busy(0) && !is_busy(1) {
                return self;
            }
            self.now += 50 * MS;
            for end in 0..2 {
                if self.ends[end].timeout().is_some_and(|at| at <= self.now) {
                    self.ends[end].on_timeout(self.now);
                }
                self.send_packet(end);
            }
            self.collect();
        }
        panic!("the ends don't agree");
    }

    /// Returns a value that is equal for states with the same possible futures.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, self.budget).hash(&mut hasher);
        let mut under_way: Vec<_> = self.under_way.iter().collect();
        under_way.sort();
        under_way.hash(&mut hasher);
        for (at, end) in self.ends.iter().enumerate() {
            (&end.crypto, &end.spent, end.stamp, self.number(at)).hash(&mut hasher);
            self.state(at).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Returns a description of all events, for debugging.
fn retrace(budget: Budget, path: &[u16]) -> String {
    let mut model = Model::new(budget);
    let mut text = String::new();
    for &at in path {
        let action = model.actions()[usize::from(at)];
        let datagram = match action {
            Action::Deliver(at) | Action::Duplicate(at) | Action::Lose(at) => {
                Some(&model.under_way[at])
            }
            _ => None,
        };
        let _ = writeln!(text, "{action:?} {datagram:02x?}");
        model.act(action);
    }
    text
}

/// Prints the events so far if it is dropped because a check fails.
struct Told<'a>(Budget, &'a [u16]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("after\n{}", retrace(self.0, self.1));
        }
    }
}

/// Visits all reachable states. Returns their number.
fn explore(budget: Budget) -> usize {
    let mut seen = HashSet::new();
    let mut next = VecDeque::from([Model::new(budget)]);
    while let Some(model) = next.pop_front() {
        let _told = Told(budget, &model.path);
        // If a datagram is in flight, this state need not be settled, because the states after the
        // datagram's arrival are visited, too.
        if model.under_way.is_empty() {
            let settled = model.clone().settle();
            // Without restarts, closes and time-outs, the ends have at most one session.
            if budget.restarts + budget.closes + budget.timeouts == 0 {
                let [one, other] = &settled.begun;
                assert!(one == other && one.len() < 2, "{one:?} and {other:?}");
            }
        }
        for at in 0..model.actions().len() {
            let after = model.after(at);
            if seen.insert(after.fingerprint()) {
                next.push_back(after);
            }
        }
    }
    seen.len()
}

const NONE: Budget = Budget {
    begins: 1,
    losses: 0,
    duplicates: 0,
    restarts: 0,
    closes: 0,
    packets: 0,
    timeouts: 0,
};

#[test]
fn both_ends_agree_when_both_begin_and_messages_are_lost_doubled_and_repeated() {
    let states = explore(Budget {
        begins: 2,
        losses: 1,
        duplicates: 1,
        timeouts: 1,
        ..NONE
    });
    println!("{states} states");
}

#[test]
fn two_that_begin_at_once_have_one_session() {
    let states = explore(Budget {
        begins: 2,
        losses: 2,
        duplicates: 2,
        ..NONE
    });
    println!("{states} states");
}

#[test]
fn both_ends_agree_after_a_restart() {
    let states = explore(Budget {
        begins: 2,
        restarts: 1,
        packets: 1,
        timeouts: 1,
        ..NONE
    });
    println!("{states} states");
}

#[test]
fn both_ends_agree_after_closing_and_beginning_again() {
    let states = explore(Budget {
        begins: 3,
        closes: 1,
        packets: 1,
        ..NONE
    });
    println!("{states} states");
}

/// Explores longer sequences than an exhaustive search allows.
#[test]
fn both_ends_agree_whatever_happens() {
    for seed in 0..5_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let budget = Budget {
            begins: random.u8(1..6),
            losses: random.u8(..4),
            duplicates: random.u8(..6),
            restarts: random.u8(..3),
            closes: random.u8(..3),
            packets: random.u8(..6),
            timeouts: random.u8(..8),
        };
        let mut model = Model::new(budget);
        loop {
            let told = Told(budget, &model.path);
            let actions = model.actions().len();
            if actions == 0 {
                break;
            }
            let after = model.after(random.usize(..actions));
            if random.u8(..8) == 0 {
                after.clone().settle();
            }
            drop(told);
            model = after;
        }
        model.settle();
    }
}
