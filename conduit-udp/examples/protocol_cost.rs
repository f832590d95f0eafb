//! What the protocol itself costs, without sockets and seal: two endpoints in one process hand each
//! other their packets.
//!
//! `protocol_cost tiny|bundle|chunk COUNT`: round trips of a tiny fragment of 32 bytes; tiny
//! fragments 32 at a time; chunks of 1400 bytes. Instructions per fragment are the difference of
//! two runs:
//!
//! ```sh
//! cargo build --release -p conduit-udp --example protocol_cost
//! for n in 10000 20000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/protocol_cost tiny $n
//! done
//! ```

use conduit_core::ni::Rank;
use conduit_udp::protocol::{
    Config, Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Received, Seal,
};

/// Seals nothing.
struct Null;

impl Seal for Null {
    fn seal(&mut self, _peer: Rank, _number: u64, _packet: &mut [u8], _header: usize) {}

    fn open(&mut self, _peer: Rank, _number: u64, _packet: &mut [u8], _header: usize) -> bool {
        true
    }
}

/// Counts what comes; the bytes are of a buffer each way, as a put's are.
struct Counting {
    fragments: u64,
    source: Vec<u8>,
    target: Vec<u8>,
    sent: u64,
}

impl FragmentHandler for Counting {
    fn read(&mut self, _peer: Rank, _token: u64, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.source[offset..offset + into.len()]);
    }

    fn sent(&mut self, _peer: Rank, _token: u64) {
        self.sent += 1;
    }

    fn fragment(&mut self, _peer: Rank, _header: &[u8], _payload: &[u8]) -> bool {
        self.fragments += 1;
        true
    }

    fn begin(&mut self, _peer: Rank, _header: &[u8], _length: usize) -> Option<u64> {
        Some(0)
    }

    fn place(&mut self, _place: u64, offset: usize, bytes: &[u8]) {
        self.target[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn end(&mut self, _place: u64) {
        self.fragments += 1;
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        eprintln!("rank {peer} {failure}");
        std::process::exit(1);
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

struct Pair {
    now: Nanos,
    endpoints: [Endpoint; 2],
    handlers: [Counting; 2],
    buffer: Vec<u8>,
    packets: u64,
}

impl Pair {
    fn new(length: usize) -> Self {
        let endpoint = |rank| {
            Endpoint::new(Config {
                rank,
                size: 2,
                ..Config::default()
            })
        };
        let handler = || Counting {
            fragments: 0,
            source: vec![1; length],
            target: vec![0; length],
            sent: 0,
        };
        Self {
            now: 1,
            endpoints: [endpoint(0), endpoint(1)],
            handlers: [handler(), handler()],
            buffer: vec![0; 1 << 16],
            packets: 0,
        }
    }

    /// All that `from` has to send reaches the other.
    fn carry(&mut self, from: usize) {
        self.now += 5_000;
        let to = 1 - from;
        while let Some(transmit) = self.endpoints[from].transmit(
            self.now,
            &mut self.buffer,
            &mut Null,
            &mut self.handlers[from],
        ) {
            for packet in self.buffer[..transmit.length].chunks_mut(transmit.segment) {
                let handler = &mut self.handlers[to];
                let received = self.endpoints[to].receive(self.now, packet, &mut Null, handler);
                assert_eq!(received, Received::Taken(from as Rank));
                self.packets += 1;
            }
        }
        if self.endpoints[from]
            .timeout()
            .is_some_and(|at| at <= self.now)
        {
            self.endpoints[from].on_timeout(self.now, &mut self.handlers[from]);
        }
    }

    fn send(&mut self, from: usize, payload: Payload<'_>) -> bool {
        let fragment = Fragment {
            header: &[7; 24],
            payload,
        };
        self.endpoints[from]
            .send(self.now, 1 - from as Rank, &fragment)
            .is_ok()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let count: u64 = arguments
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(10_000);
    let length = 1 << 20;
    let mut pair = Pair::new(length);
    let begin = std::time::Instant::now();
    match &*what {
        "tiny" => {
            for _ in 0..count {
                for from in [0, 1] {
                    assert!(pair.send(from, Payload::Copied(&[&[1; 8]])));
                    pair.carry(from);
                }
            }
        }
        "bundle" => {
            for _ in 0..count / 32 {
                for from in [0, 1] {
                    for _ in 0..32 {
                        assert!(pair.send(from, Payload::Copied(&[&[1; 8]])));
                    }
                    pair.carry(from);
                }
            }
        }
        "chunk" => {
            let mut sent = 0;
            while pair.packets < count {
                let payload = Payload::Read {
                    token: sent,
                    length: length as u32,
                };
                sent += u64::from(pair.handlers[0].sent + 2 > sent && pair.send(0, payload));
                pair.carry(0);
                pair.carry(1);
            }
        }
        _ => {
            eprintln!("usage: protocol_cost tiny|bundle|chunk COUNT");
            std::process::exit(2);
        }
    }
    let elapsed = begin.elapsed();
    let fragments = pair.handlers[0].fragments + pair.handlers[1].fragments;
    println!(
        "{} packets, {fragments} fragments, {:.0} ns each packet; {:?}",
        pair.packets,
        elapsed.as_nanos() as f64 / pair.packets as f64,
        pair.endpoints[0].counters()
    );
}
