//! Handshakes of two processes over a network that loses, duplicates and reorders messages.

use std::collections::HashSet;

use proptest::prelude::*;
use seal::{Protection, Secret};

use super::*;

const ADDRESSES: [&[u8]; 2] = [b"address 1", b"address 2"];
const RETRY: Nanos = 1_000_000;
const PATIENCE: Nanos = 1 << 50;
type Id = [u8; 8];

fn handshake(side: usize, life: u8, secret: Option<&Secret>) -> Handshake {
    let seed = Secret::from_bytes([1 + side as u8 + 2 * life; 32]);
    let own = SessionSealer::new(secret, Protection::Authenticate, &seed);
    Handshake::new(ADDRESSES[side], own, RETRY, PATIENCE)
}

/// A process that drives its handshake in the same way as [`OpenOfi`](crate::peers::OpenOfi).
struct Process {
    machine: Handshake,
    life: u8,
    next: u32,
    attempt: Option<u32>,
    current: Option<(Id, u32)>,
    pending: Option<(Id, u32)>,
    ever: HashSet<Id>,
}

impl Process {
    fn new(side: usize, life: u8) -> Self {
        Self {
            machine: handshake(side, life, None),
            life,
            next: 0,
            attempt: None,
            current: None,
            pending: None,
            ever: HashSet::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Message {
    Handshake(Vec<u8>),
    /// The first frame of the session with this id.
    Greeting(Id),
}

struct Pair {
    now: Nanos,
    ends: [Process; 2],
    /// Each message in flight with its receiver, and each message ever sent.
    under_way: Vec<(usize, Message)>,
    history: Vec<(usize, Message)>,
}

impl Pair {
    fn new() -> Self {
        Self {
            now: 0,
            ends: [Process::new(0, 0), Process::new(1, 0)],
            under_way: Vec::new(),
            history: Vec::new(),
        }
    }

    fn post(&mut self, to: usize, message: Message) {
        self.history.push((to, message.clone()));
        self.under_way.push((to, message));
    }

    fn send(&mut self, out: Outgoing) {
        let to = ADDRESSES.iter().position(|address| **address == *out.to);
        self.post(to.expect("one of the two"), Message::Handshake(out.bytes));
    }

    fn start(&mut self, side: usize, is_probe: bool) {
        let (now, to) = (self.now, ADDRESSES[1 - side]);
        let end = &mut self.ends[side];
        let unless = end.machine.incarnation_of(to);
        if end.attempt.is_some() || end.current.is_some() != is_probe {
            return;
        }
        end.next += 1;
        let out = end.machine.start(now, to, end.next, unless);
        end.attempt = Some(end.next);
        self.send(out.expect("no other attempt"));
    }

    fn deliver(&mut self, to: usize, message: &Message) {
        let (now, from) = (self.now, ADDRESSES[1 - to]);
        let end = &mut self.ends[to];
        let bytes = match message {
            Message::Handshake(bytes) => bytes,
            Message::Greeting(id) => {
                for slot in [&mut end.pending, &mut end.current] {
                    if let Some((known, number)) = *slot
                        && known == *id
                    {
                        end.machine.on_heard(from, number);
                    }
                }
                if let Some(pending) = end.pending.take_if(|(known, _)| known == id) {
                    end.current = Some(pending);
                }
                return;
            }
        };
        match end.machine.receive(now, bytes) {
            Event::Ignored | Event::Known => {}
            Event::Send(out) => self.send(out),
            Event::Unchanged { number } => {
                assert_eq!(end.attempt.take(), Some(number));
            }
            Event::Proven(proven) => {
                assert_eq!(proven.address(), from);
                end.next += 1;
                let (session, out) = end.machine.accept(proven, end.next);
                assert!(end.ever.insert(session.keys.id()), "a second session");
                if session.cancelled.is_some() {
                    assert_eq!(end.attempt.take(), session.cancelled);
                }
                assert_eq!(session.replaces.is_some(), end.current.is_some());
                assert_eq!(session.displaced, end.pending.map(|(_, number)| number));
                let place = match end.current {
                    Some(_) => &mut end.pending,
                    None => &mut end.current,
                };
                *place = Some((session.keys.id(), session.number));
                self.send(out);
            }
            Event::Established(session) => {
                assert_eq!(end.attempt.take(), Some(session.number));
                assert!(end.ever.insert(session.keys.id()), "a second session");
                assert_eq!(session.replaces.is_some(), end.current.is_some());
                end.current = Some((session.keys.id(), session.number));
                end.pending = None;
                self.post(1 - to, Message::Greeting(session.keys.id()));
            }
        }
    }

    /// Advances the time until something is due.
    fn tick(&mut self) {
        let due = self.ends.iter().filter_map(|end| end.machine.deadline());
        self.now = due.min().unwrap_or(self.now + RETRY).max(self.now);
        for side in 0..2 {
            for timed in self.ends[side].machine.poll(self.now) {
                match timed {
                    Timed::Again(out) => self.send(out),
                    Timed::GaveUp { .. } => panic!("not within {PATIENCE}"),
                }
            }
        }
    }

    /// Delivers messages until nothing is in flight.
    fn rest(&mut self) {
        for _ in 0..100 {
            while !self.under_way.is_empty() {
                let (to, message) = self.under_way.remove(0);
                self.deliver(to, &message);
            }
            if self.ends.iter().all(|end| end.attempt.is_none()) {
                return;
            }
            self.tick();
        }
        panic!("no rest");
    }

    fn restart(&mut self, side: usize) {
        let life = self.ends[side].life + 1;
        self.ends[side] = Process::new(side, life);
        // Handshake messages reach the restarted process. The first frames of old sessions do not.
        self.under_way
            .retain(|(to, message)| *to != side || matches!(message, Message::Handshake(_)));
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Start(usize),
    Probe(usize),
    Deliver(usize),
    Duplicate(usize),
    Replay(usize),
    Lose(usize),
    Tick,
    Restart(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..2usize).prop_map(Step::Start),
        1 => (0..2usize).prop_map(Step::Probe),
        12 => any::<usize>().prop_map(Step::Deliver),
        3 => any::<usize>().prop_map(Step::Duplicate),
        3 => any::<usize>().prop_map(Step::Replay),
        2 => any::<usize>().prop_map(Step::Lose),
        2 => Just(Step::Tick),
        1 => (0..2usize).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// In no sequence of events does one message create two sessions, and in the end both ends
    /// share one session.
    #[test]
    fn both_agree_at_rest(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            let count = pair.under_way.len().max(1);
            match step {
                Step::Start(side) => pair.start(side, false),
                Step::Probe(side) => pair.start(side, true),
                Step::Deliver(at) if at % count < pair.under_way.len() => {
                    let (to, message) = pair.under_way.remove(at % count);
                    pair.deliver(to, &message);
                }
                Step::Duplicate(at) if at % count < pair.under_way.len() => {
                    let (to, message) = pair.under_way[at % count].clone();
                    pair.deliver(to, &message);
                }
                Step::Replay(at) if !pair.history.is_empty() => {
                    let (to, message) = pair.history[at % pair.history.len()].clone();
                    pair.deliver(to, &message);
                }
                Step::Lose(at) if at % count < pair.under_way.len() => {
                    // Frames of a session are not lost.
                    if matches!(pair.under_way[at % count].1, Message::Handshake(_)) {
                        pair.under_way.remove(at % count);
                    }
                }
                Step::Tick => pair.tick(),
                Step::Restart(side) => pair.restart(side),
                _ => {}
            }
        }
        pair.rest();
        for side in 0..2 {
            pair.start(side, false);
        }
        pair.rest();
        // A restarted process is probed to find out whether it is the same.
        for side in 0..2 {
            pair.start(side, true);
            pair.rest();
        }
        let [one, other] = &pair.ends;
        let id = |end: &Process| end.current.map(|(id, _)| id);
        prop_assert!(id(one).is_some());
        prop_assert_eq!(id(one), id(other));
    }

    #[test]
    fn anything_is_read_or_ignored(kind in 0xf1..0xf5u8, mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        bytes.splice(0..0, [kind, VERSION]);
        let mut machine = handshake(0, 0, None);
        machine.start(0, ADDRESSES[1], 7, None);
        prop_assert!(matches!(machine.receive(0, &bytes), Event::Ignored));
    }
}

/// Returns the handshake messages that two processes with these secrets exchange, as far as the
/// handshake proceeds.
fn messages(secrets: [&str; 2]) -> (Pair, Vec<(usize, Vec<u8>)>) {
    let mut pair = Pair::new();
    for (side, key) in secrets.iter().enumerate() {
        let secret = Secret::from_key(key.as_bytes());
        pair.ends[side].machine = handshake(side, 0, Some(&secret));
    }
    pair.start(0, false);
    for _ in 0..4 {
        if let Some((to, message)) = pair.under_way.pop() {
            pair.deliver(to, &message);
        }
    }
    let messages = pair
        .history
        .iter()
        .filter_map(|(to, message)| match message {
            Message::Handshake(bytes) => Some((*to, bytes.clone())),
            Message::Greeting(_) => None,
        });
    let messages = messages.collect();
    (pair, messages)
}

#[test]
fn four_messages_make_a_session_and_no_answer_is_longer() {
    let (pair, messages) = messages(["key", "key"]);
    let kinds: Vec<_> = messages.iter().map(|(to, bytes)| (*to, bytes[0])).collect();
    assert_eq!(
        kinds,
        [(1, HELLO), (0, CHALLENGE), (1, CONFIRM), (0, ACCEPT)]
    );
    assert!(messages[1].1.len() <= messages[0].1.len());
    assert!(messages[3].1.len() <= messages[2].1.len());
    assert!(pair.ends.iter().all(|end| end.current.is_some()));
}

#[test]
fn without_the_secret_nothing_is_answered_or_kept() {
    let (pair, messages) = messages(["key", "another"]);
    assert_eq!(messages.len(), 1);
    assert!(pair.ends[1].machine.live.is_empty());
}

#[test]
fn a_message_that_was_changed_is_ignored() {
    for kind in 0..4 {
        let (_, messages) = messages(["key", "key"]);
        let (to, bytes) = &messages[kind];
        for at in 0..bytes.len() {
            // The processes have exchanged all messages before this one.
            let mut pair = messages_before(kind);
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            let event = pair.ends[*to].machine.receive(0, &changed);
            assert!(matches!(event, Event::Ignored), "byte {at} of {kind}");
            let event = pair.ends[*to].machine.receive(0, bytes);
            assert!(!matches!(event, Event::Ignored));
        }
    }
}

fn messages_before(kind: usize) -> Pair {
    let mut pair = Pair::new();
    let secret = Secret::from_key(b"key");
    for side in 0..2 {
        pair.ends[side].machine = handshake(side, 0, Some(&secret));
    }
    pair.start(0, false);
    for _ in 0..kind {
        let (to, message) = pair.under_way.pop().expect("the next one");
        pair.deliver(to, &message);
    }
    pair
}

#[test]
fn a_cookie_is_good_for_a_while_and_once() {
    let (mut pair, messages) = messages(["key", "key"]);
    let confirm = &messages[2].1;
    let machine = &mut pair.ends[1].machine;
    // The responder answers again, because its answer may have been lost.
    assert!(matches!(machine.receive(0, confirm), Event::Send(_)));
    let number = pair.ends[1].current.expect("a session").1;
    machine.on_heard(ADDRESSES[0], number);
    assert!(matches!(machine.receive(STEP, confirm), Event::Known));
    machine.on_ended(ADDRESSES[0], number);
    assert!(matches!(machine.receive(STEP, confirm), Event::Known));
    assert!(matches!(machine.receive(2 * STEP, confirm), Event::Ignored));
    // Start over with a cookie that has not been used.
    let mut pair = messages_before(2);
    let machine = &mut pair.ends[1].machine;
    assert!(matches!(machine.receive(2 * STEP, confirm), Event::Ignored));
    assert!(matches!(machine.receive(STEP, confirm), Event::Proven(_)));
}

/// Of two pending sessions at one address, only that of the later attempt is kept, regardless of
/// the order in which they arrive.
#[test]
fn an_attempt_that_was_overtaken_counts_no_more() {
    let (mut pair, _) = messages(["key", "key"]);
    let number = pair.ends[0].current.take().expect("a session").1;
    pair.ends[0].machine.on_ended(ADDRESSES[1], number);
    pair.under_way.clear();
    pair.start(0, false);
    for _ in 0..2 {
        let (to, message) = pair.under_way.remove(0);
        pair.deliver(to, &message);
    }
    let late = pair.under_way.remove(0);
    while pair.under_way.last().is_none_or(|(to, message)| {
        *to == 1 && !matches!(message, Message::Handshake(bytes) if bytes[0] == HELLO)
    }) {
        pair.tick();
    }
    pair.under_way.drain(..pair.under_way.len() - 1);
    pair.rest();
    let is_replaced = |pair: &Pair| {
        let [one, other] = &pair.ends;
        one.current.map(|(id, _)| id) == other.current.map(|(id, _)| id)
    };
    assert!(is_replaced(&pair) && pair.ends[1].ever.len() == 2);
    pair.deliver(late.0, &late.1);
    assert!(pair.ends[1].pending.is_none() && is_replaced(&pair));
}

#[test]
fn an_attempt_is_repeated_more_and_more_rarely_and_ends() {
    let mut machine = handshake(0, 0, None);
    machine.patience = 10 * RETRY;
    let first = machine.start(0, ADDRESSES[1], 3, None).expect("the first");
    assert!(machine.start(0, ADDRESSES[1], 4, None).is_none());
    let mut times = Vec::new();
    while let Some(due) = machine.deadline() {
        for timed in machine.poll(due) {
            match timed {
                Timed::Again(out) => assert_eq!(out, first),
                Timed::GaveUp {
                    number,
                    was_answered,
                } => assert_eq!((number, was_answered), (3, false)),
            }
            times.push(due / RETRY);
        }
    }
    assert_eq!(times, [1, 3, 7, 10]);
    assert!(machine.start(0, ADDRESSES[1], 4, None).is_some());
    machine.cancel(4);
    assert!(machine.attempts.is_empty() && machine.targets.is_empty());
}
