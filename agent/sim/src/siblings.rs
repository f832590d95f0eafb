//! The messages between the agents of a node, in simulated time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use agent::host::{MAX_SIBLING_MESSAGE, Nanos, SiblingEvent, Siblings};

/// The maximum delay of a message between two agents of a node.
pub(crate) const DELAY: Nanos = 20_000;

/// A session between two agents, as one of them sees it.
#[derive(Debug, Default)]
struct Session {
    /// This agent has ended the session; the other one has.
    has_said: bool,
    has_heard: bool,
    /// Both have ended the session.
    is_over: bool,
}

/// Messages and their senders, by time and order.
type Traveling = BTreeMap<(Nanos, u64), (u32, SiblingEvent)>;

#[derive(Debug)]
struct State {
    now: Nanos,
    random: fastrand::Rng,
    posted: u64,
    alive: BTreeSet<u32>,
    /// Sessions by observer and peer. Each two live agents have a session, or are ending one.
    sessions: HashMap<(u32, u32), Session>,
    /// Messages by receiver.
    traveling: HashMap<u32, Traveling>,
    /// The last arrival, by receiver and sender.
    last: HashMap<(u32, u32), Nanos>,
}

impl State {
    fn post(&mut self, from: u32, to: u32, event: SiblingEvent) {
        let last = self.last.entry((to, from)).or_default();
        let at = (self.now + self.random.u64(1..DELAY)).max(*last);
        *last = at;
        self.posted += 1;
        let all = self.traveling.entry(to).or_default();
        all.insert((at, self.posted), (from, event));
    }

    /// Begins a session between two agents if both are alive and no earlier session has to end
    /// first.
    fn meet(&mut self, one: u32, other: u32) {
        let has_ended = |state: &Self, pair| {
            let session = state.sessions.get(&pair);
            session.is_none_or(|session| session.is_over)
        };
        let are_alive = self.alive.contains(&one) && self.alive.contains(&other);
        if !are_alive || !has_ended(self, (one, other)) || !has_ended(self, (other, one)) {
            return;
        }
        for (one, other) in [(one, other), (other, one)] {
            self.sessions.insert((one, other), Session::default());
            self.post(one, other, SiblingEvent::Joined);
        }
    }
}

/// The agents of one node.
#[derive(Debug, Clone)]
pub(crate) struct Table(Arc<Mutex<State>>);

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: 0,
            random: fastrand::Rng::with_seed(seed),
            posted: 0,
            alive: BTreeSet::new(),
            sessions: HashMap::new(),
            traveling: HashMap::new(),
            last: HashMap::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder has panicked")
    }

    pub(crate) fn set_now(&self, now: Nanos) {
        self.state().now = now;
    }

    /// Starts an agent, which meets those that are alive.
    pub(crate) fn start(&self, own: u32, others: impl Iterator<Item = u32>) -> Seat {
        let mut state = self.state();
        state.alive.insert(own);
        for other in others {
            // Agents that have not noticed its last death yet meet it later.
            state.meet(own, other);
        }
        Seat {
            table: self.clone(),
            own,
        }
    }

    /// Kills an agent.
    pub(crate) fn kill(&self, own: u32) {
        let mut state = self.state();
        state.alive.remove(&own);
        state.traveling.remove(&own);
        state.last.retain(|(to, _), _| *to != own);
        // The agents to which it has not announced its end.
        let sessions = state.sessions.iter();
        let sessions = sessions.filter(|((by, _), session)| *by == own && !session.has_said);
        let others: Vec<u32> = sessions.map(|((_, other), _)| *other).collect();
        state.sessions.retain(|(by, _), _| *by != own);
        for other in others {
            if state.sessions.contains_key(&(other, own)) {
                state.post(own, other, SiblingEvent::Ended);
            }
        }
    }

    /// Returns when the next message arrives at an agent.
    pub(crate) fn next(&self, own: u32) -> Option<Nanos> {
        let state = self.state();
        Some(state.traveling.get(&own)?.first_key_value()?.0.0)
    }
}

/// One agent's access to the others.
#[derive(Debug)]
pub(crate) struct Seat {
    table: Table,
    own: u32,
}

impl Siblings for Seat {
    fn next(&mut self) -> Option<(u32, SiblingEvent)> {
        let mut state = self.table.state();
        let now = state.now;
        let first = state.traveling.get_mut(&self.own)?.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let (from, event) = first.remove();
        if event == SiblingEvent::Ended
            && let Some(session) = state.sessions.get_mut(&(self.own, from))
        {
            session.has_heard = true;
        }
        Some((from, event))
    }

    fn send(&mut self, sibling: u32, message: &[u8]) -> bool {
        assert!(message.len() <= MAX_SIBLING_MESSAGE);
        let mut state = self.table.state();
        if state.random.u8(..) < 16 {
            return false;
        }
        let session = state.sessions.get(&(self.own, sibling));
        let other = state.sessions.get(&(sibling, self.own));
        if session.is_some_and(|session| !session.has_said) && other.is_some() {
            let message = SiblingEvent::Message(message.to_vec());
            state.post(self.own, sibling, message);
        }
        true
    }

    fn end(&mut self, sibling: u32) {
        let mut state = self.table.state();
        let Some(session) = state.sessions.get_mut(&(self.own, sibling)) else {
            return;
        };
        let had_said = std::mem::replace(&mut session.has_said, true);
        session.is_over = session.has_heard;
        if !had_said && state.sessions.contains_key(&(sibling, self.own)) {
            state.post(self.own, sibling, SiblingEvent::Ended);
        }
        state.meet(self.own, sibling);
    }
}
