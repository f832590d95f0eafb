//! One operation and one fault: each kind of fault, at each point of a message's way, for each
//! return mode and for a get. The outcomes are listed in `docs/agent-faults.md`, and a test keeps
//! that page up to date. After a change, `CONDUIT_TEST_WRITE=1 cargo test -p agent-sim faults`
//! rewrites the page.

use std::fmt::Write;

use agent::host::{Limit, Message, Operation, Outcome, Request, ReturnMode};
use agent::{Code, Held, Limits};
use agent_sim::{Delays, Pool, World};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/agent-faults.md");

const HEAD: &str = "\
# Faults and their outcomes

A process of node 0 performs one operation on a channel of node 1, and one fault happens. Each cell states the
result reported to the process, and the fate of the message. In every case the request is completed once, no
message arrives twice, the agents hold nothing afterwards, and the next message of the same handle arrives,
after those before it.

The columns are sends with a return mode, and gets.

- Result: **sent**; **got**; **failure**, code 1 (`DRAGON_FAILURE`): the other agent or the session with it is
  gone, and the message may have arrived or not; **destroyed**, code 120; **time-out**, code 11. If the
  process's own agent dies, its gateway reports a failure. A process that is gone gets no report. A send that
  returns when deposited or received reports *sent* only for a message that came.
- Fate of a sent message: it **came** into the channel or did **not**; **came, lost**: the channel was
  destroyed with it.
- Fate of the message of a get: it **came** to the process's agent, was **left** in the channel, or was
  **lost** with the channel, an agent or a session; *none*: the channel had no message.

Points at which the fault happens:

";

const STRIP_BYTES: usize = 4096;
const LIMITS: Limits = Limits {
    ejection: 8 << 20,
    getmsg: 8 << 20,
    injection: 8 << 20,
    eager: 8 << 20,
    strip: STRIP_BYTES as u32,
    backlog: 4 << 20,
    transfer: agent::Transfer::Rma,
    requests: 1 << 14,
    ports: 1 << 16,
    age: 50_000,
    idle: true,
    connect: 300_000_000_000,
};
const SHORT: usize = 300;
const LONG: usize = 100_000;
const MEMORY: usize = 1 << 20;

/// The first bytes of fragments' headers.
const BUFFER: u8 = 1;
const PULL: u8 = 5;
const STRIP: u8 = 6;

const POINTS: [(&str, usize, &str); 8] = [
    (
        "before the header",
        SHORT,
        "the process's agent has the request; nothing has left the node",
    ),
    (
        "after the header",
        SHORT,
        "the buffer with header and eager data is in flight",
    ),
    (
        "before the eager data",
        SHORT,
        "the entry waits at the other agent: the channel has no room (get: no message)",
    ),
    (
        "after the eager data",
        SHORT,
        "the message is in the channel, or was taken; the response, if any, is in flight",
    ),
    (
        "before the rendezvous",
        LONG,
        "a long message was announced, and its receiver has no memory to pull it",
    ),
    (
        "after the rendezvous",
        LONG,
        "a part of a long message has arrived, and other parts are in flight",
    ),
    (
        "completion at the target",
        LONG,
        "a long message is in the channel, or was taken; the response is in flight",
    ),
    (
        "completion at the sender",
        LONG,
        "the process has the result",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    Sender,
    Target,
    Node,
    Client,
    Channel,
    Session,
    Silence,
}

const DEATHS: [(Death, &str); 7] = [
    (Death::Sender, "the process's agent dies and is restarted"),
    (Death::Target, "the channel's agent dies and is restarted"),
    (Death::Node, "the channel's node is gone"),
    (Death::Client, "the process is gone"),
    (Death::Channel, "the channel is destroyed"),
    (Death::Session, "the session ends and begins again"),
    (
        Death::Silence,
        "the link is cut for longer than the dead time",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Send(ReturnMode),
    Get,
}

const WHATS: [(What, &str); 6] = [
    (What::Send(ReturnMode::Immediately), "immediately"),
    (What::Send(ReturnMode::Buffered), "buffered"),
    (What::Send(ReturnMode::Deposited), "deposited"),
    (What::Send(ReturnMode::Received), "received"),
    (What::Send(ReturnMode::None), "none"),
    (What::Get, "get"),
];

struct Trial {
    world: World,
    what: What,
    /// The reported result of the request.
    told: Option<&'static str>,
    /// The messages taken from the channel or received, by their first byte.
    out: Vec<u8>,
    /// An allocation that exhausts the memory.
    filler: Option<Pool>,
}

/// The ids of the tested operation and of the one after it.
const FIRST: u64 = 1;
const AFTER: u64 = 2;

impl Trial {
    fn ask(&mut self, id: u64, length: usize, what: What) {
        let host = &mut self.world.hosts[0];
        let operation = match what {
            What::Get => Operation::Get,
            What::Send(mode) => Operation::Send {
                handle: 1,
                message: Message {
                    // Fits: there are two ids.
                    memory: host.memory(vec![id as u8; length]),
                    hints: id,
                    client: 0,
                },
                mode,
                destination: None,
            },
        };
        host.ask(Request {
            id,
            node: World::host_id(1),
            channel: [0].into(),
            process: 0,
            limit: Limit::Never,
            operation,
        });
    }

    fn collect(&mut self) {
        for (id, outcome) in std::mem::take(&mut self.world.hosts[0].completed) {
            assert_eq!(id, FIRST);
            let told = match outcome {
                Outcome::Sent => "sent",
                Outcome::Got(message) => {
                    self.out.push(message.memory.bytes()[0]);
                    "got"
                }
                Outcome::Failed(Code::FAILURE) => "failure",
                Outcome::Failed(Code::OBJECT_DESTROYED) => "destroyed",
                Outcome::Failed(Code::TIMEOUT) => "time-out",
                other => panic!("{other:?}"),
            };
            assert_eq!(self.told.replace(told), None, "completed twice");
        }
    }

    fn take(&mut self) {
        while let Some(message) = self.world.hosts[1].take(0) {
            self.out.push(message.memory.bytes()[0]);
        }
    }

    /// Sets up a trial and runs it until its message is at the given point.
    fn reach(&mut self, point: usize) {
        let length = POINTS[point].1;
        let is_get = self.what == What::Get;
        let receiver = usize::from(!is_get);
        let capacity = usize::from(point != 2 || is_get);
        self.world.hosts[1].create(0, capacity);
        if is_get && point != 2 {
            let memory = self.world.hosts[1].memory(vec![1; length]);
            self.world.hosts[1].put(0, memory);
        }
        if point == 4 {
            self.filler = Some(self.world.hosts[receiver].memory(vec![0; MEMORY]));
        }
        self.ask(FIRST, length, self.what);
        let (sender, target) = (0, 1);
        let (from, to) = match is_get {
            false => (sender, target),
            true => (target, sender),
        };
        let what = self.what;
        let is_there = self.world.reach(|world| {
            let [there, back, pulls, strips] = [
                (0, 1, BUFFER),
                (1, 0, BUFFER),
                (to, from, PULL),
                (from, to, STRIP),
            ]
            .map(|(from, to, kind)| world.net.count(from, to, kind));
            // Whether the message was put into the channel, or taken from it.
            let is_done = match is_get {
                false => !world.hosts[1].sent.is_empty(),
                true => back.sent > 0,
            };
            let announced = match is_get {
                false => there.arrived,
                true => back.arrived,
            };
            match point {
                0 => !world.hosts[0].has_events() && there.sent == 0,
                1 => there.sent == 1 && there.arrived == 0,
                2 => there.arrived == 1,
                3 => is_done && back.arrived == 0,
                4 => announced == 1 && pulls.sent == 0,
                5 => (1..LONG / STRIP_BYTES).contains(&strips.arrived),
                // A get's long message ends with its last strip.
                6 if is_get => {
                    strips.sent == LONG.div_ceil(STRIP_BYTES) && strips.arrived < strips.sent
                }
                6 => is_done && (what != What::Send(ReturnMode::Deposited) || back.sent > 0),
                7 => is_done && (!is_get || !world.hosts[0].completed.is_empty()),
                _ => unreachable!(),
            }
        });
        assert!(is_there, "{what:?} never reaches {}", POINTS[point].0);
        if self.what == What::Send(ReturnMode::Received) && point >= 6 {
            self.take();
            self.world
                .reach(|world| world.net.count(1, 0, BUFFER).sent > 0);
        }
        if point == 7 {
            self.world.run(u64::MAX, |_, _| {});
        }
        self.collect();
        assert_eq!(self.told.is_some(), point == 7 || self.told == Some("sent"));
    }

    fn die(&mut self, death: Death) {
        let world = &mut self.world;
        match death {
            Death::Sender => {
                world.kill(0);
                let taken = world.hosts[0].forget();
                assert!(taken.len() <= 1);
                world.start(0);
                self.told.get_or_insert("failure");
            }
            Death::Target => {
                world.kill(1);
                world.start(1);
            }
            Death::Node => world.kill(1),
            Death::Client => {
                if self.told.is_none() {
                    world.hosts[0].abandon(FIRST);
                }
            }
            Death::Channel => world.hosts[1].destroy(0),
            Death::Session => {
                world.net.cut(0, 1);
                world.net.mend(0, 1);
            }
            Death::Silence => world.net.cut(0, 1),
        }
    }
}

/// Returns the reported result, and the fate of the message.
fn outcome(point: usize, death: Death, what: What, seed: u64) -> String {
    let mut trial = Trial {
        world: World::new(2, MEMORY, LIMITS, Delays::default(), seed),
        what,
        told: None,
        out: Vec::new(),
        filler: None,
    };
    trial.reach(point);
    trial.die(death);
    trial.world.run(
        trial.world.now() + 2 * Delays::default().dead_time,
        |_, _| {},
    );
    trial.collect();
    // Now there is room, and everything that was gone is back.
    trial.world.net.mend(0, 1);
    trial.filler = None;
    let is_left = trial.world.hosts[1].widen(0, 4);
    trial.world.run(u64::MAX, |_, _| {});
    trial.collect();
    if what == What::Get && trial.told.is_none() {
        let memory = trial.world.hosts[1].memory(vec![1; POINTS[point].1]);
        trial.world.hosts[1].put(0, memory);
        trial.world.run(u64::MAX, |_, _| {});
        trial.collect();
    }
    let deposits = trial.world.hosts[1].sent.len();
    let before = trial.out.len();
    trial.take();
    let left = trial.out.len() - before;
    trial.world.run(u64::MAX, |_, _| {});
    trial.collect();
    let told = trial.told.expect("a completed request");
    let name = POINTS[point].0;
    let is_once = deposits <= 1 && trial.out.len() <= 1;
    assert!(
        is_once,
        "{name}, {death:?}, {what:?}: the message arrived twice"
    );
    let became = match (what, trial.out.len()) {
        (What::Send(_), 1) => "came",
        (What::Send(_), _) if deposits == 1 => "came, lost",
        (What::Send(_), _) => "not",
        (What::Get, _) if told == "got" => "came",
        (What::Get, _) if left == 1 => "left",
        (What::Get, _) if point == 2 => "none",
        (What::Get, _) => "lost",
    };
    if let What::Send(ReturnMode::Deposited | ReturnMode::Received) = what
        && told == "sent"
    {
        assert_ne!(became, "not");
    }
    // Further operations succeed.
    if death == Death::Node {
        trial.world.start(1);
    }
    if !is_left {
        trial.world.hosts[1].create(0, 4);
    }
    let before = trial.out.len();
    trial.ask(AFTER, SHORT, What::Send(ReturnMode::Deposited));
    trial.world.run(u64::MAX, |_, _| {});
    let completed = std::mem::take(&mut trial.world.hosts[0].completed);
    assert_eq!(completed, [(AFTER, Outcome::Sent)]);
    trial.take();
    assert_eq!(trial.out[before..], [AFTER as u8]);
    trial.world.run(u64::MAX, |_, _| {});
    assert!(trial.world.hosts[0].completed.is_empty());
    for node in 0..2 {
        assert_eq!(trial.world.held(node), Held::default(), "node {node}");
        assert_eq!(trial.world.hosts[node as usize].used(), 0, "node {node}");
        let machine = trial.world.machine(node).expect("a live agent");
        assert_eq!(machine.counters().protocol_errors, 0, "node {node}");
    }
    format!("{told}, {became}")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut line = |text: String| writeln!(page, "{text}").expect("written to a string");
    for (name, _, meaning) in POINTS {
        line(format!("- **{name}**: {meaning}."));
    }
    for (death, meaning) in DEATHS {
        line(format!("\n## If {meaning}\n"));
        let names = WHATS.map(|(_, name)| name).join(" | ");
        line(format!("| | {names} |"));
        line(format!("|---|{}", "---|".repeat(WHATS.len())));
        for (point, (name, ..)) in POINTS.iter().enumerate() {
            let cells = WHATS.map(|(what, _)| {
                let mut all: Vec<String> = (0..16)
                    .map(|seed| outcome(point, death, what, seed))
                    .collect();
                all.sort();
                all.dedup();
                all.join(" *or* ")
            });
            line(format!("| {name} | {} |", cells.join(" | ")));
        }
    }
    page
}

#[test]
fn every_fault_has_the_stated_outcome() {
    let page = page();
    if std::env::var_os("CONDUIT_TEST_WRITE").is_some() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(PAGE).expect("docs/agent-faults.md");
    for (found, page) in found.lines().zip(page.lines()) {
        assert_eq!(found, page, "docs/agent-faults.md");
    }
    assert_eq!(found, page, "docs/agent-faults.md");
}
