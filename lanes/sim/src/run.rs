//! The simulation of one job.

use std::collections::BTreeMap;

use clap::ValueEnum;
use lanes::{
    Action, LaneKind, Lanes, Message, ROWS, Sampler, Settings, SettingsError, State, Statistics,
    Tracker,
};
use serde::Serialize;
use sim::random::{Rng, magnitude, mix};
use sim::{EventQueue, Nanos, US};

use crate::Pattern;
use crate::upstream::{Move, Upstream};

/// The number of ranks that are simulated in detail.
pub const DETAILED: u32 = 256;

/// The time from one message of the fastest rank to its next.
const MESSAGE_TIME: Nanos = 100;
/// The number of rounds of a rank of medium speed between changes of partners.
const PHASE: u64 = 100;
/// The number of rounds after a change of partners for which shares are recorded.
const WATCHED: usize = 64;
/// The fraction of the possible share of lane messages at which the share counts as settled.
const SETTLED: f64 = 0.98;

/// The rule that decides about lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rule {
    /// No lanes: all traffic uses the base path.
    None,
    /// The rules of UCX's usage tracker, with its defaults: 10 to 20 lanes.
    Upstream,
    /// The receivers decide and own the lanes.
    Owner,
    /// Both ends pay for a lane.
    Both,
}

impl Rule {
    /// Returns the rule's name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Upstream => "UCX's",
            Self::Owner => "one owner",
            Self::Both => "both pay",
        }
    }
}

/// The results of a job.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// The share of messages that used lanes in the second half of the simulated time.
    pub share: f64,
    /// If partners change, the share of messages that used lanes from the 16th round after a change
    /// on.
    pub settled: f64,
    /// The number of times per 1,000 messages that a sender promoted or demoted its traffic.
    pub moves: f64,
    /// The number of lanes asked for, or offered without an ask, per 1,000 messages.
    pub asks: f64,
    /// The number of asks that rank 0 received, per 1,000 messages that it received.
    pub asks_at_hub: Option<f64>,
    /// The number of rounds from a change of partners until the share is settled.
    pub rounds: Option<usize>,
}

/// One round of a rank.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// The number of samples of the rank's traffic, by peer.
    pub traffic: BTreeMap<u32, u32>,
    /// The peers with lanes at the end of the round.
    pub lanes: Vec<u32>,
}

enum Wire {
    Lane(Message),
    Promote(f64),
    Accept,
    Demote,
}

enum Event {
    /// A rank sends its next sampled message.
    Sample(u32),
    Control(u32, u32, Wire),
    Drained(u32, usize, u16),
}

enum Policy {
    None,
    Upstream(Upstream, Vec<u32>),
    Ours(Box<Tracker>, Vec<Lanes>),
}

struct Rank {
    policy: Policy,
    sampler: Sampler,
    messages: u64,
    message_time: Nanos,
    rounds: usize,
    /// The rank's round at the last change of partners.
    changed: usize,
    statistics: Statistics,
}

struct World {
    pattern: Pattern,
    rule: Rule,
    count: u32,
    settings: Settings,
    ranks: Vec<Rank>,
    events: EventQueue<Event>,
    random: Rng,
    is_warm: bool,
    /// The number of all messages sent, and the number of those that used lanes.
    sent: [u64; 2],
    /// The numbers in `sent`, by the number of rounds since a change of partners.
    since_change: Vec<[u64; 2]>,
    messages: u64,
    upstream_moves: u64,
    hub: [u64; 2],
    /// The watched rank and its rounds, the last of which is in progress.
    watched: Option<(u32, Vec<Moment>)>,
}

/// A simulated job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The traffic pattern.
    pub pattern: Pattern,
    /// The rule that decides about lanes.
    pub rule: Rule,
    /// The number of ranks, at least [`DETAILED`].
    pub ranks: u32,
    /// The simulated time, in rounds of a rank of medium speed.
    pub rounds: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The settings of the lanes.
    pub settings: Settings,
}

impl Job {
    /// Creates a job of 10,000 ranks with the default settings.
    #[must_use]
    pub fn new(pattern: Pattern, rule: Rule) -> Self {
        Self {
            pattern,
            rule,
            ranks: 10_000,
            rounds: 500,
            seed: 1,
            settings: Settings::default(),
        }
    }
}

/// Simulates a job.
///
/// # Errors
/// Returns an error if a setting is out of range.
pub fn run(job: &Job) -> Result<Figures, SettingsError> {
    Ok(world(job, None)?.figures())
}

/// Simulates a job and returns the rounds of one of its first [`DETAILED`] ranks. The rule must be
/// [`Rule::Owner`] or [`Rule::Both`].
///
/// # Errors
/// Returns an error if a setting is out of range.
pub fn watch(job: &Job, rank: u32) -> Result<Vec<Moment>, SettingsError> {
    let watched = world(job, Some(rank))?.watched;
    let mut moments = watched.map_or(Vec::new(), |(_, moments)| moments);
    // The last round is omitted, because it is unfinished.
    moments.pop();
    Ok(moments)
}

fn world(job: &Job, watched: Option<u32>) -> Result<World, SettingsError> {
    let Job { rule, settings, .. } = job;
    settings.check()?;
    let mut random = Rng::with_seed(mix(job.seed));
    let slowest = job.pattern.slowest();
    let rank = |own| {
        let table = |kind| {
            let slots = match kind {
                LaneKind::Holder => ROWS as u16,
                _ => settings.slots,
            };
            let settings = Settings {
                slots,
                ..settings.clone()
            };
            Lanes::new(own, kind, settings).expect("settings were checked")
        };
        Rank {
            policy: match *rule {
                Rule::None => Policy::None,
                Rule::Upstream => Policy::Upstream(Upstream::default(), vec![]),
                Rule::Owner => Policy::Ours(
                    Box::new(Tracker::new(settings.decay)),
                    vec![table(LaneKind::Owner), table(LaneKind::Holder)],
                ),
                Rule::Both => Policy::Ours(
                    Box::new(Tracker::new(settings.decay)),
                    vec![table(LaneKind::Both)],
                ),
            },
            sampler: Sampler::new(settings.interval, own),
            messages: 0,
            message_time: magnitude(&mut random, MESSAGE_TIME, MESSAGE_TIME * slowest),
            rounds: 0,
            changed: 0,
            statistics: Statistics::default(),
        }
    };
    let ranks = (0..DETAILED).map(rank).collect();
    let mut world = World {
        pattern: job.pattern,
        rule: *rule,
        count: job.ranks.max(DETAILED),
        settings: settings.clone(),
        ranks,
        events: EventQueue::default(),
        random,
        is_warm: false,
        sent: [0; 2],
        since_change: vec![[0; 2]; WATCHED],
        messages: 0,
        upstream_moves: 0,
        hub: [0; 2],
        watched: watched.map(|rank| (rank, vec![Moment::default()])),
    };
    world.go(job);
    Ok(world)
}

impl World {
    fn go(&mut self, job: &Job) {
        // If both ends pay, a rank counts both its sent and its received messages, so rounds are
        // half as long.
        let middle = (MESSAGE_TIME * MESSAGE_TIME * job.pattern.slowest()).isqrt();
        let mut round = middle * u64::from(self.settings.interval * self.settings.samples);
        if self.rule == Rule::Both {
            round /= 2;
        }
        for rank in 0..DETAILED {
            let begin = self.random.u64(..round);
            self.events.schedule(begin, Event::Sample(rank));
        }
        let mut phase = 0;
        while self.events.now() < job.rounds * round {
            let Some(event) = self.events.pop() else {
                return;
            };
            let elapsed = self.events.now() / round;
            if !self.is_warm && elapsed >= job.rounds / 2 {
                self.is_warm = true;
                self.ranks
                    .iter_mut()
                    .for_each(|rank| rank.statistics = Statistics::default());
            }
            let current = u32::try_from(elapsed / PHASE).unwrap_or(0);
            if self.pattern.changes() && current != phase {
                phase = current;
                for rank in &mut self.ranks {
                    rank.changed = rank.rounds;
                }
            }
            match event {
                Event::Sample(rank) => self.sample(rank, phase),
                Event::Control(from, to, wire) => self.receive(from, to, wire),
                Event::Drained(rank, table, slot) => {
                    self.on(rank, table, |lanes, _, act| lanes.drained(slot, act));
                }
            }
        }
    }

    /// Sends a rank's messages up to the next sampled one.
    fn sample(&mut self, at: u32, phase: u32) {
        let (pattern, count) = (self.pattern, self.count);
        let upstream = self.rule == Rule::Upstream;
        let rank = &mut self.ranks[at as usize];
        let before = rank.messages;
        rank.messages += 1;
        if upstream {
            rank.messages += u64::from(self.settings.interval) - 1;
        } else {
            while rank.sampler.pass(1) == 0 {
                rank.messages += 1;
            }
        }
        let messages = rank.messages - before;
        let next = self.events.now() + messages * rank.message_time;
        let mut draw = |message| pattern.receiver(&mut self.random, at, count, message, phase);
        // `to` receives the message sampled at this rank, and `other` receives one that is sampled
        // at its other end.
        let (to, other) = (draw(self.ranks[at as usize].messages), draw(before));
        self.count_message(at, to, messages);
        self.touch(at, to);
        // UCX samples only sent messages.
        if !upstream {
            match other {
                0 if pattern == Pattern::Hub => {
                    // Rank 0 receives from all ranks, of which only a few are simulated.
                    let from = self.random.u32(1..count);
                    self.hub[0] += u64::from(self.is_warm) * messages;
                    self.touch(0, if from < DETAILED { at } else { from });
                }
                detailed if detailed < DETAILED => self.touch(detailed, at),
                // A rank that is not simulated is assumed to send as many messages to this rank as
                // it receives from it.
                _ => self.touch(at, other),
            }
        }
        self.events.schedule(next, Event::Sample(at));
    }

    fn count_message(&mut self, from: u32, to: u32, messages: u64) {
        if !self.is_warm {
            return;
        }
        let by_lane = u64::from(self.has_lane(from, to));
        self.messages += messages;
        let decides = match self.rule {
            Rule::Owner if to < DETAILED => to,
            _ => from,
        };
        let rank = &self.ranks[decides as usize];
        let since = rank.rounds - rank.changed;
        let add = |counts: &mut [u64; 2]| {
            counts[0] += messages;
            counts[1] += by_lane * messages;
        };
        add(&mut self.sent);
        if let Some(counts) = self.since_change.get_mut(since) {
            add(counts);
        }
    }

    fn has_lane(&self, from: u32, to: u32) -> bool {
        match &self.ranks[from as usize].policy {
            Policy::None => false,
            Policy::Upstream(tracker, accepted) => {
                tracker.is_promoted(to) && accepted.contains(&to)
            }
            Policy::Ours(_, tables) => tables.last().is_some_and(|lanes| {
                lanes
                    .iter()
                    .any(|lane| lane.peer == to && lane.state == State::Open)
            }),
        }
    }

    fn touch(&mut self, at: u32, peer: u32) {
        let samples = self.settings.samples;
        let rank = &mut self.ranks[at as usize];
        match &mut rank.policy {
            Policy::None => {}
            Policy::Ours(tracker, _) => {
                // If the receiver owns the lanes, it counts the messages that it receives, and the
                // sender counts nothing.
                tracker.touch(peer, 1);
                let is_over = tracker.samples() >= samples;
                if is_over {
                    rank.rounds += 1;
                    tracker.progress();
                    self.on(at, 0, |lanes, tracker, act| lanes.progress(tracker, act));
                }
                self.note(at, peer, is_over);
            }
            Policy::Upstream(tracker, _) => {
                tracker.touch(peer);
                if tracker.samples >= samples {
                    rank.rounds += 1;
                    let mut moves = Vec::new();
                    tracker.progress(&mut moves);
                    self.upstream_moves(at, &moves);
                }
            }
        }
    }

    /// Records a sample if `at` is the watched rank, and begins the rank's next round if the
    /// current one is over.
    fn note(&mut self, at: u32, peer: u32, is_over: bool) {
        let Some((_, moments)) = self.watched.as_mut().filter(|(rank, _)| *rank == at) else {
            return;
        };
        let Some(moment) = moments.last_mut() else {
            return;
        };
        *moment.traffic.entry(peer).or_default() += 1;
        if is_over && let Policy::Ours(_, tables) = &self.ranks[at as usize].policy {
            let open = tables[0].iter().filter(|lane| lane.state == State::Open);
            moment.lanes = open.map(|lane| lane.peer).collect();
            moments.push(Moment::default());
        }
    }

    fn send(&mut self, from: u32, to: u32, wire: Wire) {
        let at = self.events.now() + self.random.u64(2 * US..20 * US);
        self.events.schedule(at, Event::Control(from, to, wire));
    }

    fn receive(&mut self, from: u32, to: u32, wire: Wire) {
        if to >= DETAILED {
            if let Wire::Lane(Message::Ask { generation, .. } | Message::Offer { generation, .. }) =
                wire
            {
                let (price, rest) = (u32::MAX / 2, 64);
                let message = Message::Denied {
                    generation,
                    price,
                    rest,
                };
                self.send(to, from, Wire::Lane(message));
            }
            return;
        }
        match wire {
            Wire::Lane(message) => {
                let is_ask = matches!(message, Message::Ask { .. });
                self.hub[1] += u64::from(self.is_warm && to == 0 && is_ask);
                let table = match self.rule {
                    Rule::Owner => usize::from(!message.is_for_owner()),
                    _ => 0,
                };
                self.on(to, table, |lanes, tracker, act| {
                    let result = lanes.on_message(from, message, tracker, act);
                    result.expect("all ranks are honest");
                });
            }
            Wire::Promote(score) => {
                let Policy::Upstream(tracker, accepted) = &mut self.ranks[to as usize].policy
                else {
                    return;
                };
                let mut moves = Vec::new();
                if tracker.peer_promoted(from, score, &mut moves) {
                    accepted.push(from);
                    self.send(to, from, Wire::Accept);
                }
                // This rank does not begin the promotion that the peer has begun already.
                moves.retain(|one| !matches!(one, Move::Promoted(peer, _) if *peer == from));
                self.upstream_moves(to, &moves);
            }
            Wire::Accept => {
                if let Policy::Upstream(_, accepted) = &mut self.ranks[to as usize].policy {
                    accepted.push(from);
                }
            }
            Wire::Demote => {
                if let Policy::Upstream(tracker, accepted) = &mut self.ranks[to as usize].policy {
                    tracker.peer_demoted(from);
                    accepted.retain(|&peer| peer != from);
                }
            }
        }
    }

    fn upstream_moves(&mut self, at: u32, moves: &[Move]) {
        self.upstream_moves += u64::from(self.is_warm) * moves.len() as u64;
        for one in moves {
            match *one {
                Move::Promoted(peer, score) => self.send(at, peer, Wire::Promote(score)),
                Move::Demoted(peer) => {
                    if let Policy::Upstream(_, accepted) = &mut self.ranks[at as usize].policy {
                        accepted.retain(|&other| other != peer);
                    }
                    self.send(at, peer, Wire::Demote);
                }
            }
        }
    }

    /// Runs a step of one of a rank's tables and carries out its actions.
    fn on(
        &mut self,
        at: u32,
        table: usize,
        run: impl FnOnce(&mut Lanes, &Tracker, &mut dyn FnMut(Action)),
    ) {
        let rank = &mut self.ranks[at as usize];
        let Policy::Ours(tracker, tables) = &mut rank.policy else {
            return;
        };
        let mut actions = Vec::new();
        let statistics = &mut rank.statistics;
        run(&mut tables[table], tracker, &mut |action| {
            statistics.count(&action);
            actions.push(action);
        });
        for action in actions {
            match action {
                Action::Send { to, message } => self.send(at, to, Wire::Lane(message)),
                Action::Drain { slot, .. } => {
                    let empty = self.events.now() + self.random.u64(..10 * US);
                    self.events.schedule(empty, Event::Drained(at, table, slot));
                }
                Action::Connect { slot, .. } => self.connected(at, table, slot),
                Action::Open { .. } | Action::Close { .. } => {}
            }
        }
    }

    /// Completes a connection at once, because the simulation is only about which ranks have lanes.
    fn connected(&mut self, at: u32, table: usize, slot: u16) {
        self.on(at, table, |lanes, _, act| lanes.connected(slot, act));
    }

    fn figures(&self) -> Figures {
        let share = |counts: [u64; 2]| counts[1] as f64 / counts[0].max(1) as f64;
        let per_thousand = |events: u64| events as f64 * 1000.0 / self.messages.max(1) as f64;
        let sum = |of: fn(&Statistics) -> u64| self.ranks.iter().map(|r| of(&r.statistics)).sum();
        // The owner and the holder of a lane both count its promotion.
        let promotions = match self.rule {
            Rule::Owner => sum(|all| all.promotions) / 2,
            _ => sum(|all| all.promotions),
        };
        let moves = promotions + sum(|all| all.demotions) + self.upstream_moves;
        let asks = match self.rule {
            Rule::Owner => sum(|all| all.offers),
            _ => sum(|all| all.asks),
        };
        let is_changing = self.pattern.changes();
        let enough = SETTLED * self.pattern.possible();
        let unsettled = self
            .since_change
            .iter()
            .rposition(|&counts| share(counts) < enough);
        let rounds = unsettled.map_or(0, |last| last + 1);
        let late = &self.since_change[16..];
        let late = late.iter().fold([0; 2], |sum, counts| {
            [sum[0] + counts[0], sum[1] + counts[1]]
        });
        Figures {
            share: share(self.sent),
            settled: share(if is_changing { late } else { self.sent }),
            moves: per_thousand(moves),
            asks: per_thousand(asks),
            asks_at_hub: (self.hub[0] > 0)
                .then(|| self.hub[1] as f64 * 1000.0 / self.hub[0] as f64),
            rounds: (is_changing && rounds < WATCHED).then_some(rounds),
        }
    }
}
