//! Tests of a single node. The clients, the gateway and the agent are in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent::host::Host;
use agent::{AgentMachine, Code, Limits, Node};
use conduit_portals::transport::Transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload};
use conduit_portals::transport::open::OpenTransport;
use conduit_shm::peers::{Local, LocalConfig};

use crate::{Client, Gateway, GatewayConfig, Options, Poll, ReturnMode, Timeout};

/// The time limit of each test.
const LONG: Timeout = Timeout::After(Duration::from_secs(60));

fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{number}", std::process::id())
}

/// The agent of the only node, on a network without other members.
struct Agent {
    name: String,
    ends: Arc<AtomicBool>,
    /// While this is set, the agent is suspended.
    stops: Arc<AtomicBool>,
    /// Once this is set, the agent runs until all clients are gone.
    waits: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

impl Agent {
    fn start(pool: usize) -> Self {
        let mut config = GatewayConfig::new(name(), 7);
        config.pool = pool;
        let mut gateway = Gateway::open(&config).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let stops = Arc::new(AtomicBool::new(false));
        let waits = Arc::new(AtomicBool::new(false));
        let (ended, waiting) = (Arc::clone(&ends), Arc::clone(&waits));
        let stopped = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let mut network = Local::start(&LocalConfig::default()).unwrap();
            let node = Node {
                host: 7,
                address: network.address().to_vec(),
            };
            let mut machine = AgentMachine::new(0, vec![node], Limits::default(), 1);
            agent::driver::run(&mut machine, &mut gateway, &mut network, || {
                while stopped.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                ended.load(Ordering::Relaxed)
            });
            // The gateway soon notices when clients end.
            let end = Instant::now() + Duration::from_secs(60);
            let waits = waiting.load(Ordering::Relaxed);
            while waits && !gateway.sessions().is_empty() && Instant::now() < end {
                while gateway.next(true).is_some() {}
            }
            gateway.sessions().is_empty()
        });
        Self {
            name: config.name,
            ends,
            stops,
            waits,
            thread: Some(thread),
        }
    }

    fn client(&self) -> Client {
        Client::to(&self.name).unwrap()
    }

    /// Ends the agent. Returns whether the gateway had released everything that clients held.
    fn end(mut self) -> bool {
        self.waits.store(true, Ordering::Relaxed);
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn messages_of_all_lengths_and_modes_arrive_in_order() {
    let agent = Agent::start(4 << 20);
    let (ours, theirs) = (agent.client(), agent.client());
    let channel = ours.create(&Options::default()).unwrap();
    let sender = theirs.attach(channel.descriptor()).sender();
    let lengths = [0, 1, 100, 700, 760, 1024, 1025, 5000, 65_536, 300_000];
    let modes = [
        ReturnMode::None,
        ReturnMode::Immediately,
        ReturnMode::Buffered,
        ReturnMode::Deposited,
    ];
    for (hints, length) in (0..).zip(lengths) {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
        for mode in modes {
            sender.send_with(&bytes, hints, mode, LONG).unwrap();
        }
        for _ in modes {
            let received = channel.receive(LONG).unwrap();
            assert_eq!((received.hints, &received.bytes), (hints, &bytes));
        }
    }
}

#[test]
fn received_means_taken_and_destroyed_is_said() {
    let agent = Agent::start(1 << 20);
    let client = agent.client();
    let channel = client.create(&Options::default()).unwrap();
    let sender = channel.sender();
    let receipt = sender.start(b"a", 0, ReturnMode::Received, LONG).unwrap();
    assert_eq!(channel.poll(Poll::In, LONG), Ok(1));
    assert!(!receipt.has_ended());
    assert_eq!(channel.receive(LONG).unwrap().bytes, b"a");
    receipt.wait().unwrap();
    let lost = sender.start(b"b", 0, ReturnMode::Received, LONG).unwrap();
    assert_eq!(channel.poll(Poll::Size, LONG).map(|_| ()), Ok(()));
    assert_eq!(channel.poll(Poll::In, LONG), Ok(1));
    let empty = channel.start_poll(Poll::Empty, LONG).unwrap();
    channel.destroy().unwrap();
    assert_eq!(lost.wait(), Err(Code::OBJECT_DESTROYED));
    assert_eq!(empty.wait(), Err(Code::OBJECT_DESTROYED));
    assert_eq!(channel.receive(LONG), Err(Code::OBJECT_DESTROYED));
    assert_eq!(channel.destroy(), Err(Code::OBJECT_DESTROYED));
}

#[test]
fn times_and_states_are_kept() {
    let agent = Agent::start(1 << 20);
    let client = agent.client();
    let options = Options {
        capacity: 2,
        ..Options::default()
    };
    let channel = client.create(&options).unwrap();
    let short = Timeout::After(Duration::from_millis(5));
    assert_eq!(channel.receive(Timeout::Once), Err(Code::CHANNEL_EMPTY));
    assert_eq!(channel.receive(short), Err(Code::TIMEOUT));
    assert_eq!(
        channel.poll(Poll::In, Timeout::Once),
        Err(Code::CHANNEL_EMPTY)
    );
    assert_eq!(channel.poll(Poll::Out, Timeout::Once), Ok(2));
    assert_eq!(channel.poll(Poll::Empty, Timeout::Once), Ok(0));
    assert_eq!(channel.poll(Poll::Capacity, Timeout::Once), Ok(2));
    let sender = channel.sender();
    let once = sender.send(b"x", ReturnMode::Buffered, Timeout::Once);
    assert_eq!(once, Err(Code::INVALID_ARGUMENT));
    for _ in 0..2 {
        sender
            .send(b"x", ReturnMode::Deposited, Timeout::Once)
            .unwrap();
    }
    assert_eq!(channel.poll(Poll::Full, Timeout::Once), Ok(2));
    assert_eq!(channel.poll(Poll::Out, short), Err(Code::TIMEOUT));
    let once = sender.send(b"x", ReturnMode::Deposited, Timeout::Once);
    assert_eq!(once, Err(Code::CHANNEL_FULL));
    let timed = sender.send(b"x", ReturnMode::Deposited, short);
    assert_eq!(timed, Err(Code::TIMEOUT));
    assert_eq!(channel.poll(Poll::Size, Timeout::Once), Ok(2));
    let waits = sender.start(b"y", 0, ReturnMode::Deposited, LONG).unwrap();
    channel.receive(Timeout::Once).unwrap();
    waits.wait().unwrap();
    let unknown = crate::Descriptor {
        node: 8,
        ..channel.descriptor()
    };
    assert_eq!(client.attach(unknown).receive(LONG), Err(Code::NOT_FOUND));
    let before = crate::Descriptor {
        epoch: channel.descriptor().epoch ^ 1,
        ..channel.descriptor()
    };
    let before = client.attach(before);
    assert_eq!(before.receive(LONG), Err(Code::OBJECT_DESTROYED));
    let endless = Options {
        capacity: 1 << 20,
        block: 1 << 20,
        outlives: true,
    };
    assert_eq!(client.create(&endless).unwrap_err(), Code::OUT_OF_SPACE);
    let none = Options {
        capacity: 0,
        ..Options::default()
    };
    assert_eq!(client.create(&none).unwrap_err(), Code::INVALID_ARGUMENT);
}

#[test]
fn times_are_kept_while_the_agent_is_stopped() {
    let agent = Agent::start(1 << 20);
    let client = agent.client();
    let channel = client.create(&Options::default()).unwrap();
    let short = Timeout::After(Duration::from_millis(20));
    agent.stops.store(true, Ordering::Relaxed);
    assert_eq!(channel.receive(short), Err(Code::TIMEOUT));
    assert_eq!(channel.poll(Poll::In, short), Err(Code::TIMEOUT));
    agent.stops.store(false, Ordering::Relaxed);
    channel
        .sender()
        .send(b"a", ReturnMode::Deposited, LONG)
        .unwrap();
    assert_eq!(channel.receive(LONG).unwrap().bytes, b"a");
}

#[test]
fn a_message_longer_than_there_is_memory_for_is_refused() {
    let agent = Agent::start(1 << 20);
    let client = agent.client();
    let channel = client.create(&Options::default()).unwrap();
    let sender = channel.sender();
    let bytes = vec![5; (1 << 19) + 1];
    let sent = sender.send(&bytes, ReturnMode::Deposited, LONG);
    assert_eq!(sent, Err(Code::OUT_OF_SPACE));
    // Two messages fill the memory for messages in channels. A third waits for memory for as long
    // as its time limit allows.
    for at in 0..3 {
        let timeout = match at {
            2 => Timeout::After(Duration::from_millis(5)),
            _ => LONG,
        };
        let sent = sender.send(&bytes[1..], ReturnMode::Deposited, timeout);
        assert_eq!(sent.is_ok(), at < 2, "{at}: {sent:?}");
    }
    for _ in 0..2 {
        assert_eq!(channel.receive(LONG).unwrap().bytes, bytes[1..]);
    }
}

#[test]
fn threads_share_a_client() {
    let agent = Agent::start(1 << 20);
    let client = agent.client();
    let channels: Vec<_> = (0..4)
        .map(|_| client.create(&Options::default()).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for channel in &channels {
            scope.spawn(|| {
                for at in 0..200 {
                    let received = channel.receive(LONG).unwrap();
                    assert_eq!(received.bytes, [at; 900]);
                }
            });
            scope.spawn(|| {
                let sender = channel.sender();
                for at in 0..200 {
                    sender
                        .send(&[at; 900], ReturnMode::Deposited, LONG)
                        .unwrap();
                }
            });
        }
    });
}

#[test]
fn what_a_client_had_is_gone_with_it() {
    let agent = Agent::start(1 << 20);
    let stays = agent.client();
    let kept = stays.create(&Options::default()).unwrap();
    let goes = agent.client();
    let its = goes.create(&Options::default()).unwrap();
    let outlives = Options {
        outlives: true,
        ..Options::default()
    };
    let left = goes.create(&outlives).unwrap().descriptor();
    let waits = stays.attach(its.descriptor()).start_receive(LONG).unwrap();
    // The client's own receives are not served any more, so the message is for other clients.
    let get = goes.attach(kept.descriptor()).start_receive(LONG).unwrap();
    goes.attach(left)
        .sender()
        .send(b"last", ReturnMode::None, LONG)
        .unwrap();
    drop((its, get, goes));
    assert_eq!(waits.wait(), Err(Code::OBJECT_DESTROYED));
    kept.sender()
        .send(b"x", ReturnMode::Deposited, LONG)
        .unwrap();
    assert_eq!(kept.receive(LONG).unwrap().bytes, b"x");
    let left = stays.attach(left);
    assert_eq!(left.receive(LONG).unwrap().bytes, b"last");
    drop((kept, left, stays));
    assert!(agent.end());
}

#[test]
fn nobody_answers_where_there_is_no_agent() {
    let error = Client::to(&name()).unwrap_err();
    assert!(matches!(error, crate::OpenError::NoAgent { .. }), "{error}");
    let error = Client::to("no name").unwrap_err();
    assert!(matches!(error, crate::OpenError::Name { .. }), "{error}");
}

#[test]
fn the_end_of_an_agent_is_an_error_and_the_next_one_is_found() {
    let agent = Agent::start(1 << 20);
    let (name, client) = (agent.name.clone(), agent.client());
    let channel = client.create(&Options::default()).unwrap();
    let get = channel.start_receive(LONG).unwrap();
    drop(agent);
    assert_eq!(get.wait().unwrap_err(), Code::FAILURE);
    assert_eq!(channel.receive(LONG), Err(Code::FAILURE));
    let mut gateway = Gateway::open(&GatewayConfig::new(name, 7)).unwrap();
    let mut machine: AgentMachine<Gateway> = AgentMachine::new(0, vec![], Limits::default(), 1);
    let mut network = Local::start(&LocalConfig::default()).unwrap();
    let asked = std::thread::spawn(move || channel.receive(LONG));
    while !asked.is_finished() {
        machine.progress(agent::driver::now(), &mut gateway, &mut network);
    }
    // The node is not part of this job.
    assert_eq!(asked.join().unwrap(), Err(Code::NOT_FOUND));
}

/// A handler that ignores all input.
#[derive(Default)]
struct Deaf {
    bytes: Vec<u8>,
    has_failed: bool,
}

impl FragmentHandler for Deaf {
    fn read(&mut self, _: u32, _: u64, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[offset..][..into.len()]);
    }
    fn sent(&mut self, _: u32, _: u64) {}
    fn fragment(&mut self, _: u32, _: &[u8], _: &[u8]) -> bool {
        true
    }
    fn begin(&mut self, _: u32, _: &[u8], _: usize) -> Option<u64> {
        Some(0)
    }
    fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
    fn end(&mut self, _: u64) {}
    fn failed(&mut self, _: u32, _: Failure) {
        self.has_failed = true;
    }
    fn room(&self) -> usize {
        1 << 30
    }
}

/// A client that sends arbitrary requests, valid or not, and vanishes.
#[test]
fn a_client_gone_bad_harms_nobody() {
    let mut random = fastrand::Rng::with_seed(32);
    let config = GatewayConfig {
        pool: 1 << 16,
        ..GatewayConfig::new(name(), 7)
    };
    let mut gateway = Gateway::open(&config).unwrap();
    let mut network = Local::start(&LocalConfig::default()).unwrap();
    let node = Node {
        host: 7,
        address: network.address().to_vec(),
    };
    let mut machine = AgentMachine::new(0, vec![node], Limits::default(), 1);
    let mut time = 1_000_000;
    let end = Instant::now() + Duration::from_secs(60);
    for _ in 0..40 {
        let mut local = Local::start(&LocalConfig::default()).unwrap();
        let place = local.address_to_text(local.address()).unwrap();
        let place = place.split_once('.').unwrap().0.to_owned();
        let address = local.address_of_text(&format!("{place}.{}", config.name));
        let agent = local.connect(&address.unwrap()).unwrap();
        let mut deaf = Deaf {
            bytes: vec![3; 1 << 17],
            has_failed: false,
        };
        let mut said = 0;
        while said < 300 && !deaf.has_failed && Instant::now() < end {
            let request = crate::wire::Request {
                id: random.u32(..20),
                kind: match random.u8(..7) {
                    0 => crate::wire::FrameKind::Get,
                    1 => crate::wire::FrameKind::Poll {
                        mask: random.u16(..12),
                    },
                    2 => crate::wire::FrameKind::Create {
                        capacity: random.u64(..4),
                        block: random.u64(..3000),
                        outlives: random.bool(),
                    },
                    3 => crate::wire::FrameKind::Destroy,
                    4 => crate::wire::FrameKind::Abandon,
                    _ => crate::wire::FrameKind::Send {
                        mode: crate::wire::mode_of(random.u8(..5)).unwrap(),
                        handle: random.u64(..3),
                        hints: 0,
                    },
                },
                limit: match random.u8(..3) {
                    0 => agent::host::Limit::Once,
                    1 => agent::host::Limit::At(time + random.u64(..5_000_000)),
                    _ => agent::host::Limit::Never,
                },
                channel: crate::Descriptor {
                    node: 7,
                    epoch: gateway.sessions().epoch,
                    number: random.u64(..20),
                },
            };
            let mut header = request.encode();
            if random.u8(..50) == 0 {
                header[random.usize(..64)] = random.u8(..);
            }
            let length = match random.u8(..3) {
                0 => random.u32(..100),
                1 => random.u32(..5000),
                _ => random.u32(..1 << 17),
            };
            let payload = match random.bool() {
                true => Payload::Read { token: 0, length },
                false => Payload::Copied(&[]),
            };
            let sent = local.send(
                agent,
                &Fragment {
                    header: &header,
                    payload,
                },
            );
            said += usize::from(sent.is_ok());
            if random.u8(..4) > 0 {
                local.transmit(&mut deaf);
            }
            local.receive(&mut deaf);
            time += 10_000;
            machine.progress(time, &mut gateway, &mut network);
        }
        assert!(Instant::now() < end, "the agent hangs");
        drop(local);
        // Some messages that were reported to the client as sent may still wait for memory.
        let is_done = |gateway: &mut Gateway, machine: &AgentMachine<Gateway>| {
            let held = machine.held();
            gateway.sessions().is_empty() && held.requests <= held.bulk
        };
        while !is_done(&mut gateway, &machine) && Instant::now() < end {
            time += 1_000_000;
            machine.progress(time, &mut gateway, &mut network);
            let _ = gateway.prepare_sleep();
        }
        let sessions = gateway.sessions();
        assert!(
            sessions.is_empty(),
            "left: {sessions:?}, {:?}",
            machine.held()
        );
        let held = machine.held();
        assert!(held.requests <= held.bulk, "left: {held:?}");
    }
}
