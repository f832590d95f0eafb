//! Tests of agents on the loopback interface, with clients in several processes.
//!
//! The other processes run the test [`client`] of this program; a variable of the environment
//! selects the part that each of them plays. No wait exceeds [`LIMIT`]. Agents end when their
//! standard input ends, so they end with the test.

mod cluster;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::{Child, Cluster, PART, run_to_end};
use conduit_channels::{
    Channel, Client, Code, Descriptor, Options, Pending, Poll, Received, ReturnMode, Timeout,
};

/// The time limit of all tests.
const LIMIT: Duration = Duration::from_secs(120);
const LONG: Timeout = Timeout::After(LIMIT);

const MODES: [ReturnMode; 5] = [
    ReturnMode::None,
    ReturnMode::Immediately,
    ReturnMode::Buffered,
    ReturnMode::Deposited,
    ReturnMode::Received,
];

fn of_capacity(capacity: u32) -> Options {
    Options {
        capacity,
        ..Options::default()
    }
}

/// Plays the part of another process. The variable [`PART`] contains the part's name, followed by
/// the descriptors of channels.
#[test]
fn client() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let mut words = part.split(' ');
    let part = words.next().unwrap_or_default();
    let client = Client::open().unwrap();
    let channels: Vec<Channel> = words
        .map(|word| client.attach(word.parse::<Descriptor>().unwrap()))
        .collect();
    match (part, &*channels) {
        ("streams", [to]) => send_streams(to),
        ("lingers", [empty, full, ready]) => linger(&client, empty, full, ready),
        ("leaves", [to]) => {
            let sender = to.sender();
            for hints in 0..LEFT {
                sender
                    .send_with(b"left", hints, ReturnMode::None, LONG)
                    .unwrap();
            }
        }
        other => panic!("unknown part {other:?}"),
    }
}

/// The number of messages in a stream.
const STREAM: u64 = 60;

fn content(number: u64) -> Vec<u8> {
    let length = match number % 12 {
        0 => 0,
        5 => 3_000,
        11 => 300_000,
        few => few * 50,
    };
    (0..length).map(|at| (at * 7 + number) as u8).collect()
}

/// Sends a stream of messages, alternating between three handles and between modes.
fn send_streams(to: &Channel) {
    let senders = [to.sender(), to.sender(), to.sender()];
    let mut pending = Vec::new();
    for number in 0..STREAM {
        for (handle, sender) in (0u64..).zip(&senders) {
            let mode = MODES[((number + handle) % 5) as usize];
            let hints = handle << 32 | number;
            pending.push(sender.start(&content(number), hints, mode, LONG).unwrap());
        }
    }
    pending.into_iter().for_each(|sent| sent.wait().unwrap());
}

#[test]
fn messages_of_each_handle_arrive_once_and_in_order() {
    streams(&Cluster::start(3), [0, 1, 1, 2]);
}

#[test]
fn they_do_so_over_libfabric_too() {
    streams(&Cluster::over_libfabric(3), [0, 1, 1, 2]);
}

/// Four nodes in two groups: nodes without a link to the first node send through others.
#[test]
fn they_do_so_by_a_dragonfly_too() {
    let cluster = Cluster::start_with(4, |_, agent| {
        agent.env("DRAGON_HSTA_DRAGONFLY", "4");
    });
    streams(&cluster, [1, 2, 3, 3]);
}

/// Starts a process on each of these nodes that sends to a channel of the first node.
fn streams(cluster: &Cluster, nodes: [usize; 4]) {
    let client = cluster.client(0);
    let channel = client.create(&of_capacity(7)).unwrap();
    let part = format!("streams {}", channel.descriptor());
    let mut children: Vec<Child> = nodes.map(|node| cluster.spawn(node, &part)).into();
    let mut next: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for _ in 0..children.len() as u64 * 3 * STREAM {
        let received = channel.receive(LONG).unwrap();
        let (handle, number) = (received.hints >> 32, received.hints & 0xffff_ffff);
        let expected = next.entry((received.sender, handle)).or_default();
        assert_eq!(number, *expected, "of handle {handle}");
        assert!(received.bytes == content(number), "message {number}");
        *expected += 1;
    }
    children.iter_mut().for_each(Child::succeed);
    assert_eq!(next.len(), 4 * 3);
    assert!(next.values().all(|count| *count == STREAM));
    assert_eq!(channel.receive(Timeout::Once), Err(Code::CHANNEL_EMPTY));
}

#[test]
fn all_operations_work_on_another_nodes_channel() {
    let cluster = Cluster::start(2);
    let (near, far) = (cluster.client(0), cluster.client(1));
    let own = near.create(&of_capacity(2)).unwrap();
    let channel = far.attach(own.descriptor());
    let sender = channel.sender();
    let short = Timeout::After(Duration::from_millis(5));
    assert_eq!(channel.receive(Timeout::Once), Err(Code::CHANNEL_EMPTY));
    assert_eq!(channel.receive(short), Err(Code::TIMEOUT));
    assert_eq!(channel.poll(Poll::Empty, Timeout::Once), Ok(0));
    assert_eq!(channel.poll(Poll::Capacity, LONG), Ok(2));
    assert_eq!(
        channel.poll(Poll::In, Timeout::Once),
        Err(Code::CHANNEL_EMPTY)
    );
    sender
        .send(b"a", ReturnMode::Deposited, Timeout::Once)
        .unwrap();
    // `Received` completes when the message is taken.
    let receipt = sender
        .start(&[1; 5000], 0, ReturnMode::Received, LONG)
        .unwrap();
    assert_eq!(channel.poll(Poll::Full, LONG), Ok(2));
    let full = sender.send(b"b", ReturnMode::Deposited, Timeout::Once);
    assert_eq!(full, Err(Code::CHANNEL_FULL));
    assert_eq!(
        sender.send(b"b", ReturnMode::Deposited, short),
        Err(Code::TIMEOUT)
    );
    assert_eq!(channel.poll(Poll::Out, short), Err(Code::TIMEOUT));
    assert_eq!(own.receive(LONG).unwrap().bytes, b"a");
    assert_eq!(channel.poll(Poll::Size, LONG), Ok(1));
    assert!(!receipt.has_ended());
    assert_eq!(channel.receive(LONG).unwrap().bytes, [1; 5000]);
    receipt.wait().unwrap();
    // An incoming message completes a pending receive.
    let get = channel.start_receive(LONG).unwrap();
    let long = vec![9; 2_000_000];
    own.sender()
        .send_with(&long, 77, ReturnMode::Received, LONG)
        .unwrap();
    let received = get.wait().unwrap();
    assert_eq!((received.hints, received.bytes == long), (77, true));
    let once = sender.send(b"", ReturnMode::Buffered, Timeout::Once);
    assert_eq!(once, Err(Code::INVALID_ARGUMENT));
    assert_eq!(channel.destroy(), Err(Code::INVALID_ARGUMENT));
}

#[test]
fn what_is_no_channel_is_a_named_error() {
    let cluster = Cluster::start_with(2, |node, agent| {
        if node == 0 {
            agent.env("CONDUIT_HSTA_POOL_MB", "1");
        }
    });
    let client = cluster.client(1);
    let made = cluster.client(0).create(&Options::default());
    let near = cluster.client(0);
    let channel = near.create(&Options::default()).unwrap().descriptor();
    let cases = [
        (Descriptor { node: 2, ..channel }, Code::NOT_FOUND),
        (
            Descriptor {
                epoch: channel.epoch ^ 1,
                ..channel
            },
            Code::OBJECT_DESTROYED,
        ),
        (
            Descriptor {
                number: 99,
                ..channel
            },
            Code::OBJECT_DESTROYED,
        ),
        // The channel has ended with its client.
        (made.unwrap().descriptor(), Code::OBJECT_DESTROYED),
    ];
    for (descriptor, code) in cases {
        let nothing = client.attach(descriptor);
        assert_eq!(nothing.receive(LONG), Err(code), "{descriptor:?}");
        assert_eq!(nothing.poll(Poll::Size, LONG), Err(code));
        for mode in [ReturnMode::Deposited, ReturnMode::Received] {
            assert_eq!(nothing.sender().send(b"x", mode, LONG), Err(code));
        }
    }
    // One message exceeds the target's memory, and the other exceeds the sender's.
    let sender = client.attach(channel).sender();
    for bytes in [1 << 20, (32 << 20) + 1] {
        let sent = sender.send(&vec![1; bytes], ReturnMode::Deposited, LONG);
        assert_eq!(sent, Err(Code::OUT_OF_SPACE));
    }
    sender.send(b"x", ReturnMode::Deposited, LONG).unwrap();
}

#[test]
fn a_channel_that_is_destroyed_ends_all_that_waits_for_it() {
    let cluster = Cluster::start(2);
    let (near, far) = (cluster.client(0), cluster.client(1));
    let full = near.create(&of_capacity(1)).unwrap();
    let empty = near.create(&of_capacity(1)).unwrap();
    let (to_full, to_empty) = (
        far.attach(full.descriptor()),
        far.attach(empty.descriptor()),
    );
    let taken = to_full
        .sender()
        .start(b"1", 0, ReturnMode::Received, LONG)
        .unwrap();
    assert_eq!(to_full.poll(Poll::In, LONG), Ok(1));
    let blocked = [b"2".to_vec(), vec![3; 400_000]].map(|bytes| {
        to_full
            .sender()
            .start(&bytes, 0, ReturnMode::Deposited, LONG)
            .unwrap()
    });
    let out = to_full.start_poll(Poll::Out, LONG).unwrap();
    let get = to_empty.start_receive(LONG).unwrap();
    full.destroy().unwrap();
    empty.destroy().unwrap();
    let gone = Code::OBJECT_DESTROYED;
    assert_eq!(taken.wait(), Err(gone));
    blocked
        .into_iter()
        .for_each(|sent| assert_eq!(sent.wait(), Err(gone)));
    assert_eq!(out.wait(), Err(gone));
    assert_eq!(get.wait(), Err(gone));
}

/// Leaves requests of all kinds open, reports its own channel, and waits to be killed.
fn linger(client: &Client, empty: &Channel, full: &Channel, ready: &Channel) {
    let gets: Vec<Pending<Received>> = (0..3).map(|_| empty.start_receive(LONG).unwrap()).collect();
    let poll = empty.start_poll(Poll::In, LONG).unwrap();
    let sender = full.sender();
    let sends: Vec<Pending<()>> = (0u64..)
        .zip(MODES)
        .map(|(hints, mode)| sender.start(b"left", hints, mode, LONG).unwrap())
        .collect();
    // A long message is sent only once the target requests it.
    let long = full.sender();
    let long = long
        .start(&vec![8; 500_000], 9, ReturnMode::Deposited, LONG)
        .unwrap();
    let own = client.create(&of_capacity(1)).unwrap();
    let name = own.descriptor().to_bytes();
    ready
        .sender()
        .send(&name, ReturnMode::Deposited, LONG)
        .unwrap();
    let _ = own.receive(LONG);
    drop((gets, poll, sends, long));
}

#[test]
fn a_killed_client_blocks_nobody_and_leaves_nothing() {
    let cluster = Cluster::start(2);
    let near = cluster.client(0);
    for node in [1, 0] {
        let client = cluster.client(node);
        let empty = near.create(&of_capacity(10)).unwrap();
        let full = near.create(&of_capacity(1)).unwrap();
        let ready = near.create(&of_capacity(1)).unwrap();
        full.sender()
            .send(b"first", ReturnMode::Deposited, LONG)
            .unwrap();
        let names = [&empty, &full, &ready].map(|channel| channel.descriptor().to_string());
        let mut child = cluster.spawn(node, &format!("lingers {}", names.join(" ")));
        let name = ready.receive(LONG).unwrap().bytes;
        let its = client.attach(Descriptor::from_bytes(&name).unwrap());
        let ends = its.start_poll(Poll::Full, LONG).unwrap();
        child.kill();
        // The channel has ended with its client. The agent gave up the client's requests before
        // that.
        assert_eq!(ends.wait(), Err(Code::OBJECT_DESTROYED));
        let to_empty = client.attach(empty.descriptor()).sender();
        for hints in 0..3 {
            to_empty
                .send_with(b"x", hints, ReturnMode::Deposited, LONG)
                .unwrap();
        }
        for hints in 0..3 {
            assert_eq!(empty.receive(LONG).unwrap().hints, hints, "node {node}");
        }
        assert_eq!(full.receive(LONG).unwrap().bytes, b"first");
        // Sends that were reported as complete, or for which no report was requested, take place.
        // The others do not.
        let left: Vec<u64> = (0..3).map(|_| full.receive(LONG).unwrap().hints).collect();
        assert_eq!(left, [0, 1, 2], "node {node}");
        full.sender()
            .send(
                b"last",
                ReturnMode::Received,
                Timeout::After(Duration::ZERO),
            )
            .unwrap_err();
        assert_eq!(full.poll(Poll::Size, LONG), Ok(0));
    }
}

#[test]
fn a_killed_agent_is_an_error_and_its_successor_begins_anew() {
    let mut cluster = Cluster::start_with(2, |_, agent| {
        agent.env("CONDUIT_NA_DEAD_TIME", "2000");
    });
    let (near, far) = (cluster.client(0), cluster.client(1));
    let full = near.create(&of_capacity(1)).unwrap();
    let empty = near.create(&of_capacity(1)).unwrap();
    let kept = far.create(&of_capacity(1000)).unwrap();
    let (to_full, to_empty) = (
        far.attach(full.descriptor()),
        far.attach(empty.descriptor()),
    );
    let taken = to_full
        .sender()
        .start(b"1", 0, ReturnMode::Received, LONG)
        .unwrap();
    assert_eq!(to_full.poll(Poll::In, LONG), Ok(1));
    let blocked = to_full
        .sender()
        .start(&[2; 9000], 0, ReturnMode::Deposited, LONG)
        .unwrap();
    let poll = to_full.start_poll(Poll::Out, LONG).unwrap();
    let get = to_empty.start_receive(LONG).unwrap();
    let own = empty.start_receive(LONG).unwrap();
    // The node whose agent dies sends a stream, of which each message must arrive at most once.
    let stream = near.attach(kept.descriptor()).sender();
    let sent: Vec<_> = (0..300)
        .map(|hints| {
            stream
                .start(b"s", hints, ReturnMode::Deposited, LONG)
                .unwrap()
        })
        .collect();
    let first = kept.receive(LONG).unwrap();
    cluster.kill(0);
    for sent in sent {
        assert!(matches!(sent.wait(), Ok(()) | Err(Code::FAILURE)));
    }
    assert_eq!(own.wait().unwrap_err(), Code::FAILURE);
    assert_eq!(near.create(&Options::default()).unwrap_err(), Code::FAILURE);
    cluster.restart(0);
    assert_eq!(get.wait().unwrap_err(), Code::FAILURE);
    assert_eq!(poll.wait(), Err(Code::FAILURE));
    assert_eq!(taken.wait(), Err(Code::FAILURE));
    assert_eq!(blocked.wait(), Err(Code::FAILURE));
    // The same clients continue; the channels of the former agent are gone.
    assert_eq!(empty.receive(LONG), Err(Code::OBJECT_DESTROYED));
    let anew = near.create(&of_capacity(1)).unwrap();
    let sender = far.attach(anew.descriptor()).sender();
    let again = || sender.send_with(b"new", 5, ReturnMode::Deposited, LONG);
    // The end of the session with the former agent may be noticed only now.
    while again() == Err(Code::FAILURE) {}
    assert_eq!(anew.receive(LONG).unwrap().hints, 5);
    assert_eq!(to_empty.receive(LONG), Err(Code::OBJECT_DESTROYED));
    let again = near.attach(kept.descriptor()).sender();
    again
        .send_with(b"end", 1000, ReturnMode::Deposited, LONG)
        .unwrap();
    let mut last = first.hints;
    while last < 1000 {
        let hints = kept.receive(LONG).unwrap().hints;
        assert!(hints > last, "{hints} after {last}");
        last = hints;
    }
    assert_eq!(kept.receive(Timeout::Once), Err(Code::CHANNEL_EMPTY));
}

#[test]
fn a_full_gateway_is_an_error_and_drains() {
    let cluster = Cluster::start_with(2, |_, agent| {
        agent
            .env("CONDUIT_HSTA_POOL_MB", "1")
            .env("CONDUIT_HSTA_REQUESTS", "16");
    });
    let (near, far) = (cluster.client(0), cluster.client(1));
    let channel = near.create(&of_capacity(4)).unwrap();
    // Send more than the channel, the agents and the rings hold. Each client can use only its share
    // of the gateway.
    let fill = |client: Client| {
        let sender = client.attach(channel.descriptor()).sender();
        for hints in 0..5_000 {
            sender
                .send_with(&[7; 1000], hints, ReturnMode::None, LONG)
                .unwrap();
        }
    };
    std::thread::scope(|scope| {
        for client in [far, cluster.client(1)] {
            scope.spawn(|| fill(client));
        }
        let other = cluster.client(1);
        let full = other.attach(channel.descriptor());
        let sender = full.sender();
        let soon = Timeout::After(Duration::from_millis(50));
        let probe = || sender.send(b"probe", ReturnMode::Deposited, soon);
        let end = Instant::now() + LIMIT / 2;
        while probe() != Err(Code::GATEWAY_FULL) {
            if Instant::now() > end {
                // Kill the other clients, which would wait forever.
                channel.destroy().unwrap();
                panic!("the gateway never fills up");
            }
        }
        // Receives are still accepted, and are served in order.
        let mut next: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..20 {
            let received = full.receive(LONG).unwrap();
            let expected = next.entry(received.sender).or_default();
            assert!(received.hints == *expected || received.bytes == b"probe");
            *expected += 1;
        }
        // Failing the pending requests makes room.
        channel.destroy().unwrap();
        let anew = near.create(&of_capacity(1)).unwrap();
        let sender = other.attach(anew.descriptor()).sender();
        let send = || sender.send(b"x", ReturnMode::Deposited, LONG);
        while let Err(code) = send() {
            assert_eq!(code, Code::GATEWAY_FULL);
        }
        assert_eq!(anew.receive(LONG).unwrap().bytes, b"x");
    });
}

/// The number of messages, which exceeds what a client's share of the gateway and its rings hold.
const LEFT: u64 = 3_000;

#[test]
fn what_a_client_sent_without_waiting_outlives_it() {
    let cluster = Cluster::start(2);
    let channel = cluster.client(0).create(&Options {
        outlives: true,
        ..of_capacity(LEFT as u32)
    });
    let channel = cluster.client(0).attach(channel.unwrap().descriptor());
    let mut child = cluster.spawn(1, &format!("leaves {}", channel.descriptor()));
    child.succeed();
    for hints in 0..LEFT {
        assert_eq!(channel.receive(LONG).unwrap().hints, hints);
    }
}

#[test]
fn an_agent_that_is_told_to_end_answers_first() {
    let mut cluster = Cluster::start(2);
    let (near, far) = (cluster.client(0), cluster.client(1));
    let channel = near.create(&of_capacity(1)).unwrap();
    let get = far
        .attach(channel.descriptor())
        .start_receive(LONG)
        .unwrap();
    let own = channel.start_receive(LONG).unwrap();
    assert_eq!(
        far.attach(channel.descriptor()).poll(Poll::Size, LONG),
        Ok(0)
    );
    assert!(cluster.terminate(0).success());
    assert_eq!(own.wait().unwrap_err(), Code::FAILURE);
    assert_eq!(get.wait().unwrap_err(), Code::FAILURE);
}

#[test]
fn a_wrong_command_line_is_explained() {
    let said = |args: &[&str]| {
        let mut agent = cluster::agent();
        agent.args(args).env_remove("CONDUIT_NA_UNAUTHENTICATED");
        let (code, text) = run_to_end(agent);
        assert_ne!(code, 0, "{args:?}");
        text
    };
    assert!(said(&["--nodes", "127.0.0.1:1"]).contains("--native"));
    assert!(said(&["--native", "--nodes", "host:1", "--node", "0"]).contains("host:1"));
    let text = said(&["--native", "--nodes", "127.0.0.1:1", "--node", "1"]);
    assert!(text.contains("--nodes has 1 nodes"), "{text}");
    let text = said(&["--native", "--nodes", "127.0.0.1:1", "--node", "0"]);
    assert!(text.contains("CONDUIT_SECRET_FILE"), "{text}");
    assert!(said(&["--native", "--name", "a b"]).contains("a b"));
}

#[test]
fn ranks_of_a_job_have_an_agent_that_ends_with_it() {
    let launch = conduit_run::Launch::new(2, std::env::current_exe().unwrap())
        .args(["--exact", "native::rank", "--nocapture"])
        .env(PART, "rank")
        .agent(Some(cluster::PROGRAM))
        .timeout(Some(LIMIT))
        .output(|_, _, _| ());
    assert_eq!(launch.run().unwrap().exit_code, 0);
    let missing = conduit_run::Launch::new(1, "true").agent(Some("/no/such/agent"));
    let error = missing.run().unwrap_err();
    assert!(error.to_string().contains("/no/such/agent"), "{error}");
    let other = conduit_run::Launch::new(1, "true").agent(Some("true"));
    let error = other.run().unwrap_err().to_string();
    assert!(error.contains("instead of CONDUIT_AGENT"), "{error}");
}

/// A rank of [the job](ranks_of_a_job_have_an_agent_that_ends_with_it).
#[test]
fn rank() {
    if std::env::var(PART).as_deref() != Ok("rank") {
        return;
    }
    let client = Client::open().unwrap();
    let channel = client.create(&Options::default()).unwrap();
    channel
        .sender()
        .send(b"x", ReturnMode::Deposited, LONG)
        .unwrap();
    assert_eq!(channel.receive(LONG).unwrap().bytes, b"x");
}

#[test]
fn python_programs_use_channels() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        // The line is visible with --nocapture, and in the output of a failed run.
        println!("skipped: there is no python3");
        return;
    }
    let cluster = Cluster::start(2);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../native/python");
    let mut command = Command::new("python3");
    let library = xtask::library("pgas-conduit-channels", xtask::Library::Shared).unwrap();
    command
        .arg(format!("{folder}/test_channels.py"))
        .arg(cluster.name(1))
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CONDUIT_CHANNELS_LIBRARY", library)
        .env("CONDUIT_AGENT", cluster.name(0));
    let (code, text) = run_to_end(command);
    assert_eq!(code, 0, "{text}");
}
