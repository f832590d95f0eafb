//! The simulation of one scenario.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Counters, Nanos};
use sim::random::mix;
use sim::{EventQueue, MS};

use crate::expected::{Expected, expected, judge};
use crate::network::Network;
use crate::oracle::{Oracle, violation};
use crate::process::{Datagram, Process};
use crate::report::Report;
use crate::scenario::{Fault, Scenario};

/// The number of events after which a run counts as endless.
const MANY: u64 = 3_000_000;
/// The maximum number of packets that an idle link sends per dead time, with losses.
const IDLE_PACKETS: u64 = 120;
/// The maximum number of timer expirations of an idle link per dead time.
const IDLE_TIMEOUTS: u64 = 240;

#[derive(Debug)]
enum Event {
    /// A process wakes up, unless it has been woken earlier.
    Wake(u32),
    /// A packet reaches the switch's port to a rank.
    Port(Rank, Datagram),
    /// A packet reaches the rank's socket.
    Socket(Rank, Datagram),
    /// A fault begins or ends.
    Fault(u32),
    /// The world checks whether there is progress.
    Check,
}

/// The condition on which a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Everything expected has arrived, and nothing more happens.
    Done,
    /// The given time is reached. The final checks are left out, because this condition is for
    /// measurements.
    Time(Nanos),
}

/// The state of a running simulation.
struct World<'a> {
    scenario: &'a Scenario,
    events: EventQueue<Event>,
    network: Network,
    processes: Vec<Process>,
    incarnations: Vec<u64>,
    /// The current process of each rank.
    current: Vec<usize>,
    oracle: Oracle,
    /// The last time at which there was progress, and the oracle's counter of progress at that
    /// time.
    progress: (Nanos, u64),
    /// The time from which there was nothing more to do, and each process's number of packets and
    /// of timer expirations at that time.
    settled: Option<(Nanos, Vec<(u64, u64)>)>,
    is_over: bool,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, until: Until) -> Report {
    let mut world = World::new(scenario);
    world.start();
    world.go(until, MANY);
    world.finish(until)
}

/// Runs a scenario with any number of events.
pub(crate) fn run_long(scenario: &Scenario) -> Report {
    let mut world = World::new(scenario);
    world.start();
    world.go(Until::Done, u64::MAX);
    world.finish(Until::Done)
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let ranks = scenario.ranks as usize;
        let restarts: usize = scenario
            .faults
            .iter()
            .map(|fault| match fault {
                Fault::Restart { .. } => 1,
                Fault::RestartAll { .. } => ranks,
                _ => 0,
            })
            .sum();
        Self {
            scenario,
            events: EventQueue::default(),
            network: Network::new(scenario),
            processes: Vec::new(),
            incarnations: Vec::new(),
            current: vec![0; ranks],
            oracle: Oracle::new(ranks + restarts),
            progress: (0, 0),
            settled: None,
            is_over: false,
        }
    }

    fn now(&self) -> Nanos {
        self.events.now()
    }

    fn start(&mut self) {
        self.begin_all();
        for (index, fault) in (0..).zip(&self.scenario.faults) {
            let (begin, end) = match *fault {
                Fault::Restart { at, .. } | Fault::RestartAll { at } => (at, None),
                Fault::Asleep { begin, end, .. } => (begin, end),
                Fault::Busy { begin, end, .. } => (begin, Some(end)),
                _ => continue,
            };
            self.events.schedule(begin, Event::Fault(index));
            if let Some(end) = end {
                self.events.schedule(end, Event::Fault(index));
            }
        }
        self.events.schedule(0, Event::Check);
    }

    /// Creates new processes for all ranks, which know each other.
    fn begin_all(&mut self) {
        let (first, ranks) = (self.processes.len(), self.scenario.ranks as usize);
        for id in first..first + ranks {
            self.incarnations
                .push(mix(self.scenario.seed ^ mix(id as u64)));
        }
        self.current = (first..first + ranks).collect();
        for rank in 0..self.scenario.ranks {
            self.begin(rank);
        }
    }

    /// Creates a new process for a rank. The process has the current processes of the other ranks
    /// as its peers.
    fn begin(&mut self, rank: Rank) {
        let incarnations: Vec<u64> = self
            .current
            .iter()
            .map(|&id| self.incarnations[id])
            .collect();
        let id = self.processes.len();
        let process = Process::new(
            self.scenario,
            id,
            rank,
            self.current.clone(),
            &incarnations,
            self.now(),
        );
        self.processes.push(process);
        self.wake(id, self.now());
    }

    fn wake(&mut self, id: usize, at: Nanos) {
        if at != Nanos::MAX {
            self.processes[id].wake = at;
            self.events.schedule(at, Event::Wake(id as u32));
        }
    }

    fn go(&mut self, until: Until, most: u64) {
        let is_before_end = |at| !matches!(until, Until::Time(end) if at >= end);
        while !self.is_over
            && self.events.next_at().is_some_and(is_before_end)
            && let Some(event) = self.events.pop()
        {
            let time = self.now();
            self.oracle.now = time;
            match event {
                Event::Wake(id) => self.poll(id as usize),
                Event::Port(rank, packet) => self.port(rank, packet),
                Event::Socket(rank, packet) => self.socket(rank, packet),
                Event::Fault(index) => self.fault(index as usize),
                Event::Check => {
                    self.check(until);
                    self.events
                        .schedule(time + self.scenario.protocol.dead_time / 32, Event::Check);
                }
            }
            if self.events.passed() >= most && until == Until::Done {
                violation!(self.oracle, "the run doesn't end: {}", self.describe());
                break;
            }
        }
    }

    fn is_asleep(&self, rank: Rank) -> bool {
        let is = |fault: &Fault| {
            matches!(*fault, Fault::Asleep { rank: r, begin, end }
                if r == rank && self.now() >= begin && end.is_none_or(|end| self.now() < end))
        };
        self.scenario.faults.iter().any(is)
    }

    fn is_attended(&self, rank: Rank) -> bool {
        let is = |fault: &Fault| matches!(*fault, Fault::Busy { rank: r, begin, end } if r == rank && (begin..end).contains(&self.now()));
        self.scenario.faults.iter().any(is)
    }

    fn poll(&mut self, id: usize) {
        let process = &self.processes[id];
        let rank = process.rank;
        // The process was woken earlier, is asleep, or no longer exists.
        if process.wake != self.now() || self.current[rank as usize] != id || self.is_asleep(rank) {
            return;
        }
        let (now, is_attended) = (self.now(), self.is_attended(rank));
        let (network, events) = (&mut self.network, &mut self.events);
        let mut copies = Vec::new();
        self.processes[id].poll(now, is_attended, &mut self.oracle, |packet| {
            network.send(packet.at, rank, packet.to, packet.bytes, &mut copies);
            for (at, datagram) in copies.drain(..) {
                events.schedule(at, Event::Port(packet.to, datagram));
            }
        });
        self.wake(id, self.processes[id].wake);
    }

    fn port(&mut self, rank: Rank, packet: Datagram) {
        let now = self.now();
        match self.network.arrive(now, rank, packet.bytes.len()) {
            Some(at) if at > now => self.events.schedule(at, Event::Socket(rank, packet)),
            Some(_) => self.socket(rank, packet),
            None => {}
        }
    }

    fn socket(&mut self, rank: Rank, packet: Datagram) {
        let id = self.current[rank as usize];
        let (now, is_attended) = (self.now(), self.is_attended(rank));
        let process = &mut self.processes[id];
        if process.socket_bytes + packet.bytes.len() > self.scenario.host.socket {
            self.network.fates.socket_full += 1;
            return;
        }
        process.socket_bytes += packet.bytes.len();
        process.socket.push_back(packet);
        let at = process.on_arrival(now, is_attended);
        if at < process.wake {
            self.wake(id, at);
        }
    }

    fn fault(&mut self, index: usize) {
        match self.scenario.faults[index] {
            Fault::Asleep { rank, .. } | Fault::Busy { rank, .. } => {
                let id = self.current[rank as usize];
                let at = self.processes[id].clock.max(self.now());
                self.wake(id, at);
            }
            Fault::Restart { rank, .. } => {
                let id = self.processes.len();
                self.incarnations
                    .push(mix(self.scenario.seed ^ mix(id as u64)));
                self.current[rank as usize] = id;
                self.begin(rank);
            }
            Fault::RestartAll { .. } => self.begin_all(),
            _ => {}
        }
    }

    /// Returns all pairs of a live process and one of its peers, with the peer's rank.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize, Rank)> {
        self.current.iter().flat_map(move |&id| {
            let process = &self.processes[id];
            (0..self.scenario.ranks)
                .filter(move |&peer| peer != process.rank)
                .map(move |peer| (id, process.peers[peer as usize], peer))
        })
    }

    fn expected(&self, id: usize, peer: usize) -> Expected {
        let used = self.oracle.look(id, peer).and_then(|pair| pair.used);
        expected(
            self.scenario,
            self.processes[id].rank,
            self.processes[peer].rank,
            used,
        )
    }

    /// Returns whether a link has reached its expected state.
    fn is_settled(&self, id: usize, peer: usize, peer_rank: Rank) -> bool {
        let rank = self.processes[id].rank;
        let pair = self.oracle.look(id, peer);
        if pair.is_some_and(|pair| pair.failed.is_some()) || self.is_asleep(rank) {
            return true;
        }
        let is_open = self.processes[id].endpoint.link(peer_rank).is_some();
        match self.expected(id, peer) {
            Expected::Fails { .. } => !is_open,
            Expected::MtuTooSmall if pair.is_some_and(|pair| pair.used_data.is_some()) => false,
            Expected::Survives | Expected::Undetermined | Expected::MtuTooSmall => {
                pair.is_none_or(|pair| pair.is_done())
            }
        }
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (id, peer, rank) in self
            .pairs()
            .filter(|&(id, peer, rank)| !self.is_settled(id, peer, rank))
            .take(1)
        {
            let what = self
                .oracle
                .look(id, peer)
                .map_or("unused".into(), |pair| pair.describe());
            let link = self.processes[id].endpoint.link(rank);
            text += &format!(
                "{id} to {peer} ({:?}): {what}; {link:?}. ",
                self.expected(id, peer)
            );
        }
        text
    }

    fn check(&mut self, until: Until) {
        if !self.oracle.violations.is_empty() {
            self.is_over = true;
            return;
        }
        if until != Until::Done {
            return;
        }
        let dead = self.scenario.protocol.dead_time;
        let last = self.scenario.faults.iter().map(Fault::last);
        let last = last
            .chain(self.scenario.phases.iter().map(|phase| phase.begin))
            .max()
            .unwrap_or(0);
        if self.progress.1 != self.oracle.progress {
            self.progress = (self.now(), self.oracle.progress);
        }
        let is_done = self.now() > last
            && self.current.iter().all(|&id| {
                let process = &self.processes[id];
                process.traffic.is_done() || self.is_asleep(process.rank)
            })
            && self
                .pairs()
                .all(|(id, peer, rank)| self.is_settled(id, peer, rank));
        if !is_done {
            self.settled = None;
            let since = self.progress.0.max(last);
            if self.now() > since + 3 * dead + 2000 * MS {
                violation!(
                    self.oracle,
                    "no progress for {} ms: {}",
                    (self.now() - since) / MS,
                    self.describe()
                );
                self.is_over = true;
            }
            return;
        }
        match &self.settled {
            None => {
                if self.now() >= self.progress.0 + dead / 4 {
                    for process in &mut self.processes {
                        process.least = process.memory;
                    }
                    let counts = self
                        .processes
                        .iter()
                        .map(|process| (process.packets, process.timeouts));
                    self.settled = Some((self.now(), counts.collect()));
                }
            }
            Some((since, _)) => self.is_over = self.now() >= since + dead + dead / 2,
        }
    }

    /// Runs the final checks.
    fn finish(mut self, until: Until) -> Report {
        self.oracle.now = self.now();
        if until == Until::Done && self.oracle.violations.is_empty() {
            self.judge_failures();
            self.judge_idleness();
        }
        let mut counters = Counters::default();
        for process in &self.processes {
            counters += &process.endpoint.counters();
        }
        let failures = self.failures();
        Report::new(
            self.now(),
            self.events.passed(),
            &self.oracle,
            self.network.fates,
            counters,
            failures,
            self.processes
                .iter()
                .map(|process| process.peak)
                .max()
                .unwrap_or(0),
        )
    }

    fn failures(&self) -> Vec<(usize, usize, Nanos, conduit_udp::protocol::Failure)> {
        let count = self.processes.len();
        let all = (0..count).flat_map(|id| (0..count).map(move |peer| (id, peer)));
        all.filter_map(|(id, peer)| {
            let (at, failure) = self.oracle.look(id, peer)?.failed?;
            Some((id, peer, at, failure))
        })
        .collect()
    }

    fn judge_failures(&mut self) {
        for (id, peer, at, failure) in self.failures() {
            let used = [(id, peer), (peer, id)]
                .map(|(id, peer)| self.oracle.look(id, peer).and_then(|pair| pair.used));
            let mut expected = self.expected(id, peer);
            if self.current[self.processes[id].rank as usize] != id {
                // The process has been replaced since. At that time, its links may have been in any
                // state.
                expected = Expected::Undetermined;
            }
            if let Some(what) = judge(self.scenario, expected, used, at, failure) {
                violation!(
                    self.oracle,
                    "process {peer} {what}: by {id} at {:.6} s, {failure:?}, used since {used:?}, {expected:?}",
                    at as f64 / 1e9
                );
            }
        }
    }

    fn judge_idleness(&mut self) {
        // A path whose MTU is too small is probed for as long as its MTU may be validated, even if
        // the link is otherwise idle.
        if self
            .scenario
            .faults
            .iter()
            .any(|fault| matches!(fault, Fault::SmallMtu { .. }))
        {
            return;
        }
        let Some((_, counts)) = &self.settled else {
            return;
        };
        let links = u64::from(self.scenario.ranks - 1);
        for (process, (packets, timeouts)) in self.processes.iter().zip(counts) {
            let (packets, timeouts) = (process.packets - packets, process.timeouts - timeouts);
            if packets > IDLE_PACKETS * links || timeouts > IDLE_TIMEOUTS * links {
                let id = process.id;
                violation!(
                    self.oracle,
                    "idle process {id} is busy: {packets} packets and {timeouts} timer expirations in 1.5 dead times"
                );
                break;
            }
        }
        let protocol = &self.scenario.protocol;
        if protocol.idle_time == 0 || protocol.idle_time > protocol.dead_time / 4 {
            return;
        }
        let bound = crate::bound::idle_memory(self.scenario);
        for &id in &self.current {
            let process = &self.processes[id];
            let held = process.least - process.memory_at_start;
            if held > bound && !self.is_asleep(process.rank) {
                violation!(
                    self.oracle,
                    "idle process {id} holds {held} bytes, more than {bound}"
                );
                break;
            }
        }
    }
}
