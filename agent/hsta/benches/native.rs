//! Measures clients of two agents that communicate over UDP on the loopback interface. Run it with
//! `cargo bench -p pgas-conduit-hsta`. It measures:
//!
//! - The time of round trips of 8 bytes between two processes through the two agents. They
//!   alternate with round trips through two relays over TCP, which show the minimum cost of any
//!   agents over TCP.
//! - The throughput of messages of 1 MiB. One process sends them to a channel of the other node
//!   without waiting, and another process receives them.
//! - The rate of messages of 8 bytes that 1 to 64 processes of one node send to channels of the
//!   other node, and the number of messages that share a buffer. In one run each process waits
//!   until its message is deposited before it sends the next one; in another run no process waits.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use conduit_channels::{Channel, Client, Code, Descriptor, Options, Poll, ReturnMode, Timeout};

const LONG: Timeout = Timeout::After(Duration::from_secs(300));
/// Round trips per round, rounds, and messages per run.
const TRIPS: u32 = 2_000;
const ROUNDS: usize = 5;
const MESSAGES: u32 = 32_768;
/// The number of messages of 1 MiB per round.
const LARGE: u32 = 500;
/// The variable that selects the part that a child process plays.
const PART: &str = "CONDUIT_TEST_PART";

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn part(words: &str, agent: &str) -> Process {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(PART, words).env("CONDUIT_AGENT", agent);
    Process(command.spawn().expect("this program starts"))
}

fn agent(node: u32) -> Process {
    let process = std::process::id();
    let (high, low) = (1 + process / 250 % 250, process % 250);
    let nodes = [1, 2].map(|k| format!("127.{high}.{low}.{k}:7575"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_conduit-hsta"));
    command
        .args(["--native", "--until-eof", "--nodes", &nodes.join(",")])
        .args(["--node", &node.to_string(), "--name", &name(node)])
        .env("CONDUIT_NA_UNAUTHENTICATED", "1")
        .env("DRAGON_HSTA_DEBUG", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Process(command.spawn().expect("the agent starts"));
    let output = child.0.stdout.take().expect("piped");
    let mut line = String::new();
    BufReader::new(output)
        .read_line(&mut line)
        .expect("the agent reports that it is ready");
    child
}

fn name(node: u32) -> String {
    let process = std::process::id();
    let process = env::var("CONDUIT_TEST_OF").unwrap_or(process.to_string());
    format!("bench-{process}-{node}")
}

/// Ends an agent. Returns the number of buffers that it has sent, and the number of entries in
/// them.
fn end(mut agent: Process) -> (u64, u64) {
    drop(agent.0.stdin.take());
    let mut text = String::new();
    let mut errors = agent.0.stderr.take().expect("piped");
    errors.read_to_string(&mut text).expect("text");
    let number = |word: &str| {
        let (_, rest) = text.split_once(word).expect("counters at the end");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    (number("buffers: "), number("entries: "))
}

fn main() {
    if let Ok(words) = env::var(PART) {
        let words: Vec<&str> = words.split(' ').collect();
        return run_part(&words);
    }
    latency();
    bandwidth();
    for mode in ["deposited", "none"] {
        rate(mode);
    }
}

fn run_part(words: &[&str]) {
    let channels = |client: &Client| -> Vec<Channel> {
        let of = words
            .iter()
            .filter_map(|word| word.parse::<Descriptor>().ok());
        of.map(|descriptor| client.attach(descriptor)).collect()
    };
    match *words {
        ["echo", ..] => {
            let client = Client::open().expect("an agent");
            let own = client.create(&Options::default()).expect("a channel");
            let back = channels(&client)[0].sender();
            back.send(&own.descriptor().to_bytes(), ReturnMode::Deposited, LONG)
                .expect("sent");
            while let Ok(message) = own.receive(LONG) {
                back.send(&message.bytes, ReturnMode::Immediately, LONG)
                    .expect("sent");
            }
        }
        ["send", mode, count, ..] => {
            let mode = match mode {
                "none" => ReturnMode::None,
                _ => ReturnMode::Deposited,
            };
            let client = Client::open().expect("an agent");
            let [go, ready, to] = &channels(&client)[..] else {
                panic!("three channels");
            };
            ready
                .sender()
                .send(b"", ReturnMode::Deposited, LONG)
                .expect("sent");
            go.receive(LONG).expect("go");
            let sender = to.sender();
            for _ in 0..count.parse().expect("a number") {
                sender.send(&[7; 8], mode, LONG).expect("sent");
            }
        }
        ["drain", ..] => {
            let client = Client::open().expect("an agent");
            let own = client.create(&Options::default()).expect("a channel");
            let back = channels(&client)[0].sender();
            loop {
                back.send(&own.descriptor().to_bytes(), ReturnMode::Deposited, LONG)
                    .expect("sent");
                for _ in 0..LARGE {
                    own.receive(LONG).expect("a message");
                }
            }
        }
        ["relay", from, to] => relay(from, to),
        _ => panic!("unknown part {words:?}"),
    }
}

/// Forwards data in both directions.
fn relay(from: &str, to: &str) {
    let listener = TcpListener::bind(from).expect("the address is free");
    let (mut left, _) = listener.accept().expect("a connection");
    let mut right = connect(to);
    left.set_nodelay(true).expect("TCP");
    let mut bytes = [0; 8];
    while left.read_exact(&mut bytes).is_ok() {
        right.write_all(&bytes).expect("TCP");
        right.read_exact(&mut bytes).expect("TCP");
        left.write_all(&bytes).expect("TCP");
    }
}

fn connect(to: &str) -> TcpStream {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => {
                stream.set_nodelay(true).expect("TCP");
                return stream;
            }
            Err(error) if Instant::now() > end => panic!("{to}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn per_trip(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS)
}

fn latency() {
    let agents = [agent(0), agent(1)];
    let client = Client::to(&name(0)).expect("an agent");
    let own = client.create(&Options::default()).expect("a channel");
    let _echo = part(&format!("echo {}", own.descriptor()), &name(1));
    let far = own.receive(LONG).expect("its channel").bytes;
    let far = client.attach(Descriptor::from_bytes(&far).expect("a descriptor"));
    let sender = far.sender();

    let process = std::process::id();
    let (high, low) = (1 + process / 250 % 250, process % 250);
    let places = [11, 12, 13].map(|k| format!("127.{high}.{low}.{k}:7575"));
    let last = TcpListener::bind(&places[2]).expect("the address is free");
    let _relays = [0, 1].map(|k| part(&format!("relay {} {}", places[k], places[k + 1]), ""));
    let mut first = connect(&places[0]);
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = last.accept().expect("a relay");
        stream.set_nodelay(true).expect("TCP");
        let mut bytes = [0; 8];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).expect("TCP");
        }
    });

    println!("round trip of 8 bytes, microseconds: agents over UDP | relays over TCP");
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..TRIPS {
            sender
                .send(&[1; 8], ReturnMode::Immediately, LONG)
                .expect("sent");
            own.receive(LONG).expect("echo");
        }
        let agents = per_trip(start);
        let start = Instant::now();
        let mut bytes = [1; 8];
        for _ in 0..TRIPS {
            first.write_all(&bytes).expect("TCP");
            first.read_exact(&mut bytes).expect("TCP");
        }
        println!("{agents:8.1} | {:8.1}", per_trip(start));
    }
    drop(first);
    echo.join().expect("the echo ends");
    drop(agents);
}

fn bandwidth() {
    let _agents = [agent(0), agent(1)];
    let client = Client::to(&name(0)).expect("an agent");
    let own = client.create(&Options::default()).expect("a channel");
    let _drain = part(&format!("drain {}", own.descriptor()), &name(1));
    let ready = || own.receive(LONG).expect("its channel").bytes;
    let far = Descriptor::from_bytes(&ready()).expect("a descriptor");
    let sender = client.attach(far).sender();
    let data = vec![1; 1 << 20];
    println!("messages of 1 MiB, MB/s");
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..LARGE {
            sender
                .send(&data, ReturnMode::Immediately, LONG)
                .expect("sent");
        }
        ready();
        let bytes = f64::from(LARGE) * data.len() as f64;
        println!("{:8.0}", bytes / start.elapsed().as_secs_f64() / 1e6);
    }
}

fn rate(mode: &str) {
    println!("processes: messages a second, entries in a buffer ({mode})");
    for processes in [1, 2, 4, 8, 16, 32, 64] {
        let agents = [agent(0), agent(1)];
        let (near, far) = [0, 1]
            .map(|node| Client::to(&name(node)).expect("an agent"))
            .into();
        let each = MESSAGES / processes / if mode == "none" { 1 } else { 4 };
        let options = Options {
            capacity: each,
            ..Options::default()
        };
        let controls = [(); 2].map(|()| near.create(&Options::default()).expect("a channel"));
        let channels: Vec<Channel> = (0..processes)
            .map(|_| far.create(&options).expect("a channel"))
            .collect();
        let [go, ready] = &controls;
        let senders: Vec<Process> = channels
            .iter()
            .map(|to| {
                let names = [go, ready, to].map(|channel| channel.descriptor().to_string());
                part(&format!("send {mode} {each} {}", names.join(" ")), &name(0))
            })
            .collect();
        for _ in &senders {
            ready.receive(LONG).expect("a sender");
        }
        let start = Instant::now();
        for _ in &senders {
            // The first processes to send may fill the gateway.
            let go = || go.sender().send(b"", ReturnMode::Deposited, LONG);
            while go() == Err(Code::GATEWAY_FULL) {}
        }
        for channel in &channels {
            channel.poll(Poll::Full, LONG).expect("all messages arrive");
        }
        let took = start.elapsed().as_secs_f64();
        drop((senders, near, far));
        let [sending, receiving] = agents;
        let (buffers, entries) = end(sending);
        end(receiving);
        let together = entries as f64 / buffers.max(1) as f64;
        let sent = f64::from(each * processes);
        println!("{processes:3}: {:9.0} {together:6.1}", sent / took);
    }
}
