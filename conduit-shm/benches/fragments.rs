//! Measures the time that a fragment takes between two processes that share memory, and compares it
//! with that of a bare word that travels there and back. The two sides are threads on two
//! processors. Run on an idle system with `cargo bench -p pgas-conduit-shm --bench fragments`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use conduit_core::ni::Rank;
use conduit_portals::transport::Transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload};
use conduit_portals::transport::open::OpenTransport;
use conduit_shm::peers::{Local, LocalConfig};
use crossbeam_utils::CachePadded;
use rustix::thread::{CpuSet, sched_setaffinity};

const ROUNDS: u64 = 20_000;
const REPEATS: usize = 15;

/// Pins this thread to a processor of its own. Neither of the two threads continues before both are
/// pinned.
fn pin(cpu: usize, both: &Barrier) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("works");
    both.wait();
}

/// Counts the fragments that it takes, and records the peer that has joined.
#[derive(Default)]
struct Counter(u64, Option<Rank>);

impl FragmentHandler for Counter {
    fn read(&mut self, _peer: Rank, _token: u64, _offset: usize, into: &mut [u8]) {
        into.fill(1);
    }
    fn sent(&mut self, _peer: Rank, _token: u64) {}
    fn fragment(&mut self, _peer: Rank, _header: &[u8], payload: &[u8]) -> bool {
        std::hint::black_box(payload);
        self.0 += 1;
        true
    }
    fn begin(&mut self, _peer: Rank, _header: &[u8], _length: usize) -> Option<u64> {
        Some(0)
    }
    fn place(&mut self, _id: u64, _offset: usize, bytes: &[u8]) {
        std::hint::black_box(bytes);
    }
    fn end(&mut self, _id: u64) {
        self.0 += 1;
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        panic!("{peer}: {failure}");
    }
    fn joined(&mut self, peer: Rank) {
        self.1 = Some(peer);
    }
    fn room(&self) -> usize {
        usize::MAX
    }
}

fn start() -> Local {
    Local::start(&LocalConfig::default()).expect("starts")
}

/// Connects a client to a server. Returns the client's number for the server and the server's
/// number for the client.
fn meet(client: &mut Local, server: &mut Local) -> (Rank, Rank) {
    let number = client.connect(server.address()).expect("an address");
    let payload = Payload::Copied(&[]);
    let (mut here, mut there) = (Counter::default(), Counter::default());
    while there.0 == 0 {
        let header = &[];
        if here.0 == 0 && client.send(number, &Fragment { header, payload }).is_ok() {
            here.0 = 1;
        }
        client.receive(&mut here);
        server.receive(&mut there);
    }
    (number, there.1.expect("has joined"))
}

/// Returns half the time of a round trip in nanoseconds.
fn half_round_trip(rounds: u64, from: Instant) -> f64 {
    from.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
}

fn bare() -> f64 {
    let (there, back) = (
        CachePadded::new(AtomicU64::new(0)),
        CachePadded::new(AtomicU64::new(0)),
    );
    let both = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1, &both);
            for round in 1..=ROUNDS {
                while there.load(Ordering::Acquire) != round {
                    std::hint::spin_loop();
                }
                back.store(round, Ordering::Release);
            }
        });
        pin(0, &both);
        let from = Instant::now();
        for round in 1..=ROUNDS {
            there.store(round, Ordering::Release);
            while back.load(Ordering::Acquire) != round {
                std::hint::spin_loop();
            }
        }
        half_round_trip(ROUNDS, from)
    })
}

fn fragments(bytes: usize, others: usize) -> f64 {
    let (mut a, mut b) = (start(), start());
    let (to_b, to_a) = meet(&mut a, &mut b);
    // The other processes are additional peers that `b` watches.
    let mut idle = Vec::new();
    for _ in 0..others {
        let mut other = start();
        meet(&mut other, &mut b);
        idle.push(other);
    }
    let payload = vec![1u8; bytes];
    let send = |local: &mut Local, to: Rank| {
        let pieces = [&payload[..]];
        let payload = Payload::Copied(&pieces);
        let header = &[0; 16];
        local
            .send(to, &Fragment { header, payload })
            .expect("works");
    };
    let both = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1, &both);
            let mut counter = Counter::default();
            for round in 1..=ROUNDS {
                while counter.0 < round {
                    b.receive(&mut counter);
                }
                send(&mut b, to_a);
            }
        });
        pin(0, &both);
        let mut counter = Counter::default();
        let from = Instant::now();
        for round in 1..=ROUNDS {
            send(&mut a, to_b);
            while counter.0 < round {
                a.receive(&mut counter);
            }
        }
        half_round_trip(ROUNDS, from)
    })
}

/// Returns the time per fragment, in nanoseconds, of many fragments in one direction.
fn flood(bytes: usize, is_read: bool, count: u64) -> f64 {
    let (mut a, mut b) = (start(), start());
    let (to_b, _) = meet(&mut a, &mut b);
    let payload = vec![1u8; bytes];
    let (both, is_over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1, &both);
            let mut counter = Counter::default();
            while !is_over.load(Ordering::Relaxed) {
                b.receive(&mut counter);
            }
            assert_eq!(counter.0, count);
        });
        pin(0, &both);
        let mut counter = Counter::default();
        let pieces = [&payload[..]];
        let header = &[0; 16];
        let payload = match is_read {
            false => Payload::Copied(&pieces),
            true => Payload::Read {
                token: 0,
                length: bytes as u32,
            },
        };
        let from = Instant::now();
        let mut sent = 0;
        while sent < count {
            match a.send(to_b, &Fragment { header, payload }) {
                Ok(()) => sent += 1,
                Err(_) => {
                    a.transmit(&mut counter);
                    a.receive(&mut counter);
                }
            }
        }
        while !a.is_idle(to_b) {
            a.transmit(&mut counter);
            a.receive(&mut counter);
        }
        is_over.store(true, Ordering::Relaxed);
        from.elapsed().as_nanos() as f64 / count as f64
    })
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<_> = (0..REPEATS).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all[REPEATS / 2]
}

fn main() {
    println!("bare word: {:.0} ns half round trip", median(bare));
    for (bytes, others) in [(0, 0), (64, 0), (64, 7), (256, 0), (700, 0)] {
        let time = median(|| fragments(bytes, others));
        println!("{bytes} bytes, {others} more peers watched: {time:.0} ns half round trip");
    }
    for bytes in [0, 64, 700] {
        let time = median(|| flood(bytes, false, 100_000));
        println!("flood of {bytes} bytes: {time:.0} ns each");
    }
    for bytes in [4 << 10, 64 << 10, 1 << 20] {
        let time = median(|| flood(bytes, true, (1 << 27) / bytes as u64));
        println!(
            "flood of {bytes} bytes that are read: {:.2} GB/s",
            bytes as f64 / time
        );
    }
    println!("bare word: {:.0} ns half round trip", median(bare));
}
