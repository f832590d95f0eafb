//! The memory that a rank needs for each peer with which it no longer communicates, counted in the
//! allocator.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{
    Config, Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Received, Seal,
};
use conduit_udp_sim::memory::inside;

/// The offset of the sender's rank in a packet.
const SENDER: usize = 4;
/// The number of bytes that other tables hold for each peer: 20 for its address, 16 for its host's
/// name, 8 for its incarnation, 4 for its index in the portals, and the portals' state of an idle
/// peer, with a sixteenth to spare (`transport/link.rs` of `conduit-portals`).
const ELSEWHERE: f64 = 48.0 + 70.0 * 17.0 / 16.0;

struct Open;

impl Seal for Open {
    fn seal(&mut self, _: Rank, _: u64, _: &mut [u8], _: usize) {}
    fn open(&mut self, _: Rank, _: u64, _: &mut [u8], _: usize) -> bool {
        true
    }
}

/// A fragment handler that accepts every fragment.
#[derive(Default)]
struct Taker {
    fragments: u64,
    sent: u64,
    parked: u64,
}

impl FragmentHandler for Taker {
    fn read(&mut self, _: Rank, _: u64, _: usize, into: &mut [u8]) {
        into.fill(7);
    }
    fn sent(&mut self, _: Rank, _: u64) {
        self.sent += 1;
    }
    fn fragment(&mut self, _: Rank, _: &[u8], _: &[u8]) -> bool {
        self.fragments += 1;
        true
    }
    fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
        Some(0)
    }
    fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
    fn end(&mut self, _: u64) {
        self.fragments += 1;
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        panic!("{peer} {failure}");
    }
    fn link_idle(&mut self, _: Rank) {
        self.parked += 1;
    }
    fn room(&self) -> usize {
        usize::MAX
    }
}

fn fragment(data: bool) -> Fragment<'static> {
    Fragment {
        header: &[1, 2, 3],
        payload: if data {
            Payload::Read {
                token: 0,
                length: 4000,
            }
        } else {
            Payload::Copied(&[&[5; 20]])
        },
    }
}

struct Rank0 {
    endpoint: Endpoint,
    handler: Taker,
    held: i64,
    most: i64,
    now: Nanos,
    buffer: Vec<u8>,
}

impl Rank0 {
    fn new(size: u32) -> Self {
        let config = Config {
            size,
            // The peers are not probed, because only one of them exists at a time.
            dead_time: 1 << 55,
            ..Config::default()
        };
        let mut held = 0;
        let endpoint = inside(&mut held, || Endpoint::new(config));
        Self {
            endpoint,
            handler: Taker::default(),
            held,
            most: 0,
            now: 1_000_000,
            buffer: vec![0; 65_536],
        }
    }

    fn pass(&mut self, time: Nanos) {
        self.now += time;
        let Self {
            endpoint,
            handler,
            held,
            now,
            ..
        } = self;
        if endpoint.timeout().is_some_and(|at| at <= *now) {
            inside(held, || endpoint.on_timeout(*now, handler));
        }
    }

    /// Exchanges a tiny fragment and a larger one in each direction with a peer that claims to be
    /// `peer`.
    fn talk_to(&mut self, peer: Rank) {
        let mut other = Endpoint::new(Config {
            rank: 1,
            size: 2,
            dead_time: 1 << 55,
            ..Config::default()
        });
        let mut taker = Taker::default();
        let mut buffer = vec![0; 65_536];
        for data in [false, true] {
            let Self {
                endpoint,
                held,
                now,
                ..
            } = self;
            inside(held, || endpoint.send(*now, peer, &fragment(data)))
                .expect("the fragment is accepted");
            other
                .send(self.now, 0, &fragment(data))
                .expect("the fragment is accepted");
        }
        let before = self.handler.fragments;
        for _ in 0..20 {
            self.pass(100_000);
            let Self {
                endpoint,
                handler,
                held,
                now,
                buffer: own,
                ..
            } = self;
            while let Some(made) = inside(held, || endpoint.transmit(*now, own, &mut Open, handler))
            {
                assert_eq!(made.peer, peer);
                for packet in own[..made.length].chunks_mut(made.segment) {
                    let received = other.receive(*now, packet, &mut Open, &mut taker);
                    assert_eq!(received, Received::Taken(0));
                }
            }
            if other.timeout().is_some_and(|at| at <= *now) {
                other.on_timeout(*now, &mut taker);
            }
            while let Some(made) = other.transmit(*now, &mut buffer, &mut Open, &mut taker) {
                for packet in buffer[..made.length].chunks_mut(made.segment) {
                    packet[SENDER..SENDER + 4].copy_from_slice(&peer.to_le_bytes());
                    let received =
                        inside(held, || endpoint.receive(*now, packet, &mut Open, handler));
                    assert_eq!(received, Received::Taken(peer));
                }
            }
            self.most = self.most.max(self.held);
            let done = self.handler.fragments == before + 2 && taker.fragments == 2;
            if done
                && self.endpoint.is_flushed(peer)
                && other.is_flushed(0)
                && self.endpoint.is_quiet()
            {
                break;
            }
        }
        assert_eq!((self.handler.fragments, taker.fragments), (before + 2, 2));
    }
}

/// Communicates with all peers of a job. Returns the number of bytes that the rank then holds for
/// each peer, and the maximum number of bytes that it held in total.
fn cost(size: u32) -> (f64, i64) {
    let mut rank = Rank0::new(size);
    for peer in 1..size {
        rank.talk_to(peer);
    }
    for _ in 0..100 {
        rank.pass(20_000_000);
    }
    assert!(rank.handler.parked >= u64::from(size - 1));
    assert!((1..size).all(|peer| rank.endpoint.link(peer).is_some_and(|link| link.is_idle)));
    // Ensures that idle links can be reopened.
    let fragment = fragment(false);
    for peer in [1, size / 2, size - 1] {
        rank.endpoint
            .send(rank.now, peer, &fragment)
            .expect("the fragment is accepted");
        assert!(rank.endpoint.link(peer).is_some_and(|link| !link.is_idle));
    }
    (rank.held as f64 / f64::from(size - 1), rank.most)
}

fn check(size: u32) {
    let (each, most) = cost(size);
    println!("{size} ranks: {each:.1} bytes for each idle peer, {most} bytes at most");
    assert!(each + ELSEWHERE < 200.0, "{each} of {size}");
}

#[test]
fn an_idle_peer_costs_less_than_200_bytes() {
    [10, 10_000, 100_000].into_iter().for_each(check);
}

#[test]
#[ignore = "takes a minute"]
fn also_in_a_job_of_a_million() {
    check(1_000_000);
}
